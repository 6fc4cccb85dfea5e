//! A patch series: its patches in order.

use std::path::{Path, PathBuf};

use super::mail::{PatchError, read_patch};
use super::overlay::{Overlay, OverlayError};
use super::{Change, Patch};
use crate::kernel::source::GitError;
use crate::kernel::variant::{Variant, VariantError};

/// Patches in the order they are applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Series {
    /// The patches; patch `n` is at `n - 1`.
    pub patches: Vec<Patch>,
}

/// A series that cannot be read, or a variant of it that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SeriesError {
    /// A file or folder cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is no patch.
    #[error("{path}: {problem}")]
    Patch {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: PatchError,
    },
    /// No patch at all.
    #[error("{path} holds no patches")]
    Empty {
        /// The folder or file.
        path: PathBuf,
    },
    /// The variant names patches the series does not have.
    #[error(transparent)]
    Variant(#[from] VariantError),
    /// The repository cannot be read.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A patch does not apply.
    #[error(transparent)]
    Apply(#[from] OverlayError),
}

impl Series {
    /// Reads a folder of patches: the files a `series` file lists, else every
    /// `*.patch` and `*.diff`, by name.
    pub fn read_folder(folder: &Path) -> Result<Self, SeriesError> {
        let read_error = |path: &Path| {
            let path = path.to_owned();
            move |source| SeriesError::Read { path, source }
        };
        let listed = folder.join("series");
        let mut files = Vec::new();
        if listed.is_file() {
            let text = std::fs::read_to_string(&listed).map_err(read_error(&listed))?;
            for line in text.lines() {
                // quilt allows comments and options such as -p1 behind the name.
                let line = line.split('#').next().unwrap_or_default();
                if let Some(name) = line.split_whitespace().next() {
                    files.push(folder.join(name));
                }
            }
        } else {
            for entry in std::fs::read_dir(folder).map_err(read_error(folder))? {
                let path = entry.map_err(read_error(folder))?.path();
                if matches!(path.extension(), Some(end) if end == "patch" || end == "diff") {
                    files.push(path);
                }
            }
            files.sort();
        }
        if files.is_empty() {
            return Err(SeriesError::Empty {
                path: folder.to_owned(),
            });
        }
        let mut mails = Vec::new();
        for path in files {
            let bytes = std::fs::read(&path).map_err(read_error(&path))?;
            mails.push((path, bytes));
        }
        Self::of_mails(mails)
    }

    /// A series of texts with the names they are known by, in order.
    pub fn of_mails(mails: Vec<(PathBuf, Vec<u8>)>) -> Result<Self, SeriesError> {
        let patches = mails
            .into_iter()
            .map(|(path, bytes)| {
                read_patch(&path, &bytes).map_err(|problem| SeriesError::Patch { path, problem })
            })
            .collect::<Result<_, _>>()?;
        Ok(Self { patches })
    }

    /// Number of patches.
    pub fn len(&self) -> u32 {
        u32::try_from(self.patches.len()).unwrap_or(u32::MAX)
    }

    /// True for a series without patches.
    pub fn is_empty(&self) -> bool {
        self.patches.is_empty()
    }

    /// What a variant makes of the tree that `read` shows; files that end up as
    /// they were are left out.
    pub fn overlay(
        &self,
        variant: &Variant,
        mut read: impl FnMut(&str) -> std::io::Result<Option<Vec<u8>>>,
    ) -> Result<Overlay, SeriesError> {
        let numbers = variant.patches(self.len())?;
        let chosen = numbers.into_iter().map(|number| {
            let index = usize::try_from(number - 1).expect("a patch number fits usize");
            (number, &self.patches[index])
        });
        let mut overlay = Overlay::of(chosen, &mut read)?;
        let unchanged = |path: &String, change: &mut Change| -> bool {
            change.mode.is_none() && matches!(read(path), Ok(before) if before == change.content)
        };
        let mut unchanged = unchanged;
        overlay
            .files
            .retain(|path, change| !unchanged(path, change));
        Ok(overlay)
    }
}
