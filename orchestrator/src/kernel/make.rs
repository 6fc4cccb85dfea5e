//! Running make in a tree: a settled environment, everything it says in a log file,
//! objects counted as they come.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::unix::pipe;
use tokio::process::Command;

use super::spec::Arch;
use super::tools::{Tools, shown};

/// What every make of one object tree has in common.
#[derive(Debug, Clone)]
pub(super) struct Make<'a> {
    /// Programs.
    pub tools: &'a Tools,
    /// Top of the source tree.
    pub tree: PathBuf,
    /// Folder for objects.
    pub objects: PathBuf,
    /// Architecture.
    pub arch: Arch,
    /// More variables: the compiler, warnings.
    pub variables: Vec<String>,
    /// Folder put in front of `PATH`, where compilers are links to ccache.
    pub front: Option<PathBuf>,
    /// Processes at once.
    pub jobs: u32,
}

/// How a make ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// Objects compiled.
    pub objects: u32,
}

/// Variables that would change a build when they come from the caller's shell or
/// from a make around us.
const UNWANTED: [&str; 26] = [
    "ARCH",
    "SRCARCH",
    "CROSS_COMPILE",
    "CC",
    "LD",
    "AR",
    "NM",
    "OBJCOPY",
    "HOSTCC",
    "LLVM",
    "KCFLAGS",
    "KCPPFLAGS",
    "KAFLAGS",
    "KBUILD_OUTPUT",
    "KBUILD_EXTMOD",
    "KBUILD_VERBOSE",
    "KCONFIG_CONFIG",
    "KCONFIG_ALLCONFIG",
    "LOCALVERSION",
    "MAKEFLAGS",
    "MFLAGS",
    "MAKELEVEL",
    "W",
    "V",
    "C",
    "O",
];

impl Make<'_> {
    /// The command for some targets or variables.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = super::tools::command(&self.tools.make);
        command.arg("-C").arg(&self.tree);
        // A headers package is both, and knows its architecture.
        if self.objects != self.tree {
            command
                .arg(format!("O={}", self.objects.display()))
                .arg(format!("ARCH={}", self.arch.0));
        }
        command
            .arg(format!("-j{}", self.jobs))
            .args(&self.variables)
            .args(arguments);
        for name in UNWANTED {
            command.env_remove(name);
        }
        // Fixed, so that equal sources give equal images.
        command
            .env("KBUILD_BUILD_TIMESTAMP", "2024-01-01 00:00:00 UTC")
            .env("KBUILD_BUILD_USER", "topolab")
            .env("KBUILD_BUILD_HOST", "topolab")
            .env("KBUILD_BUILD_VERSION", "1");
        if let Some(front) = &self.front {
            let mut folders = vec![front.clone()];
            if let Some(path) = &self.tools.path {
                folders.extend(std::env::split_paths(path));
            }
            if let Ok(path) = std::env::join_paths(folders) {
                command.env("PATH", path);
            }
        }
        command.process_group(0);
        die_with_parent(&mut command);
        command
    }

    /// About how many objects make would compile: those a dry run says, after the
    /// generated headers are really made. Rules whose inputs do not exist yet end
    /// the dry run of their folder early, so a few objects are missing. Nothing when
    /// the headers cannot be made; the build itself will say why.
    pub async fn dry_count(&self, targets: &[&str], log: &Path) -> io::Result<Option<u32>> {
        if !self
            .run(&["prepare"], log, |_, _| {})
            .await?
            .status
            .success()
        {
            return Ok(None);
        }
        let said = self
            .command(&["--dry-run", "--keep-going"])
            .args(targets)
            .output()
            .await?;
        let text = String::from_utf8_lossy(&said.stdout);
        let objects = text
            .lines()
            .filter_map(|line| line.split_once("echo '"))
            .filter(|(_, rest)| compiled(rest.split('\'').next().unwrap_or_default()).is_some())
            .count();
        Ok(u32::try_from(objects).ok())
    }

    /// Runs make to its end. All it says goes to `log`; `object` is told each
    /// compiled object with the number so far.
    ///
    /// Dropped before the end, the whole process group gets SIGTERM, on which make
    /// removes what it has half made.
    pub async fn run(
        &self,
        arguments: &[&str],
        log: &Path,
        mut line_seen: impl FnMut(&str, u32),
    ) -> io::Result<Ended> {
        let mut command = self.command(arguments);
        let mut log = File::options().create(true).append(true).open(log)?;
        writeln!(log, "$ {}", shown(&command))?;
        let (reader, writer) = io::pipe()?;
        command
            .stdout(Stdio::from(writer.try_clone()?))
            .stderr(Stdio::from(writer));
        let mut child = command.spawn()?;
        // The command keeps the pipe's other end open as long as it lives.
        drop(command);
        let group = child.id().and_then(group_of).map(Group);
        let reader = pipe::Receiver::from_owned_fd(OwnedFd::from(reader))?;
        let mut lines = BufReader::new(reader);
        let mut line = Vec::new();
        let mut objects = 0;
        loop {
            line.clear();
            if lines.read_until(b'\n', &mut line).await? == 0 {
                break;
            }
            log.write_all(&line)?;
            let text = String::from_utf8_lossy(&line);
            objects += u32::from(compiled(&text).is_some());
            line_seen(text.trim_end(), objects);
        }
        let status = child.wait().await?;
        // It has ended by itself, and its id may soon be another's.
        std::mem::forget(group);
        Ok(Ended { status, objects })
    }
}

/// The object a line of quiet kbuild output says is being compiled.
pub(super) fn compiled(line: &str) -> Option<&str> {
    let mut words = line.strip_prefix("  ")?.split_whitespace();
    let verb = words.next()?;
    if !matches!(verb, "CC" | "AS" | "RUSTC") {
        return None;
    }
    let mut object = words.next()?;
    if object.starts_with('[') {
        object = words.next()?;
    }
    object.ends_with(".o").then_some(object)
}

fn group_of(id: u32) -> Option<Pid> {
    Pid::from_raw(i32::try_from(id).ok()?)
}

/// Ends a process group when dropped.
struct Group(Pid);

impl Drop for Group {
    fn drop(&mut self) {
        // No such group: everything has ended, which is what is wanted.
        let _ = kill_process_group(self.0, Signal::TERM);
    }
}

/// Asks the kernel to end the child when this process dies, however it dies.
fn die_with_parent(command: &mut Command) {
    // SAFETY: between fork and exec the closure only makes one system call, which
    // is async-signal-safe, and touches no memory of the parent.
    unsafe {
        command.pre_exec(|| {
            rustix::process::set_parent_process_death_signal(Some(Signal::TERM))
                .map_err(io::Error::from)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_are_told_from_other_lines() {
        assert_eq!(compiled("  CC      kernel/fork.o"), Some("kernel/fork.o"));
        assert_eq!(compiled("  CC [M]  drivers/x.o"), Some("drivers/x.o"));
        assert_eq!(
            compiled("  AS      arch/x86/entry/entry.o"),
            Some("arch/x86/entry/entry.o")
        );
        assert_eq!(compiled("  HOSTCC  scripts/basic/fixdep"), None);
        assert_eq!(compiled("  LD      vmlinux.o"), None);
        assert_eq!(compiled("kernel/fork.c:1: error: CC x.o"), None);
    }
}
