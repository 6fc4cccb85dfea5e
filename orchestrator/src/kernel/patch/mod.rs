//! Patches: reading them, ordering them into a series, and working out what a
//! tree's files become.

pub mod apply;
pub mod diff;
mod import;
mod mail;
mod mailbox;
mod overlay;
mod series;

pub use import::{ImportError, Imported, SkipReason, Skipped, read_mailbox, slug};
pub use mail::{PatchError, read_patch};
pub use mailbox::MailError;
pub(crate) use overlay::hex;
pub use overlay::{Change, Overlay, OverlayError, OverlayProblem};
pub use series::{Series, SeriesError};

use std::path::PathBuf;

use diff::FilePatch;

/// One patch of a series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    /// The file (or mailbox, or commit) it was read from.
    pub origin: PathBuf,
    /// The subject without its `[PATCH …]`.
    pub subject: String,
    /// `Name <address>` of the author, when told.
    pub author: Option<String>,
    /// What stands between the subject and the diff, trailers included.
    pub message: String,
    /// The files it changes.
    pub files: Vec<FilePatch>,
    /// The text it was read from, decoded.
    pub text: Vec<u8>,
}

impl Patch {
    /// A short name for messages: the file's name, else the subject.
    pub fn name(&self) -> String {
        match self.origin.file_name() {
            Some(name) => name.to_string_lossy().into_owned(),
            None => self.subject.clone(),
        }
    }

    /// Paths of the files it touches, old and new ones.
    pub fn touches(&self) -> impl Iterator<Item = &str> {
        self.files
            .iter()
            .flat_map(|file| [file.old.as_deref(), file.new.as_deref()])
            .flatten()
    }

    /// True when a `Signed-off-by:` line is there.
    pub fn signed_off(&self) -> bool {
        self.message
            .lines()
            .any(|line| line.starts_with("Signed-off-by: "))
    }
}
