//! Making room in the cache: by age, and by size with what was used longest ago
//! going first. What a process holds the lock of stays.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use walkdir::WalkDir;

use super::cache::{Cache, USED};

/// What may stay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of everything together; nothing for no limit.
    pub bytes: Option<u64>,
    /// Age since the last use; nothing for no limit.
    pub age: Option<Duration>,
}

/// One thing in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thing {
    /// Kind: the name of the folder it is in.
    pub kind: &'static str,
    /// Where it is.
    pub path: PathBuf,
    /// Bytes it takes; files that it shares with another thing count for neither.
    pub bytes: u64,
    /// When it was last used.
    pub used: SystemTime,
}

/// Kinds, those that cost most to get back last.
const KINDS: [&str; 10] = [
    "trash", "logs", "images", "checks", "modules", "built", "headers", "work", "packages",
    "sources",
];

/// Everything in the cache.
///
/// # Errors
/// A folder cannot be read.
pub fn list(cache: &Cache) -> io::Result<Vec<Thing>> {
    let mut things = Vec::new();
    for kind in KINDS {
        let folder = cache.folder(kind);
        if !folder.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            things.push(Thing {
                kind,
                bytes: size(&path)?,
                used: used(&path)?,
                path,
            });
        }
    }
    Ok(things)
}

/// What has to go for the limits, from the first to go to the last. Pure.
pub fn chosen(mut things: Vec<Thing>, limits: Limits, now: SystemTime) -> Vec<Thing> {
    things.sort_by_key(|thing| thing.used);
    let mut total: u64 = things.iter().map(|thing| thing.bytes).sum();
    things.retain(|thing| {
        let age = now.duration_since(thing.used).unwrap_or_default();
        let old = limits.age.is_some_and(|limit| age > limit);
        let much = limits.bytes.is_some_and(|limit| total > limit);
        let goes = old || much || thing.kind == "trash";
        if goes {
            total -= thing.bytes;
        }
        goes
    });
    things
}

/// Removes things, but for those in use; returns what is gone.
///
/// # Errors
/// Something cannot be removed.
pub fn remove(cache: &Cache, things: Vec<Thing>) -> io::Result<Vec<Thing>> {
    let mut gone = Vec::new();
    for thing in things {
        let name = thing
            .path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let Some(_lock) = cache.try_lock(thing.kind, &name)? else {
            continue;
        };
        if thing.path.is_dir() {
            // Under another name first, so that nobody finds half of it.
            let trash = cache.scratch("trash")?;
            fs::rename(&thing.path, trash.path().join("gone"))?;
            trash.close()?;
        } else {
            fs::remove_file(&thing.path)?;
        }
        gone.push(thing);
    }
    Ok(gone)
}

/// Bytes of a file or folder, but for files with another name elsewhere.
fn size(path: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt;
    let mut bytes = 0;
    for entry in WalkDir::new(path) {
        let metadata = match entry.and_then(|entry| entry.metadata()) {
            Ok(metadata) => metadata,
            // It went away while we looked.
            Err(error)
                if error
                    .io_error()
                    .is_some_and(|e| e.kind() == io::ErrorKind::NotFound) =>
            {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        if metadata.is_dir() || metadata.nlink() == 1 {
            bytes += metadata.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// When a thing was used, or made if nobody says.
fn used(path: &Path) -> io::Result<SystemTime> {
    fs::symlink_metadata(path.join(USED))
        .or_else(|_| fs::symlink_metadata(path))?
        .modified()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thing(kind: &'static str, name: &str, bytes: u64, age: u64) -> Thing {
        Thing {
            kind,
            path: name.into(),
            bytes,
            used: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 - age),
        }
    }

    fn names(bytes: Option<u64>, age: Option<u64>) -> Vec<String> {
        let things = vec![
            thing("built", "new", 10, 1),
            thing("work", "old", 100, 500),
            thing("built", "middle", 20, 50),
            thing("trash", "trash", 1, 0),
        ];
        let limits = Limits {
            bytes,
            age: age.map(Duration::from_secs),
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        chosen(things, limits, now)
            .iter()
            .map(|thing| thing.path.display().to_string())
            .collect()
    }

    #[test]
    fn the_longest_unused_go_first() {
        assert_eq!(names(None, None), ["trash"]);
        assert_eq!(names(Some(31), None), ["old", "trash"]);
        assert_eq!(names(Some(15), None), ["old", "middle", "trash"]);
        assert_eq!(names(None, Some(40)), ["old", "middle", "trash"]);
        assert_eq!(names(Some(0), None), ["old", "middle", "new", "trash"]);
    }

    #[tokio::test]
    async fn what_is_in_use_stays() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::inside(folder.path());
        for key in ["busy", "idle"] {
            fs::create_dir_all(cache.entry("work", key)).unwrap();
            fs::write(cache.entry("work", key).join("x"), [0; 5000]).unwrap();
        }
        let _held = cache.lock("work", "busy", |_| {}).await.unwrap();
        let all = list(&cache).unwrap();
        assert!(all.iter().all(|thing| thing.bytes >= 5000));
        let gone = remove(&cache, all).unwrap();
        assert_eq!(gone.len(), 1);
        assert!(cache.entry("work", "busy").exists());
        assert!(!cache.entry("work", "idle").exists());
    }
}
