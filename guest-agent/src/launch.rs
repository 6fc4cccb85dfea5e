//! How the agent's children begin: in a session and a control group of their
//! own, before their program runs.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{own_cpus, own_memory};

/// Why a child cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// Its control group is not there.
    #[error("cannot enter control group {}: {source}; `settings: cgroups` of the experiment makes groups", path.display())]
    Group {
        /// The group's folder.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// Where a child's standard streams go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Streams {
    /// Pipes set on the command.
    Pipes,
    /// A terminal set as its standard input, which becomes its controlling one.
    Terminal,
}

/// Makes `command` start as leader of a session of its own, inside the control
/// group `cgroup` (a path below the root group of the hierarchy under `root`).
///
/// # Errors
/// When the group cannot be opened.
pub fn prepare(
    command: &mut Command,
    root: &Path,
    cgroup: Option<&str>,
    streams: Streams,
) -> Result<(), LaunchError> {
    let group = cgroup.map(|group| open_group(root, group)).transpose()?;
    let cpus = own_cpus::first();
    // SAFETY: between fork and exec only async-signal-safe calls are made
    // (write, sched_setaffinity, set_mempolicy, signal, setsid, ioctl), nothing is allocated, and `group` outlives the call.
    unsafe {
        command.pre_exec(move || {
            if let Some(group) = &group
                && libc::write(group.as_raw_fd(), b"0".as_ptr().cast(), 1) != 1
            {
                return Err(std::io::Error::last_os_error());
            }
            if let Some(cpus) = &cpus {
                // Refused when the group's cpuset has none of these CPUs; the
                // group then decides alone.
                let _ = rustix::thread::sched_setaffinity(None, cpus);
            }
            own_memory::let_go();
            for signal in 1..libc::SIGRTMAX() {
                // Ignored signals outlive exec, and a service may have been
                // started with some. SIGKILL and SIGSTOP refuse.
                libc::signal(signal, libc::SIG_DFL);
            }
            if libc::setsid() < 0 {
                return Err(std::io::Error::last_os_error());
            }
            if streams == Streams::Terminal && libc::ioctl(0, libc::TIOCSCTTY, 0) < 0 {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
    Ok(())
}

/// Writing `0` to this file moves the writer: the child enters before it
/// allocates anything of its own.
fn open_group(root: &Path, group: &str) -> Result<File, LaunchError> {
    let path = crate::settings::group_folder(root, group);
    OpenOptions::new()
        .write(true)
        .open(path.join("cgroup.procs"))
        .map_err(|source| LaunchError::Group { path, source })
}
