//! Source out of a tarball: unpacked once.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::super::built::BuildEvent;
use super::super::cache::{Cache, read_json, sha256_file, write_json};
use super::super::package;
use super::super::tools::{Tools, command, output};
use super::{Events, SourceError, SourceTree, io_error, is_kernel};

/// What is remembered beside an unpacked source.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    id: String,
}

/// Remembers which tarball a package held.
#[derive(Debug, Serialize, Deserialize)]
struct Held {
    sha256: String,
    tarball: PathBuf,
}

/// The source in a package such as `linux-source-6.12`.
pub(super) async fn from_package(
    pattern: &str,
    cache: &Cache,
    tools: &Tools,
    events: Events<'_>,
) -> Result<SourceTree, SourceError> {
    let unpacked = package::unpack(pattern, cache, tools, events).await?;
    let held_path = unpacked.root.with_file_name("tarball.json");
    let held = match read_json::<Held>(&held_path) {
        Some(held) => held,
        None => {
            let tarball = find_tarball(&unpacked.root).ok_or(SourceError::NoTarball {
                package: unpacked.file_name,
            })?;
            let held = Held {
                sha256: sha256_file(&tarball).map_err(io_error(&tarball))?,
                tarball,
            };
            write_json(&held_path, &held).map_err(io_error(&held_path))?;
            held
        }
    };
    unpack(&held.tarball, &held.sha256, cache, tools, events).await
}

/// A tarball whose checksum is known beforehand.
pub(super) async fn checked(
    path: &Path,
    sha256: &str,
    cache: &Cache,
    tools: &Tools,
    events: Events<'_>,
) -> Result<SourceTree, SourceError> {
    let entry = cache.entry("sources", &entry_name(sha256));
    if !entry.join("source.json").is_file() {
        let found = sha256_file(path).map_err(io_error(path))?;
        if found != *sha256 {
            return Err(SourceError::Checksum {
                path: path.to_owned(),
                expected: sha256.to_owned(),
                found,
            });
        }
    }
    unpack(path, sha256, cache, tools, events).await
}

fn entry_name(sha256: &str) -> String {
    format!("tarball-{}", &sha256[..sha256.len().min(16)])
}

async fn unpack(
    path: &Path,
    sha256: &str,
    cache: &Cache,
    tools: &Tools,
    events: Events<'_>,
) -> Result<SourceTree, SourceError> {
    let name = entry_name(sha256);
    let entry = cache.entry("sources", &name);
    let tree = |id: &str| SourceTree::fixed(id, &entry.join("tree"));
    let _lock = cache
        .lock("sources", &name, |lock| {
            events(BuildEvent::Waiting { lock: lock.into() });
        })
        .await
        .map_err(io_error(&entry))?;
    if let Some(marker) = read_json::<Marker>(&entry.join("source.json"))
        && is_kernel(&entry.join("tree"))
    {
        return Ok(tree(&marker.id));
    }
    events(BuildEvent::Unpacking {
        what: path.display().to_string(),
    });
    let scratch = cache.scratch("sources").map_err(io_error(&entry))?;
    let unpacked = scratch.path().join("unpacked");
    fs::create_dir(&unpacked).map_err(io_error(&unpacked))?;
    output(
        command(&tools.tar)
            .arg("--extract")
            .arg("--no-same-owner")
            .arg("--file")
            .arg(path)
            .arg("--directory")
            .arg(&unpacked),
    )
    .await
    .map_err(|source| SourceError::Unpack {
        path: path.to_owned(),
        source,
    })?;
    let root = kernel_root(&unpacked).ok_or_else(|| SourceError::NotAKernel {
        path: path.to_owned(),
    })?;
    fs::rename(&root, scratch.path().join("tree")).map_err(io_error(&root))?;
    let marker = Marker {
        id: format!("tarball:{sha256}"),
    };
    write_json(&scratch.path().join("source.json"), &marker).map_err(io_error(&entry))?;
    cache.keep(scratch, &entry).map_err(io_error(&entry))?;
    Ok(tree(&marker.id))
}

/// `usr/src/linux-source-*.tar.*` of a Debian or Ubuntu package.
fn find_tarball(root: &Path) -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = WalkDir::new(root.join("usr/src"))
        .max_depth(3)
        .into_iter()
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_file())
        .map(walkdir::DirEntry::into_path)
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("linux") && name.contains(".tar")
        })
        .collect();
    found.sort();
    found.into_iter().next()
}

/// The top of the kernel tree in an unpacked tarball: itself, or its only folder.
fn kernel_root(unpacked: &Path) -> Option<PathBuf> {
    if is_kernel(unpacked) {
        return Some(unpacked.to_owned());
    }
    let entries: Vec<PathBuf> = fs::read_dir(unpacked)
        .ok()?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    entries.into_iter().find(|path| is_kernel(path))
}
