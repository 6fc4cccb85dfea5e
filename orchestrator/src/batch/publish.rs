//! How the run of a task becomes a run of the campaign, once.
//!
//! A run is done in a folder of its own below `batch/partial`, which nobody
//! else knows, and gets its name below `runs` by one rename when its record is
//! whole. A task that Slurm believed dead and started anew elsewhere may thus
//! come back: the name of a try is the same for both, a folder that is not empty
//! cannot be renamed over, and the second one is thrown away. A further try is
//! begun only where the one before is there and failed, so a run has one result.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::{
    plan::{Cell, PlannedRun},
    store::{
        self, StoreError,
        record::{FORMAT, RunRecord},
    },
};

/// Where a campaign's tasks put their runs.
#[derive(Debug, Clone)]
pub struct Shelf {
    runs: PathBuf,
    partial: PathBuf,
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// Nothing more is to be done; the last try.
    Ended(Box<RunRecord>),
    /// It is to be tried with this number.
    Open {
        /// The number of the try.
        attempt: u32,
    },
}

/// What became of a run that was put on the shelf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    /// It is there.
    Kept,
    /// The same try of the run was there already.
    Superfluous,
}

impl Shelf {
    /// The shelf of a results folder.
    pub fn of(results: &Path) -> Self {
        Self {
            runs: results.join("runs"),
            partial: results.join("batch/partial"),
        }
    }

    /// Whether a run is still to be done. Looks at its own files only, so that
    /// ten thousand tasks do not each list the folder.
    ///
    /// # Errors
    /// A record is damaged.
    pub fn state(&self, run: PlannedRun, cell: &Cell, tries: u32) -> Result<State, StoreError> {
        let mut attempt = 0;
        loop {
            let folder = self
                .runs
                .join(store::run_name(run.index, run.round, attempt, cell));
            let Some(record) = store::read_record(&folder)? else {
                return Ok(State::Open { attempt });
            };
            if !record.outcome.is_retryable() || attempt + 1 >= tries {
                return Ok(State::Ended(Box::new(record)));
            }
            attempt += 1;
        }
    }

    /// An empty folder for a run, known to the caller alone.
    ///
    /// # Errors
    /// The file system said no.
    pub fn begin(&self, run: PlannedRun) -> Result<PathBuf, StoreError> {
        let made = || -> io::Result<PathBuf> {
            fs::create_dir_all(&self.partial)?;
            let folder = tempfile::Builder::new()
                .prefix(&format!("{:05}-", run.index))
                .tempdir_in(&self.partial)?;
            Ok(folder.keep())
        };
        made().map_err(|source| StoreError::Io {
            path: self.partial.clone(),
            what: "make a folder for a run",
            source,
        })
    }

    /// Gives a run its name.
    ///
    /// # Errors
    /// The file system said no; the folder of the caller is then as it was.
    pub fn put(&self, partial: &Path, record: &RunRecord) -> Result<Put, StoreError> {
        debug_assert_eq!(record.format, FORMAT);
        store::write_durably(&partial.join("run.json"), record)?;
        let name = store::run_name(record.index, record.round, record.attempt, &record.cell);
        let target = self.runs.join(name);
        match fs::rename(partial, &target) {
            Ok(()) => {}
            // An answer that was lost on its way from an NFS server is asked for
            // again, and the second time the folder is not where it was.
            Err(_) if target.join("run.json").is_file() => {
                if partial.exists() {
                    // What is left of it is in nobody's way.
                    let _ = fs::remove_dir_all(partial);
                }
                return Ok(Put::Superfluous);
            }
            Err(source) => {
                return Err(StoreError::Io {
                    path: target,
                    what: "give the run its name",
                    source,
                });
            }
        }
        store::sync_folder(&self.runs)?;
        Ok(Put::Kept)
    }

    /// Removes what tasks that were killed left. Only where no task is under way.
    pub fn clear(&self) {
        // It is in nobody's way.
        let _ = fs::remove_dir_all(&self.partial);
    }

    /// Removes the folder of a run that ended without a record.
    pub fn abandon(&self, partial: &Path) {
        // It holds nothing that is missed, and the next try has a folder of its own.
        let _ = fs::remove_dir_all(partial);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{compare::tests, outcome::Outcome};

    fn record(attempt: u32, outcome: Outcome) -> RunRecord {
        let mut record = tests::demo(1).remove(0);
        record.attempt = attempt;
        record.outcome = outcome;
        record
    }

    fn failed() -> Outcome {
        Outcome::LabFailed {
            part: "qemu".into(),
            reason: "gone".into(),
        }
    }

    fn shelf() -> (tempfile::TempDir, Shelf) {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("runs")).unwrap();
        let shelf = Shelf::of(folder.path());
        (folder, shelf)
    }

    fn planned(record: &RunRecord) -> PlannedRun {
        PlannedRun {
            index: record.index,
            cell: 0,
            round: record.round,
            warmup: false,
        }
    }

    #[test]
    fn a_task_that_comes_back_changes_nothing() {
        let (folder, shelf) = shelf();
        let run = record(0, Outcome::Completed);
        let planned = planned(&run);
        let (first, second) = (shelf.begin(planned).unwrap(), shelf.begin(planned).unwrap());
        assert_eq!(shelf.put(&first, &run).unwrap(), Put::Kept);
        let late = record(0, failed());
        assert_eq!(shelf.put(&second, &late).unwrap(), Put::Superfluous);
        let state = shelf.state(planned, &run.cell, 3).unwrap();
        assert_eq!(state, State::Ended(Box::new(run)));
        assert_eq!(fs::read_dir(folder.path().join("runs")).unwrap().count(), 1);
        let partial = folder.path().join("batch/partial");
        assert_eq!(fs::read_dir(partial).unwrap().count(), 0);
    }

    #[test]
    fn a_failed_try_is_followed_by_the_next_until_there_are_enough() {
        let (_folder, shelf) = shelf();
        let cell = record(0, failed()).cell;
        let planned = planned(&record(0, failed()));
        for attempt in 0..2 {
            assert_eq!(
                shelf.state(planned, &cell, 2).unwrap(),
                State::Open { attempt }
            );
            let partial = shelf.begin(planned).unwrap();
            shelf.put(&partial, &record(attempt, failed())).unwrap();
        }
        let last = record(1, failed());
        assert_eq!(
            shelf.state(planned, &cell, 2).unwrap(),
            State::Ended(Box::new(last))
        );
    }

    #[test]
    fn what_is_not_finished_is_no_run() {
        let (folder, shelf) = shelf();
        let run = record(0, Outcome::Completed);
        let partial = shelf.begin(planned(&run)).unwrap();
        fs::write(partial.join("console.log"), "half").unwrap();
        assert_eq!(fs::read_dir(folder.path().join("runs")).unwrap().count(), 0);
        shelf.abandon(&partial);
        assert!(!partial.exists());
    }
}
