//! NUMA nodes: their CPUs and their memory.

use super::{Checker, is_are, named};
use crate::{
    document::At,
    topology::{
        CpuLayout, CpuList, Node,
        size::{MIB, Size},
        spec::{NodeSpec, Oddity, Spec},
    },
};

/// QEMU's `MAX_NODES` (`include/sysemu/numa.h`).
const MAX_NODES: usize = 128;
/// Less than this and neither the kernel nor the agent gets far.
const SMALLEST_MACHINE: u64 = 128 * MIB;
/// Smaller nodes boot, but what the kernel sets aside per node leaves little.
const SMALLEST_NODE: u64 = 32 * MIB;

impl Checker<'_> {
    /// The nodes; `None` when they cannot be made sense of.
    pub(super) fn nodes(&mut self, spec: &Spec, cpus: Option<&CpuLayout>) -> Option<Vec<Node>> {
        let total = spec.memory.as_ref().and_then(|text| {
            let bytes = self.size(text)?;
            self.aligned(text, bytes);
            Some((text, bytes))
        });
        let Some(written) = &spec.nodes else {
            return self.one_node(spec, cpus, total.map(|(_, bytes)| bytes));
        };
        if written.is_empty() || written.len() > MAX_NODES {
            let message = match written.len() {
                0 => "`nodes` is empty".to_string(),
                n => format!("there are {n} nodes; QEMU takes at most {MAX_NODES}"),
            };
            let help = "leave it out for one node with all CPUs and memory";
            self.problem(written, message, help.to_string());
            return None;
        }
        let memory = self.node_memory(written);
        if let (Some((text, total)), Some(sizes)) = (total, &memory) {
            let sum: u64 = sizes.iter().sum();
            if sum != total {
                let each: Vec<String> = sizes.iter().map(|s| Size(*s).to_string()).collect();
                let message = format!(
                    "`memory` is {}, but the nodes have {} = {}",
                    Size(total),
                    each.join(" + "),
                    Size(sum)
                );
                let help = format!("write `memory: {}`, or leave it out", Size(sum));
                self.problem(text, message, help);
            }
        }
        let cpu_lists = self.node_cpus(written, cpus?);
        let (memory, cpu_lists) = (memory?, cpu_lists?);
        let mut nodes: Vec<Node> = cpu_lists
            .into_iter()
            .zip(memory)
            .map(|(cpus, memory)| Node {
                cpus,
                memory,
                initiator: None,
            })
            .collect();
        self.whole(spec, written, &nodes);
        self.reached_from(written, &mut nodes);
        Some(nodes)
    }

    fn one_node(
        &mut self,
        spec: &Spec,
        cpus: Option<&CpuLayout>,
        total: Option<u64>,
    ) -> Option<Vec<Node>> {
        match (&spec.memory, total) {
            (None, _) => {
                self.problem(
                    &spec.cpus,
                    "the file says neither `memory` nor `nodes`",
                    "write `memory: 1G` for one node, or `nodes: [{cpus: 0-3, memory: 1G}, …]`"
                        .to_string(),
                );
                None
            }
            (Some(text), Some(bytes)) => {
                self.enough(text, bytes);
                Some(vec![Node {
                    cpus: CpuList::all(cpus?.count()),
                    memory: bytes,
                    initiator: Some(0),
                }])
            }
            (Some(_), None) => None,
        }
    }

    fn node_memory(&mut self, written: &At<Vec<At<NodeSpec>>>) -> Option<Vec<u64>> {
        let mut sizes = Some(Vec::new());
        for (index, node) in written.iter().enumerate() {
            let bytes = match &node.memory {
                None => Some(0),
                Some(text) => {
                    let bytes = self.size(text);
                    if let Some(bytes) = bytes {
                        self.aligned(text, bytes);
                        if bytes > 0 && bytes < SMALLEST_NODE {
                            let message = format!(
                                "node {index} has {}; below {} a node is of little use to the kernel",
                                Size(bytes),
                                Size(SMALLEST_NODE)
                            );
                            let help = "leave `memory` out for a memoryless node".to_string();
                            self.problem(text, message, help);
                        }
                    }
                    bytes
                }
            };
            match (bytes, &mut sizes) {
                (Some(bytes), Some(sizes)) => sizes.push(bytes),
                _ => sizes = None,
            }
        }
        sizes
    }

    /// CPU lists as written, or spread evenly when no node has one.
    fn node_cpus(
        &mut self,
        written: &At<Vec<At<NodeSpec>>>,
        cpus: &CpuLayout,
    ) -> Option<Vec<CpuList>> {
        let count = cpus.count();
        if written.iter().all(|node| node.cpus.is_none()) {
            return self.spread(written, cpus);
        }
        let mut lists: Vec<CpuList> = Vec::new();
        let mut whole = true;
        for (index, node) in written.iter().enumerate() {
            let list = match &node.cpus {
                None => Some(CpuList::new()),
                Some(text) => self.cpu_list(text, count),
            };
            whole &= list.is_some();
            let list = list.unwrap_or_default();
            for (other, before) in lists.iter().enumerate() {
                let both = before.and(&list);
                if both.is_empty() {
                    continue;
                }
                let message = format!(
                    "{} {} in node {other} and in node {index}",
                    named(&both),
                    is_are(&both)
                );
                let rest = list.without(&both);
                let help = if rest.is_empty() {
                    "a CPU is in one node".to_string()
                } else {
                    format!("write `cpus: {rest}` here, or take them out of node {other}")
                };
                if let Some(text) = &node.cpus {
                    self.problem(text, message, help);
                }
                whole = false;
            }
            lists.push(list);
        }
        if !whole {
            return None;
        }
        let placed = lists.iter().fold(CpuList::new(), |all, list| all.or(list));
        let lost = CpuList::all(count).without(&placed);
        if lost.is_empty() {
            return Some(lists);
        }
        let last = lists.iter().rposition(|list| !list.is_empty());
        let help = last.map(|node| {
            format!(
                "for instance write `cpus: {}` in node {node}",
                lists[node].or(&lost)
            )
        });
        let message = format!(
            "the machine has {count} CPUs, but the nodes name {}: {} {} in none",
            placed.len(),
            named(&lost),
            is_are(&lost)
        );
        self.problem(written, message, help);
        None
    }

    fn spread(
        &mut self,
        written: &At<Vec<At<NodeSpec>>>,
        cpus: &CpuLayout,
    ) -> Option<Vec<CpuList>> {
        let (cores, nodes) = (cpus.core_count() as usize, written.len());
        if !cores.is_multiple_of(nodes) {
            let message = format!("{cores} cores cannot be spread evenly over {nodes} nodes");
            let help = "write `cpus:` in each node that has some".to_string();
            self.problem(written, message, help);
            return None;
        }
        let each = cores / nodes;
        let mut lists = vec![CpuList::new(); nodes];
        for vcpu in 0..cpus.count() {
            lists[cpus.core_and_thread(vcpu).0 as usize / each].insert(vcpu);
        }
        Some(lists)
    }

    /// Fills in who reaches each node best.
    fn reached_from(&mut self, written: &At<Vec<At<NodeSpec>>>, nodes: &mut [Node]) {
        for (index, place) in (0..).zip(written.iter()) {
            let own = !nodes[index as usize].cpus.is_empty();
            nodes[index as usize].initiator = own.then_some(index);
            let Some(initiator) = place.initiator else {
                continue;
            };
            let problem = match nodes.get(initiator.value as usize) {
                None => Some(format!(
                    "`initiator` is node {}, but the last node is {}",
                    initiator.value,
                    nodes.len() - 1
                )),
                Some(node) if node.cpus.is_empty() => Some(format!(
                    "`initiator` is node {}, which has no CPUs",
                    initiator.value
                )),
                Some(_) if own && initiator.value != index => Some(format!(
                    "`initiator` is node {}, but node {index} has CPUs of its own",
                    initiator.value
                )),
                Some(_) => None,
            };
            match problem {
                Some(message) => {
                    let help = "name a node with CPUs, and only in nodes without".to_string();
                    self.problem(&initiator, message, help);
                }
                None => nodes[index as usize].initiator = Some(initiator.value),
            }
        }
    }

    fn whole(&mut self, spec: &Spec, written: &At<Vec<At<NodeSpec>>>, nodes: &[Node]) {
        let meant = |oddity: Oddity| spec.deliberate.iter().any(|d| d.value == oddity);
        for (index, (node, place)) in nodes.iter().zip(written.iter()).enumerate() {
            if node.memory > 0 {
                continue;
            }
            if node.cpus.is_empty() {
                let message = format!("node {index} has neither CPUs nor memory");
                let help = "the kernel never brings such a node online; leave it out".to_string();
                self.problem(place, message, help);
            } else if node.cpus.contains(0) && !meant(Oddity::MemorylessBootNode) {
                let message = format!("node {index} holds the boot CPU 0, but no memory");
                let help = "let another node be the memoryless one, or add \
                            `deliberate: [memoryless-boot-node]`";
                self.problem(place, message, help.to_string());
            }
        }
        self.enough(written, nodes.iter().map(|n| n.memory).sum());
    }

    fn enough<T>(&mut self, place: &At<T>, bytes: u64) {
        if bytes < SMALLEST_MACHINE {
            let message = format!("the machine has {} of memory in all", Size(bytes));
            let help = format!("kernel and agent need at least {}", Size(SMALLEST_MACHINE));
            self.problem(place, message, help);
        }
    }

    /// QEMU and the kernel's memory blocks both want whole MiB.
    fn aligned(&mut self, text: &At<String>, bytes: u64) {
        if !bytes.is_multiple_of(MIB) {
            let message = format!("{} is not a whole number of MiB", text.value);
            let help = format!("write `{}`", Size(bytes.next_multiple_of(MIB)));
            self.problem(text, message, help);
        }
    }
}
