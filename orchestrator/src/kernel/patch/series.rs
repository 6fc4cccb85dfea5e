//! A patch series: its patches in order.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::import::{self, ImportError, Imported};
use super::mail::{PatchError, is_mail, read_patch};
use super::mailbox;
use super::overlay::{Overlay, OverlayError};
use super::{Change, Patch};
use crate::kernel::source::GitError;
use crate::kernel::tools::ToolError;
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
        source: io::Error,
    },
    /// A file is no patch.
    #[error("{path}: {problem}")]
    Patch {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: PatchError,
    },
    /// Mails do not make a series.
    #[error("{path}: {problem}")]
    Import {
        /// The mailbox or folder.
        path: PathBuf,
        /// What is wrong.
        problem: ImportError,
    },
    /// No patch at all.
    #[error("{path} holds no patches")]
    Empty {
        /// The folder or file.
        path: PathBuf,
    },
    /// The series cannot be fetched.
    #[error("the series of message '{id}' cannot be fetched")]
    Fetch {
        /// The message-id.
        id: String,
        /// Why.
        source: ToolError,
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
    /// Reads a folder of patches, a quilt `series` file, a mailbox, or one patch.
    /// `version` chooses among several versions of a series in mails.
    ///
    /// # Errors
    /// It cannot be read, or is no series.
    pub fn read(path: &Path, version: Option<u32>) -> Result<Imported, SeriesError> {
        let listed = path.join("series");
        if listed.is_file() {
            return Self::of_quilt(&listed, path);
        }
        if path.is_dir() {
            return Self::of_folder(path, version);
        }
        let bytes = fs::read(path).map_err(read_error(path))?;
        if is_mail(&bytes) {
            import::read_mailbox(path, &bytes, version)
        } else if path.file_name().is_some_and(|name| name == "series") {
            Self::of_quilt(path, path.parent().unwrap_or(Path::new(".")))
        } else {
            Self::of_texts(vec![(path.to_owned(), bytes)]).map(in_order)
        }
    }

    /// The files a quilt `series` file lists. quilt allows comments, and options such
    /// as `-p1` behind a name.
    fn of_quilt(listed: &Path, folder: &Path) -> Result<Imported, SeriesError> {
        let text = fs::read_to_string(listed).map_err(read_error(listed))?;
        let names = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default())
            .filter_map(|line| line.split_whitespace().next());
        let texts = names
            .map(|name| {
                let path = folder.join(name);
                let bytes = fs::read(&path).map_err(read_error(&path))?;
                Ok((path, bytes))
            })
            .collect::<Result<Vec<_>, SeriesError>>()?;
        if texts.is_empty() {
            return Err(SeriesError::Empty {
                path: listed.to_owned(),
            });
        }
        Self::of_texts(texts).map(in_order)
    }

    /// The patches of a folder: by their `[PATCH n/m]` when all are mails that say it,
    /// else by name.
    fn of_folder(folder: &Path, version: Option<u32>) -> Result<Imported, SeriesError> {
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in fs::read_dir(folder).map_err(read_error(folder))? {
            let path = entry.map_err(read_error(folder))?.path();
            let end = path.extension().unwrap_or_default().to_string_lossy();
            if matches!(&*end, "patch" | "diff" | "eml" | "mbox" | "mbx") {
                files.push(path);
            }
        }
        files.sort();
        if files.is_empty() {
            return Err(SeriesError::Empty {
                path: folder.to_owned(),
            });
        }
        let mut texts = Vec::new();
        for path in files {
            let bytes = fs::read(&path).map_err(read_error(&path))?;
            texts.push((path, bytes));
        }
        if !texts.iter().all(|(_, bytes)| is_mail(bytes)) {
            return Self::of_texts(texts).map(in_order);
        }
        let mut mails = Vec::new();
        for (path, bytes) in &texts {
            let parts = mailbox::split(bytes);
            for part in &parts {
                let mut mail = mailbox::read(part).map_err(|error| SeriesError::Patch {
                    path: path.clone(),
                    problem: error.into(),
                })?;
                let is_box = path
                    .extension()
                    .is_some_and(|end| end == "mbox" || end == "mbx");
                mail.file = (parts.len() == 1 && !is_box).then(|| path.clone());
                mails.push(mail);
            }
        }
        let numbered = mails.iter().all(|mail| mail.tag.number.is_some());
        if !numbered && mails.len() == texts.len() {
            return Self::of_texts(texts).map(in_order);
        }
        import::of_mails(folder, &mails, version)
    }

    /// A series of texts with the names they are known by, in order.
    ///
    /// # Errors
    /// One of them is no patch.
    pub fn of_texts(texts: Vec<(PathBuf, Vec<u8>)>) -> Result<Self, SeriesError> {
        let patches = texts
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
    ///
    /// # Errors
    /// The variant names patches that are not there, or one does not apply.
    pub fn overlay(
        &self,
        variant: &Variant,
        mut read: impl FnMut(&str) -> io::Result<Option<Vec<u8>>>,
    ) -> Result<Overlay, SeriesError> {
        let numbers = variant.patches(self.len())?;
        let chosen = numbers.into_iter().map(|number| {
            let index = usize::try_from(number - 1).expect("a patch number fits usize");
            (number, &self.patches[index])
        });
        let mut overlay = Overlay::of(chosen, &mut read)?;
        let mut unchanged = |path: &String, change: &mut Change| -> bool {
            change.mode.is_none() && matches!(read(path), Ok(before) if before == change.content)
        };
        overlay
            .files
            .retain(|path, change| !unchanged(path, change));
        Ok(overlay)
    }
}

/// A series whose order the files themselves gave.
fn in_order(series: Series) -> Imported {
    Imported {
        series,
        version: 1,
        skipped: Vec::new(),
    }
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> SeriesError + use<> {
    let path = path.to_owned();
    move |source| SeriesError::Read { path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    fn subjects(path: &Path) -> Vec<String> {
        let imported = Series::read(path, None).unwrap();
        imported
            .series
            .patches
            .iter()
            .map(|patch| patch.subject.clone())
            .collect()
    }

    const DIFF: &str = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n";

    #[test]
    fn a_folder_by_name_by_number_and_by_quilt() {
        let mail = |subject: &str| format!("From: a@b\nSubject: {subject}\n\n{DIFF}");
        let by_name = folder(&[
            ("0002-b.patch", &mail("[PATCH] b")),
            ("0001-a.patch", &mail("[PATCH] a")),
            ("README", "no patch"),
        ]);
        assert_eq!(subjects(by_name.path()), ["a", "b"]);
        let by_number = folder(&[
            ("a.eml", &mail("[PATCH 2/2] b")),
            ("b.eml", &mail("[PATCH 1/2] a")),
            ("c.eml", &mail("Re: [PATCH 1/2] a")),
        ]);
        assert_eq!(subjects(by_number.path()), ["a", "b"]);
        let by_quilt = folder(&[
            ("z.diff", &format!("z\n\n{DIFF}")),
            ("y.diff", &format!("y\n\n{DIFF}")),
            ("series", "# first\nz.diff -p1\n\ny.diff # then\n"),
        ]);
        assert_eq!(subjects(by_quilt.path()), ["z", "y"]);
        assert_eq!(subjects(&by_quilt.path().join("series")), ["z", "y"]);
        assert_eq!(subjects(&by_quilt.path().join("y.diff")), ["y"]);
    }

    #[test]
    fn what_is_no_series() {
        let empty = folder(&[("README", "x")]);
        assert!(matches!(
            Series::read(empty.path(), None),
            Err(SeriesError::Empty { .. })
        ));
        let lacking = folder(&[("series", "gone.patch\n")]);
        let error = Series::read(lacking.path(), None).unwrap_err();
        assert!(error.to_string().ends_with("gone.patch cannot be read"));
        let cut = folder(&[(
            "a.patch",
            "Subject: a\n\n--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n-x\n",
        )]);
        let error = Series::read(cut.path(), None).unwrap_err();
        assert!(error.to_string().contains("is cut off"), "{error}");
    }
}
