//! Where sources, trees and images are kept, one lock per thing that is made.
//!
//! ```text
//! kernel/downloads/   packages as fetched
//! kernel/sources/ID/  unpacked sources, never changed after they are complete
//! kernel/work/KEY/    tree/ (a copy of a source, patched) and tree/o (its objects)
//! kernel/built/KEY/   finished images with record.json
//! kernel/packages/ID/ distribution kernels, taken apart
//! ```
//!
//! A folder is made under another name and renamed when it is complete, so a
//! half-made one is never taken for a whole one.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};

use super::patch::hex;

/// The part of the cache that kernels use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cache {
    root: PathBuf,
}

/// Name of the file whose time says when a thing was used.
pub(super) const USED: &str = ".used";

/// A held lock; dropped, it is free.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Cache {
    /// Inside a cache folder. Nothing is made until something is kept.
    pub fn inside(cache: &Path) -> Self {
        Self {
            root: cache.join("kernel"),
        }
    }

    /// The folder everything is in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Folder of one kind of thing.
    pub(super) fn folder(&self, kind: &str) -> PathBuf {
        self.root.join(kind)
    }

    /// The folder of one thing.
    pub(super) fn entry(&self, kind: &str, key: &str) -> PathBuf {
        self.folder(kind).join(key)
    }

    /// Takes the lock of one thing, waiting for another holder. `waiting` is called
    /// once if there is one.
    pub(super) async fn lock(
        &self,
        kind: &str,
        key: &str,
        waiting: impl FnOnce(&Path),
    ) -> io::Result<Lock> {
        let (file, path) = self.lock_file(kind, key)?;
        let mut waiting = Some(waiting);
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock { _file: file }),
                Err(rustix::io::Errno::WOULDBLOCK) => {
                    if let Some(waiting) = waiting.take() {
                        waiting(&path);
                    }
                    // A blocking flock could not be given up when the caller is
                    // dropped, and would keep the process from ending.
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Takes the lock of one thing if nobody holds it.
    pub(super) fn try_lock(&self, kind: &str, key: &str) -> io::Result<Option<Lock>> {
        let (file, _) = self.lock_file(kind, key)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Lock { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn lock_file(&self, kind: &str, key: &str) -> io::Result<(File, PathBuf)> {
        let folder = self.folder("locks");
        fs::create_dir_all(&folder)?;
        let path = folder.join(format!("{kind}-{key}"));
        let file = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)?;
        Ok((file, path))
    }

    /// Marks a thing as used now, which `gc` goes by.
    pub(super) fn touch(entry: &Path) {
        let mark = entry.join(USED);
        let touched = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&mark)
            .and_then(|file| file.set_modified(std::time::SystemTime::now()));
        // Only `gc` would be misled, and it keeps what is held.
        drop(touched);
    }

    /// A new empty folder beside the entries of a kind, on the same file system.
    pub(super) fn scratch(&self, kind: &str) -> io::Result<tempfile::TempDir> {
        let folder = self.folder(kind);
        fs::create_dir_all(&folder)?;
        tempfile::Builder::new().prefix(".new-").tempdir_in(folder)
    }

    /// Makes a scratch folder the entry, in place of any earlier one.
    pub(super) fn keep(&self, scratch: tempfile::TempDir, entry: &Path) -> io::Result<()> {
        if entry.exists() {
            let old = self.scratch("trash")?;
            fs::rename(entry, old.path().join("old"))?;
        }
        // tempfile makes private folders; what is kept follows the umask.
        let scratch = scratch.keep();
        let mode = fs::metadata(entry.parent().expect("an entry has a parent"))?.permissions();
        fs::set_permissions(&scratch, mode)?;
        fs::rename(scratch, entry)
    }
}

/// SHA-256 of a file, lower-case hex.
pub(super) fn sha256_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 16];
    loop {
        match file.read(&mut block)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&block[..n]),
        }
    }
}

/// SHA-256 over parts, each with its length, lower-case hex.
pub(super) fn sha256_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

/// Reads a JSON file; nothing when it is missing or damaged.
pub(super) fn read_json<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes a JSON file whole or not at all.
pub(super) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    write_whole(path, &text)
}

/// Writes a file whole or not at all: beside it first, then renamed over it.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let folder = path.parent().expect("a file has a parent");
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    io::Write::write_all(&mut file, bytes)?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_lock_is_waited_for_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::inside(folder.path());
        let held = cache
            .lock("work", "k", |_| panic!("nobody holds it"))
            .await
            .unwrap();
        let told = std::cell::Cell::new(false);
        let second = cache.lock("work", "k", |_| told.set(true));
        let early = tokio::time::timeout(Duration::from_millis(50), second).await;
        assert!(early.is_err() && told.get());
        drop(held);
        cache.lock("work", "k", |_| {}).await.unwrap();
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(
            sha256_parts([&b"ab"[..], b"c"]),
            sha256_parts([&b"a"[..], b"bc"])
        );
    }
}
