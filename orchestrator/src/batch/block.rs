//! Which runs are done together on one node: the sides of a comparison, by
//! turns. Pure.
//!
//! A round's runs of cells that are compared with each other differ only in
//! what the experiment varies when they follow each other on one node; rounds
//! may be done on different nodes, and the node is then a block in the sense of
//! Box, Hunter and Hunter, "Statistics for Experimenters", chapter 4.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    plan::{Cell, PlannedRun},
    topology::Topology,
};

/// Runs that one task does, one after the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Block {
    /// Blocks of one group are compared with each other.
    pub group: usize,
    /// Indices of the runs, in their order.
    pub runs: Vec<usize>,
    /// What the task asks for.
    pub request: Request,
}

/// What a task asks of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Request {
    /// Host CPUs: the guest's and those for QEMU's other threads.
    pub cpus: u32,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Longest duration, minutes.
    pub minutes: u64,
}

/// How a campaign is cut into blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Rounds of a group that one task does.
    pub rounds: u32,
    /// CPUs beside the guest's.
    pub housekeeping: u32,
    /// Longest duration of a run, seconds.
    pub run_seconds: u64,
}

/// Memory of QEMU beside the guest's: its own, devices, translated code. The
/// emulator reserves up to 1 GiB for the latter and touches what it uses of it.
const QEMU_MIB: u64 = 512;

/// Beside the runs: start of the task, files, the end of a guest that is told to stop.
const TASK_SECONDS: u64 = 120;

/// Cells that are compared with each other share a number. `varied` are the axes
/// of the baseline.
pub fn groups(cells: &[Cell], varied: &[&str]) -> Vec<usize> {
    let mut known: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    cells
        .iter()
        .map(|cell| {
            let key: Vec<&str> = Cell::AXES
                .iter()
                .filter(|axis| !varied.contains(axis))
                .filter_map(|axis| cell.axis(axis))
                .collect();
            let next = known.len();
            *known.entry(key).or_insert(next)
        })
        .collect()
}

/// Cuts an order into blocks. Every run is in exactly one, and within a block
/// the order of the campaign is kept.
pub fn blocks(
    order: &[PlannedRun],
    groups: &[usize],
    topology: impl Fn(usize) -> (u32, u64),
    cut: Cut,
) -> Vec<Block> {
    let rounds = cut.rounds.max(1);
    let mut found: BTreeMap<(u32, usize), Vec<PlannedRun>> = BTreeMap::new();
    for run in order {
        let key = (run.round / rounds, groups[run.cell]);
        found.entry(key).or_default().push(*run);
    }
    found
        .into_iter()
        .map(|((_, group), runs)| {
            let machines: Vec<(u32, u64)> = runs.iter().map(|run| topology(run.cell)).collect();
            let cpus = machines.iter().map(|(cpus, _)| *cpus).max();
            let memory = machines.iter().map(|(_, bytes)| bytes.div_ceil(1 << 20));
            // One run may be tried again without the task running out of time.
            let seconds = (runs.len() as u64 + 1) * cut.run_seconds + TASK_SECONDS;
            Block {
                group,
                runs: runs.iter().map(|run| run.index).collect(),
                request: Request {
                    cpus: cpus.unwrap_or(1) + cut.housekeeping,
                    memory_mib: memory.max().unwrap_or(0) + QEMU_MIB,
                    minutes: seconds.div_ceil(60),
                },
            }
        })
        .collect()
}

/// vCPUs and memory of a topology, bytes.
pub fn size(topology: &Topology) -> (u32, u64) {
    (topology.vcpus(), topology.memory())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::plan::order;

    fn cells(kernels: usize, topologies: usize) -> Vec<Cell> {
        let mut cells = Vec::new();
        for kernel in 0..kernels {
            for topology in 0..topologies {
                cells.push(Cell {
                    kernel: format!("k@{kernel}"),
                    topology: format!("t{topology}"),
                    cmdline: "default".into(),
                    settings: "default".into(),
                    workload: "run".into(),
                });
            }
        }
        cells
    }

    const CUT: Cut = Cut {
        rounds: 1,
        housekeeping: 1,
        run_seconds: 100,
    };

    #[test]
    fn both_sides_of_a_comparison_are_in_one_block() {
        let cells = cells(2, 2);
        let groups = groups(&cells, &["kernels"]);
        assert_eq!(groups, [0, 1, 0, 1]);
        let order = order(4, 3, 0, 7);
        let machine = |cell: usize| {
            if groups[cell] == 0 {
                (4, 1 << 30)
            } else {
                (8, 3 << 29)
            }
        };
        let blocks = blocks(&order, &groups, machine, CUT);
        assert_eq!(blocks.len(), 6);
        for block in &blocks {
            let cells: BTreeSet<usize> = block.runs.iter().map(|run| order[*run].cell).collect();
            let expected: [usize; 2] = [block.group, block.group + 2];
            assert_eq!(cells, BTreeSet::from(expected));
        }
        let asked = Request {
            cpus: 9,
            memory_mib: 2048,
            minutes: 7,
        };
        assert_eq!(blocks[1].request, asked);
    }

    proptest! {
        #[test]
        fn every_run_is_in_one_block(kernels in 1usize..4, topologies in 1usize..4, rounds in 0u32..9, warmup in 0u32..2, together in 1u32..5) {
            let cells = cells(kernels, topologies);
            let order = order(cells.len(), rounds, warmup, 3);
            let groups = groups(&cells, &["kernels"]);
            let blocks = blocks(&order, &groups, |_| (1, 1), Cut { rounds: together, ..CUT });
            let mut runs: Vec<usize> = blocks.iter().flat_map(|block| block.runs.clone()).collect();
            prop_assert!(blocks.iter().all(|block| block.runs.is_sorted()));
            runs.sort_unstable();
            prop_assert_eq!(runs, (0..order.len()).collect::<Vec<_>>());
        }
    }
}
