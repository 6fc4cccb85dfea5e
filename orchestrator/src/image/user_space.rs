//! A guest's user space as a run takes it, however it was made.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Image, disk};

/// A guest's user space, ready to be booted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserSpace {
    /// What it is called in records: the SHA-256 of what the guest starts from.
    pub sha256: String,
    /// Unpacked into memory by the kernel before anything else runs.
    pub initrd: Option<Image>,
    /// The guest's disk.
    pub disk: Option<GuestDisk>,
    /// A folder of the host that the guest sees, read only, under the tag
    /// [`super::ready::SHARE`].
    pub share: Option<PathBuf>,
    /// Words for the kernel's command line.
    pub words: String,
    /// How the agent is reached.
    pub reach: Reach,
    /// How people enter it, when it has an SSH server and the agent does not need it.
    pub login: Option<SshLogin>,
}

impl UserSpace {
    /// How its SSH server is entered, whoever needs it.
    pub fn ssh(&self) -> Option<&SshLogin> {
        match &self.reach {
            Reach::Ssh(login) => Some(login),
            Reach::Port => self.login.as_ref(),
        }
    }
}

/// How the agent of a guest is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// It is in the image and finds its port.
    Port,
    /// It is brought in over SSH.
    Ssh(SshLogin),
}

/// How an image is entered over SSH.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SshLogin {
    /// Who logs in.
    pub user: String,
    /// With what.
    pub key: LoginKey,
    /// The server's public key, `TYPE BASE64`, when it is known.
    pub host_key: Option<String>,
}

/// What lets us in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LoginKey {
    /// A private key without a passphrase.
    File(PathBuf),
    /// The keys of an SSH agent, reached through this socket.
    Agent(PathBuf),
}

/// The disk of a guest. A run writes to an overlay of its own, never to this.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestDisk {
    /// The file.
    pub path: PathBuf,
    /// Its format.
    pub format: disk::DiskFormat,
}

impl From<Image> for UserSpace {
    fn from(image: Image) -> Self {
        Self {
            sha256: image.sha256.clone(),
            initrd: Some(image),
            disk: None,
            share: None,
            words: String::new(),
            reach: Reach::Port,
            login: None,
        }
    }
}

impl From<disk::Disk> for UserSpace {
    fn from(disk: disk::Disk) -> Self {
        let login = disk.login_key.map(|key| SshLogin {
            user: "root".into(),
            key: LoginKey::File(key),
            host_key: disk.manifest.host_key,
        });
        Self {
            login,
            sha256: disk.manifest.disk_sha256,
            initrd: None,
            share: None,
            disk: Some(GuestDisk {
                path: disk.path,
                format: disk::DiskFormat::Raw,
            }),
            words: "root=/dev/vda rootfstype=ext4 rw".into(),
            reach: Reach::Port,
        }
    }
}
