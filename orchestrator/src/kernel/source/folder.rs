//! Source in a folder the user works in. It is only read: a mirror in the cache
//! follows it, file by file as they change.
//!
//! Which files count is asked of git with an empty repository of our own, so that
//! build products the tree's `.gitignore` names stay behind whether or not the
//! folder is a checkout, and the user's index is not touched.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::super::built::BuildEvent;
use super::super::cache::{Cache, read_json, sha256_file, sha256_parts, write_json, write_whole};
use super::super::patch::hex;
use super::super::tools::{Tools, command, output};
use super::{Events, History, SourceError, SourceTree, io_error, is_kernel};

/// A file as last seen. Unchanged size, time and inode mean unchanged content, as
/// git's index takes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    size: u64,
    mtime_ns: i128,
    inode: u64,
    mode: u32,
    sha256: String,
}

type Index = BTreeMap<String, Seen>;

/// How many lists of files are kept to know what changed since.
const MANIFESTS: usize = 20;

/// Brings the mirror up to date and names what it holds.
pub(super) async fn snapshot(
    folder: &Path,
    cache: &Cache,
    tools: &Tools,
    events: Events<'_>,
) -> Result<SourceTree, SourceError> {
    let folder = fs::canonicalize(folder).map_err(io_error(folder))?;
    if !is_kernel(&folder) {
        return Err(SourceError::NotAKernel { path: folder });
    }
    let digest = sha256_parts([folder.as_os_str().as_encoded_bytes()]);
    let lineage = format!("folder-{}", &digest[..16]);
    let entry = cache.entry("sources", &lineage);
    let lock = cache
        .lock("sources", &lineage, |lock| {
            events(BuildEvent::Waiting { lock: lock.into() });
        })
        .await
        .map_err(io_error(&entry))?;
    let tree = entry.join("tree");
    fs::create_dir_all(&tree).map_err(io_error(&tree))?;
    let paths = list(&folder, &entry, tools).await?;
    let index_path = entry.join("index.json");
    let old: Index = read_json(&index_path).unwrap_or_default();
    let mut index = Index::new();
    let mut told = false;
    for path in paths {
        let from = folder.join(&path);
        let Some(seen) = look(&from, old.get(&path)).map_err(io_error(&from))? else {
            continue;
        };
        let to = tree.join(&path);
        let same = old
            .get(&path)
            .is_some_and(|o| (o.sha256.as_str(), o.mode) == (seen.sha256.as_str(), seen.mode));
        if !same || to.symlink_metadata().is_err() {
            if !told {
                events(BuildEvent::Unpacking {
                    what: folder.display().to_string(),
                });
                told = true;
            }
            copy(&from, &to).map_err(io_error(&to))?;
        }
        index.insert(path, seen);
    }
    for gone in old.keys().filter(|path| !index.contains_key(*path)) {
        let place = tree.join(gone);
        if place.symlink_metadata().is_ok() {
            fs::remove_file(&place).map_err(io_error(&place))?;
        }
    }
    write_json(&index_path, &index).map_err(io_error(&index_path))?;
    let manifest = manifest(&index);
    let id = format!("folder:{}", hex(&Sha256::digest(manifest.as_bytes())));
    let manifests = entry.join("manifests");
    keep_manifest(&manifests, &id, &manifest).map_err(io_error(&manifests))?;
    Ok(SourceTree {
        id,
        lineage,
        path: tree,
        history: History::Manifests(manifests),
        lock: Some(lock),
    })
}

/// What takes back a `.gitignore` that excludes the whole tree (Debian's source
/// packages carry one, for a repository of the packaging alone), and what a build
/// in the tree leaves at its top, which that file would have excluded.
const TOP_LEVEL: [&str; 13] = [
    "!/*",
    "/.config*",
    "/.version",
    "/.tmp_*",
    "/.vmlinux*",
    "/vmlinux*",
    "/System.map",
    "/Module.symvers",
    "/modules.*",
    "/.*.cmd",
    "/.*.d",
    "/*.o",
    "/*.a",
];

/// Every file that the tree's `.gitignore` files do not exclude.
async fn list(folder: &Path, entry: &Path, tools: &Tools) -> Result<Vec<String>, SourceError> {
    let repository = entry.join("nothing.git");
    if !repository.join("HEAD").is_file() {
        output(
            super::git::command(&tools.git)
                .args(["init", "--quiet", "--bare"])
                .arg(&repository),
        )
        .await
        .map_err(|source| SourceError::List {
            path: folder.to_owned(),
            source,
        })?;
    }
    let listed = list_with(&[], folder, &repository, tools).await?;
    if listed.iter().any(|path| path == "Makefile") {
        return Ok(listed);
    }
    list_with(&TOP_LEVEL, folder, &repository, tools).await
}

/// The same, with patterns that go before those of the tree.
async fn list_with(
    patterns: &[&str],
    folder: &Path,
    repository: &Path,
    tools: &Tools,
) -> Result<Vec<String>, SourceError> {
    let mut git = command(&tools.git);
    super::git::settle(&mut git);
    let listed = output(
        git.arg("--git-dir")
            .arg(repository)
            .arg("--work-tree")
            .arg(folder)
            .args(["ls-files", "--others", "--exclude-standard", "-z"])
            .args(patterns.iter().flat_map(|pattern| ["-x", *pattern]))
            .current_dir(folder),
    )
    .await
    .map_err(|source| SourceError::List {
        path: folder.to_owned(),
        source,
    })?;
    Ok(listed
        .split(|byte| *byte == 0)
        .filter(|path| !path.is_empty() && !path.starts_with(b".git/"))
        .map(|path| String::from_utf8_lossy(path).into_owned())
        .collect())
}

/// Looks at a file; nothing when it is neither a file nor a link (any more).
fn look(path: &Path, old: Option<&Seen>) -> io::Result<Option<Seen>> {
    let metadata = match fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    if !metadata.is_file() && !metadata.is_symlink() {
        return Ok(None);
    }
    let mut seen = Seen {
        size: metadata.len(),
        mtime_ns: i128::from(metadata.mtime()) * 1_000_000_000 + i128::from(metadata.mtime_nsec()),
        inode: metadata.ino(),
        mode: metadata.mode(),
        sha256: String::new(),
    };
    seen.sha256 = match old {
        Some(old)
            if (old.size, old.mtime_ns, old.inode) == (seen.size, seen.mtime_ns, seen.inode) =>
        {
            old.sha256.clone()
        }
        _ if metadata.is_symlink() => {
            sha256_parts([fs::read_link(path)?.as_os_str().as_encoded_bytes()])
        }
        _ => sha256_file(path)?,
    };
    Ok(Some(seen))
}

/// Copies a file or link, replacing what is there (never writing into it: work
/// trees have hard links to it).
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to.parent().expect("a file has a parent"))?;
    if to.symlink_metadata().is_ok() {
        fs::remove_file(to)?;
    }
    if fs::symlink_metadata(from)?.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(from)?, to)
    } else {
        // Shares blocks where the file system can.
        fs::copy(from, to).map(drop)
    }
}

/// One line a file: content, permissions, path. What the tree's name is made from.
fn manifest(index: &Index) -> String {
    index.iter().fold(String::new(), |mut text, (path, seen)| {
        let executable = seen.mode & 0o111 != 0;
        // Writing to a String does not fail.
        let _ = writeln!(text, "{} {} {path}", seen.sha256, u8::from(executable));
        text
    })
}

fn manifest_path(folder: &Path, id: &str) -> PathBuf {
    folder.join(id.replace(':', "-"))
}

fn keep_manifest(folder: &Path, id: &str, manifest: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let place = manifest_path(folder, id);
    if !place.is_file() {
        write_whole(&place, manifest.as_bytes())?;
    }
    let mut all: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        all.push((entry.metadata()?.modified()?, entry.path()));
    }
    all.sort();
    let spent = all.len().saturating_sub(MANIFESTS);
    for (_, path) in all.iter().take(spent).filter(|(_, path)| *path != place) {
        fs::remove_file(path)?;
    }
    Ok(())
}

/// Paths that differ between two trees, by their lists.
pub(super) fn changed(folder: &Path, old: &str, new: &str) -> Option<Vec<String>> {
    let read = |id: &str| -> Option<BTreeMap<String, String>> {
        let text = fs::read_to_string(manifest_path(folder, id)).ok()?;
        text.lines()
            .map(|line| {
                let (sum, rest) = line.split_once(' ')?;
                let (mode, path) = rest.split_once(' ')?;
                Some((path.to_owned(), format!("{sum} {mode}")))
            })
            .collect()
    };
    let (old, new) = (read(old)?, read(new)?);
    let mut paths: Vec<String> = old
        .iter()
        .filter(|(path, sum)| new.get(*path) != Some(sum))
        .map(|(path, _)| path.clone())
        .collect();
    paths.extend(new.keys().filter(|path| !old.contains_key(*path)).cloned());
    Some(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn take(folder: &Path, cache: &Cache) -> SourceTree {
        let path = std::env::var_os("PATH");
        let tools = Tools::in_path(path.as_deref());
        snapshot(folder, cache, &tools, &|_| {}).await.unwrap()
    }

    #[tokio::test]
    async fn the_mirror_follows_and_build_products_stay_behind() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("linux");
        fs::create_dir_all(folder.join("kernel")).unwrap();
        for (file, text) in [
            ("Makefile", "m"),
            ("Kconfig", "k"),
            (".gitignore", "*.o\n"),
            ("kernel/a.c", "a"),
            ("kernel/a.o", "object"),
            ("kernel/b.c", "b"),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
        let cache = Cache::inside(&place.path().join("cache"));
        let first = take(&folder, &cache).await;
        assert!(first.read("kernel/a.c").unwrap().is_some());
        assert!(first.read("kernel/a.o").unwrap().is_none());
        let (id, lineage) = (first.id.clone(), first.lineage.clone());
        drop(first);

        fs::write(folder.join("kernel/a.c"), "changed").unwrap();
        fs::remove_file(folder.join("kernel/b.c")).unwrap();
        fs::write(folder.join("kernel/c.c"), "c").unwrap();
        let second = take(&folder, &cache).await;
        assert_eq!(second.lineage, lineage);
        assert_ne!(second.id, id);
        assert_eq!(second.read("kernel/a.c").unwrap().unwrap(), b"changed");
        assert_eq!(
            second.changed_since(&id).await.unwrap(),
            ["kernel/a.c", "kernel/b.c", "kernel/c.c"]
        );
        assert!(!folder.join(".git").exists());
        let second_id = second.id.clone();
        drop(second);

        // Touching without changing is no change.
        fs::write(folder.join("kernel/a.c"), "changed").unwrap();
        assert_eq!(take(&folder, &cache).await.id, second_id);
    }

    /// Debian's source packages end their `.gitignore` so.
    #[tokio::test]
    async fn a_tree_that_ignores_itself_is_read_all_the_same() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("linux");
        fs::create_dir_all(folder.join("kernel")).unwrap();
        for (file, text) in [
            ("Makefile", "m"),
            ("Kconfig", "k"),
            (".config", "CONFIG_A=y"),
            ("vmlinux", "built"),
            (".gitignore", "*.o\n/*\n!/debian/\n"),
            ("kernel/a.c", "a"),
            ("kernel/a.o", "object"),
        ] {
            fs::write(folder.join(file), text).unwrap();
        }
        let tree = take(&folder, &Cache::inside(&place.path().join("cache"))).await;
        for (file, there) in [
            ("Makefile", true),
            ("kernel/a.c", true),
            ("kernel/a.o", false),
            (".config", false),
            ("vmlinux", false),
        ] {
            assert_eq!(tree.read(file).unwrap().is_some(), there, "{file}");
        }
    }
}
