//! Files to and from a machine over SFTP, and a place there for the agent.

use std::{
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use ssh2::{ErrorCode, OpenFlags, OpenType, Session, Sftp};

use super::patience::Patience;

/// Why a file could not be moved, or a program not be run.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    /// The machine has another processor than the agent was built for.
    #[error("the machine is `{seen}`, the agent is built for x86_64")]
    Processor {
        /// `uname -m`.
        seen: String,
    },
    /// No folder takes a program.
    #[error("no folder of the machine takes a program: tried {tried}")]
    NoPlace {
        /// The folders.
        tried: &'static str,
    },
    /// A file of the machine cannot be written or read.
    #[error("cannot {what} `{path}` on the machine: {reason}")]
    File {
        /// `write`, `read` or `reach`.
        what: &'static str,
        /// The file there.
        path: String,
        /// What the server says.
        reason: String,
    },
    /// No room is left.
    #[error(
        "cannot write `{path}` on the machine: {free} bytes are free there, {needed} are needed"
    )]
    Full {
        /// The file there.
        path: String,
        /// Bytes left.
        free: u64,
        /// Bytes to write.
        needed: u64,
    },
    /// A file is longer than what is taken.
    #[error("`{path}` on the machine has {bytes} bytes; at most {limit} are taken")]
    TooLong {
        /// The file there.
        path: String,
        /// Its length.
        bytes: u64,
        /// The limit.
        limit: u64,
    },
    /// There are more files than are taken.
    #[error("more than {limit} files; `{path}` is the first that is not taken")]
    TooMany {
        /// The file.
        path: String,
        /// The limit.
        limit: u64,
    },
    /// A file of this host cannot be read or written.
    #[error("cannot use `{}`", path.display())]
    Local {
        /// The file here.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The session does not carry a command.
    #[error("the machine runs no command: {reason}")]
    Exec {
        /// What the server says.
        reason: String,
    },
    /// The machine did not answer in time, or we were told to stop.
    #[error("the machine did not answer in time")]
    OutOfPatience,
}

/// What a machine is and where the agent goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// A new folder that takes programs, absolute.
    pub folder: String,
    /// How root is reached from the user that logged in.
    pub root: RootBy,
}

/// How root is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RootBy {
    /// It logged in.
    Login,
    /// `sudo` takes it without asking.
    Sudo,
    /// It is not.
    Nothing,
}

/// Folders tried, in memory first: the machine's disk may be full or slow.
const FOLDERS: &str = "/dev/shm, /run, /tmp, /var/tmp and the home folder";

/// Prints the processor, how root is reached, and a new private folder in which
/// a program was seen to run (a mount may say `noexec`).
const SURVEY: &str = r#"uname -m
if [ "$(id -u)" = 0 ]; then echo login
elif sudo -n true 2>/dev/null; then echo sudo
else echo nothing; fi
for d in /dev/shm /run /tmp /var/tmp "$HOME"; do
    f=$(mktemp -d "$d/topolab.XXXXXX" 2>/dev/null) || continue
    if printf '#!/bin/sh\n' > "$f/try" && chmod 700 "$f/try" && "$f/try"; then
        rm "$f/try"; echo "$f"; exit 0
    fi 2>/dev/null
    rm -rf "$f"
done
exit 1"#;

/// Looks at a machine and makes a folder for the agent.
///
/// # Errors
/// Another processor, no folder, no answer.
pub fn survey(session: &Session, patience: &Patience) -> Result<Place, RemoteError> {
    let (text, _) = run(session, SURVEY, patience)?;
    let mut lines = text.lines();
    let seen = lines.next().unwrap_or_default();
    if seen != "x86_64" {
        let seen = seen.chars().filter(|c| !c.is_control()).take(40).collect();
        return Err(RemoteError::Processor { seen });
    }
    let root = match lines.next() {
        Some("login") => RootBy::Login,
        Some("sudo") => RootBy::Sudo,
        _ => RootBy::Nothing,
    };
    match lines.next().filter(|folder| folder.starts_with('/')) {
        Some(folder) => Ok(Place {
            folder: folder.into(),
            root,
        }),
        None => Err(RemoteError::NoPlace { tried: FOLDERS }),
    }
}

/// Longest output of a command that is looked at.
const OUTPUT: u64 = 64 * 1024;

/// Runs a short command to its end and gives its output and exit code.
///
/// # Errors
/// The server runs no command, or it does not end in time.
pub fn run(
    session: &Session,
    command: &str,
    patience: &Patience,
) -> Result<(String, i32), RemoteError> {
    set_timeout(session, patience)?;
    let exec = |error: ssh2::Error| RemoteError::Exec {
        reason: error.message().to_string(),
    };
    let mut channel = session.channel_session().map_err(exec)?;
    channel.exec(command).map_err(exec)?;
    let mut text = String::new();
    let read = Read::by_ref(&mut channel)
        .take(OUTPUT)
        .read_to_string(&mut text);
    read.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => RemoteError::OutOfPatience,
        _ => RemoteError::Exec {
            reason: error.to_string(),
        },
    })?;
    let _ = channel.close();
    let _ = channel.wait_close();
    Ok((text, channel.exit_status().unwrap_or(-1)))
}

/// Writes a file of the machine.
///
/// # Errors
/// The server refuses, or the disk is full.
pub fn upload(
    session: &Session,
    bytes: &[u8],
    path: &str,
    mode: i32,
    patience: &Patience,
) -> Result<(), RemoteError> {
    let sftp = sftp(session, path, patience)?;
    let needed = bytes.len() as u64;
    send(session, &sftp, bytes, needed, path, mode, patience).map(|_| ())
}

/// Opens the file channel of a session; `path` is for the error.
pub(super) fn sftp(
    session: &Session,
    path: &str,
    patience: &Patience,
) -> Result<Sftp, RemoteError> {
    set_timeout(session, patience)?;
    session.sftp().map_err(|error| RemoteError::File {
        what: "reach",
        path: path.into(),
        reason: describe(&error),
    })
}

/// Writes a file of the machine from a reader that gives about `needed` bytes. Gives
/// how many it were.
pub(super) fn send(
    session: &Session,
    sftp: &Sftp,
    mut from: impl Read,
    needed: u64,
    path: &str,
    mode: i32,
    patience: &Patience,
) -> Result<u64, RemoteError> {
    set_timeout(session, patience)?;
    let refused = |reason: String| RemoteError::File {
        what: "write",
        path: path.into(),
        reason,
    };
    let flags = OpenFlags::WRITE | OpenFlags::CREATE | OpenFlags::TRUNCATE;
    let mut file = sftp
        .open_mode(path, flags, mode, OpenType::File)
        .map_err(|error| refused(describe(&error)))?;
    let mut piece = vec![0; 256 * 1024];
    let mut total = 0;
    loop {
        set_timeout(session, patience)?;
        let count = from.read(&mut piece).map_err(|source| RemoteError::Local {
            path: path.into(),
            source,
        })?;
        if count == 0 {
            break;
        }
        total += count as u64;
        if let Err(error) = file.write_all(&piece[..count]) {
            // The protocol has no word for a full disk that servers use: ask.
            let room = file
                .statvfs()
                .map(|fs| fs.f_bavail.saturating_mul(fs.f_frsize));
            return Err(match room {
                Ok(free) if free < needed => RemoteError::Full {
                    path: path.into(),
                    free,
                    needed,
                },
                _ => refused(error.to_string()),
            });
        }
    }
    file.close().map_err(|error| refused(describe(&error)))?;
    Ok(total)
}

/// Copies a file of the machine to this host, at most `limit` bytes of it.
///
/// # Errors
/// There is no such file, it is too long, or it cannot be written here.
pub fn download(
    session: &Session,
    path: &str,
    to: &Path,
    limit: u64,
    patience: &Patience,
) -> Result<u64, RemoteError> {
    let sftp = sftp(session, path, patience)?;
    fetch(session, &sftp, path, to, limit, patience)
}

/// As [`download`], over a file channel that is open.
pub(super) fn fetch(
    session: &Session,
    sftp: &Sftp,
    path: &str,
    to: &Path,
    limit: u64,
    patience: &Patience,
) -> Result<u64, RemoteError> {
    set_timeout(session, patience)?;
    let refused = |reason: String| RemoteError::File {
        what: "read",
        path: path.into(),
        reason,
    };
    let local = |source: io::Error| RemoteError::Local {
        path: to.into(),
        source,
    };
    let mut file = sftp
        .open(Path::new(path))
        .map_err(|error| refused(describe(&error)))?;
    let stat = file.stat().map_err(|error| refused(describe(&error)))?;
    let bytes = stat.size.unwrap_or(0);
    let too_long = |bytes: u64| RemoteError::TooLong {
        path: path.into(),
        bytes,
        limit,
    };
    if bytes > limit {
        return Err(too_long(bytes));
    }
    let mut out = std::fs::File::create(to).map_err(local)?;
    let mut buffer = vec![0; 256 * 1024];
    let mut total = 0;
    loop {
        set_timeout(session, patience)?;
        let count = file
            .read(&mut buffer)
            .map_err(|error| refused(error.to_string()))?;
        if count == 0 {
            return Ok(total);
        }
        // Files of /proc say 0 and have more; others grow while they are read.
        total += count as u64;
        if total > limit {
            return Err(too_long(total));
        }
        out.write_all(&buffer[..count]).map_err(local)?;
    }
}

/// What SFTP's status numbers mean (draft-ietf-secsh-filexfer-02, section 7).
pub(super) fn describe(error: &ssh2::Error) -> String {
    match error.code() {
        ErrorCode::SFTP(2) => "there is no such file or folder".into(),
        ErrorCode::SFTP(3) => "permission denied".into(),
        ErrorCode::SFTP(8) => "the server does not do that".into(),
        ErrorCode::Session(-31) => "the server has no SFTP".into(),
        _ => error.message().to_string(),
    }
}

/// Every blocking call of the session is over when patience is.
pub(super) fn set_timeout(session: &Session, patience: &Patience) -> Result<(), RemoteError> {
    let left = patience.left();
    if left.is_zero() {
        return Err(RemoteError::OutOfPatience);
    }
    // 0 would mean: for ever.
    session.set_timeout(u32::try_from(left.as_millis()).unwrap_or(u32::MAX).max(1));
    Ok(())
}
