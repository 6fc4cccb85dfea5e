//! The same machine, small enough for a laptop.
//!
//! Nodes, sockets, SMT and distances stay; each smallest group of cores gets
//! fewer cores, and those stand for the ones that went: sets keep their share
//! of the machine, rankings their order. What cannot be kept is told.

mod choose;
mod write;

use super::{CpuLayout, CpuList, Level, Node, PinPolicy, Topology, size};
use crate::document::{Document, Problems};
use size::{MIB, Size};

/// A smaller machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scaled {
    /// The machine.
    pub topology: Topology,
    /// Its file.
    pub text: String,
    /// What could not be kept, and what became of it.
    pub notes: Vec<String>,
}

/// Why a machine cannot be made smaller.
#[derive(Debug, thiserror::Error)]
pub enum ScaleError {
    /// The file itself is wrong.
    #[error("{0}")]
    File(Problems),
    /// There is nothing to do.
    #[error("{name} has {vcpus} vCPUs already, which are no more than {asked}")]
    SmallEnough {
        /// Name of the machine.
        name: String,
        /// Its vCPUs.
        vcpus: u32,
        /// What was asked for.
        asked: u32,
    },
    /// Too few CPUs to keep the nodes and sockets.
    #[error("{asked} vCPUs are too few for {what}; at least {least} are needed")]
    TooFew {
        /// What was asked for.
        asked: u32,
        /// What needs more.
        what: String,
        /// The least that would do.
        least: u32,
    },
    /// Too little memory for each node to keep some.
    #[error("{} of memory are too little for {nodes} nodes; at least {} are needed", Size(*.asked), Size(*.least))]
    TooLittle {
        /// Bytes asked for.
        asked: u64,
        /// Nodes with memory.
        nodes: u64,
        /// The least that would do, bytes.
        least: u64,
    },
    /// The result is no sound machine, such as when the command line names CPUs
    /// that are gone.
    #[error(
        "the smaller machine does not hold together; name CPUs in `sets` so that they shrink along:\n{0}"
    )]
    Unsound(Problems),
}

/// The least memory a node keeps.
const LEAST_MEMORY: u64 = 128 * MIB;

/// Makes a machine with at most `cpus` vCPUs and exactly `memory` bytes.
///
/// # Errors
/// See [`ScaleError`].
pub fn scale(document: &Document, cpus: u32, memory: Option<u64>) -> Result<Scaled, ScaleError> {
    let topology = super::check::check(document).map_err(ScaleError::File)?;
    if topology.vcpus() <= cpus {
        return Err(ScaleError::SmallEnough {
            vcpus: topology.vcpus(),
            name: topology.name,
            asked: cpus,
        });
    }
    let mut notes = Vec::new();
    let layout = shrink(&topology, cpus, &mut notes)?;
    let chosen = choose::cores(&topology, layout, &mut notes);
    let mut small = topology.clone();
    small.name = format!("{}-scaled", topology.name);
    small.cpus = chosen.layout;
    small.nodes = chosen.nodes(&topology);
    if let Some(memory) = memory {
        share_memory(&mut small.nodes, &topology, memory, &mut notes)?;
    }
    small.sets = chosen.sets(&topology, &mut notes);
    small.preferred_cores = chosen.rankings(&topology, &mut notes);
    if let PinPolicy::Map(_) = topology.pin {
        small.pin = PinPolicy::Auto;
        notes.push("the pin map is left out".into());
    }
    let text = write::file(document, &topology, &small, &notes);
    let file = format!("{}.yaml", small.name);
    let checked = Topology::from_text(&file, &text).map_err(ScaleError::Unsound)?;
    Ok(Scaled {
        topology: checked,
        text,
        notes,
    })
}

/// Fewer cores per cluster; only when one each is still too much do levels go.
fn shrink(
    topology: &Topology,
    cpus: u32,
    notes: &mut Vec<String>,
) -> Result<CpuLayout, ScaleError> {
    let mut layout = topology.cpus;
    // Nodes that share a cluster need a core each in it.
    let cores_needed = |layout: &CpuLayout| -> u32 {
        let level = smallest(layout);
        let ends = topology.cpus.groups(level).into_iter().map(|group| {
            let nodes = topology.nodes.iter();
            nodes.filter(|n| !n.cpus.and(&group).is_empty()).count()
        });
        let kinds: u32 = if layout.lone_cores > 0 { 2 } else { 1 };
        u32::try_from(ends.max().unwrap_or(1))
            .unwrap_or(u32::MAX)
            .max(kinds)
    };
    let least = |layout: &CpuLayout| {
        let mut one = *layout;
        one.cores = cores_needed(layout);
        one.lone_cores = one.lone_cores.min(one.cores - 1);
        one.count()
    };
    if least(&layout) > cpus && layout.clusters > 1 {
        notes.push(format!("{} clusters per die became one", layout.clusters));
        layout.cores *= layout.clusters;
        layout.clusters = 1;
    }
    if least(&layout) > cpus && layout.dies > 1 {
        notes.push(format!("{} dies per socket became one", layout.dies));
        layout.cores *= layout.dies;
        layout.dies = 1;
    }
    if least(&layout) > cpus && layout.threads > 1 {
        notes.push(format!("{} threads per core became one", layout.threads));
        layout.threads = 1;
        layout.lone_cores = 0;
    }
    let least = least(&layout);
    if least > cpus {
        let with_cpus = topology.nodes.iter().filter(|n| !n.cpus.is_empty());
        return Err(ScaleError::TooFew {
            asked: cpus,
            what: format!(
                "{} sockets and {} nodes with CPUs",
                layout.sockets,
                with_cpus.count()
            ),
            least,
        });
    }
    if layout.lone_cores > 0 {
        // Each kind of core in its share, at least one of each.
        let (all, lone) = (layout.cores, layout.lone_cores);
        let vcpus = topology.vcpus();
        let efficient = (lone * cpus / vcpus).max(1);
        let performance = ((all - lone) * cpus / vcpus).max(1);
        layout.cores = performance + efficient;
        layout.lone_cores = efficient;
        while layout.count() > cpus && layout.lone_cores > 1 {
            layout.cores -= 1;
            layout.lone_cores -= 1;
        }
    } else {
        layout.cores = cpus / (layout.sockets * layout.dies * layout.clusters * layout.threads);
    }
    if layout.count() < cpus {
        notes.push(format!(
            "{} vCPUs, not {cpus}: the same number in every group",
            layout.count()
        ));
    }
    Ok(layout)
}

/// The smallest level above the core that the machine has.
fn smallest(layout: &CpuLayout) -> Level {
    if layout.clusters > 1 {
        Level::Cluster
    } else if layout.dies > 1 {
        Level::Die
    } else {
        Level::Socket
    }
}

/// Memory in proportion, in steps that leave the sum exact.
fn share_memory(
    nodes: &mut [Node],
    topology: &Topology,
    memory: u64,
    notes: &mut Vec<String>,
) -> Result<(), ScaleError> {
    let memory = memory / MIB * MIB;
    let with_memory: Vec<usize> = (0..nodes.len()).filter(|n| nodes[*n].memory > 0).collect();
    let count = with_memory.len() as u64;
    let least = count * LEAST_MEMORY;
    if memory < least {
        return Err(ScaleError::TooLittle {
            asked: memory,
            nodes: count,
            least,
        });
    }
    // Nodes whose share would be too small get the least; the others share the rest.
    let mut small: Vec<usize> = Vec::new();
    let parts = loop {
        let rest = with_memory.iter().filter(|n| !small.contains(n));
        let rest: Vec<usize> = rest.copied().collect();
        let total: u64 = rest.iter().map(|n| topology.nodes[*n].memory).sum();
        let spare = u128::from(memory - small.len() as u64 * LEAST_MEMORY);
        let part = |node: &usize| {
            let part = u128::from(topology.nodes[*node].memory) * spare / u128::from(total.max(1));
            u64::try_from(part).expect("a part of a u64") / MIB * MIB
        };
        match rest.iter().find(|node| part(node) < LEAST_MEMORY) {
            Some(node) => small.push(*node),
            None => {
                break rest
                    .iter()
                    .map(|node| (*node, part(node)))
                    .collect::<Vec<_>>();
            }
        }
    };
    for node in small {
        nodes[node].memory = LEAST_MEMORY;
    }
    for (node, part) in parts {
        nodes[node].memory = part;
    }
    // Memoryless nodes have none before and after.
    let given: u64 = nodes.iter().map(|n| n.memory).sum();
    if let Some(first) = with_memory.first() {
        nodes[*first].memory += memory - given;
    }
    let ratio = |nodes: &[Node]| {
        let sizes = with_memory.iter().map(|n| nodes[*n].memory);
        let (small, large) = (sizes.clone().min(), sizes.max());
        large.unwrap_or(1) as f64 / small.unwrap_or(1) as f64
    };
    let (before, after) = (ratio(&topology.nodes), ratio(nodes));
    if (before / after - 1.0).abs() > 0.25 {
        notes.push(format!(
            "the largest node has {after:.1} times the memory of the smallest, not {before:.1} times"
        ));
    }
    Ok(())
}

/// vCPUs of a layout's core of the whole machine.
fn cpus_of(layout: &CpuLayout, core: u32) -> CpuList {
    (0..layout.count())
        .filter(|vcpu| layout.core_and_thread(*vcpu).0 == core)
        .collect()
}

#[cfg(test)]
mod tests;
