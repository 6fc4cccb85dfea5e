//! From blocks to arrays of tasks within the batch system's limits. Pure.

use std::{collections::BTreeMap, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::block::{Block, Request};
use crate::plan::Accel;

/// What the user asks of the batch system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wish {
    /// Partition; the default one when absent.
    pub partition: Option<String>,
    /// Account that is charged.
    pub account: Option<String>,
    /// Further arguments of `sbatch`.
    pub sbatch_args: Vec<String>,
    /// Features a node must have (`--constraint`).
    pub constraint: Option<String>,
    /// A node does nothing else meanwhile.
    pub exclusive: bool,
    /// Nodes that differ may be used in one comparison.
    pub mix_nodes: bool,
    /// What runs the guests' processors.
    pub accel: Option<Accel>,
    /// CPUs of a build job.
    pub build_cpus: u32,
    /// Cache on the nodes, when it is not the submitter's.
    pub node_cache: Option<PathBuf>,
}

/// Limits of a cluster (`scontrol show config`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// `MaxArraySize`: indices of an array are below it.
    pub array_size: usize,
    /// `MaxJobCount`: jobs the controller keeps; every task is one.
    pub jobs: usize,
}

/// Tasks that ask for the same, numbered from 0 by their place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Array {
    /// What each task asks for.
    pub request: Request,
    /// Block of each task.
    pub blocks: Vec<usize>,
}

/// Rounds of a group that one task does, so that the tasks take at most half of
/// the jobs the controller can hold: others want to submit, too.
pub fn rounds_per_task(groups: usize, rounds: u32, wanted: Option<u32>, limits: Limits) -> u32 {
    let most = (limits.jobs / 2).max(1);
    let least = (groups * rounds as usize).div_ceil(most).max(1);
    let least = u32::try_from(least).unwrap_or(u32::MAX);
    wanted.unwrap_or(1).max(least).min(rounds.max(1))
}

/// Arrays of at most `limits.array_size` tasks each, in the order of the blocks.
pub fn arrays(blocks: &[Block], limits: Limits) -> Vec<Array> {
    let mut alike: BTreeMap<Request, Vec<usize>> = BTreeMap::new();
    for (number, block) in blocks.iter().enumerate() {
        alike.entry(block.request).or_default().push(number);
    }
    alike
        .into_iter()
        .flat_map(|(request, numbers)| {
            numbers
                .chunks(limits.array_size.max(1))
                .map(|chunk| Array {
                    request,
                    blocks: chunk.to_vec(),
                })
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Indices as `--array` takes them: `0-3,7`.
pub fn indices(numbers: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => parts.push((*number, *number)),
        }
    }
    let words: Vec<String> = parts
        .into_iter()
        .map(|(first, last)| {
            if first == last {
                first.to_string()
            } else {
                format!("{first}-{last}")
            }
        })
        .collect();
    words.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        array_size: 1001,
        jobs: 10_000,
    };

    fn block(cpus: u32) -> Block {
        Block {
            group: 0,
            runs: vec![0],
            request: Request {
                cpus,
                memory_mib: 1024,
                minutes: 10,
            },
        }
    }

    #[test]
    fn arrays_stay_within_the_limit_and_hold_every_block_once() {
        let mut blocks: Vec<Block> = (0..2500).map(|_| block(5)).collect();
        blocks.insert(3, block(9));
        let arrays = arrays(&blocks, LIMITS);
        let sizes: Vec<usize> = arrays.iter().map(|array| array.blocks.len()).collect();
        assert_eq!(sizes, [1001, 1001, 498, 1]);
        assert_eq!(arrays[3].blocks, [3]);
        let mut all: Vec<usize> = arrays.into_iter().flat_map(|array| array.blocks).collect();
        all.sort_unstable();
        assert_eq!(all, (0..2501).collect::<Vec<_>>());
    }

    #[test]
    fn many_rounds_share_a_task_when_the_controller_holds_few_jobs() {
        assert_eq!(rounds_per_task(4, 30, None, LIMITS), 1);
        assert_eq!(rounds_per_task(4, 30, Some(5), LIMITS), 5);
        assert_eq!(rounds_per_task(334, 30, None, LIMITS), 3);
        assert_eq!(rounds_per_task(100_000, 30, None, LIMITS), 30);
    }

    #[test]
    fn indices_are_written_as_ranges() {
        assert_eq!(indices(&[0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(indices(&[5]), "5");
        assert_eq!(indices(&[]), "");
    }
}
