//! The layer of one run above a disk that stays as it is.

use std::{
    io,
    path::{Path, PathBuf},
    process::Command,
};

use super::steps;
use crate::image::GuestDisk;

/// Why a run got no overlay.
#[derive(Debug, thiserror::Error)]
pub enum OverlayError {
    /// QEMU's own tool is not installed.
    #[error("there is no program `{}` beside QEMU (Debian package qemu-utils)", program.display())]
    Missing {
        /// Where it was looked for.
        program: PathBuf,
    },
    /// It could not be started.
    #[error("cannot run `{}`", program.display())]
    Run {
        /// The program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// It refused.
    #[error(transparent)]
    Refused(#[from] steps::StepError),
}

/// Makes an empty qcow2 file at `overlay` that takes every write meant for
/// `disk`. `qemu` is the QEMU program; its image tool lies beside it.
///
/// # Errors
/// The tool is missing, or refuses: no such disk, another format, no room.
pub fn create(qemu: &Path, disk: &GuestDisk, overlay: &Path) -> Result<(), OverlayError> {
    let program = qemu.with_file_name("qemu-img");
    let mut command = Command::new(&program);
    // A relative backing file is looked for beside the overlay.
    let backing = std::path::absolute(&disk.path).unwrap_or_else(|_| disk.path.clone());
    command
        .args([
            "create",
            "-q",
            "-f",
            "qcow2",
            "-F",
            disk.format.name(),
            "-b",
        ])
        .arg(backing)
        .arg(overlay)
        .env("LC_ALL", "C");
    let output = command.output().map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => OverlayError::Missing {
            program: program.clone(),
        },
        _ => OverlayError::Run {
            program: program.clone(),
            source,
        },
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(steps::failed("qemu-img", output.status, &said).into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::image::disk::DiskFormat;

    fn qemu() -> PathBuf {
        "/usr/bin/qemu-system-x86_64".into()
    }

    #[test]
    fn an_overlay_is_small_and_leaves_the_disk_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("with, comma.raw");
        fs::write(&path, vec![7; 1 << 20]).unwrap();
        let overlay = folder.path().join("overlay.qcow2");
        let disk = GuestDisk {
            path: path.clone(),
            format: DiskFormat::Raw,
        };
        create(&qemu(), &disk, &overlay).unwrap();
        assert!(fs::metadata(&overlay).unwrap().len() < 1 << 20);
        assert_eq!(fs::read(&path).unwrap(), vec![7; 1 << 20]);
    }

    #[test]
    fn a_disk_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let disk = GuestDisk {
            path: folder.path().join("gone.qcow2"),
            format: DiskFormat::Qcow2,
        };
        let error = create(&qemu(), &disk, &folder.path().join("o")).unwrap_err();
        assert!(error.to_string().contains("gone.qcow2"), "{error}");
    }

    #[test]
    fn a_missing_tool_is_named() {
        let disk = GuestDisk {
            path: "/d".into(),
            format: DiskFormat::Raw,
        };
        let error = create(Path::new("/nowhere/qemu"), &disk, Path::new("/o")).unwrap_err();
        assert!(error.to_string().contains("/nowhere/qemu-img"), "{error}");
    }
}
