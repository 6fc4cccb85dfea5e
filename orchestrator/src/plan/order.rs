//! The order of runs: rounds of every cell, shuffled within each round by a
//! seed, so that slow drift of the bench falls on all cells alike.

use rand::{SeedableRng, seq::SliceRandom};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

/// One run of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedRun {
    /// Place in the order, from 0.
    pub index: usize,
    /// Index into the cells.
    pub cell: usize,
    /// Round, from 0; warm-up rounds come first and count too.
    pub round: u32,
    /// Kept but not judged.
    pub warmup: bool,
}

/// Every run of `cells` cells in `rounds` rounds after `warmup` rounds.
///
/// ChaCha8 is used because its stream is the same on every platform and in every
/// version, so a seed names an order for good. The stream of a round depends on
/// the seed and the round alone: more rounds extend an order, they do not change it.
pub fn order(cells: usize, rounds: u32, warmup: u32, seed: u64) -> Vec<PlannedRun> {
    let mut runs = Vec::new();
    for round in 0..warmup + rounds {
        let mut row: Vec<usize> = (0..cells).collect();
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(u64::from(round));
        row.shuffle(&mut random);
        for cell in row {
            runs.push(PlannedRun {
                index: runs.len(),
                cell,
                round,
                warmup: round < warmup,
            });
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_holds_every_cell_once() {
        for chunk in order(7, 4, 1, 42).chunks(7) {
            let mut cells: Vec<usize> = chunk.iter().map(|run| run.cell).collect();
            cells.sort_unstable();
            assert_eq!(cells, (0..7).collect::<Vec<_>>());
            assert!(chunk.iter().all(|run| run.round == chunk[0].round));
        }
    }

    #[test]
    fn a_seed_names_an_order_for_good() {
        let cells: Vec<usize> = order(5, 2, 0, 1).iter().map(|run| run.cell).collect();
        insta::assert_debug_snapshot!(cells, @"
        [
            3,
            4,
            1,
            2,
            0,
            1,
            4,
            2,
            3,
            0,
        ]
        ");
    }

    #[test]
    fn more_rounds_extend_the_order() {
        assert_eq!(order(5, 6, 1, 9)[..20], order(5, 3, 1, 9)[..]);
    }
}
