//! `topolab cp`: files to and from a machine that runs.

use std::{path::PathBuf, process::ExitCode, time::Duration};

use clap::Args;
use topolab::guest::ssh::{Copied, Patience, Room, copy_in, copy_out};

use super::{Machine, connect, machine, unknown};
use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    gc::size,
    terminal::Terminal,
};

/// Arguments of `topolab cp`.
#[derive(Debug, Args)]
pub struct CpArgs {
    /// A file or folder here, or MACHINE:PATH (a run's folder, `boot`, or ssh://[USER@]HOST[:PORT])
    from: String,
    /// Where it goes
    to: String,
    /// Take at most this much from a machine
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size)]
    limit: u64,
    /// Give up after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    timeout: u64,
}

/// Files that are taken from a machine at most.
const FILES: u64 = 100_000;

/// One side of a copy.
enum Side {
    Here(PathBuf),
    There(Machine, String),
}

/// Copies.
pub fn run(args: &CpArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let room = Room {
        bytes: args.limit,
        files: FILES,
    };
    let patience = Patience::of(Duration::from_secs(args.timeout));
    let copied = match (side(&args.from, &folders)?, side(&args.to, &folders)?) {
        (Side::Here(local), Side::There(machine, remote)) => {
            let connection = connect(&machine.access(&folders)?)?;
            copy_in(&connection.session, &local, &remote, room, &patience)
        }
        (Side::There(machine, remote), Side::Here(local)) => {
            let connection = connect(&machine.access(&folders)?)?;
            copy_out(&connection.session, &remote, &local, room, &patience)
        }
        (Side::Here(_), Side::Here(to)) => {
            return Err(
                unknown(&to.display().to_string(), &folders).hint("one side is MACHINE:PATH")
            );
        }
        (Side::There(..), Side::There(..)) => {
            return Err(Failure::request("one side of a copy is on this host"));
        }
    };
    let Copied {
        bytes,
        files,
        left_out,
    } = copied.map_err(|error| Failure::of(Kind::Lab, &error))?;
    for path in left_out {
        terminal.warn(format_args!("left out, as neither file nor folder: {path}"));
    }
    terminal.say(format_args!("{files} files, {bytes} bytes"));
    Ok(ExitCode::SUCCESS)
}

/// A text is `MACHINE:PATH` when what stands before a colon names a machine.
fn side(text: &str, folders: &Folders) -> Result<Side, Failure> {
    if let Some(rest) = text.strip_prefix("ssh://") {
        let Some((length, path)) = after_address(rest) else {
            let failure = Failure::request(format_args!("`{text}` names no file"));
            return Err(failure.hint(format_args!("{text}:/PATH")));
        };
        let word = &text[.."ssh://".len() + length];
        let target = word.parse().map_err(Failure::request)?;
        return Ok(Side::There(Machine::Remote(target), path.into()));
    }
    for (at, _) in text.match_indices(':') {
        if let Some(machine) = machine(&text[..at], folders)? {
            return Ok(Side::There(machine, text[at + 1..].into()));
        }
    }
    Ok(Side::Here(text.into()))
}

/// Length of `[USER@]HOST[:PORT]` and the path after the colon behind it.
fn after_address(text: &str) -> Option<(usize, &str)> {
    // The colons of an address in brackets are its own.
    let host = text.find(']').map_or(0, |at| at + 1);
    let colon = host + text[host..].find(':')?;
    let rest = &text[colon + 1..];
    match rest.split_once(':') {
        Some((port, path)) if !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit()) => {
            Some((colon + 1 + port.len(), path))
        }
        _ => Some((colon, rest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_and_paths_are_told_apart() {
        let folders = Folders {
            cache: "/nowhere".into(),
            results: "/nowhere".into(),
            runtime: "/nowhere".into(),
        };
        let read = |text: &str| match side(text, &folders) {
            Ok(Side::Here(path)) => path.display().to_string(),
            Ok(Side::There(Machine::Remote(target), path)) => format!("{target} {path}"),
            Ok(Side::There(Machine::Guest(..), _)) => "a guest".into(),
            Err(failure) => failure.message,
        };
        assert_eq!(read("a:b"), "a:b");
        assert_eq!(read("./x"), "./x");
        assert_eq!(read("ssh://lab1:/etc/x"), "ssh://root@lab1:22 /etc/x");
        assert_eq!(read("ssh://me@lab1:2222:/x:y"), "ssh://me@lab1:2222 /x:y");
        assert_eq!(read("ssh://lab1:notes"), "ssh://root@lab1:22 notes");
        assert_eq!(read("ssh://[::1]:22:/x"), "ssh://root@[::1]:22 /x");
        assert_eq!(read("ssh://lab1"), "`ssh://lab1` names no file");
    }
}
