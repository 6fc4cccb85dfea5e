//! How fast memory is from where, as ACPI's HMAT holds it.

use std::collections::BTreeMap;

use topolab_protocol::settings::Scalar;

use super::{
    Checker,
    pairs::{Entry, Pairs, here},
};
use crate::{
    document::At,
    topology::{
        Hmat, MemoryCache, MemoryPath, Node,
        size::{self, MIB, Size},
        spec::{HmatSpec, Spec, Table},
    },
};

/// The table holds 16-bit multiples of a common unit, and 0xFFFF means that
/// there is no path (ACPI 6.5, section 5.2.28.4).
const MOST_UNITS: u64 = 0xfffe;
/// Levels QEMU knows (`HMAT_LB_LEVELS` in `include/sysemu/numa.h`, less memory itself).
const LEVELS: u32 = 3;

type Values<T> = BTreeMap<(usize, usize), Entry<T>>;

impl Checker<'_> {
    /// The table; `None` when there is none, or it makes no sense.
    pub(super) fn hmat(&mut self, spec: &Spec, nodes: Option<&[Node]>) -> Option<Hmat> {
        let written = spec.hmat.as_ref()?;
        let nodes = nodes?;
        let before = self.problems.list.len();
        let paths = self.paths(written, nodes);
        let caches = self.memory_caches(written, nodes);
        self.initiators(written, spec, nodes);
        (self.problems.list.len() == before).then_some(Hmat {
            paths: paths?,
            caches,
        })
    }

    fn paths(&mut self, written: &HmatSpec, nodes: &[Node]) -> Option<Vec<MemoryPath>> {
        let initiators: Vec<usize> = (0..nodes.len())
            .filter(|node| !nodes[*node].cpus.is_empty())
            .collect();
        let latency = self.table("latency", &written.latency, &initiators, nodes.len());
        let bandwidth = self.table("bandwidth", &written.bandwidth, &initiators, nodes.len());
        let (latency, bandwidth) = (latency?, bandwidth?);
        self.no_strangers("latency", &latency, nodes);
        self.no_strangers("bandwidth", &bandwidth, nodes);
        let wanted: Vec<(usize, usize)> = initiators
            .iter()
            .flat_map(|from| (0..nodes.len()).map(move |to| (*from, to)))
            .filter(|(_, to)| nodes[*to].memory > 0)
            .collect();
        self.all_there("latency", &here(&written.latency), &latency, &wanted);
        self.all_there("bandwidth", &here(&written.bandwidth), &bandwidth, &wanted);
        let latency = self.latencies(&latency);
        let bandwidth = self.bandwidths(&bandwidth);
        wanted
            .into_iter()
            .map(|pair| {
                Some(MemoryPath {
                    initiator: u32::try_from(pair.0).ok()?,
                    target: u32::try_from(pair.1).ok()?,
                    latency: *latency.get(&pair)?,
                    bandwidth: *bandwidth.get(&pair)?,
                })
            })
            .collect()
    }

    fn table<T: Clone>(
        &mut self,
        key: &str,
        written: &At<Table<T>>,
        from: &[usize],
        nodes: usize,
    ) -> Option<Values<T>> {
        self.pairs(&Pairs {
            path: &["hmat", key],
            what: key,
            written,
            from,
            nodes,
        })
    }

    /// Pairs by name may name nodes that have nothing to reach, or to reach with.
    fn no_strangers<T>(&mut self, key: &str, values: &Values<T>, nodes: &[Node]) {
        for ((from, _), (_, place)) in values {
            if nodes[*from].cpus.is_empty() {
                let message = format!("a {key} from node {from}, which has no CPUs");
                self.problem(place, message, "leave it out".to_string());
            }
        }
    }

    fn all_there<T>(
        &mut self,
        key: &str,
        place: &At<()>,
        values: &Values<T>,
        wanted: &[(usize, usize)],
    ) {
        let missing: Vec<String> = wanted
            .iter()
            .filter(|pair| !values.contains_key(pair))
            .map(|(from, to)| format!("{from}-{to}"))
            .collect();
        if !missing.is_empty() {
            let message = format!("the {key} of {} is missing", missing.join(", "));
            let help = "give it from each node with CPUs to each node with memory".to_string();
            self.problem(place, message, help);
        }
    }

    fn latencies(&mut self, values: &Values<u32>) -> BTreeMap<(usize, usize), u32> {
        for (value, place) in values.values() {
            if *value == 0 || u64::from(*value) > MOST_UNITS {
                let message = format!("a latency of {value} ns");
                self.problem(place, message, format!("write 1 to {MOST_UNITS}"));
            }
        }
        values.iter().map(|(pair, (v, _))| (*pair, *v)).collect()
    }

    fn bandwidths(&mut self, values: &Values<Scalar>) -> BTreeMap<(usize, usize), u64> {
        let mut sizes = BTreeMap::new();
        for (pair, (text, place)) in values {
            match size::parse(&text.to_string()) {
                Ok(bytes) if bytes > 0 && bytes.is_multiple_of(MIB) => {
                    sizes.insert(*pair, bytes);
                }
                Ok(bytes) => {
                    let message = format!("a bandwidth of {} per second", Size(bytes));
                    let help = "write whole MiB, such as `1G`".to_string();
                    self.problem(place, message, help);
                }
                Err(error) => {
                    let help = "write bytes per second, such as `20G`".to_string();
                    self.problem(place, error.to_string(), help);
                }
            }
        }
        // QEMU's unit is the largest power of two that divides every value
        // (parse_numa_hmat_lb() in hw/core/numa.c).
        let unit = sizes.values().map(|v| v.trailing_zeros()).min();
        for (pair, bytes) in &sizes {
            if bytes >> unit.unwrap_or(0) > MOST_UNITS {
                let message = format!(
                    "the bandwidths need a unit of {}, in which {} does not fit into 16 bits",
                    Size(1 << unit.unwrap_or(0)),
                    Size(*bytes)
                );
                let help = "round them to a larger power of two".to_string();
                let place = values[pair].1;
                self.problem(&place, message, help);
                break;
            }
        }
        sizes
    }

    fn memory_caches(&mut self, written: &HmatSpec, nodes: &[Node]) -> Vec<MemoryCache> {
        let mut caches: BTreeMap<(u32, u32), MemoryCache> = BTreeMap::new();
        for cache in &written.caches {
            let node = cache.node.value;
            match nodes.get(node as usize) {
                None => {
                    let last = nodes.len() - 1;
                    let message = format!("a cache of node {node}, but the last node is {last}");
                    self.problem(&cache.node, message, None);
                    continue;
                }
                Some(asked) if asked.memory == 0 => {
                    let message = format!("a cache of node {node}, which has no memory");
                    self.problem(&cache.node, message, None);
                }
                Some(_) => {}
            }
            let level = cache.level.unwrap_or(At::nowhere(1));
            if !(1..=LEVELS).contains(&level.value) {
                let message = format!("a memory-side cache of level {}", level.value);
                self.problem(&level, message, format!("write 1 to {LEVELS}"));
            }
            let line = cache.value.line.unwrap_or(At::nowhere(64));
            if !line.value.is_power_of_two() || line.value > 0x8000 {
                let message = format!("a cache with lines of {} bytes", line.value);
                self.problem(
                    &line,
                    message,
                    "write a power of two, such as 64".to_string(),
                );
            }
            let Some(bytes) = self.size(&cache.size) else {
                continue;
            };
            if bytes == 0 || !bytes.is_multiple_of(1024) {
                let message = format!("a cache of {}", Size(bytes));
                self.problem(
                    &cache.size,
                    message,
                    "write whole KiB, such as `64M`".to_string(),
                );
            }
            let made = MemoryCache {
                node,
                level: level.value,
                size: bytes,
                line: line.value,
                associativity: cache.associativity,
                policy: cache.policy,
            };
            if caches.insert((node, level.value), made).is_some() {
                let message = format!("node {node} has two caches of level {}", level.value);
                self.problem(cache, message, "give one of them another level".to_string());
            }
        }
        for ((node, level), cache) in &caches {
            let below = caches.get(&(*node, level - 1));
            let written = written.caches.iter().find(|written| {
                written.node.value == *node && written.level.map_or(1, |l| l.value) == *level
            });
            let Some(written) = written.filter(|_| *level > 1) else {
                continue;
            };
            match below {
                None => {
                    let message = format!(
                        "node {node} has a cache of level {level}, but none of level {}",
                        level - 1
                    );
                    self.problem(written, message, format!("write `level: {}`", level - 1));
                }
                Some(below) if below.size >= cache.size => {
                    let message = format!(
                        "the level {level} cache of node {node} has {}, the one below it {}",
                        Size(cache.size),
                        Size(below.size)
                    );
                    let help = "each level must be larger than the one below it".to_string();
                    self.problem(&written.size, message, help);
                }
                Some(_) => {}
            }
        }
        caches.into_values().collect()
    }

    /// A node without CPUs must say whose memory it is.
    fn initiators(&mut self, written: &At<HmatSpec>, spec: &Spec, nodes: &[Node]) {
        let Some(specs) = &spec.nodes else {
            let message = "`hmat` describes paths between nodes, but the file has no `nodes`";
            self.problem(
                written,
                message,
                "write `nodes`, or leave `hmat` out".to_string(),
            );
            return;
        };
        let near = nodes.iter().position(|n| !n.cpus.is_empty()).unwrap_or(0);
        for (index, (node, place)) in nodes.iter().zip(specs.iter()).enumerate() {
            if node.cpus.is_empty() && node.initiator.is_none() {
                let message = format!("node {index} has no CPUs and names no `initiator`");
                let help =
                    format!("write `initiator: {near}` for the node whose CPUs reach it best");
                self.problem(place, message, help);
            }
        }
    }
}
