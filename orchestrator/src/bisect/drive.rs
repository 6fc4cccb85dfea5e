//! Asks the engine, measures, and answers, until it ends.

use std::collections::BTreeMap;
use std::time::Instant;

use serde::Serialize;

use super::engine::{Question, Step};
use super::judge::{Judge, Measurement, Ruling};
use super::observation::{Observation, Place};
use super::session::{Entry, Session, SessionError};
use super::verdict::Verdict;
use crate::run::Cancel;

/// A tree to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Where it is in the search.
    pub place: Place,
    /// A commit id, or a variant of a series.
    pub name: String,
}

/// What came of making a tree ready.
#[derive(Debug, Clone, PartialEq)]
pub enum Ready {
    /// It can be run.
    Yes {
        /// SHA-256 of its image, when it has one: equal images are one tree.
        image: Option<String>,
    },
    /// It does not build, or its patches do not apply.
    Broken {
        /// The first complaint.
        complaint: String,
    },
    /// The lab failed.
    LabFailed {
        /// Why.
        reason: String,
    },
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What was seen.
    pub measurement: Measurement,
    /// Its folder below `runs/`, when it has one.
    pub folder: Option<String>,
}

/// What a bisection tells while it goes on. For each question [`Progress::Asked`],
/// then [`Progress::Built`] when the tree was not ready, any number of
/// [`Progress::Again`], and [`Progress::Answered`].
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "bisect", rename_all = "kebab-case")]
pub enum Progress {
    /// A tree is going to be measured.
    Asked {
        /// Where.
        place: Place,
        /// Its name.
        tree: String,
        /// Which run of it, from 1.
        run: u32,
        /// Candidates that together still hold the wanted confidence.
        suspects: usize,
        /// Rough number of further runs, when it can be told.
        runs_left: Option<f64>,
        /// Rough number of further seconds, when it can be told.
        seconds_left: Option<f64>,
    },
    /// The tree was made ready.
    Built {
        /// Its name.
        tree: String,
        /// How long it took.
        seconds: f64,
    },
    /// The lab failed, or a run ended in another way than the sought one; the same is
    /// tried again.
    Again {
        /// Which try failed, from 1.
        attempt: u32,
        /// Why.
        reason: String,
    },
    /// An answer is saved.
    Answered {
        /// Its name.
        tree: String,
        /// The answer.
        entry: Entry,
    },
}

/// A bisection that did not come to a verdict.
#[derive(Debug, thiserror::Error)]
pub enum DriveError {
    /// An answer could not be saved.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Ctrl-C. Every answer until then is saved.
    #[error("interrupted after {answers} answers")]
    Interrupted {
        /// Answers saved.
        answers: usize,
    },
}

/// How often a measurement whose lab failed is tried.
pub const TRIES: u32 = 3;

/// How often a run may end in other ways than the sought one before its tree is
/// skipped: a crash of the emulator must not cost the tree that decides.
pub const OTHER_TRIES: u32 = 3;

/// Whether runs that ended in other ways than the sought one, for these reasons,
/// say enough to skip their tree: a broken tree breaks in the same way twice, a
/// busy bench in any way.
pub fn is_broken(reasons: &[String]) -> bool {
    let Some((last, before)) = reasons.split_last() else {
        return false;
    };
    before.contains(last) || reasons.len() >= OTHER_TRIES as usize
}

/// Searches until the verdict. `ready` makes a tree ready, `run` runs it once.
///
/// A lab that fails [`TRIES`] times in a row ends it with [`Verdict::Aborted`];
/// the state stays, so that it can be gone on with.
///
/// # Errors
/// An answer could not be saved, or the user interrupted.
pub async fn drive(
    session: &mut Session,
    ready: &impl AsyncFn(&Tree) -> Ready,
    run: &impl AsyncFn(&Tree, u32) -> Run,
    cancel: &Cancel,
    tell: &mut dyn FnMut(Progress),
) -> Result<Verdict, DriveError> {
    let mut images: BTreeMap<Place, Option<String>> = BTreeMap::new();
    loop {
        let costs = session.costs();
        let question = match session.engine().next(costs) {
            Step::Done(verdict) => return Ok(verdict),
            Step::Ask(question) => question,
        };
        let tree = Tree {
            place: question.place,
            name: session.plan().target.tree(question.place),
        };
        tell(asked(&question, &tree, session));
        let measuring = measure(session, &question, &tree, &mut images, ready, run, tell);
        let mut cancel = cancel.clone();
        let entry = tokio::select! {
            entry = measuring => entry,
            () = cancel.told() => {
                return Err(DriveError::Interrupted { answers: session.entries().len() });
            }
        };
        let aborted = match &entry.observation {
            Observation::Abort { reason } => Some(reason.clone()),
            _ => None,
        };
        session.record(entry.clone())?;
        tell(Progress::Answered {
            tree: tree.name,
            entry,
        });
        if let Some(reason) = aborted {
            return Ok(Verdict::Aborted { reason });
        }
    }
}

fn asked(question: &Question, tree: &Tree, session: &Session) -> Progress {
    let costs = session.costs();
    let seconds_left = question.runs_left.map(|runs| {
        // Each halving takes a build; a tree in ten is measured for nothing.
        let suspects = u32::try_from(question.suspects).unwrap_or(u32::MAX);
        runs * costs.run + f64::from(suspects).log2() * 1.1 * costs.build
    });
    Progress::Asked {
        place: question.place,
        tree: tree.name.clone(),
        run: question.run,
        suspects: question.suspects,
        runs_left: question.runs_left,
        seconds_left,
    }
}

async fn measure(
    session: &Session,
    question: &Question,
    tree: &Tree,
    images: &mut BTreeMap<Place, Option<String>>,
    ready: &impl AsyncFn(&Tree) -> Ready,
    run: &impl AsyncFn(&Tree, u32) -> Run,
    tell: &mut dyn FnMut(Progress),
) -> Entry {
    let judge = &session.plan().judge;
    let mut entry = Entry {
        place: tree.place,
        observation: Observation::Good,
        image: None,
        build_seconds: 0.0,
        run_seconds: 0.0,
        folder: None,
        at: jiff::Timestamp::now().to_string(),
    };
    let mut failures = 0;
    let mut others: Vec<String> = Vec::new();
    loop {
        let ruling = match images.get(&tree.place) {
            None => {
                let started = Instant::now();
                let answer = ready(tree).await;
                let seconds = started.elapsed().as_secs_f64();
                entry.build_seconds += seconds;
                match answer {
                    Ready::Yes { image } => {
                        tell(Progress::Built {
                            tree: tree.name.clone(),
                            seconds,
                        });
                        images.insert(tree.place, image.clone());
                        match image.and_then(|image| twin(session, tree.place, &image)) {
                            Some(place) => Ruling::Answer(Observation::SameAs { place }),
                            None => continue,
                        }
                    }
                    Ready::Broken { complaint } => judge.rule(&Measurement::NoBuild { complaint }),
                    Ready::LabFailed { reason } => Ruling::Again { reason },
                }
            }
            Some(image) => {
                entry.image.clone_from(image);
                run_once(judge, tree, question.run, run, &mut entry).await
            }
        };
        match ruling {
            Ruling::Doubtful { reason } => {
                others.push(reason.clone());
                if is_broken(&others) {
                    entry.observation = Observation::Untestable { reason };
                    entry.at = jiff::Timestamp::now().to_string();
                    return entry;
                }
                tell(Progress::Again {
                    attempt: u32::try_from(others.len()).unwrap_or(u32::MAX),
                    reason,
                });
            }
            Ruling::Answer(observation) => {
                entry.observation = observation;
                entry.at = jiff::Timestamp::now().to_string();
                return entry;
            }
            Ruling::Again { reason } => {
                failures += 1;
                tell(Progress::Again {
                    attempt: failures,
                    reason: reason.clone(),
                });
                if failures >= TRIES {
                    entry.observation = Observation::Abort {
                        reason: format!("the lab failed {TRIES} times in a row: {reason}"),
                    };
                    return entry;
                }
            }
        }
    }
}

async fn run_once(
    judge: &Judge,
    tree: &Tree,
    number: u32,
    run: &impl AsyncFn(&Tree, u32) -> Run,
    entry: &mut Entry,
) -> Ruling {
    if !judge.needs_runs() {
        return judge.rule(&Measurement::Builds);
    }
    let started = Instant::now();
    let ran = run(tree, number).await;
    entry.run_seconds += started.elapsed().as_secs_f64();
    entry.folder = ran.folder;
    judge.rule(&ran.measurement)
}

/// Another place that was measured with the very same image.
fn twin(session: &Session, place: Place, image: &str) -> Option<Place> {
    session
        .entries()
        .iter()
        .find(|entry| entry.place != place && entry.image.as_deref() == Some(image))
        .map(|entry| entry.place)
}
