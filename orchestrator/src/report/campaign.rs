//! What a report is about: a campaign, its runs by cell, and its comparison.

use std::collections::{BTreeMap, HashMap};

use crate::{
    compare::Comparison,
    outcome::Outcome,
    plan::Cell,
    store::{CampaignMeta, record::RunRecord},
};

/// A campaign and what was compared in it.
#[derive(Debug)]
pub struct Campaign<'a> {
    /// What was planned.
    pub meta: &'a CampaignMeta,
    /// Name of the results folder.
    pub folder: &'a str,
    /// The comparison.
    pub comparison: &'a Comparison,
    /// Runs by cell, in the order of the plan.
    pub cells: Vec<CellRuns<'a>>,
}

/// The runs of a cell: of each its last try.
#[derive(Debug, Clone)]
pub struct CellRuns<'a> {
    /// The cell.
    pub cell: &'a Cell,
    /// Its runs in the order they ran; warm-up runs are among them.
    pub runs: Vec<&'a RunRecord>,
}

/// What a cell or run means to a test system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// It completed.
    Pass,
    /// It could not be tried here, or was never run.
    Skip,
    /// The lab failed, or the guest was not the machine asked for: nothing is
    /// known of the kernel.
    Error,
    /// The kernel failed.
    Fail,
}

/// What an outcome means to a test system.
pub fn class(outcome: &Outcome) -> Class {
    match outcome {
        Outcome::Completed => Class::Pass,
        Outcome::NotTestable { .. } => Class::Skip,
        Outcome::WrongTopology { .. } | Outcome::LabFailed { .. } => Class::Error,
        Outcome::WorkloadFailed { .. }
        | Outcome::BootFailed { .. }
        | Outcome::GuestPanic { .. }
        | Outcome::GuestSplat { .. }
        | Outcome::GuestHang { .. } => Class::Fail,
    }
}

impl<'a> Campaign<'a> {
    /// Puts runs to their cells.
    pub fn new(
        meta: &'a CampaignMeta,
        folder: &'a str,
        records: &'a [RunRecord],
        comparison: &'a Comparison,
    ) -> Self {
        let mut last: BTreeMap<usize, &RunRecord> = BTreeMap::new();
        for record in records {
            let kept = last.entry(record.index).or_insert(record);
            if record.attempt >= kept.attempt {
                *kept = record;
            }
        }
        let mut by_cell: HashMap<&Cell, Vec<&RunRecord>> = HashMap::new();
        for record in last.into_values() {
            by_cell.entry(&record.cell).or_default().push(record);
        }
        let cells = meta
            .cells
            .iter()
            .map(|cell| CellRuns {
                cell,
                runs: by_cell.remove(cell).unwrap_or_default(),
            })
            .collect();
        Self {
            meta,
            folder,
            comparison,
            cells,
        }
    }

    /// Every run, in the order of cells.
    pub fn runs(&self) -> impl Iterator<Item = &'a RunRecord> + '_ {
        self.cells.iter().flat_map(|cell| cell.runs.iter().copied())
    }
}

impl<'a> CellRuns<'a> {
    /// The worst class among the runs; `Skip` when none was or could be tried.
    pub fn class(&self) -> Class {
        let classes = self.runs.iter().map(|run| class(&run.outcome));
        let tried = classes.clone().filter(|class| *class != Class::Skip).max();
        tried.unwrap_or(Class::Skip)
    }

    /// The first run of the worst class, unless all completed.
    pub fn worst(&self) -> Option<&'a RunRecord> {
        let worst = self.class();
        (worst != Class::Pass)
            .then(|| {
                self.runs
                    .iter()
                    .find(|run| class(&run.outcome) == worst)
                    .copied()
            })
            .flatten()
    }

    /// Outcomes and how many, such as `4 × completed, 1 × guest-panic`.
    pub fn tally(&self) -> String {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for run in &self.runs {
            *counts.entry(run.outcome.class()).or_default() += 1;
        }
        if counts.is_empty() {
            return "never run".into();
        }
        let counts: Vec<String> = counts
            .iter()
            .map(|(class, count)| format!("{count} × {class}"))
            .collect();
        counts.join(", ")
    }
}

/// `class: detail` of an outcome.
pub fn outcome(outcome: &Outcome) -> String {
    match outcome.detail() {
        detail if detail.is_empty() => outcome.class().into(),
        detail => format!("{}: {detail}", outcome.class()),
    }
}
