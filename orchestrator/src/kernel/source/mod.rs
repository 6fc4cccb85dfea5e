//! Source trees: brought into the cache, named by their content, read only there.

mod folder;
mod git;
mod tarball;

pub use git::GitError;
pub(crate) use git::command as git_command;
pub(super) use git::patches_of_range;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::built::BuildEvent;
use super::cache::{Cache, Lock};
use super::package::PackageError;
use super::spec::Source;
use super::tools::{ToolError, Tools};

/// A source tree in the cache.
#[derive(Debug)]
pub(super) struct SourceTree {
    /// Names its content.
    pub id: String,
    /// Names where it comes from: trees of one lineage share work trees, so that
    /// going from one commit, or one edit, to the next recompiles what changed.
    pub lineage: String,
    /// Its folder; nothing but this module writes there.
    pub path: PathBuf,
    /// How to know what changed since an earlier tree of the lineage.
    history: History,
    /// Held as long as the tree must not move on to another content.
    #[expect(dead_code, reason = "held, not read")]
    lock: Option<Lock>,
}

/// How to know what changed since an earlier tree of the same lineage.
#[derive(Debug)]
enum History {
    /// The content never changes.
    None,
    /// Lists of files by content, one for each tree.
    Manifests(PathBuf),
    /// A git repository that holds the trees.
    Git { dir: PathBuf, git: PathBuf },
}

/// A source that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The package cannot be had.
    #[error(transparent)]
    Package(#[from] PackageError),
    /// The package holds no source.
    #[error("package '{package}' holds no linux-source tarball under usr/src")]
    NoTarball {
        /// The package's file.
        package: String,
    },
    /// The tarball is not the one the kernel file names.
    #[error("{path} has SHA-256 {found}, the kernel file says {expected}")]
    Checksum {
        /// The tarball.
        path: PathBuf,
        /// As written.
        expected: String,
        /// As it is.
        found: String,
    },
    /// The tarball cannot be unpacked.
    #[error("{path} cannot be unpacked")]
    Unpack {
        /// The tarball.
        path: PathBuf,
        /// Why.
        source: ToolError,
    },
    /// No kernel source is in it.
    #[error("{path} holds no kernel source (no Kconfig beside a Makefile)")]
    NotAKernel {
        /// The tarball or folder.
        path: PathBuf,
    },
    /// The repository cannot be read.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The files of a folder cannot be listed.
    #[error("the files of {path} cannot be listed")]
    List {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: ToolError,
    },
    /// A file or folder cannot be used.
    #[error("{path} cannot be used")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Who is told what happens.
pub(super) type Events<'a> = &'a (dyn Fn(BuildEvent) + Send + Sync);

/// Brings a source into the cache.
pub(super) async fn obtain(
    source: &Source,
    cache: &Cache,
    tools: &Tools,
    events: Events<'_>,
) -> Result<SourceTree, SourceError> {
    let tree = match source {
        Source::Package { pattern } => tarball::from_package(pattern, cache, tools, events).await,
        Source::Tarball { path, sha256 } => {
            tarball::checked(path, sha256, cache, tools, events).await
        }
        Source::Folder { path } => folder::snapshot(path, cache, tools, events).await,
        Source::Git { repo, reference } => {
            git::checkout(repo, reference, cache, tools, events).await
        }
    }?;
    Cache::touch(tree.path.parent().expect("a tree is inside its entry"));
    Ok(tree)
}

impl SourceTree {
    /// A tree whose content never changes.
    pub fn fixed(id: &str, path: &Path) -> Self {
        Self {
            lineage: id.to_owned(),
            id: id.to_owned(),
            path: path.to_owned(),
            history: History::None,
            lock: None,
        }
    }

    /// Content of a file; nothing when the tree has none of that name.
    pub fn read(&self, path: &str) -> io::Result<Option<Vec<u8>>> {
        read_file(&self.path.join(path))
    }

    /// Paths that differ from an earlier tree of the lineage; nothing when that is
    /// not known any more.
    pub async fn changed_since(&self, id: &str) -> Option<Vec<String>> {
        match &self.history {
            History::None => (self.id == id).then(Vec::new),
            History::Manifests(folder) => folder::changed(folder, id, &self.id),
            History::Git { dir, git } => git::changed(git, dir, id, &self.id).await,
        }
    }
}

/// Content of a file; nothing when there is none of that name.
pub(super) fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// True for the top of a kernel tree.
fn is_kernel(folder: &Path) -> bool {
    folder.join("Makefile").is_file() && folder.join("Kconfig").is_file()
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> SourceError + use<> {
    let path = path.to_owned();
    move |source| SourceError::Io { path, source }
}
