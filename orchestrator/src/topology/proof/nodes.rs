//! NUMA nodes: who is in them, how large they are, how far apart.

use topolab_protocol::observed::NodeView;

use super::Proof;
use crate::topology::{
    CpuList,
    size::{MIB, Size},
};

/// How much less memory than asked a node may show when the kernel counts the
/// pages that are present in it: the hole below 1 MiB and what the firmware
/// keeps for its tables.
pub const TOLERANCE_PRESENT: u64 = 4 * MIB;
/// How much less than asked a node's `MemTotal` may show: what the kernel keeps
/// for itself (its image, page structures of 1/64, hash tables; large kernels
/// put nearly all of it into one node) beside a thirty-second of the node.
pub const TOLERANCE_TOTAL: u64 = 160 * MIB;

impl Proof<'_> {
    pub(super) fn nodes(&mut self) {
        let count = u32::try_from(self.topology.nodes.len()).expect("at most 128 nodes");
        let asked = CpuList::all(count);
        let seen: CpuList = self.observed.nodes.iter().map(|n| n.node).collect();
        self.texts("nodes", asked.to_string(), seen.to_string());
        for (index, asked) in (0..).zip(&self.topology.nodes) {
            let Some(view) = self.observed.nodes.iter().find(|n| n.node == index) else {
                continue;
            };
            self.texts(
                format!("node {index} cpus"),
                asked.cpus.to_string(),
                canonical(&view.cpus),
            );
            self.memory(index, asked.memory, view);
            self.distances(index as usize, view);
            self.hmat(index, view);
        }
    }

    /// Access class 0 holds what the best initiator gets: for a node with CPUs
    /// the node itself, else the one named (`drivers/acpi/numa/hmat.c`).
    fn hmat(&mut self, index: u32, view: &NodeView) {
        let Some(hmat) = &self.topology.hmat else {
            return;
        };
        let initiator = self.topology.nodes[index as usize].initiator;
        let path = hmat
            .paths
            .iter()
            .find(|path| path.target == index && Some(path.initiator) == initiator)
            .copied();
        if let Some(path) = path {
            let list: Vec<String> = view.initiators0.iter().map(u32::to_string).collect();
            self.texts(
                format!("node {index} initiators"),
                path.initiator.to_string(),
                list.join(" "),
            );
            for (name, unit, asked) in [
                ("read_latency", "ns", u64::from(path.latency)),
                ("write_latency", "ns", u64::from(path.latency)),
                ("read_bandwidth", "MiB/s", path.bandwidth / MIB),
                ("write_bandwidth", "MiB/s", path.bandwidth / MIB),
            ] {
                let field = format!("node {index} {}", name.replace('_', " "));
                let seen = view.access0.get(name);
                let seen = seen.map_or(String::new(), |value| format!("{value} {unit}"));
                self.texts(field, format!("{asked} {unit}"), seen);
            }
        }
        let asked: Vec<String> = hmat
            .caches
            .iter()
            .filter(|cache| cache.node == index)
            .map(|cache| format!("level {} {}", cache.level, Size(cache.size)))
            .collect();
        let seen: Vec<String> = view
            .memory_caches
            .iter()
            .map(|cache| format!("level {} {}", cache.level, Size(cache.size)))
            .collect();
        if !asked.is_empty() || !seen.is_empty() {
            let field = format!("node {index} memory-side caches");
            self.texts(field, asked.join(", "), seen.join(", "));
        }
    }

    fn memory(&mut self, index: u32, asked: u64, view: &NodeView) {
        let (seen, least) = match view.mem_present {
            Some(present) => (present, asked.saturating_sub(TOLERANCE_PRESENT)),
            None => (
                view.mem_total,
                asked.saturating_sub(asked / 32 + TOLERANCE_TOTAL),
            ),
        };
        let same = if asked == 0 {
            seen == 0
        } else {
            seen > 0 && seen >= least && seen <= asked
        };
        let shown = match seen {
            0 => "none".to_string(),
            _ if seen == asked => Size(asked).to_string(),
            _ if same && view.mem_present.is_some() => {
                format!("{} less {}K", Size(asked), (asked - seen).div_ceil(1024))
            }
            _ => format!("{}M", seen / MIB),
        };
        let asked = match asked {
            0 => "none".to_string(),
            _ => Size(asked).to_string(),
        };
        self.row(format!("node {index} memory"), asked, shown, same);
    }

    fn distances(&mut self, from: usize, view: &NodeView) {
        // The kernel writes one distance per online node, in their order.
        let asked: Vec<String> = self
            .observed
            .nodes
            .iter()
            .map(|n| n.node as usize)
            .filter(|to| *to < self.topology.nodes.len())
            .map(|to| self.topology.distance(from, to).to_string())
            .collect();
        let seen: Vec<String> = view.distances.iter().map(u32::to_string).collect();
        self.texts(
            format!("node {from} distances"),
            asked.join(" "),
            seen.join(" "),
        );
    }
}

fn canonical(list: &str) -> String {
    match list.parse::<CpuList>() {
        Ok(cpus) => cpus.to_string(),
        Err(_) => list.to_string(),
    }
}
