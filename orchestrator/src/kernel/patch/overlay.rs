//! What the files of a tree become when patches are laid over it. Pure but for the
//! reader that is passed in.

use std::collections::BTreeMap;
use std::io;

use sha2::{Digest, Sha256};

use super::Patch;
use super::apply::{ApplyProblem, apply};

/// What a file becomes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its content; nothing when it goes away.
    pub content: Option<Vec<u8>>,
    /// Its permissions, when a patch sets them.
    pub mode: Option<u32>,
}

/// The files that differ from a tree, by path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overlay {
    /// Path inside the tree to what the file becomes.
    pub files: BTreeMap<String, Change>,
}

/// A patch that cannot be laid over a tree.
#[derive(Debug, thiserror::Error)]
#[error("patch {number} ({name}): {path}: {problem}")]
pub struct OverlayError {
    /// Position in the series, from 1.
    pub number: u32,
    /// Name of the patch.
    pub name: String,
    /// The file.
    pub path: String,
    /// What does not fit.
    pub problem: OverlayProblem,
}

/// Why a patch cannot be laid over a tree.
#[derive(Debug, thiserror::Error)]
pub enum OverlayProblem {
    /// Its lines do not fit.
    #[error(transparent)]
    Apply(#[from] ApplyProblem),
    /// The file of the tree cannot be read.
    #[error("cannot be read: {0}")]
    Read(io::Error),
}

impl Overlay {
    /// Lays the numbered patches, in order, over the tree that `read` shows
    /// (nothing for a file that is not there). The first misfit is the error.
    pub fn of<'a>(
        patches: impl IntoIterator<Item = (u32, &'a Patch)>,
        mut read: impl FnMut(&str) -> io::Result<Option<Vec<u8>>>,
    ) -> Result<Self, OverlayError> {
        let mut overlay = Self::default();
        for (number, patch) in patches {
            overlay.add(number, patch, &mut read)?;
        }
        Ok(overlay)
    }

    fn add(
        &mut self,
        number: u32,
        patch: &Patch,
        read: &mut impl FnMut(&str) -> io::Result<Option<Vec<u8>>>,
    ) -> Result<(), OverlayError> {
        // All files of one patch are judged against the tree before it.
        let mut changes: Vec<(String, Change)> = Vec::new();
        let problem = |path: &str, problem| OverlayError {
            number,
            name: patch.name(),
            path: path.to_owned(),
            problem,
        };
        for file in &patch.files {
            let mut current = |path: &str| match self.files.get(path) {
                Some(change) => Ok(change.content.clone()),
                None => read(path).map_err(|error| problem(path, OverlayProblem::Read(error))),
            };
            let old = current(file.old.as_deref().unwrap_or(file.path()))?;
            let moved = file.old.is_some() && file.new.is_some() && file.old != file.new;
            if moved && current(file.path())?.is_some() {
                return Err(problem(file.path(), ApplyProblem::Exists.into()));
            }
            let content = apply(file, old.as_deref())
                .map_err(|misfit| problem(file.path(), misfit.into()))?;
            if let Some(old) = &file.old
                && (moved && !file.copy)
            {
                changes.push((
                    old.clone(),
                    Change {
                        content: None,
                        mode: None,
                    },
                ));
            }
            changes.push((
                file.path().to_owned(),
                Change {
                    content,
                    mode: file.mode,
                },
            ));
        }
        for (path, mut change) in changes {
            let earlier = self.files.get(&path).and_then(|change| change.mode);
            change.mode = change.mode.or(earlier);
            self.files.insert(path, change);
        }
        Ok(())
    }

    /// SHA-256 over paths, contents and permissions, lower-case hex: equal for two
    /// series that change a tree the same way, whatever their messages say.
    pub fn digest(&self) -> String {
        let mut hash = Sha256::new();
        for (path, change) in &self.files {
            hash.update(path.as_bytes());
            hash.update([0]);
            match &change.content {
                Some(content) => {
                    hash.update([1]);
                    hash.update(change.mode.unwrap_or(0).to_le_bytes());
                    hash.update(
                        u64::try_from(content.len())
                            .unwrap_or(u64::MAX)
                            .to_le_bytes(),
                    );
                    hash.update(content);
                }
                None => hash.update([0]),
            }
        }
        hex(&hash.finalize())
    }
}

/// Bytes as lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String does not fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::super::read_patch;
    use super::*;
    use std::path::Path;

    fn patch(name: &str, text: &str) -> Patch {
        read_patch(Path::new(name), text.as_bytes()).unwrap()
    }

    fn tree(path: &str) -> io::Result<Option<Vec<u8>>> {
        Ok(match path {
            "a.c" => Some(b"one\ntwo\nthree\n".to_vec()),
            "b.c" => Some(b"b\n".to_vec()),
            _ => None,
        })
    }

    #[test]
    fn patches_build_on_each_other() {
        let first = patch(
            "1.patch",
            "--- a/a.c\n+++ b/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n",
        );
        let second = patch(
            "2.patch",
            "--- a/a.c\n+++ b/a.c\n@@ -1,3 +1,3 @@\n one\n-TWO\n+2\n three\n",
        );
        let both = Overlay::of([(1, &first), (2, &second)], tree).unwrap();
        assert_eq!(
            both.files["a.c"].content.as_deref(),
            Some(&b"one\n2\nthree\n"[..])
        );
        let alone = Overlay::of([(2, &second)], tree).unwrap_err();
        assert_eq!(
            alone.to_string(),
            "patch 2 (2.patch): a.c: hunk 1 (@@ -1,3 +1,3 @@) does not apply: it expects 'TWO' at line 2, where the file has 'two'"
        );
    }

    #[test]
    fn renames_leave_nothing_behind() {
        let moved = patch(
            "m.patch",
            "diff --git a/b.c b/d/b.c\nsimilarity index 100%\nrename from b.c\nrename to d/b.c\n",
        );
        let overlay = Overlay::of([(1, &moved)], tree).unwrap();
        assert_eq!(overlay.files["b.c"].content, None);
        assert_eq!(overlay.files["d/b.c"].content.as_deref(), Some(&b"b\n"[..]));
    }

    #[test]
    fn the_digest_ignores_messages() {
        let diff = "--- a/b.c\n+++ b/b.c\n@@ -1 +1 @@\n-b\n+B\n";
        let a = patch("a.patch", &format!("Subject: one\n\nwords\n---\n{diff}"));
        let b = patch(
            "b.patch",
            &format!("Subject: two\n\nother words\n---\n{diff}"),
        );
        let digest = |p| Overlay::of([(1, p)], tree).unwrap().digest();
        assert_eq!(digest(&a), digest(&b));
        assert_ne!(digest(&a), Overlay::default().digest());
    }
}
