//! Entering machines that run already: guests of this user, and machines named
//! `ssh://USER@HOST`.

mod console;
mod cp;
mod shell;

use std::path::{Path, PathBuf};

use topolab::{
    guest::ssh::{self, Access, ConnectError, Connection, HostKey, Identity, Patience, Target},
    image::LoginKey,
    run::entrance::{Entrance, living},
};

pub use console::{ConsoleArgs, run as console};
pub use cp::{CpArgs, run as cp};
pub use shell::{ShellArgs, run as shell};

use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    image::logins,
};

/// Seconds until a machine that should answer has answered.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);

/// A machine that was named.
#[derive(Debug)]
enum Machine {
    /// A guest of this user, by the folder of its run.
    Guest(PathBuf, Entrance),
    /// Some other.
    Remote(Target),
}

/// Finds the machine that a word names: `ssh://…`, the folder of a run, a results
/// folder or `boot` with one guest that runs. `None`: no such word.
fn machine(word: &str, folders: &Folders) -> Result<Option<Machine>, Failure> {
    if word.starts_with("ssh://") {
        let target = word.parse().map_err(Failure::request)?;
        return Ok(Some(Machine::Remote(target)));
    }
    let folder = match word {
        "boot" => folders.runtime.clone(),
        path => PathBuf::from(path),
    };
    if !folder.is_dir() {
        return Ok(None);
    }
    let found = living(&folder);
    let [one] = &found[..] else {
        return Err(ambiguous(word, &folder, &found, folders));
    };
    let entrance = Entrance::read(one).ok_or_else(|| over(one))?;
    Ok(Some(Machine::Guest(one.clone(), entrance)))
}

fn over(folder: &Path) -> Failure {
    Failure::request(format_args!("no guest runs in {}", folder.display()))
}

/// None, or more than one.
fn ambiguous(word: &str, folder: &Path, found: &[PathBuf], folders: &Folders) -> Failure {
    if !found.is_empty() {
        let mut failure = Failure::request(format_args!("{} guests run in {word}", found.len()));
        for one in found {
            failure = failure.hint(one.display());
        }
        return failure;
    }
    let mut failure = over(folder);
    for root in [&folders.runtime, &folders.results] {
        for one in living(root) {
            failure = failure.hint(format_args!("one runs in {}", one.display()));
        }
    }
    failure
}

/// A word that names no machine.
fn unknown(word: &str, folders: &Folders) -> Failure {
    let mut failure = Failure::request(format_args!(
        "`{word}` is neither the folder of a run, `boot` nor ssh://HOST"
    ));
    for one in living(&folders.runtime) {
        failure = failure.hint(format_args!("a guest runs in {}", one.display()));
    }
    failure
}

impl Machine {
    /// What a connection to it needs.
    fn access(&self, folders: &Folders) -> Result<Access, Failure> {
        match self {
            Self::Guest(folder, entrance) => match &entrance.ssh {
                Some(ssh) => Ok(ssh.access()),
                None => Err(Failure::request(format_args!(
                    "the guest in {} has no SSH server",
                    folder.display()
                ))
                .hint(format_args!("topolab console {}", folder.display()))
                .hint("topolab boot TOPOLOGY --image debian")),
            },
            Self::Remote(target) => remote(target, folders),
        }
    }
}

/// What a connection to a machine of the user's needs; its key is pinned below the cache
/// when it is seen for the first time.
pub fn remote(target: &Target, folders: &Folders) -> Result<Access, Failure> {
    let key = logins().choose(None).ok_or_else(|| {
        Failure::request(format_args!("nothing lets us into {target}"))
            .hint("ssh-keygen -t ed25519")
            .hint(format_args!(
                "ssh-copy-id -p {} {}@{}",
                target.port, target.user, target.host
            ))
    })?;
    Ok(Access {
        target: target.clone(),
        identity: match key {
            LoginKey::File(path) => Identity::Key(path),
            LoginKey::Agent(socket) => Identity::Agent(socket),
        },
        host_key: HostKey::Pinned(folders.cache.join("known_hosts")),
    })
}

/// Connects. Blocks.
fn connect(access: &Access) -> Result<Connection, Failure> {
    ssh::connect(access, &Patience::of(PATIENCE)).map_err(|error| failure(&error, access))
}

fn failure(error: &ConnectError, access: &Access) -> Failure {
    let failure = Failure::of(Kind::Lab, error);
    let Target { host, port, user } = &access.target;
    match (error, &access.host_key) {
        (ConnectError::HostKey { .. }, HostKey::Pinned(file)) => failure
            .hint("if the machine was installed anew, forget its old key:")
            .hint(format_args!(
                "ssh-keygen -f {} -R '[{host}]:{port}'",
                file.display()
            )),
        (ConnectError::Denied { .. }, HostKey::Pinned(_)) => {
            failure.hint(format_args!("ssh-copy-id -p {port} {user}@{host}"))
        }
        _ => failure,
    }
}
