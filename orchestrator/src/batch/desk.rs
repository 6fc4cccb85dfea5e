//! What a campaign on a batch system keeps in `batch/` of its results folder.
//!
//! ```text
//! batch/plan.json            blocks, arrays, what is asked of the batch system
//! batch/submissions.jsonl    one line for what was submitted, before and after
//! batch/units/aN/K.json      what task K of array N does; written by the build job
//! batch/benches/G            what the nodes of group G must be like
//! batch/elsewhere/NODE       groups that this node may not run
//! batch/given-up/CELL        a cell that no try can help
//! batch/partial/             runs that are under way
//! batch/built                kernels, image and units are there
//! batch/build-failed         why they are not
//! batch/cancelled            somebody cancelled the campaign
//! batch/since                submissions before this one do not count any more
//! batch/log/                 what the jobs wrote
//! ```

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{
    block::Block,
    plan::{Array, Limits, Wish},
    unit::Unit,
};
use crate::store::{StoreError, write_durably};

/// What is submitted for a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Names of the campaign's jobs begin with it.
    pub id: String,
    /// The program the jobs start.
    pub topolab: PathBuf,
    /// The submitter's cache.
    pub cache: PathBuf,
    /// Folders with kernels, topologies and experiments.
    pub library: Vec<PathBuf>,
    /// What the user asks for.
    pub wish: Wish,
    /// The cluster's limits at the time.
    pub limits: Limits,
    /// Blocks, by number.
    pub blocks: Vec<Block>,
    /// Arrays, by number.
    pub arrays: Vec<Array>,
}

/// One line of `submissions.jsonl`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// Name of the job; unique.
    pub name: String,
    /// Its number, once the batch system told it.
    pub job: Option<String>,
    /// The array; absent for the build.
    pub array: Option<usize>,
    /// Tasks of it.
    pub tasks: Vec<usize>,
}

/// The folder.
#[derive(Debug, Clone)]
pub struct Desk {
    folder: PathBuf,
}

fn failed(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_path_buf();
    move |source| StoreError::Io { path, what, source }
}

impl Desk {
    /// That of a results folder.
    pub fn of(results: &Path) -> Self {
        Self {
            folder: results.join("batch"),
        }
    }

    /// The desk a unit lies on: `RESULTS/batch/units/aN/K.json`.
    pub fn of_unit(unit: &Path) -> Option<(Self, PathBuf)> {
        let folder = unit.ancestors().nth(3)?;
        let is_desk = folder.file_name()? == "batch" && folder.join("plan.json").is_file();
        let results = folder.parent()?.to_path_buf();
        is_desk.then(|| (Self::of(&results), results))
    }

    /// Whether the campaign was submitted to a batch system.
    pub fn exists(&self) -> bool {
        self.folder.join("plan.json").is_file()
    }

    /// Folder of what jobs write.
    pub fn log(&self) -> PathBuf {
        self.folder.join("log")
    }

    /// Lays out an empty desk.
    ///
    /// # Errors
    /// The file system said no.
    pub fn lay_out(&self, plan: &Plan) -> Result<(), StoreError> {
        for name in [
            "log",
            "units",
            "benches",
            "elsewhere",
            "given-up",
            "partial",
        ] {
            let path = self.folder.join(name);
            fs::create_dir_all(&path).map_err(failed(&path, "make the folder"))?;
        }
        write_durably(&self.folder.join("plan.json"), plan)
    }

    /// The plan.
    ///
    /// # Errors
    /// There is none, or it is damaged.
    pub fn plan(&self) -> Result<Plan, StoreError> {
        let path = self.folder.join("plan.json");
        let text = fs::read(&path).map_err(failed(&path, "read the file"))?;
        serde_json::from_slice(&text).map_err(|source| StoreError::Garbled {
            path,
            what: "plan of jobs",
            source,
        })
    }

    /// Notes what is about to be, or was, submitted.
    ///
    /// # Errors
    /// The file system said no.
    pub fn note(&self, submission: &Submission) -> Result<(), StoreError> {
        let path = self.folder.join("submissions.jsonl");
        let line = serde_json::to_string(submission).expect("plain data") + "\n";
        let write = || -> io::Result<()> {
            let mut file = fs::OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)?;
            file.write_all(line.as_bytes())?;
            file.sync_all()
        };
        write().map_err(failed(&path, "write the file"))
    }

    /// What was noted; a last line that was cut off is left out.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn submissions(&self) -> Result<Vec<Submission>, StoreError> {
        let path = self.folder.join("submissions.jsonl");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(failed(&path, "read the file")(error)),
        };
        let mut found: Vec<Submission> = Vec::new();
        for line in text.lines() {
            let Ok(line) = serde_json::from_str::<Submission>(line) else {
                continue;
            };
            match found.iter_mut().find(|known| known.name == line.name) {
                Some(known) => *known = line,
                None => found.push(line),
            }
        }
        Ok(found)
    }

    /// The file of a unit.
    pub fn unit(&self, array: usize, task: usize) -> PathBuf {
        self.folder.join(format!("units/a{array}/{task}.json"))
    }

    /// Writes a unit whole or not at all. It is not synced: the build job would be
    /// done again.
    ///
    /// # Errors
    /// The file system said no.
    pub fn write_unit(&self, array: usize, task: usize, unit: &Unit) -> Result<(), StoreError> {
        let path = self.unit(array, task);
        let folder = path.parent().expect("units lie in a folder");
        let text = serde_json::to_vec(unit).expect("plain data");
        let write = || -> io::Result<()> {
            fs::create_dir_all(folder)?;
            let half = path.with_extension("half");
            fs::write(&half, text)?;
            fs::rename(&half, &path)
        };
        write().map_err(failed(&path, "write the unit"))
    }

    /// Claims a group for nodes that are like this one, or says what the nodes of
    /// the group are like. A link appears at once or not at all, on NFS, too.
    ///
    /// # Errors
    /// The file system said no.
    pub fn claim(&self, group: usize, bench: &str) -> Result<String, StoreError> {
        let path = self.folder.join(format!("benches/{group}"));
        let write = || -> io::Result<String> {
            if let Ok(found) = fs::read_to_string(&path) {
                return Ok(found);
            }
            let folder = path.parent().expect("it lies in a folder");
            fs::create_dir_all(folder)?;
            let mut file = tempfile::NamedTempFile::new_in(folder)?;
            file.write_all(bench.as_bytes())?;
            file.as_file().sync_all()?;
            match fs::hard_link(file.path(), &path) {
                Ok(()) => Ok(bench.to_string()),
                Err(_) if path.is_file() => fs::read_to_string(&path),
                Err(error) => Err(error),
            }
        };
        write().map_err(failed(&path, "note what the nodes are like"))
    }

    /// Notes that a node is unlike those of a group.
    ///
    /// # Errors
    /// The file system said no.
    pub fn note_elsewhere(&self, group: usize, node: &str) -> Result<(), StoreError> {
        let path = self.folder.join(format!("elsewhere/{group},{node}"));
        fs::write(&path, "").map_err(failed(&path, "write the file"))
    }

    /// Nodes that are unlike those of some of these groups.
    pub fn elsewhere(&self, groups: &BTreeSet<usize>) -> BTreeSet<String> {
        let entries = fs::read_dir(self.folder.join("elsewhere"));
        let names = entries.into_iter().flatten().flatten();
        names
            .filter_map(|entry| {
                let name = entry.file_name().into_string().ok()?;
                let (group, node) = name.split_once(',')?;
                groups.contains(&group.parse().ok()?).then(|| node.into())
            })
            .collect()
    }

    /// Notes that no try can help a cell.
    ///
    /// # Errors
    /// The file system said no.
    pub fn give_up(&self, cell: &str, why: &str) -> Result<(), StoreError> {
        let path = self.folder.join("given-up").join(cell);
        fs::write(&path, why).map_err(failed(&path, "write the file"))
    }

    /// Whether a cell was given up.
    pub fn has_given_up(&self, cell: &str) -> bool {
        self.folder.join("given-up").join(cell).exists()
    }

    /// Notes why the build failed, or that a new one begins.
    ///
    /// # Errors
    /// The file system said no.
    pub fn note_build(&self, failure: Option<&str>) -> Result<(), StoreError> {
        let path = self.folder.join("build-failed");
        let done = match failure {
            Some(why) => fs::write(&path, why),
            None => fs::remove_file(&path).or_else(|error| match error.kind() {
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(error),
            }),
        };
        done.map_err(failed(&path, "write the file"))
    }

    /// Notes that the campaign is cancelled: nobody is to submit what it lacks.
    ///
    /// # Errors
    /// The file system said no.
    pub fn note_cancelled(&self) -> Result<(), StoreError> {
        let path = self.folder.join("cancelled");
        fs::write(&path, "").map_err(failed(&path, "write the file"))
    }

    /// Whether the campaign was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.folder.join("cancelled").exists()
    }

    /// Forgets what was tried, failed or cancelled so far: what is lacking may be
    /// submitted again as often as at first.
    ///
    /// # Errors
    /// The file system said no.
    pub fn begin_anew(&self) -> Result<(), StoreError> {
        self.note_build(None)?;
        let path = self.folder.join("since");
        let count = self.submissions()?.len().to_string();
        fs::write(&path, count).map_err(failed(&path, "write the file"))?;
        let path = self.folder.join("cancelled");
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(failed(&path, "remove the file")(error))
            }
            _ => Ok(()),
        }
    }

    /// Submissions before this one do not count any more.
    pub fn since(&self) -> usize {
        let text = fs::read_to_string(self.folder.join("since")).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }

    /// Notes that kernels, image and units are there.
    ///
    /// # Errors
    /// The file system said no.
    pub fn note_built(&self) -> Result<(), StoreError> {
        let path = self.folder.join("built");
        fs::write(&path, "").map_err(failed(&path, "write the file"))
    }

    /// Whether kernels, image and units are there.
    pub fn is_built(&self) -> bool {
        self.folder.join("built").exists()
    }

    /// Why the build failed.
    pub fn build_failure(&self) -> Option<String> {
        fs::read_to_string(self.folder.join("build-failed")).ok()
    }
}
