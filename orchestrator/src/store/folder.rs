//! The results folder on disk.
//!
//! ```text
//! NAME-20261130-231500/
//!   campaign.json            what was planned, and what was built for it
//!   lock                     held (flock) while a campaign writes
//!   runs/00003-r1-SLUG/      one folder a run: run.json last, beside
//!                            console.log, output.log, evidence/
//! ```
//!
//! A run exists when its `run.json` does: it is written to a temporary file,
//! synced and renamed, so a power cut leaves a whole record or none.

use std::{
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::record::{FORMAT, RunRecord};
use crate::{
    parallel::in_parallel,
    plan::{Cell, ExperimentSpec},
};

/// What was planned.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CampaignMeta {
    /// [`FORMAT`] at the time of writing.
    pub format: u32,
    /// Version of topolab.
    pub topolab: String,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// Seed of the order.
    pub seed: u64,
    /// The experiment as it was written.
    pub experiment_text: String,
    /// Where it was read; names in it are looked for from there.
    pub experiment_path: PathBuf,
    /// The experiment as it was read.
    pub experiment: ExperimentSpec,
    /// Its cells; runs name them by value, the order by index.
    pub cells: Vec<Cell>,
    /// Rounds planned, warm-up rounds not counted.
    pub rounds: u32,
    /// Most rounds, when rounds are added until everything is decided; absent: the
    /// number of rounds is fixed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_decided: Option<u32>,
    /// Rounds after which the data were looked at, in order to add rounds or not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looks: Vec<u32>,
    /// Kernels, as built.
    pub kernels: Vec<KernelMeta>,
    /// Topology files: name to text.
    pub topologies: std::collections::BTreeMap<String, String>,
}

/// A kernel as it was built for a campaign.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct KernelMeta {
    /// As in [`Cell::kernel`].
    pub name: String,
    /// SHA-256 of the image; empty when it was not built.
    pub image: String,
    /// GNU build id.
    pub build_id: String,
    /// `uname -r`.
    pub release: String,
    /// SHA-256 of the configuration.
    pub config: String,
    /// Objects compiled for it.
    pub recompiled: u32,
    /// Seconds the build took.
    pub seconds: f64,
    /// It came out of the cache.
    pub cached: bool,
    /// Another kernel of this campaign with the very same image.
    pub equal_to: Option<String>,
    /// Why there is no such kernel: a patch that does not apply or build.
    pub unavailable: Option<String>,
}

/// Why a results folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file system said no.
    #[error("{path}: cannot {what}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// The system's words.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{path}: not a readable {what}")]
    Garbled {
        /// File.
        path: PathBuf,
        /// What it should be.
        what: &'static str,
        /// The parser's words.
        #[source]
        source: serde_json::Error,
    },
    /// A folder of another version.
    #[error("{path}: results format {found}; this topolab reads format {FORMAT}")]
    Version {
        /// File.
        path: PathBuf,
        /// Version it says it has.
        found: u64,
    },
    /// Another process writes there.
    #[error("{0}: another campaign is writing to this results folder")]
    Busy(PathBuf),
    /// No results folder.
    #[error("{0}: not a results folder (there is no campaign.json)")]
    NotResults(PathBuf),
}

impl StoreError {
    fn io(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::Io { path, what, source }
    }
}

/// A results folder that this process writes.
#[derive(Debug)]
pub struct ResultsFolder {
    path: PathBuf,
    _lock: File,
}

/// A results folder as read.
#[derive(Debug, Clone)]
pub struct Results {
    /// Where.
    pub path: PathBuf,
    /// What was planned.
    pub meta: CampaignMeta,
    /// Finished runs, by index then attempt.
    pub records: Vec<RunRecord>,
}

impl ResultsFolder {
    /// Makes a new folder; its parent must be writable. A folder in which another
    /// campaign ended before it had begun is taken as new.
    ///
    /// # Errors
    /// It exists or cannot be made.
    pub fn create(path: &Path, meta: &CampaignMeta) -> Result<Self, StoreError> {
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(StoreError::io(parent, "make the folder"))?;
        }
        let runs = path.join("runs");
        match fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists || !never_begun(path) => {
                return Err(StoreError::io(path, "make the folder")(error));
            }
            _ => {}
        }
        let folder = Self {
            path: path.into(),
            _lock: lock(path)?,
        };
        remove_unfinished(path)?;
        if !runs.is_dir() {
            fs::create_dir(&runs).map_err(StoreError::io(&runs, "make the folder"))?;
        }
        folder.save_meta(meta)?;
        Ok(folder)
    }

    /// Opens a folder to go on with it.
    ///
    /// # Errors
    /// It is none, of another version, or in use.
    pub fn open(path: &Path) -> Result<(Self, Results), StoreError> {
        if !path.join("campaign.json").is_file() {
            return Err(StoreError::NotResults(path.into()));
        }
        let folder = Self {
            path: path.into(),
            _lock: lock(path)?,
        };
        remove_unfinished(path)?;
        let results = load(path)?;
        Ok((folder, results))
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes what was planned.
    ///
    /// # Errors
    /// The file system said no.
    pub fn save_meta(&self, meta: &CampaignMeta) -> Result<(), StoreError> {
        write_durably(&self.path.join("campaign.json"), meta)
    }

    /// Makes the empty folder of a run, private to the user. What an unfinished
    /// earlier try left there is removed.
    ///
    /// # Errors
    /// The file system said no.
    pub fn run_folder(
        &self,
        index: usize,
        round: u32,
        attempt: u32,
        cell: &Cell,
    ) -> Result<PathBuf, StoreError> {
        let path = self
            .path
            .join("runs")
            .join(run_name(index, round, attempt, cell));
        if path.exists() && !path.join("run.json").exists() {
            fs::remove_dir_all(&path)
                .map_err(StoreError::io(&path, "remove what an unfinished run left"))?;
        }
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .map_err(StoreError::io(&path, "make the folder"))?;
        Ok(path)
    }

    /// Makes a run durable. Until this returns the run does not exist.
    ///
    /// # Errors
    /// The file system said no.
    pub fn save(&self, folder: &Path, record: &RunRecord) -> Result<(), StoreError> {
        write_durably(&folder.join("run.json"), record)
    }

    /// Whether there is room for more: what fails on a full disk says nothing about
    /// the run that failed, and the next would fail too.
    ///
    /// # Errors
    /// Less than 1 MiB is left, or the file system does not tell.
    pub fn check_room(&self) -> Result<(), StoreError> {
        const ROOM: u64 = 1 << 20;
        let told = StoreError::io(&self.path, "keep runs");
        let left = match rustix::fs::statvfs(&self.path) {
            Ok(left) => left.f_bavail.saturating_mul(left.f_frsize),
            Err(error) => return Err(told(error.into())),
        };
        if left < ROOM {
            return Err(told(rustix::io::Errno::NOSPC.into()));
        }
        Ok(())
    }
}

/// The name of a run's folder: the same for every process that does this try.
pub(crate) fn run_name(index: usize, round: u32, attempt: u32, cell: &Cell) -> String {
    let mut slug = cell.slug();
    slug.truncate(150);
    let retry = if attempt == 0 {
        String::new()
    } else {
        format!("-try{attempt}")
    };
    format!("{index:05}-r{round}{retry}-{slug}")
}

/// The record of a run's folder, when the run exists.
///
/// # Errors
/// It is damaged or cannot be read.
pub(crate) fn read_record(folder: &Path) -> Result<Option<RunRecord>, StoreError> {
    let file = folder.join("run.json");
    match read(&file, "run record") {
        Ok(record) => Ok(Some(record)),
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// What was planned for a results folder.
///
/// # Errors
/// It is none, or of another version.
pub fn read_meta(path: &Path) -> Result<CampaignMeta, StoreError> {
    let file = path.join("campaign.json");
    if !file.is_file() {
        return Err(StoreError::NotResults(path.into()));
    }
    read(&file, "campaign")
}

/// Writes what was planned for a results folder that a batch system fills.
///
/// # Errors
/// The file system said no.
pub(crate) fn save_meta(path: &Path, meta: &CampaignMeta) -> Result<(), StoreError> {
    write_durably(&path.join("campaign.json"), meta)
}

/// Makes names in a folder last.
///
/// # Errors
/// The file system said no.
pub(crate) fn sync_folder(folder: &Path) -> Result<(), StoreError> {
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(StoreError::io(folder, "sync the folder"))
}

/// Reads a results folder, whether or not a campaign is writing to it.
///
/// # Errors
/// It is none, is of another version, or a record is damaged.
pub fn load(path: &Path) -> Result<Results, StoreError> {
    let meta = read_meta(path)?;
    let runs = path.join("runs");
    let mut names: Vec<_> = fs::read_dir(&runs)
        .map_err(StoreError::io(&runs, "list the folder"))?
        .collect::<Result<Vec<_>, _>>()
        .map_err(StoreError::io(&runs, "list the folder"))?
        .into_iter()
        .map(|entry| entry.path().join("run.json"))
        .filter(|file| file.is_file())
        .collect();
    names.sort();
    let mut records = in_parallel(&names, |file| read::<RunRecord>(file, "run record"))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;
    records.sort_by_key(|record| (record.index, record.attempt));
    Ok(Results {
        path: path.into(),
        meta,
        records,
    })
}

/// Reads a JSON file after looking at its `format`.
fn read<T: DeserializeOwned>(path: &Path, what: &'static str) -> Result<T, StoreError> {
    #[derive(Deserialize)]
    struct Head {
        #[serde(default)]
        format: u64,
    }
    let text = fs::read(path).map_err(StoreError::io(path, "read the file"))?;
    let garbled = |source| StoreError::Garbled {
        path: path.into(),
        what,
        source,
    };
    match serde_json::from_slice::<T>(&text) {
        Ok(value) => {
            // The version is checked on every file: a folder can be mixed by hand.
            let head: Head = serde_json::from_slice(&text).map_err(garbled)?;
            if head.format != u64::from(FORMAT) {
                return Err(StoreError::Version {
                    path: path.into(),
                    found: head.format,
                });
            }
            Ok(value)
        }
        Err(error) => match serde_json::from_slice::<Head>(&text) {
            Ok(head) if head.format != u64::from(FORMAT) => Err(StoreError::Version {
                path: path.into(),
                found: head.format,
            }),
            _ => Err(garbled(error)),
        },
    }
}

/// First part of the names of files that are being written.
const UNFINISHED: &str = ".writing-";

/// Removes files that a writer who was killed left half written.
fn remove_unfinished(folder: &Path) -> Result<(), StoreError> {
    for entry in fs::read_dir(folder).map_err(StoreError::io(folder, "list the folder"))? {
        let entry = entry.map_err(StoreError::io(folder, "list the folder"))?;
        if entry.file_name().to_string_lossy().starts_with(UNFINISHED) {
            let file = entry.path();
            fs::remove_file(&file).map_err(StoreError::io(&file, "remove the file"))?;
        }
    }
    Ok(())
}

/// Whether a folder holds no more than a campaign makes before it is planned there.
fn never_begun(folder: &Path) -> bool {
    let Ok(entries) = fs::read_dir(folder) else {
        return false;
    };
    let mut names = entries.map(|entry| entry.map(|entry| entry.file_name()));
    names.all(|name| {
        name.is_ok_and(|name| {
            let name = name.to_string_lossy();
            let runs_are_none = || {
                let mut runs = fs::read_dir(folder.join("runs"))?;
                Ok::<_, io::Error>(runs.next().is_none())
            };
            name == "lock"
                || name.starts_with(UNFINISHED)
                || (name == "runs" && runs_are_none().unwrap_or(false))
        })
    })
}

pub(crate) fn write_durably<T: Serialize>(path: &Path, value: &T) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = tempfile::Builder::new()
        .prefix(".writing-")
        .tempfile_in(folder)
        .map_err(StoreError::io(folder, "make a file"))?;
    let text = serde_json::to_vec(value).map_err(|source| StoreError::Garbled {
        path: path.into(),
        what: "value to write",
        source,
    })?;
    file.write_all(&text)
        .map_err(StoreError::io(path, "write the file"))?;
    file.as_file()
        .sync_all()
        .map_err(StoreError::io(path, "sync the file"))?;
    file.persist(path)
        .map_err(|error| StoreError::io(path, "rename the file into place")(error.error))?;
    sync_folder(folder)
}

fn lock(path: &Path) -> Result<File, StoreError> {
    let file = path.join("lock");
    super::lock::hold(&file)
        .map_err(StoreError::io(&file, "lock the folder"))?
        .ok_or_else(|| StoreError::Busy(path.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{document::Document, outcome::Outcome};

    fn meta() -> CampaignMeta {
        let text = "name: t\nkernels: [k@base]\ntopologies: [smp-4]\nworkloads: {run: {command: {argv: [\"true\"]}}}\n";
        let document = Document::from_text("t.yaml", text).unwrap();
        CampaignMeta {
            format: FORMAT,
            topolab: "0".into(),
            started: "2026-11-30T00:00:00Z".into(),
            seed: 1,
            experiment_text: text.into(),
            experiment_path: "t.yaml".into(),
            experiment: ExperimentSpec::from_document(&document).unwrap(),
            cells: vec![cell()],
            rounds: 1,
            until_decided: None,
            looks: Vec::new(),
            kernels: Vec::new(),
            topologies: std::collections::BTreeMap::new(),
        }
    }

    fn cell() -> Cell {
        Cell {
            kernel: "k@base".into(),
            topology: "smp-4".into(),
            cmdline: "default".into(),
            settings: "default".into(),
            workload: "run".into(),
        }
    }

    fn record(index: usize) -> RunRecord {
        RunRecord {
            format: FORMAT,
            index,
            cell: cell(),
            round: 0,
            attempt: 0,
            boot: format!("b{index}"),
            outcome: Outcome::Completed,
            started: "2026-11-30T00:00:00Z".into(),
            wall_ms: 1,
            hello_ms: Some(1),
            phases: Vec::new(),
            samples: Vec::new(),
            settings: Vec::new(),
            environment: super::super::record::Environment::default(),
            trust: super::super::record::Trust::default(),
            notes: Vec::new(),
            console_tail: Vec::new(),
        }
    }

    #[test]
    fn a_saved_run_is_read_back_and_an_unfinished_one_does_not_exist() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("r");
        let folder = ResultsFolder::create(&path, &meta()).unwrap();
        let first = folder.run_folder(0, 0, 0, &cell()).unwrap();
        folder.save(&first, &record(0)).unwrap();
        let unfinished = folder.run_folder(1, 0, 0, &cell()).unwrap();
        fs::write(unfinished.join("console.log"), "half").unwrap();
        drop(folder);
        let (folder, results) = ResultsFolder::open(&path).unwrap();
        assert_eq!(results.records, vec![record(0)]);
        assert_eq!(results.meta.cells, meta().cells);
        let again = folder.run_folder(1, 0, 0, &cell()).unwrap();
        assert_eq!(fs::read_dir(again).unwrap().count(), 0);
    }

    #[test]
    fn two_campaigns_cannot_write_to_one_folder() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("r");
        let _folder = ResultsFolder::create(&path, &meta()).unwrap();
        assert!(matches!(
            ResultsFolder::open(&path),
            Err(StoreError::Busy(_))
        ));
    }

    #[test]
    fn a_folder_whose_maker_was_killed_is_made_again_and_no_other() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("r");
        fs::create_dir_all(path.join("runs")).unwrap();
        fs::write(path.join("lock"), "").unwrap();
        fs::write(path.join(".writing-abc"), "{\"form").unwrap();
        drop(ResultsFolder::create(&path, &meta()).unwrap());
        assert!(!path.join(".writing-abc").exists());
        let refused = |path: &Path| {
            matches!(
                ResultsFolder::create(path, &meta()),
                Err(StoreError::Io { .. })
            )
        };
        assert!(refused(&path));
        fs::remove_file(path.join("campaign.json")).unwrap();
        fs::create_dir(path.join("runs/00000-r0-x")).unwrap();
        assert!(refused(&path));
        let foreign = parent.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::write(foreign.join("mine"), "").unwrap();
        assert!(refused(&foreign));
    }

    #[test]
    fn what_a_killed_writer_left_is_removed() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("r");
        drop(ResultsFolder::create(&path, &meta()).unwrap());
        fs::write(path.join(".writing-abc"), "{").unwrap();
        drop(ResultsFolder::open(&path).unwrap());
        assert!(!path.join(".writing-abc").exists());
    }

    #[test]
    fn another_version_is_refused_by_name_even_when_its_shape_differs() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("r");
        drop(ResultsFolder::create(&path, &meta()).unwrap());
        fs::write(
            path.join("campaign.json"),
            r#"{"format": 99, "other": true}"#,
        )
        .unwrap();
        let error = load(&path).unwrap_err();
        assert!(error.to_string().contains("format 99"), "{error}");
    }

    #[test]
    fn a_folder_without_a_campaign_is_no_results_folder() {
        let parent = tempfile::tempdir().unwrap();
        assert!(matches!(
            load(parent.path()),
            Err(StoreError::NotResults(_))
        ));
    }
}
