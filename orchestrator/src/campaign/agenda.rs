//! What a campaign still has to do, worked out from what is done.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Prepared;
use crate::{outcome::Outcome, plan::PlannedRun, store::record::RunRecord};

/// What is left to do, and what is known of each cell so far.
#[derive(Debug)]
pub struct Agenda {
    pending: VecDeque<(PlannedRun, u32)>,
    failures_in_a_row: BTreeMap<usize, u32>,
    given_up: BTreeSet<usize>,
}

impl Agenda {
    /// Everything planned, less what the records show as done.
    pub fn new(
        prepared: &Prepared,
        records: &[RunRecord],
        without_kernel: &BTreeSet<usize>,
    ) -> Self {
        let mut agenda = Self {
            pending: VecDeque::new(),
            failures_in_a_row: BTreeMap::new(),
            given_up: without_kernel.clone(),
        };
        let tries = prepared.experiment.limits.tries;
        for planned in &prepared.order {
            let mut next_try = 0;
            let mut done = false;
            for record in records
                .iter()
                .filter(|record| record.index == planned.index)
            {
                next_try = record.attempt + 1;
                done = !record.outcome.is_retryable() || next_try >= tries;
                if done {
                    agenda.learn(prepared, planned.cell, &record.outcome);
                }
            }
            if !done {
                agenda.pending.push_back((*planned, next_try));
            }
        }
        agenda
    }

    /// The run that is due, and which try it is. Runs of cells that were given up
    /// are dropped.
    pub fn first(&mut self) -> Option<(PlannedRun, u32)> {
        while let Some(first) = self.pending.front() {
            if !self.given_up.contains(&first.0.cell) {
                return Some(*first);
            }
            self.pending.pop_front();
        }
        None
    }

    /// The run that is due was begun.
    pub fn take_first(&mut self) {
        self.pending.pop_front();
    }

    /// Takes in how a run ended; says whether it must be tried again.
    pub fn ended(
        &mut self,
        prepared: &Prepared,
        run: PlannedRun,
        attempt: u32,
        outcome: &Outcome,
    ) -> bool {
        if outcome.is_retryable() && attempt + 1 < prepared.experiment.limits.tries {
            self.pending.push_front((run, attempt + 1));
            return true;
        }
        self.learn(prepared, run.cell, outcome);
        false
    }

    /// Whether a cell is not tried any more.
    pub fn has_given_up(&self, cell: usize) -> bool {
        self.given_up.contains(&cell)
    }

    fn learn(&mut self, prepared: &Prepared, cell: usize, outcome: &Outcome) {
        let failures = self.failures_in_a_row.entry(cell).or_default();
        if outcome.has_result() {
            *failures = 0;
            return;
        }
        *failures += 1;
        // Neither changes by trying again: the cell's kernel or bench cannot do it.
        let hopeless = matches!(
            outcome,
            Outcome::NotTestable { .. } | Outcome::WrongTopology { .. }
        );
        if hopeless || *failures >= prepared.experiment.limits.give_up_after {
            self.given_up.insert(cell);
        }
    }
}
