//! The programs a build uses, and running them.
//!
//! Every program is named in [`Tools`], so that tests put small scripts in their
//! place.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

/// Programs a build uses: paths, or names looked up in `PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// GNU make.
    pub make: PathBuf,
    /// The C compiler, as the kernel's `CC=` takes it.
    pub cc: PathBuf,
    /// `apt-get`, for Debian's packages.
    pub apt_get: PathBuf,
    /// `apt-cache`, for their names and versions.
    pub apt_cache: PathBuf,
    /// `dpkg-deb`, which takes them apart.
    pub dpkg_deb: PathBuf,
    /// `dnf`, for Fedora's packages.
    pub dnf: PathBuf,
    /// `rpm2cpio`, which takes them apart.
    pub rpm2cpio: PathBuf,
    /// `cpio`, which unpacks what `rpm2cpio` writes.
    pub cpio: PathBuf,
    /// `tar` with xz.
    pub tar: PathBuf,
    /// `git`.
    pub git: PathBuf,
    /// `b4`, which fetches series from the archive of mailing lists.
    pub b4: PathBuf,
    /// `depmod`, which lists what modules need; done without when missing.
    pub depmod: PathBuf,
    /// `ccache`; nothing to build without it.
    pub ccache: Option<PathBuf>,
    /// The value of `PATH` the others are looked up in.
    pub path: Option<OsString>,
}

impl Tools {
    /// The usual names, looked up in the folders of `path` (the value of `PATH`).
    pub fn in_path(path: Option<&OsStr>) -> Self {
        Self {
            make: "make".into(),
            cc: "gcc".into(),
            apt_get: "apt-get".into(),
            apt_cache: "apt-cache".into(),
            dpkg_deb: "dpkg-deb".into(),
            dnf: "dnf".into(),
            rpm2cpio: "rpm2cpio".into(),
            cpio: "cpio".into(),
            tar: "tar".into(),
            git: "git".into(),
            b4: "b4".into(),
            depmod: "depmod".into(),
            ccache: find_in_path(OsStr::new("ccache"), path),
            path: path.map(OsStr::to_owned),
        }
    }
}

/// A program that did not do its work.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// It is not installed.
    #[error("'{program}' is not installed")]
    NotInstalled {
        /// The program.
        program: String,
    },
    /// It cannot be started.
    #[error("'{program}' cannot be started")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// It ended with a failure.
    #[error("'{command}' failed ({status}){}", last_lines(.stderr))]
    Failed {
        /// The whole command.
        command: String,
        /// Its exit status.
        status: std::process::ExitStatus,
        /// What it wrote to stderr.
        stderr: String,
    },
}

fn last_lines(stderr: &str) -> String {
    let lines: Vec<&str> = stderr.lines().filter(|l| !l.trim().is_empty()).collect();
    let tail = &lines[lines.len().saturating_sub(5)..];
    if tail.is_empty() {
        String::new()
    } else {
        format!(": {}", tail.join("\n  "))
    }
}

/// Where a program is, looked up in the folders of `path` unless it names one itself.
pub(super) fn find_in_path(program: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let runs = |candidate: &Path| {
        rustix::fs::access(candidate, rustix::fs::Access::EXEC_OK).is_ok() && candidate.is_file()
    };
    if Path::new(program).components().count() > 1 {
        return runs(Path::new(program)).then(|| program.into());
    }
    std::env::split_paths(path?)
        .map(|folder| folder.join(program))
        .find(|candidate| runs(candidate))
}

/// A command that is stopped when the future waiting for it is dropped.
pub(super) fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        // Messages are read: keep them in one language.
        .env("LC_ALL", "C");
    command
}

/// Runs a program to its end and returns what it wrote to stdout.
pub(crate) async fn output(command: &mut Command) -> Result<Vec<u8>, ToolError> {
    let program = command
        .as_std()
        .get_program()
        .to_string_lossy()
        .into_owned();
    let result = command.output().await.map_err(|source| {
        if source.kind() == io::ErrorKind::NotFound {
            ToolError::NotInstalled {
                program: program.clone(),
            }
        } else {
            ToolError::Start { program, source }
        }
    })?;
    if result.status.success() {
        return Ok(result.stdout);
    }
    Err(ToolError::Failed {
        command: shown(command),
        status: result.status,
        stderr: String::from_utf8_lossy(&result.stderr).into_owned(),
    })
}

/// The command as a person would type it.
pub(super) fn shown(command: &Command) -> String {
    let command = command.as_std();
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| quoted(&word.to_string_lossy()))
        .collect::<Vec<_>>()
        .join(" ")
}

/// A word quoted for a POSIX shell where it needs it.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("CC=gcc"), "CC=gcc");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
    }

    #[tokio::test]
    async fn failures_are_told_apart() {
        let missing = output(&mut command(Path::new("/no/such/program"))).await;
        assert!(matches!(missing, Err(ToolError::NotInstalled { .. })));
        let failing =
            output(command(Path::new("sh")).args(["-c", "echo broken >&2; exit 3"])).await;
        let text = failing.unwrap_err().to_string();
        assert_eq!(
            text,
            "'sh -c 'echo broken >&2; exit 3'' failed (exit status: 3): broken"
        );
    }
}
