//! Warm starts: a guest is booted and proved once, saved, and restored for
//! further runs in a fraction of the time of a boot.
//!
//! Runs restored from one saved guest share its boot (where the kernel lies in
//! memory, which pages it got): they are no independent samples of
//! boot-to-boot variation. Each therefore names its boot.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    engine::Session,
    execute::{Way, execute_as},
    lab::Bench,
    unit::{RunResult, RunUnit, command_line},
};
use crate::{
    image::Reach,
    outcome::Outcome,
    qemu::args::{self, Devices},
};

/// A saved guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SavedGuest {
    /// The file.
    pub file: PathBuf,
    /// Its length in bytes.
    pub bytes: u64,
    /// Its SHA-256, lower-case hex: also the name of the boot.
    pub sha256: String,
    /// What it is a guest of; see [`key`].
    pub key: String,
    /// Milliseconds from the start of QEMU to hello when it booted.
    pub hello_ms: u64,
}

/// Why a saved guest cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// A file cannot be read or written.
    #[error("cannot use the saved guest `{}`", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is not what was written.
    #[error("the saved guest `{}` is damaged; remove it to boot a new one", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
    },
}

/// Everything that a saved guest depends on, in one hash: kernel, image,
/// command line, machine, CPU model, accelerator, QEMU and host processor.
/// Settings and workload come after the restore and are not part of it.
pub fn key(unit: &RunUnit, bench: &Bench) -> String {
    let devices = Devices {
        append: command_line(unit),
        ..Devices::default()
    };
    let arguments = args::build(&unit.topology, &bench.args, &devices);
    let program = fs::metadata(&bench.qemu)
        .and_then(|meta| meta.modified())
        .ok();
    let parts = format!(
        "{arguments:?}\n{:?}\n{program:?}\n{}\n{}\n{}\n{}\n{}",
        bench.qemu,
        unit.topology
            .preferred_cores
            .as_deref()
            .map_or(String::new(), |r| format!("{r:?}")),
        unit.kernel.sha256,
        unit.image.sha256,
        unit.agent_sha256,
        bench.identity.cpu,
    );
    format!("{:x}", Sha256::digest(parts))
}

/// Boots a guest of `unit`, proves it, and saves it in `file` with a
/// description in `file.json`.
///
/// # Errors
/// The result of the run when there is nothing to save, as [`super::execute`]
/// would have given it.
pub async fn save(
    unit: &RunUnit,
    bench: &Bench,
    folder: &Path,
    file: &Path,
    session: Session<'_>,
) -> Result<SavedGuest, Box<RunResult>> {
    let kept = || -> io::Result<(tempfile::NamedTempFile, File)> {
        let parent = file.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(parent)?;
        let temporary = tempfile::NamedTempFile::new_in(parent)?;
        let handle = temporary.as_file().try_clone()?;
        Ok((temporary, handle))
    };
    let refused = |outcome| Box::new(RunResult::without_guest(unit, bench, outcome));
    let disk = |error: io::Error| {
        let part = "disk".into();
        let reason = format!("cannot save a guest in `{}`: {error}", file.display());
        Outcome::LabFailed { part, reason }
    };
    if let Some(outcome) = cold_only(unit) {
        return Err(refused(outcome));
    }
    let (temporary, handle) = kept().map_err(|error| refused(disk(error)))?;
    let result = execute_as(unit, bench, folder, session, Way::Save(handle)).await;
    if result.outcome != Outcome::Completed {
        return Err(Box::new(result));
    }
    let finish = || -> io::Result<SavedGuest> {
        let (bytes, sha256) = digest(temporary.path())?;
        let saved = SavedGuest {
            file: file.into(),
            bytes,
            sha256,
            key: key(unit, bench),
            hello_ms: result.hello_ms.unwrap_or_default(),
        };
        temporary.persist(file)?;
        fs::write(description(file), serde_json::to_vec_pretty(&saved)?)?;
        Ok(saved)
    };
    finish().map_err(|error| {
        let outcome = disk(error);
        Box::new(RunResult { outcome, ..result })
    })
}

/// Why a unit cannot be started warm.
fn cold_only(unit: &RunUnit) -> Option<Outcome> {
    let reason = if unit.image.disk.is_some() {
        "a guest with a disk is not saved: its disk would go on without it"
    } else if unit.image.reach != Reach::Port {
        "a guest reached over SSH is not saved: its connection would be gone"
    } else {
        return None;
    };
    let reason = format!("no warm start: {reason}");
    Some(Outcome::NotTestable { reason })
}

fn description(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".json");
    name.into()
}

fn digest(file: &Path) -> io::Result<(u64, String)> {
    let mut hasher = Sha256::new();
    let bytes = io::copy(&mut File::open(file)?, &mut hasher)?;
    Ok((bytes, format!("{:x}", hasher.finalize())))
}

impl SavedGuest {
    /// A guest saved before, if its file is whole. Nothing when there is none
    /// of this key.
    ///
    /// # Errors
    /// When a file is there and cannot be used.
    pub fn load(file: &Path, key: &str) -> Result<Option<Self>, SavedError> {
        let failed = |source| SavedError::Io {
            file: file.into(),
            source,
        };
        let text = match fs::read(description(file)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let damaged = || SavedError::Damaged { file: file.into() };
        let saved: Self = serde_json::from_slice(&text).map_err(|_| damaged())?;
        if saved.key != key {
            return Ok(None);
        }
        let (bytes, sha256) = digest(file).map_err(failed)?;
        if bytes != saved.bytes || sha256 != saved.sha256 {
            return Err(damaged());
        }
        let file = file.into();
        Ok(Some(Self { file, ..saved }))
    }
}

/// Runs `unit` in a guest restored from `saved`, which must have the same
/// [`key`]. The guest's clock and entropy are set and its machine is proved
/// again before the workload.
pub async fn execute(
    unit: &RunUnit,
    bench: &Bench,
    saved: &SavedGuest,
    folder: &Path,
    session: Session<'_>,
) -> RunResult {
    let opened = File::open(&saved.file);
    match opened {
        Ok(file) => execute_as(unit, bench, folder, session, Way::Restore(file)).await,
        Err(error) => {
            let part = "disk".into();
            let reason = format!("cannot open `{}`: {error}", saved.file.display());
            RunResult::without_guest(unit, bench, Outcome::LabFailed { part, reason })
        }
    }
}
