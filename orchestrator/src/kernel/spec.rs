//! A kernel as its YAML describes it, checked: paths resolved, forms told apart.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::check::TargetSpec;
use super::config::Setting;

/// A kernel that can be obtained.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// Its name.
    pub name: String,
    /// The file it was read from.
    pub file: PathBuf,
    /// How it is obtained.
    pub recipe: Recipe,
}

/// Ready to boot, or to be built.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Recipe {
    /// A bootable image on this machine, with its `.config` when known.
    Image {
        /// The image.
        image: PathBuf,
        /// Its configuration.
        config: Option<PathBuf>,
    },
    /// A distribution's kernel package, taken apart and not installed.
    Package {
        /// Package name; `*` and `?` match, the newest wins.
        pattern: String,
    },
    /// Built from source.
    Build {
        /// Where the source comes from.
        source: Source,
        /// How it is configured.
        config: ConfigRequest,
        /// The patch series that can be laid over it, by name.
        series: BTreeMap<String, SeriesSource>,
        /// What a build check covers unless it is told.
        check: Vec<TargetSpec>,
    },
}

/// Where source comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A package that carries the source as a tarball (`linux-source-6.12`).
    Package {
        /// Package name; `*` and `?` match, the newest wins.
        pattern: String,
    },
    /// A tarball on this machine.
    Tarball {
        /// The tarball; compression is told by `tar`.
        path: PathBuf,
        /// Its SHA-256, lower-case hex.
        sha256: String,
    },
    /// A folder, read and never written to.
    Folder {
        /// The folder.
        path: PathBuf,
    },
    /// A commit of a git repository; the repository's checkout, index and branches
    /// are never touched.
    Git {
        /// Path or address.
        repo: String,
        /// Anything `git rev-parse` understands.
        reference: String,
    },
}

/// What a kernel shall be configured like.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRequest {
    /// Where the configuration starts.
    pub base: ConfigBase,
    /// Fragments laid over it, in order.
    pub fragments: Vec<PathBuf>,
    /// Options set in the YAML itself, after the fragments.
    pub set: Vec<Setting>,
    /// Options that may get lost without an error.
    pub optional: Vec<String>,
    /// Processor architecture of the kernel.
    pub arch: Arch,
}

/// Where a configuration starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigBase {
    /// A make target of the tree: `allnoconfig`, `defconfig`, `x86_64_defconfig`, …
    Target(String),
    /// A `.config` file.
    File(PathBuf),
}

/// An architecture as the kernel's `ARCH=` names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Arch(pub String);

impl Arch {
    /// The name of its folder under `arch/` (`x86` for `x86_64` and `i386`).
    pub fn folder(&self) -> &str {
        match self.0.as_str() {
            "x86_64" | "i386" => "x86",
            "sparc64" | "sparc32" => "sparc",
            "parisc64" => "parisc",
            other => other,
        }
    }
}

impl Arch {
    /// The make target of a bootable image.
    pub fn image_target(&self) -> &'static str {
        match self.folder() {
            "x86" => "bzImage",
            "arm64" | "riscv" => "Image",
            _ => "vmlinux",
        }
    }

    /// Where that image is, below the objects.
    pub fn image(&self) -> String {
        match self.image_target() {
            "vmlinux" => "vmlinux".to_owned(),
            target => format!("arch/{}/boot/{target}", self.folder()),
        }
    }
}

impl Default for Arch {
    fn default() -> Self {
        Self("x86_64".to_owned())
    }
}

/// Where a patch series comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeriesSource {
    /// A folder of patches, a quilt `series` file, a mailbox, or one patch.
    Path {
        /// The folder or file.
        path: PathBuf,
        /// Which version of a series in mails; the newest when left out.
        version: Option<u32>,
    },
    /// A series in the archive of mailing lists.
    Message {
        /// Message-id of one of its mails.
        id: String,
        /// Which version; the newest when left out.
        version: Option<u32>,
    },
    /// Commits of a git repository, oldest first.
    GitRange {
        /// Path of the repository.
        repo: PathBuf,
        /// `BASE..TIP`.
        range: String,
    },
}
