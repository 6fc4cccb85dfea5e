//! A bisection on disk: what was planned, and every answer the moment it is there.
//!
//! ```text
//! bisect-NAME-20261130-231500/
//!   bisect.json      the plan and the candidates; written once
//!   answers.jsonl    one line an answer, appended and synced
//!   lock             held (flock) while a bisection writes
//!   runs/            one folder a run
//! ```
//!
//! A power cut leaves at most half of the last line, which is as if the answer had
//! never been given.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::engine::{AnswerError, Costs, Engine};
use super::git::{Range, RangeRequest};
use super::history::History;
use super::judge::Judge;
use super::observation::{Observation, Place, Rules};

/// Version of the folder.
pub const FORMAT: u32 = 1;

/// What is searched.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "over", rename_all = "kebab-case")]
pub enum Target {
    /// A range of a git repository.
    Git {
        /// Path of the user's repository.
        repo: PathBuf,
        /// As asked.
        request: RangeRequest,
        /// As git listed it.
        range: Range,
    },
    /// The prefixes of a patch series.
    Series {
        /// The kernel.
        kernel: String,
        /// Its series.
        series: String,
        /// The patches in order.
        patches: Vec<PatchName>,
        /// The patches as candidates, named by their number.
        history: History,
    },
    /// Two trees and nothing between them: a fresh comparison.
    Pair {
        /// The good one: a commit or a variant.
        good: String,
        /// The bad one.
        bad: String,
        /// One candidate, named as the bad tree.
        history: History,
    },
}

/// A patch of a series, as it is told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PatchName {
    /// File or commit it came from.
    pub name: String,
    /// Its subject.
    pub subject: String,
    /// Its author, when told.
    pub author: Option<String>,
}

impl Target {
    /// The candidates.
    pub fn history(&self) -> &History {
        match self {
            Self::Git { range, .. } => &range.history,
            Self::Series { history, .. } | Self::Pair { history, .. } => history,
        }
    }

    /// Name of the tree at a place: a commit id, or a variant of the series.
    pub fn tree(&self, place: Place) -> String {
        match (self, place) {
            (Self::Git { range, .. }, Place::GoodEnd) => range.good.clone(),
            (Self::Git { range, .. }, Place::BadEnd) => range.bad.clone(),
            (Self::Git { range, .. }, Place::At(candidate)) => {
                range.history.id(candidate).to_owned()
            }
            (Self::Pair { good, .. }, Place::GoodEnd) => good.clone(),
            (Self::Pair { bad, .. }, _) => bad.clone(),
            (Self::Series { .. }, Place::GoodEnd) => "base".to_owned(),
            (Self::Series { .. }, Place::BadEnd) => "all".to_owned(),
            (Self::Series { .. }, Place::At(candidate)) => format!("1..{}", candidate + 1),
        }
    }
}

/// What was planned.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// [`FORMAT`] at the time of writing.
    pub format: u32,
    /// Version of topolab.
    pub topolab: String,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// The experiment, by name or path; absent for a script.
    pub experiment: Option<String>,
    /// Text of the experiment when it began.
    pub experiment_text: String,
    /// The cell that is measured, its kernel replaced at every step; absent for a script.
    pub cell: Option<crate::plan::Cell>,
    /// What is searched.
    pub target: Target,
    /// What is sought.
    pub judge: Judge,
    /// How much certainty, and how much may be spent.
    pub rules: Rules,
}

/// One answer with what it took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// Where.
    pub place: Place,
    /// What.
    #[serde(flatten)]
    pub observation: Observation,
    /// SHA-256 of the image that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Seconds of building that preceded it; 0 for a tree that was ready.
    #[serde(default)]
    pub build_seconds: f64,
    /// Seconds of running.
    #[serde(default)]
    pub run_seconds: f64,
    /// Folder of the run, below `runs/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub folder: Option<String>,
    /// When it was given, RFC 3339 in UTC.
    pub at: String,
}

/// A bisection this process writes.
#[derive(Debug)]
pub struct Session {
    folder: PathBuf,
    plan: Plan,
    engine: Engine,
    entries: Vec<Entry>,
    answers: File,
    _lock: File,
}

/// A folder that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// The file system said no.
    #[error("{path}: cannot {what}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's words.
        source: io::Error,
    },
    /// No bisection there.
    #[error("{0}: not the folder of a bisection (there is no bisect.json)")]
    NotABisection(PathBuf),
    /// Another process writes there.
    #[error("{0}: another bisection is writing to this folder")]
    Busy(PathBuf),
    /// A file is not what it should be.
    #[error("{path}:{line}: cannot be read")]
    Garbled {
        /// The file.
        path: PathBuf,
        /// Its line, from 1.
        line: usize,
        /// The parser's words.
        source: serde_json::Error,
    },
    /// A folder of another version.
    #[error("{path}: format {found} of a bisection; this topolab reads format {FORMAT}")]
    Version {
        /// The file.
        path: PathBuf,
        /// Version it says it has.
        found: u32,
    },
    /// An answer that cannot be.
    #[error("an answer was refused")]
    Answer(#[from] AnswerError),
}

fn io_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> SessionError {
    let path = path.to_owned();
    move |source| SessionError::Io { path, what, source }
}

impl Session {
    /// Makes a new folder.
    ///
    /// # Errors
    /// It exists or cannot be made.
    pub fn create(folder: &Path, plan: Plan) -> Result<Self, SessionError> {
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent).map_err(io_error(parent, "make the folder"))?;
        }
        fs::create_dir(folder).map_err(io_error(folder, "make the folder"))?;
        let runs = folder.join("runs");
        fs::create_dir(&runs).map_err(io_error(&runs, "make the folder"))?;
        let lock = lock(folder)?;
        let file = folder.join("bisect.json");
        let text = serde_json::to_vec(&plan).map_err(|source| SessionError::Garbled {
            path: file.clone(),
            line: 1,
            source,
        })?;
        let mut written =
            tempfile::NamedTempFile::new_in(folder).map_err(io_error(folder, "make a file"))?;
        written
            .write_all(&text)
            .and_then(|()| written.as_file().sync_all())
            .map_err(io_error(&file, "write the file"))?;
        written
            .persist(&file)
            .map_err(|error| io_error(&file, "rename the file into place")(error.error))?;
        Self::with(folder, plan, Vec::new(), lock)
    }

    /// Opens a folder to go on with it. An abort at its end is forgotten: the
    /// question will be asked again.
    ///
    /// # Errors
    /// It is none, of another version, damaged, or in use.
    pub fn open(folder: &Path) -> Result<Self, SessionError> {
        let (plan, entries, whole) = load(folder)?;
        let lock = lock(folder)?;
        let file = folder.join("answers.jsonl");
        // Half a line from a power cut must not run into the next answer.
        OpenOptions::new()
            .write(true)
            .open(&file)
            .and_then(|answers| answers.set_len(whole))
            .map_err(io_error(&file, "cut off a half-written line of"))?;
        Self::with(folder, plan, entries, lock)
    }

    fn with(
        folder: &Path,
        plan: Plan,
        entries: Vec<Entry>,
        lock: File,
    ) -> Result<Self, SessionError> {
        let file = folder.join("answers.jsonl");
        let answers = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&file)
            .map_err(io_error(&file, "open the file"))?;
        let entries: Vec<Entry> = entries
            .into_iter()
            .filter(|entry| !matches!(entry.observation, Observation::Abort { .. }))
            .collect();
        let engine = replay(&plan, &entries)?;
        Ok(Self {
            folder: folder.to_owned(),
            plan,
            engine,
            entries,
            answers,
            _lock: lock,
        })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What was planned.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The engine with every answer so far.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Every answer so far.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The places that were asked, each once, in the order they were first asked.
    pub fn places(&self) -> Vec<Place> {
        let mut seen = std::collections::HashSet::new();
        let asked = self.entries.iter().map(|entry| entry.place);
        asked.filter(|place| seen.insert(*place)).collect()
    }

    /// Takes an answer and makes it durable.
    ///
    /// # Errors
    /// It does not fit, or the file system said no; then it was not taken.
    pub fn record(&mut self, entry: Entry) -> Result<(), SessionError> {
        let mut engine = self.engine.clone();
        engine.answer(entry.place, entry.observation.clone())?;
        let file = self.folder.join("answers.jsonl");
        let mut line = serde_json::to_vec(&entry).map_err(|source| SessionError::Garbled {
            path: file.clone(),
            line: self.entries.len() + 1,
            source,
        })?;
        line.push(b'\n');
        self.answers
            .write_all(&line)
            .and_then(|()| self.answers.sync_data())
            .map_err(io_error(&file, "append to the file"))?;
        self.engine = engine;
        self.entries.push(entry);
        Ok(())
    }

    /// What builds and runs cost so far, in seconds; a guess before the first of each.
    pub fn costs(&self) -> Costs {
        costs(&self.entries)
    }

    /// Changes how much may be spent from now on; for a bisection that is resumed.
    pub fn allow(&mut self, max_runs: u32) {
        self.plan.rules.max_runs = max_runs;
        let rules = self.plan.rules;
        self.engine.allow(rules);
    }
}

/// Means of what was spent, in seconds.
fn costs(entries: &[Entry]) -> Costs {
    let mean = |spent: &mut dyn Iterator<Item = f64>| {
        let (sum, n) = spent
            .filter(|seconds| *seconds > 0.0)
            .fold((0.0, 0.0), |(sum, n), s| (sum + s, n + 1.0));
        (n > 0.0).then(|| sum / n)
    };
    let guess = Costs::default();
    let run = mean(&mut entries.iter().map(|e| e.run_seconds));
    // The first build compiles everything; it says nothing about the next ones.
    let mut builds = entries.iter().map(|e| e.build_seconds).filter(|s| *s > 0.0);
    let first = builds.next();
    let build = mean(&mut builds).or(first);
    let run = run.unwrap_or(10.0);
    Costs {
        build: build.unwrap_or(guess.build / guess.run * run),
        run,
    }
}

/// An engine that was given all these answers.
pub(super) fn replay(plan: &Plan, entries: &[Entry]) -> Result<Engine, AnswerError> {
    let mut engine = Engine::new(plan.target.history().clone(), plan.rules);
    if let Target::Git { range, .. } = &plan.target {
        engine = engine.without(&range.skipped);
    }
    for entry in entries {
        engine.answer(entry.place, entry.observation.clone())?;
    }
    Ok(engine)
}

/// Reads a folder: the plan, the answers, and how many bytes of the answers are
/// whole lines.
fn load(folder: &Path) -> Result<(Plan, Vec<Entry>, u64), SessionError> {
    let file = folder.join("bisect.json");
    if !file.is_file() {
        return Err(SessionError::NotABisection(folder.to_owned()));
    }
    let text = fs::read(&file).map_err(io_error(&file, "read the file"))?;
    #[derive(Deserialize)]
    struct Head {
        format: u32,
    }
    let garbled = |source: serde_json::Error| SessionError::Garbled {
        path: file.clone(),
        line: source.line(),
        source,
    };
    let head: Head = serde_json::from_slice(&text).map_err(garbled)?;
    if head.format != FORMAT {
        return Err(SessionError::Version {
            path: file,
            found: head.format,
        });
    }
    let plan: Plan = serde_json::from_slice(&text).map_err(garbled)?;
    let file = folder.join("answers.jsonl");
    let text = match fs::read(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(io_error(&file, "read the file")(error)),
    };
    let mut entries = Vec::new();
    let mut whole = 0;
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.last() != Some(&b'\n') {
            break;
        }
        let entry = serde_json::from_slice(line).map_err(|source| SessionError::Garbled {
            path: file.clone(),
            line: number + 1,
            source,
        })?;
        entries.push(entry);
        whole += line.len() as u64;
    }
    Ok((plan, entries, whole))
}

fn lock(folder: &Path) -> Result<File, SessionError> {
    let file = folder.join("lock");
    crate::store::lock::hold(&file)
        .map_err(io_error(&file, "lock the file"))?
        .ok_or_else(|| SessionError::Busy(folder.to_owned()))
}
