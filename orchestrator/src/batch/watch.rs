//! Watches a submitted campaign and mends it: what was lost is submitted again.
//!
//! Nothing here is needed for runs to end and be kept; it may be stopped and
//! begun anew at any time, from any machine that has Slurm's clients and the
//! results folder.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    thread,
    time::Duration,
};

use super::{
    decide::{Known, Step, decide},
    desk::{Desk, Plan, Submission},
    publish::{Shelf, State},
    slurm::{Fate, Queued, Slurm, SlurmError},
    submit::{self, Job, SubmitError},
    tally::Tally,
};
use crate::{
    campaign::record_of,
    event::Event,
    outcome::Outcome,
    plan::PlannedRun,
    run::RunResult,
    store::{StoreError, lock, record::RunRecord},
};

/// The build is submitted at most so often.
const BUILDS: usize = 3;
/// Without an answer the controller is asked again for so long, seconds; a
/// restart that replays its state takes minutes on a large cluster.
const PATIENCE_SECONDS: u64 = 15 * 60;

/// How a campaign ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ended {
    /// Runs planned.
    pub planned: usize,
    /// Runs that completed.
    pub completed: usize,
    /// Runs that did not end, because somebody cancelled them.
    pub left: usize,
}

/// Why a campaign is not watched any more. Its jobs go on.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Something could not be submitted.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The results folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the runs need could not be made.
    #[error("the build failed: {why}")]
    Build {
        /// The build job's words.
        why: String,
    },
    /// The build job was lost again and again.
    #[error("the build job was lost {times} times; what it wrote is in {log}")]
    BuildLost {
        /// How often.
        times: usize,
        /// Its log.
        log: std::path::PathBuf,
    },
}

/// How often to look.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    /// Between two looks.
    pub every: Duration,
}

impl Pace {
    /// For so many tasks: a look at a large campaign lists many files and asks the
    /// controller about many tasks.
    pub fn for_tasks(tasks: usize) -> Self {
        let seconds = (5 + tasks / 200).min(60) as u64;
        Self {
            every: Duration::from_secs(seconds),
        }
    }
}

/// Watches until every run ended or was cancelled.
///
/// # Errors
/// The campaign cannot go on. What ended is kept.
pub fn watch(
    slurm: &Slurm,
    results: &Path,
    pace: Pace,
    tell: &mut dyn FnMut(Event),
) -> Result<Ended, WatchError> {
    let desk = Desk::of(results);
    let plan = desk.plan()?;
    let mut tally = Tally::of(results)?;
    let lock_file = results.join("lock");
    let held = lock::hold(&lock_file).map_err(|source| StoreError::Io {
        path: lock_file,
        what: "lock the folder",
        source,
    })?;
    if held.is_none() {
        let text = "somebody else watches this campaign; only its progress is shown".into();
        tell(Event::Note { text });
    }
    let mut absent: BTreeSet<usize> = BTreeSet::new();
    let mut silent = Duration::ZERO;
    loop {
        // The queue first: what ends between the two looks is seen as ended.
        let submissions = desk.submissions()?;
        let names: Vec<String> = submissions.iter().map(|one| one.name.clone()).collect();
        let queue = match slurm.queue(&names) {
            Ok(queue) => Some(queue),
            Err(error @ SlurmError::Unreachable { .. }) => {
                if silent.is_zero() {
                    let text = format!("{error}; asking again");
                    tell(Event::Note { text });
                }
                silent += pace.every;
                if silent.as_secs() > PATIENCE_SECONDS {
                    return Err(SubmitError::Slurm(error).into());
                }
                None
            }
            Err(error) => return Err(SubmitError::Slurm(error).into()),
        };
        tally.look(&mut |record| tell(ended(record)))?;
        let scene = Scene {
            slurm,
            results,
            desk: &desk,
            plan: &plan,
            submissions: &submissions,
        };
        if let Some(queue) = queue {
            silent = Duration::ZERO;
            let steps = scene.steps(&tally, &queue, &mut absent)?;
            let open = steps
                .iter()
                .any(|step| !matches!(step, Step::Done | Step::Leave));
            if !open {
                return Ok(scene.close(&tally, held.is_some()));
            }
            if held.is_some() {
                scene.act(&tally, &queue, &steps, tell)?;
            }
        } else if tally.ended() == tally.planned() {
            return Ok(scene.close(&tally, false));
        }
        thread::sleep(pace.every);
    }
}

/// What one look works with.
struct Scene<'a> {
    slurm: &'a Slurm,
    results: &'a Path,
    desk: &'a Desk,
    plan: &'a Plan,
    submissions: &'a [Submission],
}

impl Scene<'_> {
    /// What to do about each block.
    fn steps(
        &self,
        tally: &Tally,
        queue: &[Queued],
        absent: &mut BTreeSet<usize>,
    ) -> Result<Vec<Step>, SubmitError> {
        let mut known: Vec<Known> = vec![Known::default(); self.plan.blocks.len()];
        for (block, known) in known.iter_mut().enumerate() {
            known.ended = tally.open(&self.plan.blocks[block]).is_empty();
        }
        let tasks = |held: bool| -> BTreeSet<(&str, usize)> {
            let wanted = queue.iter().filter(|one| one.is_held() == held);
            wanted
                .filter_map(|one| Some((&*one.name, one.task?)))
                .collect()
        };
        let (waiting, held) = (tasks(false), tasks(true));
        // The last job of each block, to ask about those that are gone.
        let mut last: BTreeMap<usize, (&str, usize)> = BTreeMap::new();
        let since = self.desk.since();
        for (place, one) in self.submissions.iter().enumerate() {
            let Some(array) = one.array else { continue };
            for task in &one.tasks {
                let block = self.plan.arrays[array].blocks[*task];
                known[block].queued |= waiting.contains(&(&*one.name, *task));
                if place < since {
                    continue;
                }
                known[block].submissions += 1;
                let is_held = held.contains(&(&*one.name, *task));
                known[block].fate = is_held.then(|| "held by Slurm, launch failed".into());
                match &one.job {
                    Some(job) => last.insert(block, (job, *task)),
                    None => last.remove(&block),
                };
            }
        }
        let mut asked: BTreeMap<&str, BTreeMap<Option<usize>, Fate>> = BTreeMap::new();
        for (block, known) in known.iter_mut().enumerate() {
            if known.ended || known.queued {
                absent.remove(&block);
                continue;
            }
            known.was_absent = !absent.insert(block);
            let Some((job, task)) = last.get(&block) else {
                continue;
            };
            if known.fate.is_some() {
                continue;
            }
            if !asked.contains_key(job) {
                asked.insert(job, self.slurm.fates(job)?);
            }
            if let Some(fate) = asked[job].get(&Some(*task)) {
                known.fate = Some(format!(
                    "{} on {}, exit {}",
                    fate.state, fate.node, fate.exit
                ));
            }
        }
        let cancelled = self.desk.is_cancelled();
        let steps = known.iter().map(|known| match decide(known) {
            Step::Submit | Step::Record { .. } if cancelled => Step::Leave,
            step => step,
        });
        Ok(steps.collect())
    }

    fn act(
        &self,
        tally: &Tally,
        queue: &[Queued],
        steps: &[Step],
        tell: &mut dyn FnMut(Event),
    ) -> Result<(), WatchError> {
        let after = match self.build(queue, tell)? {
            Build::There => None,
            Build::Waits(job) => Some(job),
        };
        let mut again: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, array) in self.plan.arrays.iter().enumerate() {
            for (task, block) in array.blocks.iter().enumerate() {
                match &steps[*block] {
                    Step::Submit => again.entry(number).or_default().push(task),
                    Step::Record { reason } => {
                        for run in tally.open(&self.plan.blocks[*block]) {
                            self.record_lost(tally, run, reason)?;
                        }
                        self.drop_held(queue, number, &[task])?;
                    }
                    Step::Done | Step::Wait | Step::Leave => {}
                }
            }
        }
        for (array, tasks) in again {
            let groups: BTreeSet<usize> = tasks
                .iter()
                .map(|task| self.plan.blocks[self.plan.arrays[array].blocks[*task]].group)
                .collect();
            let not_on: Vec<String> = self.desk.elsewhere(&groups).into_iter().collect();
            let text = format!("{} tasks of array {array} are submitted again", tasks.len());
            let job = Job::Tasks {
                array,
                tasks: &tasks,
                after: after.as_deref(),
                not_on: &not_on,
            };
            match submit::submit(self.slurm, self.plan, self.results, &job) {
                Ok(_) => {
                    tell(Event::Note { text });
                    self.drop_held(queue, array, &tasks)?;
                }
                // Later.
                Err(SubmitError::Slurm(
                    error @ (SlurmError::Full { .. } | SlurmError::Unreachable { .. }),
                )) => {
                    let text = error.to_string();
                    tell(Event::Note { text });
                    break;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Cancels the held tasks in place of which others were submitted, so that
    /// nothing of the campaign is left in the queue.
    fn drop_held(
        &self,
        queue: &[Queued],
        array: usize,
        tasks: &[usize],
    ) -> Result<(), SubmitError> {
        for held in queue.iter().filter(|one| one.is_held()) {
            let Some(task) = held.task.filter(|task| tasks.contains(task)) else {
                continue;
            };
            let of = |one: &&Submission| one.array == Some(array) && one.name == held.name;
            if let Some(job) = self
                .submissions
                .iter()
                .find(of)
                .and_then(|one| one.job.as_ref())
            {
                self.slurm.cancel_task(job, task)?;
            }
        }
        Ok(())
    }

    /// Whether the units are there; a build that was lost is submitted again.
    fn build(&self, queue: &[Queued], tell: &mut dyn FnMut(Event)) -> Result<Build, WatchError> {
        if self.desk.is_built() {
            return Ok(Build::There);
        }
        let builds: Vec<&Submission> = self
            .submissions
            .iter()
            .filter(|one| one.array.is_none())
            .collect();
        let waits = |one: &&&Submission| queue.iter().any(|queued| queued.name == one.name);
        if let Some(build) = builds.iter().find(waits) {
            return Ok(Build::Waits(build.job.clone().unwrap_or_default()));
        }
        if let Some(why) = self.desk.build_failure() {
            return Err(WatchError::Build { why });
        }
        let counted = &self.submissions[self.desk.since().min(self.submissions.len())..];
        let times = counted.iter().filter(|one| one.array.is_none()).count();
        if times >= BUILDS {
            return Err(WatchError::BuildLost {
                times,
                log: self.desk.log().join("build.log"),
            });
        }
        let text = "the build job is submitted again".into();
        tell(Event::Note { text });
        let job = submit::submit(self.slurm, self.plan, self.results, &Job::Build)?;
        Ok(Build::Waits(job))
    }

    /// Gives a run that was lost again and again an outcome, whatever the number of
    /// tries: it has had its chances.
    fn record_lost(&self, tally: &Tally, run: PlannedRun, reason: &str) -> Result<(), StoreError> {
        let meta = tally.meta();
        let cell = &meta.cells[run.cell];
        let shelf = Shelf::of(self.results);
        while let State::Open { attempt } = shelf.state(run, cell, meta.experiment.limits.tries)? {
            let outcome = Outcome::LabFailed {
                part: "batch".into(),
                reason: reason.into(),
            };
            let folder = shelf.begin(run)?;
            let now = jiff::Timestamp::now().to_string();
            let record = record_of(cell, run, attempt, now, RunResult::nowhere(outcome));
            shelf.put(&folder, &record)?;
        }
        Ok(())
    }

    fn close(&self, tally: &Tally, held: bool) -> Ended {
        if held {
            Shelf::of(self.results).clear();
        }
        Ended {
            planned: tally.planned(),
            completed: tally.completed(),
            left: tally.planned() - tally.ended(),
        }
    }
}

enum Build {
    There,
    Waits(String),
}

fn ended(record: &RunRecord) -> Event {
    Event::RunEnded {
        index: record.index,
        cell: record.cell.clone(),
        round: record.round,
        attempt: record.attempt,
        outcome: record.outcome.clone(),
        wall_ms: record.wall_ms,
        hello_ms: record.hello_ms,
        samples: record.samples.len(),
    }
}

/// Cancels every job of a campaign and no other.
///
/// # Errors
/// Slurm refused or does not answer.
pub fn cancel(slurm: &Slurm, results: &Path) -> Result<usize, WatchError> {
    let desk = Desk::of(results);
    // First the note: whoever watches must not submit again what is cancelled next.
    desk.note_cancelled()?;
    let submissions = desk.submissions()?;
    let names: Vec<String> = submissions.into_iter().map(|one| one.name).collect();
    let waiting = slurm.queue(&names).map_err(SubmitError::Slurm)?;
    slurm.cancel(&names).map_err(SubmitError::Slurm)?;
    Ok(waiting.len())
}
