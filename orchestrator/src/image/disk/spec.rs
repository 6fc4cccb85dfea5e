//! Image files as they are written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::document::At;

/// A guest's user space: a name and exactly one way to make it.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Spec {
    /// Name, unique in the library.
    #[schemars(required)]
    pub name: At<String>,
    /// The agent as PID 1 in memory, with the programs and files named here.
    pub initramfs: Option<At<InitramfsSpec>>,
    /// A disk with Debian and systemd, made by mmdebstrap.
    pub debian: Option<At<DebianSpec>>,
    /// The running host's own root, read only, with a layer in memory above it.
    pub host: Option<At<HostSpec>>,
    /// A disk made by somebody else. It is never written to; the agent is
    /// brought in over SSH.
    pub existing: Option<At<ExistingSpec>>,
}

/// Written form of an initramfs.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct InitramfsSpec {
    /// Host programs, absolute paths; they come with their shared libraries.
    pub programs: Vec<At<String>>,
    /// Path in the guest to file of the host, relative to the image file.
    pub files: BTreeMap<String, At<String>>,
}

/// Written form of a Debian disk.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct DebianSpec {
    /// Release, such as `bookworm`.
    #[schemars(required)]
    pub suite: At<String>,
    /// Where packages come from. Default: `http://deb.debian.org/debian`.
    pub mirror: Option<At<String>>,
    /// A moment of snapshot.debian.org, such as `20250520T000000Z`, in place of
    /// a mirror: the same packages for ever.
    pub snapshot: Option<At<String>>,
    /// A recorded package list, relative to the image file. A build that
    /// installs anything else is refused.
    pub recorded: Option<At<String>>,
    /// Packages beside those that every such image has.
    pub packages: Vec<At<String>>,
    /// Size of the disk, such as `2G` (the default). Unwritten parts take no room.
    pub size: Option<At<String>>,
    /// Whether an SSH server runs, with a key made for this image. Default: yes.
    pub ssh: Option<bool>,
    /// Whether root is logged in on the serial console. Default: no.
    pub console_login: bool,
    /// systemd units that must not run, such as `apt-daily.timer`.
    pub mask: Vec<At<String>>,
}

/// Written form of the host's root.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct HostSpec {}

/// Written form of an image made by somebody else.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct ExistingSpec {
    /// The disk, relative to the image file.
    #[schemars(required)]
    pub path: At<String>,
    /// `raw` or `qcow2`. Default: told by the file's first bytes.
    pub format: Option<FormatSpec>,
    /// The root file system as the guest's kernel names it, such as
    /// `/dev/vda2`. Default: found in the partition table.
    pub root: Option<At<String>>,
    /// Who logs in. Default: `root`.
    pub user: Option<At<String>>,
    /// Private key, relative to the image file. Default: those of the SSH agent.
    pub key: Option<At<String>>,
    /// The server's public key as in a `known_hosts` file, `TYPE BASE64`.
    /// Default: what the image answers the first time is kept.
    pub host_key: Option<At<String>>,
}

/// Formats of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum FormatSpec {
    /// Sectors one after the other.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}
