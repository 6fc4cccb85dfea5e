//! Debian disks: mmdebstrap makes a tree of packages, the layer goes over it,
//! mke2fs makes a disk of it. Nothing is mounted. Without root the steps that
//! need the files' owners run in a user namespace.
//!
//! In the cache, each below the hash of what it was made from:
//!
//! - `base/HASH/`: `tree.tar`, `packages`, `build.log`. The tar is the same byte
//!   for byte for the same packages.
//! - `keys/HASH/`: the keys of that base, made once; `keys/visitor/`: those for
//!   images of others.
//! - `disk/HASH/`: `root.raw` and `manifest.json`. Two disks of one tree hold
//!   the same files but differ in a few bytes: mke2fs keeps the times at which the
//!   tree was unpacked as the inodes' change times.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{
    Debian, Mirror, SshServer,
    layer::{Keys, layer},
    packages::{Difference, Packages},
    steps::{self, StepError, Tools},
};
use crate::image::{Archive, ArchiveError};

/// Raised when the same recipe is built differently, so that old trees and
/// disks in a cache are not taken for new ones.
const BUILDER: u32 = 1;

/// No file in a tree is younger than this (seconds since the epoch: the start
/// of 2025), as `SOURCE_DATE_EPOCH` asks of mmdebstrap.
const YOUNGEST: &str = "1735689600";

/// A disk in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// The disk, raw, never to be written to.
    pub path: PathBuf,
    /// What is known about it.
    pub manifest: Manifest,
    /// Private key that logs in as root, when an SSH server runs.
    pub login_key: Option<PathBuf>,
}

/// What is kept beside a disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// SHA-256 of the disk.
    pub disk_sha256: String,
    /// SHA-256 of the tree of packages it was made from.
    pub tree_sha256: String,
    /// SHA-256 of what was laid over the tree.
    pub layer_sha256: String,
    /// SHA-256 of the package list.
    pub packages_sha256: String,
    /// Release.
    pub suite: String,
    /// Where the packages came from.
    pub mirror: String,
    /// The SSH server's public key, `TYPE BASE64`.
    pub host_key: Option<String>,
    /// Size of the disk, bytes.
    pub bytes: u64,
}

/// Why a Debian disk could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// A program is missing or failed.
    #[error(transparent)]
    Step(#[from] StepError),
    /// The cache cannot be read or written.
    #[error("cannot use `{}` of the cache", path.display())]
    Cache {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The recorded package list cannot be used.
    #[error("cannot use the recorded package list `{}`: {reason}", path.display())]
    Record {
        /// The list.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// Other packages than the recorded ones.
    #[error("the packages are not those recorded in `{}`: {}", path.display(),
        differences.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Differs {
        /// The record.
        path: PathBuf,
        /// Every difference.
        differences: Vec<Difference>,
    },
    /// The layer's parts do not fit together.
    #[error(transparent)]
    Layer(#[from] ArchiveError),
}

/// Whether a tree in the cache is good enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Take it.
    Cached,
    /// Ask the mirror again.
    Fresh,
}

/// Makes a disk or finds it in the cache below `folder`. `say` hears the
/// programs' lines.
///
/// # Errors
/// A program is missing or fails, packages differ from a record, or the cache
/// cannot be written. The cache then holds no half-made disk.
pub fn build(
    debian: &Debian,
    agent: &[u8],
    folder: &Path,
    tools: &Tools,
    freshness: Freshness,
    say: &mut dyn FnMut(&str),
) -> Result<Disk, DebianError> {
    let base_key = hash(&[base_description(debian).to_string().as_bytes()]);
    let _lock = lock(folder, &base_key)?;
    let base = base(debian, &base_key, folder, tools, freshness, say)?;
    check_record(debian, &base.packages)?;
    let keys = match debian.ssh {
        SshServer::Keyed => Some(KeyFiles::ready(
            &folder.join("keys").join(&base_key),
            tools,
        )?),
        SshServer::Absent => None,
    };
    let contents = keys.as_ref().map(KeyFiles::read).transpose()?;
    let layer = layer_over(debian, agent, contents.as_ref(), &base.tree_sha256)?;
    let layer_sha256 = archive_hash(&layer);
    let disk_key = disk_key(debian, &base.tree_sha256, &layer_sha256);
    let place = folder.join("disk").join(&disk_key);
    let login_key = keys.as_ref().map(KeyFiles::login);
    if let Some(manifest) = read_manifest(&place) {
        let path = place.join("root.raw");
        return Ok(Disk {
            path,
            manifest,
            login_key,
        });
    }
    let made = stage(&folder.join("disk"))?;
    let layer_folder = made.path().join("layer");
    fs::create_dir(&layer_folder)
        .and_then(|()| layer.unpack(&layer_folder))
        .map_err(cache(&layer_folder))?;
    let disk = made.path().join("root.raw");
    steps::make_disk(
        tools,
        &base.tar,
        &layer_folder,
        &disk,
        debian.size,
        &disk_key,
        say,
    )?;
    fs::remove_dir_all(&layer_folder).map_err(cache(&layer_folder))?;
    fs::set_permissions(&disk, fs::Permissions::from_mode(0o400)).map_err(cache(&disk))?;
    let manifest = Manifest {
        disk_sha256: file_hash(&disk).map_err(cache(&disk))?,
        tree_sha256: base.tree_sha256,
        layer_sha256,
        packages_sha256: hash(&[base.packages.to_string().as_bytes()]),
        suite: debian.suite.clone(),
        mirror: address(&debian.mirror),
        host_key: keys.as_ref().map(KeyFiles::host_public).transpose()?,
        bytes: debian.size,
    };
    let json = serde_json::to_vec_pretty(&manifest).expect("a manifest is plain data");
    let path = made.path().join("manifest.json");
    fs::write(&path, json).map_err(cache(&path))?;
    settle(made, &place)?;
    Ok(Disk {
        path: place.join("root.raw"),
        manifest,
        login_key,
    })
}

fn layer_over(
    debian: &Debian,
    agent: &[u8],
    keys: Option<&Keys>,
    tree_sha256: &str,
) -> Result<Archive, ArchiveError> {
    layer(debian, agent.to_vec(), keys, &tree_sha256[..32])
}

/// What decides the content of a disk.
fn disk_key(debian: &Debian, tree_sha256: &str, layer_sha256: &str) -> String {
    hash(&[
        &BUILDER.to_le_bytes(),
        tree_sha256.as_bytes(),
        layer_sha256.as_bytes(),
        debian.size.to_string().as_bytes(),
    ])
}

/// The disk that [`build`] would find in the cache; nothing when it would make one.
pub fn built(debian: &Debian, agent: &[u8], folder: &Path) -> Option<PathBuf> {
    let base_key = hash(&[base_description(debian).to_string().as_bytes()]);
    let tree = folder.join("base").join(&base_key).join("tree.sha256");
    let tree_sha256 = fs::read_to_string(tree).ok()?;
    let keys = match debian.ssh {
        SshServer::Keyed => {
            let folder = folder.join("keys").join(&base_key);
            Some(KeyFiles { folder }.read().ok()?)
        }
        SshServer::Absent => None,
    };
    let layer = layer_over(debian, agent, keys.as_ref(), tree_sha256.get(..64)?).ok()?;
    let key = disk_key(debian, &tree_sha256, &archive_hash(&layer));
    let place = folder.join("disk").join(key);
    read_manifest(&place)?;
    Some(place.join("root.raw"))
}

/// A tree of packages in the cache.
struct Base {
    tar: PathBuf,
    tree_sha256: String,
    packages: Packages,
}

fn base(
    debian: &Debian,
    key: &str,
    folder: &Path,
    tools: &Tools,
    freshness: Freshness,
    say: &mut dyn FnMut(&str),
) -> Result<Base, DebianError> {
    let place = folder.join("base").join(key);
    if freshness == Freshness::Fresh || !place.join("tree.sha256").exists() {
        let made = stage(&folder.join("base"))?;
        let tar = made.path().join("tree.tar");
        let log = folder.join("base").join(format!("{key}.log"));
        steps::make_tree(tools, &mmdebstrap_args(debian, &tar), YOUNGEST, &log, say)?;
        let status = steps::read_from_tar(tools, &tar, "./var/lib/dpkg/status")?;
        let packages = Packages::from_status(&status);
        let write = |name: &str, text: String| {
            let path = made.path().join(name);
            fs::write(&path, text).map_err(cache(&path))
        };
        write("packages", packages.to_string())?;
        write("tree.sha256", file_hash(&tar).map_err(cache(&tar))?)?;
        let kept = made.path().join("build.log");
        fs::rename(&log, &kept).map_err(cache(&kept))?;
        settle(made, &place)?;
    }
    let read = |name: &str| {
        let path = place.join(name);
        fs::read_to_string(&path).map_err(cache(&path))
    };
    let list = read("packages")?;
    Ok(Base {
        tar: place.join("tree.tar"),
        tree_sha256: read("tree.sha256")?,
        packages: Packages::from_record(&list).map_err(|(line, text)| DebianError::Record {
            path: place.join("packages"),
            reason: format!("line {line} is `{text}`"),
        })?,
    })
}

/// What decides the packages of a tree.
fn base_description(debian: &Debian) -> serde_json::Value {
    serde_json::json!({
        "builder": BUILDER,
        "suite": debian.suite,
        "mirror": address(&debian.mirror),
        "packages": debian.packages,
        "youngest": YOUNGEST,
    })
}

/// Arguments of mmdebstrap(1), mode excepted. Pure.
fn mmdebstrap_args(debian: &Debian, tar: &Path) -> Vec<String> {
    let mut args = vec![
        "--variant=minbase".to_string(),
        "--format=tar".into(),
        format!("--include={}", debian.packages.join(",")),
        // The guest's devtmpfs has the devices; a namespace could not make them.
        "--skip=output/dev".into(),
        // Made at random by the package; the image's own key comes with the layer.
        "--customize-hook=rm -f \"$1\"/etc/ssh/ssh_host_*".into(),
        "--aptopt=Acquire::Retries \"3\"".into(),
        "--aptopt=Acquire::http::Timeout \"60\"".into(),
    ];
    if let Mirror::Snapshot(_) = debian.mirror {
        // The index files of the past say that they are no longer valid.
        args.push("--aptopt=Acquire::Check-Valid-Until \"false\"".into());
    }
    args.push(debian.suite.clone());
    args.push(tar.display().to_string());
    args.push(address(&debian.mirror));
    args
}

fn address(mirror: &Mirror) -> String {
    match mirror {
        Mirror::Live(address) => address.clone(),
        Mirror::Snapshot(moment) => {
            format!("http://snapshot.debian.org/archive/debian/{moment}/")
        }
    }
}

fn check_record(debian: &Debian, built: &Packages) -> Result<(), DebianError> {
    let Some(path) = &debian.recorded else {
        return Ok(());
    };
    let record = |reason: String| DebianError::Record {
        path: path.clone(),
        reason,
    };
    let text = fs::read_to_string(path).map_err(|error| record(error.to_string()))?;
    let recorded = Packages::from_record(&text)
        .map_err(|(line, text)| record(format!("line {line}: `{text}` is no NAME=VERSION")))?;
    let differences = recorded.differences(built);
    if differences.is_empty() {
        return Ok(());
    }
    Err(DebianError::Differs {
        path: path.clone(),
        differences,
    })
}

/// The key pairs of a base, made once and readable by their owner alone.
struct KeyFiles {
    folder: PathBuf,
}

impl KeyFiles {
    fn ready(folder: &Path, tools: &Tools) -> Result<Self, DebianError> {
        if !folder.join("host.pub").exists() {
            let parent = folder.parent().expect("joined above");
            let made = stage(parent)?;
            for name in ["login", "host"] {
                steps::make_key(tools, &made.path().join(name))?;
            }
            settle(made, folder)?;
        }
        let folder = folder.to_path_buf();
        Ok(Self { folder })
    }

    fn login(&self) -> PathBuf {
        self.folder.join("login")
    }

    fn file(&self, name: &str) -> Result<String, DebianError> {
        let path = self.folder.join(name);
        fs::read_to_string(&path).map_err(cache(&path))
    }

    fn read(&self) -> Result<Keys, DebianError> {
        Ok(Keys {
            login: self.file("login.pub")?,
            host: self.file("host")?.into_bytes(),
        })
    }

    /// Type and key, without the comment.
    fn host_public(&self) -> Result<String, DebianError> {
        let text = self.file("host.pub")?;
        let words: Vec<&str> = text.split_whitespace().take(2).collect();
        Ok(words.join(" "))
    }
}

/// A private key of ours for images of others that take one at boot, made once; its
/// public half lies beside it as `.pub`.
///
/// # Errors
/// It cannot be made or written.
pub fn visitor_key(folder: &Path, tools: &Tools) -> Result<PathBuf, DebianError> {
    Ok(KeyFiles::ready(&folder.join("keys").join("visitor"), tools)?.login())
}

/// Packages of a disk's tree, as recorded when it was made: the text a recipe's
/// `recorded:` may name.
///
/// # Errors
/// The tree is not in the cache.
pub fn recorded_packages(debian: &Debian, folder: &Path) -> Result<String, DebianError> {
    let key = hash(&[base_description(debian).to_string().as_bytes()]);
    let path = folder.join("base").join(key).join("packages");
    fs::read_to_string(&path).map_err(cache(&path))
}

fn read_manifest(place: &Path) -> Option<Manifest> {
    let bytes = fs::read(place.join("manifest.json")).ok()?;
    let manifest: Manifest = serde_json::from_slice(&bytes).ok()?;
    let there = fs::metadata(place.join("root.raw")).ok()?;
    (there.len() == manifest.bytes).then_some(manifest)
}

/// Two builds of one base wait for each other.
fn lock(folder: &Path, key: &str) -> Result<fs::File, DebianError> {
    let folder = folder.join("base");
    fs::create_dir_all(&folder).map_err(cache(&folder))?;
    let path = folder.join(format!("{key}.lock"));
    let file = fs::File::create(&path).map_err(cache(&path))?;
    file.lock().map_err(cache(&path))?;
    Ok(file)
}

/// A private folder in which something is made before it gets its name.
fn stage(parent: &Path) -> Result<tempfile::TempDir, DebianError> {
    fs::create_dir_all(parent)
        .and_then(|()| {
            tempfile::Builder::new()
                .prefix("making-")
                .tempdir_in(parent)
        })
        .map_err(cache(parent))
}

/// Gives what was made its name. What had the name before goes.
fn settle(made: tempfile::TempDir, place: &Path) -> Result<(), DebianError> {
    if place.exists() {
        fs::remove_dir_all(place).map_err(cache(place))?;
    }
    fs::rename(made.path(), place).map_err(cache(place))?;
    // It has another name now: there is nothing to remove.
    let _ = made.keep();
    Ok(())
}

fn cache(path: &Path) -> impl FnOnce(io::Error) -> DebianError {
    let path = path.to_path_buf();
    move |source| DebianError::Cache { path, source }
}

fn hash(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hex(&hasher.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn archive_hash(archive: &Archive) -> String {
    let mut bytes = Vec::new();
    archive
        .write(&mut bytes)
        .expect("writing to memory does not fail");
    hash(&[&bytes])
}

/// SHA-256 of a file, lower-case hex.
///
/// # Errors
/// It cannot be read.
pub fn file_hash(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut fs::File::open(path)?, &mut hasher)?;
    Ok(hex(&hasher.finalize()))
}

#[cfg(test)]
mod tests;
