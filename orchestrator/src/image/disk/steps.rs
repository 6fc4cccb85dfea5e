//! The programs that make a disk: found, run, listened to, explained.

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use crate::qemu::process::find_program;

/// Where programs are looked for and what may be done with them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tools {
    /// Folders, as `PATH` has them. The folders of system programs are looked
    /// through after these, because a plain user's `PATH` may lack them.
    pub path: String,
    /// How files of all owners are made.
    pub privilege: Privilege,
}

/// How files of all owners are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Privilege {
    /// We are root.
    Root,
    /// As root of a user namespace with the ids of `/etc/subuid`.
    Namespace,
}

impl Tools {
    /// Tools of this process: root when it is root.
    pub fn new(path: &str) -> Self {
        let root = rustix::process::geteuid().is_root();
        Self {
            path: path.into(),
            privilege: if root {
                Privilege::Root
            } else {
                Privilege::Namespace
            },
        }
    }

    /// Finds a program.
    ///
    /// # Errors
    /// It is nowhere.
    pub fn find(&self, program: &'static str) -> Result<PathBuf, StepError> {
        let path = format!("{}:/usr/sbin:/sbin", self.path);
        find_program(program, &path).ok_or(StepError::Missing {
            program,
            package: package_of(program),
        })
    }
}

/// The Debian package of a program.
fn package_of(program: &str) -> &'static str {
    match program {
        "mke2fs" | "debugfs" => "e2fsprogs",
        "ssh-keygen" => "openssh-client",
        "newuidmap" => "uidmap",
        "qemu-img" => "qemu-utils",
        "mmdebstrap" => "mmdebstrap",
        "tar" => "tar",
        "unshare" => "util-linux",
        _ => "coreutils",
    }
}

/// Why a step failed.
#[derive(Debug, thiserror::Error)]
pub enum StepError {
    /// A program is not installed.
    #[error("there is no program `{program}` (Debian package {package})")]
    Missing {
        /// The program.
        program: &'static str,
        /// Its Debian package.
        package: &'static str,
    },
    /// A program could not be started or listened to.
    #[error("cannot run `{program}`")]
    Run {
        /// The program.
        program: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A program ended badly.
    #[error("`{program}` ended with {status}: {}", said.join(" | "))]
    Failed {
        /// The program.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// Its last lines.
        said: Vec<String>,
    },
    /// mmdebstrap ended badly; its log is kept.
    #[error("mmdebstrap ended with {status}: {}; all it said is in `{}`", said.join(" | "), log.display())]
    Debootstrap {
        /// How it ended.
        status: ExitStatus,
        /// Its last complaints.
        said: Vec<String>,
        /// Everything it said.
        log: PathBuf,
    },
}

/// Lines of a failed program that are told.
const TOLD: usize = 6;

/// Makes a tree of packages with mmdebstrap.
pub(super) fn make_tree(
    tools: &Tools,
    args: &[String],
    youngest: &str,
    log: &Path,
    say: &mut dyn FnMut(&str),
) -> Result<(), StepError> {
    let mode = match tools.privilege {
        Privilege::Root => "--mode=root",
        Privilege::Namespace => {
            tools.find("newuidmap")?;
            "--mode=unshare"
        }
    };
    let mut command = command(tools, "mmdebstrap")?;
    command
        .arg(mode)
        .args(args)
        .env("SOURCE_DATE_EPOCH", youngest);
    let failed = |source: io::Error| StepError::Run {
        program: "mmdebstrap".into(),
        source,
    };
    let mut file = fs::File::create(log).map_err(failed)?;
    let mut kept: io::Result<()> = Ok(());
    let (status, lines) = listen(command, "mmdebstrap", &mut |line| {
        if kept.is_ok() {
            kept = writeln!(file, "{line}");
        }
        say(line);
    })?;
    kept.map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    // apt's and mmdebstrap's own complaints are marked so.
    let complaints = lines
        .iter()
        .filter(|line| line.starts_with("E: ") || line.starts_with("W: "));
    let complaints: Vec<String> = complaints.cloned().collect();
    Err(StepError::Debootstrap {
        status,
        said: last(if complaints.is_empty() {
            &lines
        } else {
            &complaints
        }),
        log: log.into(),
    })
}

/// Text of one file of a tar.
pub(super) fn read_from_tar(tools: &Tools, tar: &Path, name: &str) -> Result<String, StepError> {
    let mut command = command(tools, "tar")?;
    command.arg("-xOf").arg(tar).arg(name);
    let output = command.output().map_err(|source| StepError::Run {
        program: "tar".into(),
        source,
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(
        "tar",
        output.status,
        &String::from_utf8_lossy(&output.stderr),
    ))
}

/// Lays the layer over the tree and makes an ext4 disk of both, in a shell that
/// is root, at least of its own namespace. Arguments: tar, layer, tree, disk,
/// size in KiB, UUID, mke2fs.
///
/// No journal: an overlay that was cut short is thrown away, never repaired.
/// Inode tables are written now (`lazy_itable_init=0`), or a kernel thread would
/// do it while guests are measured.
const MAKE_DISK: &str = r#"
set -eu
mkdir "$3"
tar -C "$3" --numeric-owner --xattrs --xattrs-include='*' --exclude='./dev/*' -xpf "$1"
cp -a --no-preserve=ownership --remove-destination "$2/." "$3/"
"$7" -q -F -t ext4 -L topolab -U "$6" -m 0 -O ^has_journal \
    -E lazy_itable_init=0,root_owner=0:0,hash_seed="$6" -d "$3" "$4" "${5}k"
rm -rf "$3"
"#;

/// Makes a disk of `bytes` from a tar and a layer. `key` names the disk: its
/// UUID is taken from it.
pub(super) fn make_disk(
    tools: &Tools,
    tar: &Path,
    layer: &Path,
    disk: &Path,
    bytes: u64,
    key: &str,
    say: &mut dyn FnMut(&str),
) -> Result<(), StepError> {
    let mke2fs = tools.find("mke2fs")?;
    let mut command = match tools.privilege {
        Privilege::Root => command(tools, "sh")?,
        Privilege::Namespace => {
            let mut unshare = command(tools, "unshare")?;
            unshare.args(["--map-root-user", "--map-auto", "--", "sh"]);
            unshare
        }
    };
    command
        .args(["-c", MAKE_DISK, "sh"])
        .args([tar, layer, &disk.with_extension("tree"), disk])
        .args([(bytes >> 10).to_string(), uuid(key)])
        .arg(mke2fs);
    let (status, lines) = listen(command, "mke2fs", say)?;
    if status.success() {
        return Ok(());
    }
    Err(failed("mke2fs", status, &lines.join("\n")))
}

/// A UUID of 32 hex digits of a hash, marked as a custom one (RFC 9562, version 8).
fn uuid(key: &str) -> String {
    let d = &key[..32];
    format!(
        "{}-{}-8{}-8{}-{}",
        &d[..8],
        &d[8..12],
        &d[13..16],
        &d[17..20],
        &d[20..]
    )
}

/// Makes a key pair without a passphrase; ssh-keygen gives the private half mode 0600.
pub(super) fn make_key(tools: &Tools, path: &Path) -> Result<(), StepError> {
    let mut command = command(tools, "ssh-keygen")?;
    command
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "topolab", "-f"])
        .arg(path);
    let (status, lines) = listen(command, "ssh-keygen", &mut |_| {})?;
    if status.success() {
        return Ok(());
    }
    Err(failed("ssh-keygen", status, &lines.join("\n")))
}

/// A command with a plain environment: no locale changes what it says.
pub(super) fn command(tools: &Tools, program: &'static str) -> Result<Command, StepError> {
    let mut command = Command::new(tools.find(program)?);
    command
        .env("LC_ALL", "C")
        .env("PATH", format!("{}:/usr/sbin:/sbin", tools.path));
    command.stdin(Stdio::null());
    Ok(command)
}

pub(super) fn failed(program: &str, status: ExitStatus, text: &str) -> StepError {
    StepError::Failed {
        program: program.into(),
        status,
        said: last(&text.lines().map(String::from).collect::<Vec<_>>()),
    }
}

fn last(lines: &[String]) -> Vec<String> {
    let from = lines.len().saturating_sub(TOLD);
    lines[from..].to_vec()
}

/// Runs a program; each line it writes goes to `hear`. Its last lines come back.
fn listen(
    mut command: Command,
    program: &str,
    hear: &mut dyn FnMut(&str),
) -> Result<(ExitStatus, Vec<String>), StepError> {
    let failed = |source: io::Error| StepError::Run {
        program: program.into(),
        source,
    };
    let (ours, theirs) = io::pipe().map_err(failed)?;
    command
        .stdout(theirs.try_clone().map_err(failed)?)
        .stderr(theirs);
    let mut child = command.spawn().map_err(failed)?;
    // It holds the writing ends, which must close for the reading to end.
    drop(command);
    let mut lines = Vec::new();
    let mut reader = BufReader::new(ours);
    let mut line = Vec::new();
    while reader.read_until(b'\n', &mut line).map_err(failed)? > 0 {
        let text = String::from_utf8_lossy(&line).trim_end().to_string();
        hear(&text);
        lines.push(text);
        if lines.len() > 200 {
            lines.drain(..100);
        }
        line.clear();
    }
    let status = child.wait().map_err(failed)?;
    Ok((status, lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_is_named_with_its_package() {
        let tools = Tools {
            path: "/nowhere".into(),
            privilege: Privilege::Root,
        };
        let error = tools.find("mmdebstrap").unwrap_err();
        let text = "there is no program `mmdebstrap` (Debian package mmdebstrap)";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_uuid_is_well_formed_and_depends_on_the_key() {
        let one = uuid(&"0123456789abcdef".repeat(4));
        assert_eq!(one, "01234567-89ab-8def-8123-456789abcdef");
        assert_ne!(one, uuid(&"a".repeat(64)));
    }

    #[test]
    fn lines_of_a_program_are_heard_and_its_end_is_told() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo one; echo two >&2; exit 3"]);
        let mut heard = Vec::new();
        let (status, lines) =
            listen(command, "sh", &mut |line| heard.push(line.to_string())).unwrap();
        assert_eq!(status.code(), Some(3));
        assert_eq!(lines, heard);
        let error = failed("sh", status, &lines.join("\n"));
        assert_eq!(
            error.to_string(),
            "`sh` ended with exit status: 3: one | two"
        );
    }
}
