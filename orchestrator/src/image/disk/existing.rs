//! Disks made by somebody else, looked into before a guest is started: where
//! their root is, whether it can be one here, and which host key it will show.

mod partitions;
mod sectors;

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use ext4_view::{Ext4, Ext4Read};
use sectors::Sectors;

pub use partitions::{Content, Partition, partitions};

use super::{DiskFormat, Existing, file_hash};
use crate::image::{GuestDisk, LoginKey, Reach, SshLogin, UserSpace};

/// Why a disk cannot be a guest's.
#[derive(Debug, thiserror::Error)]
pub enum ExistingError {
    /// The file cannot be read.
    #[error("cannot read the disk `{}`", path.display())]
    Read {
        /// The disk.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The root is encrypted.
    #[error("the root of `{}` is encrypted (LUKS on partition {number})", path.display())]
    Encrypted {
        /// The disk.
        path: PathBuf,
        /// Number of the partition.
        number: u32,
    },
    /// The root is for another processor.
    #[error("`{}` is made for {seen}, guests here are x86_64", path.display())]
    Processor {
        /// The disk.
        path: PathBuf,
        /// The processor.
        seen: String,
    },
    /// The root is on a file system that is not looked into here.
    #[error("the root of `{}` is on {content}; only ext4 is looked into: name the root with `root:` \
        and use a kernel that mounts it", path.display())]
    FileSystem {
        /// The disk.
        path: PathBuf,
        /// What it is on.
        content: &'static str,
    },
    /// Nothing on it can be a root.
    #[error("no root file system on `{}`: {found}", path.display())]
    NoRoot {
        /// The disk.
        path: PathBuf,
        /// What is there.
        found: String,
    },
    /// Its root has no SSH server.
    #[error("`{}` has no SSH server (no sshd in its root), and the agent is brought in by one", path.display())]
    NoServer {
        /// The disk.
        path: PathBuf,
    },
    /// Neither a key nor an SSH agent.
    #[error("nothing lets us into `{}`: no private key is named, no SSH agent runs, and there is no key of the usual names", path.display())]
    NoKey {
        /// The disk.
        path: PathBuf,
    },
}

/// Where a disk's root is and what is known about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// As the guest's kernel names it.
    pub device: String,
    /// Its SSH server's public key, `TYPE BASE64`, when it stands on the disk.
    pub host_key: Option<String>,
    /// Whether root's keys come in as a credential: systemd 252 and later put
    /// `ssh.authorized_keys.root` into place at boot where nobody has put any
    /// (tmpfiles.d/provision.conf).
    pub takes_key: bool,
}

/// What may let us into images of others when they do not say it themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Logins {
    /// Socket of the user's SSH agent.
    pub agent: Option<PathBuf>,
    /// The user's private keys, best first. Those that are not there do not count.
    pub keys: Vec<PathBuf>,
    /// A private key of ours, its public half beside it, for images that take one at
    /// boot.
    pub own: Option<PathBuf>,
}

impl Logins {
    /// The first of a key that is named, the agent, and a key that is there.
    pub fn choose(&self, named: Option<&Path>) -> Option<LoginKey> {
        if let Some(key) = named {
            return Some(LoginKey::File(key.into()));
        }
        if let Some(socket) = &self.agent {
            return Some(LoginKey::Agent(socket.clone()));
        }
        let there = self.keys.iter().find(|key| key.is_file());
        there.cloned().map(LoginKey::File)
    }
}

/// A guest's user space from a disk made by somebody else. `qemu` is the QEMU
/// program.
///
/// # Errors
/// The disk cannot be read or cannot be a root, or nothing lets us in.
pub fn user_space(
    existing: &Existing,
    qemu: &Path,
    logins: &Logins,
) -> Result<UserSpace, ExistingError> {
    let path = std::path::absolute(&existing.path).unwrap_or_else(|_| existing.path.clone());
    let read = |source| ExistingError::Read {
        path: path.clone(),
        source,
    };
    let format = match existing.format {
        Some(format) => format,
        None => sectors::format(&path).map_err(read)?,
    };
    let root = match &existing.root {
        Some(device) => Root {
            device: device.clone(),
            host_key: None,
            takes_key: false,
        },
        None => find_root(&path, format, qemu)?,
    };
    // The address QEMU's user network expects, for images that ask nobody for one (the
    // kernel's Documentation/admin-guide/nfs/nfsroot.rst).
    let mut words = format!(
        "root={} rw ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:off",
        root.device
    );
    let brought = match &logins.own {
        Some(own) if root.takes_key && existing.user == "root" && existing.key.is_none() => {
            let public = fs::read_to_string(own.with_extension("pub")).map_err(read)?;
            words += &credential(public.trim());
            Some(LoginKey::File(own.clone()))
        }
        _ => None,
    };
    let key = brought.or_else(|| logins.choose(existing.key.as_deref()));
    let Some(key) = key else {
        return Err(ExistingError::NoKey { path });
    };
    let login = SshLogin {
        user: existing.user.clone(),
        key,
        host_key: existing.host_key.clone().or(root.host_key),
    };
    Ok(UserSpace {
        sha256: file_hash(&path).map_err(read)?,
        initrd: None,
        share: None,
        disk: Some(GuestDisk { path, format }),
        words,
        reach: Reach::Ssh(login),
        login: None,
    })
}

/// The word that brings a public key in, with the blank before it (systemd(1),
/// `systemd.set_credential=`).
fn credential(public: &str) -> String {
    format!(" \"systemd.set_credential=ssh.authorized_keys.root:{public}\"")
}

/// Bytes in which partition tables and the marks of file systems lie.
const HEAD: u64 = 1 << 20;

/// Finds the root of a disk.
///
/// # Errors
/// There is none, or it cannot be one here.
pub fn find_root(path: &Path, format: DiskFormat, qemu: &Path) -> Result<Root, ExistingError> {
    let read = |source| ExistingError::Read {
        path: path.into(),
        source,
    };
    let mut disk = Sectors::open(path, format, qemu).map_err(read)?;
    let head = disk.head(0, HEAD).map_err(read)?;
    let mut parts = partitions(&head);
    let whole = parts.is_empty();
    if whole {
        parts.push(Partition {
            number: 0,
            start: 0,
            len: disk.len,
            root_of: None,
        });
    }
    let mut seen = Vec::new();
    for part in parts {
        // A table may name what the file does not have.
        let content = match disk.head(part.start, HEAD) {
            Ok(head) => Content::of(&head),
            Err(_) => Content::Unknown,
        };
        seen.push((part, content));
    }
    let (part, content) = choose(path, &seen)?;
    match content {
        Content::Ext4 => {}
        Content::Luks => {
            return Err(ExistingError::Encrypted {
                path: path.into(),
                number: part.number,
            });
        }
        other => {
            return Err(ExistingError::FileSystem {
                path: path.into(),
                content: other.name(),
            });
        }
    }
    let device = if whole {
        "/dev/vda".to_string()
    } else {
        format!("/dev/vda{}", part.number)
    };
    let start = part.start;
    let tree = Ext4::load(Box::new(Part { disk, start })).map_err(|error| {
        let found = format!("the ext4 on {device} is damaged: {error}");
        ExistingError::NoRoot {
            path: path.into(),
            found,
        }
    })?;
    look_inside(path, device, &tree)
}

/// The part that says it is the root, else the largest that can be one: boot
/// partitions are smaller than roots.
fn choose(
    path: &Path,
    seen: &[(Partition, Content)],
) -> Result<(Partition, Content), ExistingError> {
    let typed = |name: &str| seen.iter().find(|(part, _)| part.root_of == Some(name));
    if let Some(found) = typed("x86_64") {
        return Ok(*found);
    }
    if let Some((part, _)) = seen.iter().find(|(part, _)| part.root_of.is_some()) {
        return Err(ExistingError::Processor {
            path: path.into(),
            seen: part.root_of.unwrap_or_default().into(),
        });
    }
    let known = seen
        .iter()
        .filter(|(_, content)| *content != Content::Unknown);
    match known.max_by_key(|(part, _)| part.len) {
        Some(found) => Ok(*found),
        None => {
            let parts = seen.iter().map(|(part, content)| match part.number {
                0 => "no partition table and no file system that is known here".to_string(),
                number => format!("partition {number} is {}", content.name()),
            });
            Err(ExistingError::NoRoot {
                path: path.into(),
                found: parts.collect::<Vec<_>>().join(", "),
            })
        }
    }
}

/// Places of the server's program.
const SERVERS: [&str; 3] = ["/usr/sbin/sshd", "/usr/bin/sshd", "/usr/sbin/dropbear"];
/// Programs every root has, to tell the processor by.
const PROGRAMS: [&str; 4] = ["/sbin/init", "/bin/sh", "/usr/bin/env", "/bin/busybox"];
/// Public host keys, best first; a client that knows one kind asks for it.
const HOST_KEYS: [&str; 1] = ["/etc/ssh/ssh_host_ed25519_key.pub"];

/// Makes systemd put credentials into place.
const PROVISION: &str = "/usr/lib/tmpfiles.d/provision.conf";
/// Keys that may log in as root already.
const ROOTS_KEYS: &str = "/root/.ssh/authorized_keys";

fn look_inside(path: &Path, device: String, tree: &Ext4) -> Result<Root, ExistingError> {
    let program = PROGRAMS.iter().find_map(|name| tree.read(*name).ok());
    let Some(program) = program else {
        let found = format!("the ext4 on {device} has none of {}", PROGRAMS.join(", "));
        return Err(ExistingError::NoRoot {
            path: path.into(),
            found,
        });
    };
    if let Some(seen) = other_processor(&program) {
        let path = path.into();
        return Err(ExistingError::Processor { path, seen });
    }
    let has = |name: &str| tree.exists(name).unwrap_or(false);
    if !SERVERS.iter().any(|name| has(name)) {
        return Err(ExistingError::NoServer { path: path.into() });
    }
    let key = HOST_KEYS
        .iter()
        .find_map(|name| tree.read_to_string(*name).ok());
    let host_key = key.map(|line| {
        let words: Vec<&str> = line.split_whitespace().take(2).collect();
        words.join(" ")
    });
    Ok(Root {
        device,
        host_key,
        takes_key: has(PROVISION) && !has(ROOTS_KEYS),
    })
}

/// The processor of an ELF file that is not for this one; `None` for one that
/// is, and for a script.
fn other_processor(program: &[u8]) -> Option<String> {
    use object::elf;
    if program.get(..4)? != b"\x7fELF" {
        return None;
    }
    let machine = u16::from_le_bytes(program.get(18..20)?.try_into().ok()?);
    match machine {
        elf::EM_X86_64 | elf::EM_386 => None,
        elf::EM_AARCH64 => Some("aarch64".into()),
        elf::EM_ARM => Some("arm".into()),
        elf::EM_RISCV => Some("riscv64".into()),
        elf::EM_PPC64 => Some("ppc64".into()),
        // s390x files have the other byte order.
        other => Some(format!("ELF machine {other}")),
    }
}

/// A part of a disk as the file system reader wants it.
struct Part {
    disk: Sectors,
    start: u64,
}

impl Ext4Read for Part {
    fn read(
        &mut self,
        start_byte: u64,
        dst: &mut [u8],
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync + 'static>> {
        let at = self.start.checked_add(start_byte);
        let at = at.ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))?;
        Ok(self.disk.read_at(at, dst)?)
    }
}

#[cfg(test)]
mod tests;
