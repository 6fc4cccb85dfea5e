//! What a build yields and what it tells while it runs.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::config::KernelConfig;
use super::variant::Variant;

/// A kernel that can be booted, with everything needed to name it later.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BuiltKernel {
    /// Name of the kernel.
    pub kernel: String,
    /// Name of the series, when one was asked for.
    pub series: Option<String>,
    /// The patches it carries.
    pub variant: Variant,
    /// The bootable image (a bzImage).
    pub image: PathBuf,
    /// SHA-256 of the image, lower-case hex. Equal images need to run only once.
    pub image_sha256: String,
    /// GNU build id of vmlinux, lower-case hex, as `/sys/kernel/notes` shows it in
    /// the guest. Nothing when a prebuilt image does not reveal it.
    pub build_id: Option<String>,
    /// What `uname -r` says in the guest.
    pub release: String,
    /// The final `.config`; nothing for a prebuilt image that came without one.
    pub config: Option<PathBuf>,
    /// SHA-256 of the final `.config`, lower-case hex.
    pub config_sha256: Option<String>,
    /// The uncompressed kernel with its symbols.
    pub vmlinux: Option<PathBuf>,
    /// Folder holding `lib/modules/RELEASE`, when there are modules.
    pub modules: Option<PathBuf>,
    /// Content id of the source tree with its patches; for a prebuilt image, of the
    /// image.
    pub source_id: String,
    /// First line of `CC --version`; empty for a prebuilt image.
    pub compiler: String,
    /// Objects compiled to make it. 0 for a prebuilt image.
    pub recompiled: u32,
    /// Wall-clock seconds the build took when it was made.
    pub seconds: f64,
    /// True when this call found it in the cache and built nothing.
    pub cached: bool,
}

impl BuiltKernel {
    /// Reads its final configuration; nothing when it came without one.
    pub fn read_config(&self) -> std::io::Result<Option<KernelConfig>> {
        match &self.config {
            Some(path) => Ok(Some(KernelConfig::parse(&std::fs::read_to_string(path)?))),
            None => Ok(None),
        }
    }
}

/// What a build tells while it runs.
///
/// The order for a variant that must be built: any number of `Fetching`,
/// `Unpacking`, `Waiting`; `Configuring`; `Compiling` (the first with 0 done)
/// repeatedly; `Linking`; `Built`. A cached one sends only `Built`. A failed build
/// ends without `Built`: the error is the answer of the call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "build")]
pub enum BuildEvent {
    /// A package or tarball is being downloaded.
    Fetching {
        /// Package name or address.
        what: String,
    },
    /// A source or package is being unpacked into the cache.
    Unpacking {
        /// What is unpacked.
        what: String,
    },
    /// Another process builds in the same tree; this one waits for it.
    Waiting {
        /// The lock file that is held.
        lock: PathBuf,
    },
    /// The configuration is being made.
    Configuring {
        /// The kernel and variant, as a reference.
        what: String,
    },
    /// Objects are being compiled.
    Compiling {
        /// The kernel and variant, as a reference.
        what: String,
        /// Objects compiled so far.
        done: u32,
        /// Objects expected; nothing when no earlier build of this tree tells.
        expected: Option<u32>,
        /// The last object, relative to the tree.
        object: String,
    },
    /// Everything is compiled, the image is being linked.
    Linking {
        /// The kernel and variant, as a reference.
        what: String,
    },
    /// The image is in the cache.
    Built {
        /// The kernel and variant, as a reference.
        what: String,
        /// Objects compiled by this call.
        recompiled: u32,
        /// Wall-clock seconds this call took.
        seconds: f64,
        /// True when nothing had to be built.
        cached: bool,
        /// Log of the build.
        log: Option<PathBuf>,
    },
}
