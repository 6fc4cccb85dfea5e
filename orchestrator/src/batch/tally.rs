//! How far a submitted campaign is, read from its results folder alone.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{
    block::Block,
    desk::Desk,
    publish::{Shelf, State},
};
use crate::{
    plan::{self, PlannedRun},
    store::{self, CampaignMeta, StoreError, record::RunRecord},
};

/// Every run of a campaign and whether it ended.
#[derive(Debug)]
pub struct Tally {
    results: PathBuf,
    meta: CampaignMeta,
    order: Vec<PlannedRun>,
    seen: BTreeSet<std::ffi::OsString>,
    ended: Vec<bool>,
    completed: usize,
}

impl Tally {
    /// That of a results folder; nothing has been looked at yet.
    ///
    /// # Errors
    /// It is no results folder.
    pub fn of(results: &Path) -> Result<Self, StoreError> {
        let meta = store::read_meta(results)?;
        let order = plan::order(
            meta.cells.len(),
            meta.rounds,
            meta.experiment.warmup,
            meta.seed,
        );
        Ok(Self {
            results: results.into(),
            ended: vec![false; order.len()],
            order,
            meta,
            seen: BTreeSet::new(),
            completed: 0,
        })
    }

    /// What was planned.
    pub fn meta(&self) -> &CampaignMeta {
        &self.meta
    }

    /// Runs planned.
    pub fn planned(&self) -> usize {
        self.order.len()
    }

    /// Runs that ended, cells that cannot be run counted in.
    pub fn ended(&self) -> usize {
        self.ended.iter().filter(|ended| **ended).count()
    }

    /// Runs that completed.
    pub fn completed(&self) -> usize {
        self.completed
    }

    /// Looks at what is new, and tells each run that ended since.
    ///
    /// # Errors
    /// The folder cannot be read or a record is damaged.
    pub fn look(&mut self, tell: &mut dyn FnMut(&RunRecord)) -> Result<(), StoreError> {
        self.meta = store::read_meta(&self.results)?;
        let shelf = Shelf::of(&self.results);
        let runs = self.results.join("runs");
        let io = |source| StoreError::Io {
            path: runs.clone(),
            what: "list the folder",
            source,
        };
        for entry in fs::read_dir(&runs).map_err(io)? {
            let name = entry.map_err(io)?.file_name();
            if self.seen.contains(&name) {
                continue;
            }
            let index = name.to_str().and_then(|name| name.split('-').next());
            let Some(run) = index
                .and_then(|index| index.parse::<usize>().ok())
                .and_then(|index| self.order.get(index).copied())
            else {
                continue;
            };
            let tries = self.meta.experiment.limits.tries;
            let state = shelf.state(run, &self.meta.cells[run.cell], tries)?;
            if let State::Ended(record) = state
                && !self.ended[run.index]
            {
                self.ended[run.index] = true;
                self.completed += usize::from(record.outcome.has_result());
                tell(&record);
            }
            self.seen.insert(name);
        }
        let desk = Desk::of(&self.results);
        let hopeless: Vec<bool> = self
            .meta
            .cells
            .iter()
            .map(|cell| {
                let kernel = self.meta.kernels.iter().find(|k| k.name == cell.kernel);
                desk.has_given_up(&cell.slug()) || kernel.is_some_and(|k| k.unavailable.is_some())
            })
            .collect();
        for run in &self.order {
            self.ended[run.index] |= hopeless[run.cell];
        }
        Ok(())
    }

    /// Runs of a block that did not end.
    pub fn open(&self, block: &Block) -> Vec<PlannedRun> {
        let open = block.runs.iter().filter(|index| !self.ended[**index]);
        open.map(|index| self.order[*index]).collect()
    }
}
