//! Files and whole folders to and from a machine, as `cp -r` would.
//!
//! What a machine says of its own files is not trusted: names that would leave the
//! folder they belong to are refused, links are not followed and not made, and there
//! is a limit on bytes and on files.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use ssh2::{ErrorCode, Session, Sftp};

use super::{
    files::{RemoteError, describe, fetch, send, set_timeout, sftp},
    patience::Patience,
};

/// What may be copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes in all.
    pub bytes: u64,
    /// Files in all.
    pub files: u64,
}

/// What was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes.
    pub bytes: u64,
    /// Files.
    pub files: u64,
    /// What is neither file nor folder, and was left out.
    pub left_out: Vec<String>,
}

struct Copy<'a> {
    session: &'a Session,
    sftp: Sftp,
    room: Room,
    patience: &'a Patience,
    copied: Copied,
}

/// Copies a file or folder of this host to the machine; into `remote` when that is a
/// folder.
///
/// # Errors
/// A file cannot be read here or written there.
pub fn copy_in(
    session: &Session,
    local: &Path,
    remote: &str,
    room: Room,
    patience: &Patience,
) -> Result<Copied, RemoteError> {
    let mut copy = Copy::open(session, remote, room, patience)?;
    let mut target = remote.to_string();
    if copy.is_folder(remote)
        && let Some(name) = local.file_name()
    {
        target = below(remote, &name.to_string_lossy());
    }
    copy.push(local, &target)?;
    Ok(copy.copied)
}

/// Copies a file or folder of the machine to this host; into `local` when that is a
/// folder.
///
/// # Errors
/// A file cannot be read there or written here, or there are more than may be copied.
pub fn copy_out(
    session: &Session,
    remote: &str,
    local: &Path,
    room: Room,
    patience: &Patience,
) -> Result<Copied, RemoteError> {
    let mut copy = Copy::open(session, remote, room, patience)?;
    let mut target = local.to_path_buf();
    if local.is_dir()
        && let Some(name) = Path::new(remote).file_name()
    {
        target.push(name);
    }
    // What was named is meant, be it a link: its content is only read.
    set_timeout(session, patience)?;
    let named = copy.sftp.realpath(Path::new(remote));
    let named = named.map_err(|error| refused("read", remote, &error))?;
    copy.pull(&named.to_string_lossy(), &target)?;
    Ok(copy.copied)
}

fn below(folder: &str, name: &str) -> String {
    format!("{}/{name}", folder.trim_end_matches('/'))
}

impl<'a> Copy<'a> {
    fn open(
        session: &'a Session,
        remote: &str,
        room: Room,
        patience: &'a Patience,
    ) -> Result<Self, RemoteError> {
        Ok(Self {
            sftp: sftp(session, remote, patience)?,
            session,
            room,
            patience,
            copied: Copied::default(),
        })
    }

    fn is_folder(&self, remote: &str) -> bool {
        self.sftp
            .stat(Path::new(remote))
            .is_ok_and(|about| about.is_dir())
    }

    fn count(&mut self, path: &str) -> Result<(), RemoteError> {
        self.copied.files += 1;
        if self.copied.files > self.room.files {
            return Err(RemoteError::TooMany {
                path: path.into(),
                limit: self.room.files,
            });
        }
        Ok(())
    }

    fn push(&mut self, local: &Path, remote: &str) -> Result<(), RemoteError> {
        let unreadable = |source| RemoteError::Local {
            path: local.into(),
            source,
        };
        let about = fs::metadata(local).map_err(unreadable)?;
        let mode = about.permissions().mode() & 0o777;
        let mode = i32::try_from(mode).expect("nine bits fit");
        if about.is_dir() {
            set_timeout(self.session, self.patience)?;
            match self.sftp.mkdir(Path::new(remote), mode | 0o700) {
                Ok(()) => {}
                Err(_) if self.is_folder(remote) => {}
                Err(error) => return Err(refused("write", remote, &error)),
            }
            let mut names = Vec::new();
            for entry in fs::read_dir(local).map_err(unreadable)? {
                names.push(entry.map_err(unreadable)?.file_name());
            }
            names.sort();
            for name in names {
                self.push(&local.join(&name), &below(remote, &name.to_string_lossy()))?;
            }
            return Ok(());
        }
        if !about.is_file() {
            self.copied.left_out.push(local.display().to_string());
            return Ok(());
        }
        self.count(remote)?;
        let file = fs::File::open(local).map_err(unreadable)?;
        let sent = send(
            self.session,
            &self.sftp,
            file,
            about.len(),
            remote,
            mode,
            self.patience,
        )?;
        self.copied.bytes += sent;
        Ok(())
    }

    fn pull(&mut self, remote: &str, local: &Path) -> Result<(), RemoteError> {
        set_timeout(self.session, self.patience)?;
        let about = self.sftp.lstat(Path::new(remote));
        let about = about.map_err(|error| refused("read", remote, &error))?;
        if about.is_dir() {
            return self.pull_folder(remote, local);
        }
        // Files of /proc and /sys are files, whatever their length.
        if !about.is_file() {
            self.copied.left_out.push(printable(remote));
            return Ok(());
        }
        self.count(remote)?;
        let left = self.room.bytes.saturating_sub(self.copied.bytes);
        self.copied.bytes += fetch(self.session, &self.sftp, remote, local, left, self.patience)?;
        if about.perm.is_some_and(|mode| mode & 0o100 != 0) {
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(local, mode).map_err(|source| RemoteError::Local {
                path: local.into(),
                source,
            })?;
        }
        Ok(())
    }

    fn pull_folder(&mut self, remote: &str, local: &Path) -> Result<(), RemoteError> {
        match fs::create_dir(local) {
            Ok(()) => {}
            Err(_) if fs::symlink_metadata(local).is_ok_and(|about| about.is_dir()) => {}
            Err(source) => {
                return Err(RemoteError::Local {
                    path: local.into(),
                    source,
                });
            }
        }
        let entries = self.sftp.readdir(Path::new(remote));
        let entries = entries.map_err(|error| refused("read", remote, &error))?;
        let mut names: Vec<PathBuf> = entries.into_iter().map(|(path, _)| path).collect();
        names.sort();
        for path in names {
            let name = path.file_name().map(|name| name.to_string_lossy());
            let Some(name) = name.filter(|name| is_plain(name)) else {
                self.copied
                    .left_out
                    .push(printable(&path.to_string_lossy()));
                continue;
            };
            self.pull(&below(remote, &name), &local.join(&*name))?;
        }
        Ok(())
    }
}

/// A name that stays in its folder.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0'])
}

fn printable(path: &str) -> String {
    path.chars().filter(|c| !c.is_control()).take(300).collect()
}

fn refused(what: &'static str, path: &str, error: &ssh2::Error) -> RemoteError {
    let reason = match error.code() {
        // SSH_FX_FAILURE is all that OpenSSH says of most things.
        ErrorCode::SFTP(4) => "the machine refuses".into(),
        _ => describe(error),
    };
    RemoteError::File {
        what,
        path: printable(path),
        reason,
    }
}
