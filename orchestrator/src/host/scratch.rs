//! Folders that live as long as their process: removed at its end, and, when it
//! was killed, by whoever makes the next one.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

const PREFIX: &str = "scratch-";
const LOCK: &str = "lock";

/// A private folder (mode 0700) that is gone when this is dropped.
#[derive(Debug)]
pub struct Scratch {
    folder: tempfile::TempDir,
    /// Locked as long as the folder is in use; the kernel lets go when we die.
    _lock: File,
}

impl Scratch {
    /// Makes a folder below `parent`, after removing those of dead processes.
    ///
    /// # Errors
    /// When `parent` cannot be made or written to.
    pub fn new(parent: &Path) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(parent)?;
        sweep(parent);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        let lock = File::create(folder.path().join(LOCK))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        Ok(Self {
            folder,
            _lock: lock,
        })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Removes scratch folders whose lock nobody holds. One without a lock file is
/// just being made, unless it is old.
fn sweep(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(PREFIX))
    });
    for entry in ours {
        if is_dead(&entry.path()) {
            // Two sweepers may meet; the folder is gone either way.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn is_dead(folder: &PathBuf) -> bool {
    match File::open(folder.join(LOCK)) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok(),
        Err(_) => {
            let age = fs::metadata(folder).and_then(|meta| meta.modified());
            let age = age.ok().and_then(|made| made.elapsed().ok());
            age.is_some_and(|age| age.as_secs() > 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_the_dead_go_and_those_of_the_living_stay() {
        let parent = tempfile::tempdir().unwrap();
        let dead = parent.path().join("scratch-dead");
        fs::create_dir(&dead).unwrap();
        fs::write(dead.join(LOCK), "").unwrap();
        fs::write(dead.join("console.log"), "text").unwrap();
        let other = parent.path().join("somebody-elses");
        fs::create_dir(&other).unwrap();
        let one = Scratch::new(parent.path()).unwrap();
        assert!(!dead.exists());
        let two = Scratch::new(parent.path()).unwrap();
        assert!(one.path().exists() && two.path().exists() && other.exists());
        let path = one.path().to_path_buf();
        drop(one);
        assert!(!path.exists());
    }
}
