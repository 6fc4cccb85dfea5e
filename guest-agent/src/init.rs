//! What PID 1 owes a guest before and after the conversation: file systems, a
//! console, modules, power-off.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use rustix::system::{RebootCommand, reboot};

use crate::door;
use crate::kmsg::{self, Level};
use crate::modules;

/// A file system to mount.
struct Mount {
    source: &'static str,
    target: &'static str,
    fstype: &'static str,
    flags: MountFlags,
    data: Option<&'static std::ffi::CStr>,
}

const QUIET: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

const fn special(source: &'static str, target: &'static str, fstype: &'static str) -> Mount {
    Mount {
        source,
        target,
        fstype,
        flags: QUIET,
        data: None,
    }
}

const fn with(mut mount: Mount, flags: MountFlags, data: Option<&'static std::ffi::CStr>) -> Mount {
    mount.flags = flags;
    mount.data = data;
    mount
}

/// Mounted in this order: a target may lie in a file system mounted before.
const MOUNTS: &[Mount] = &[
    special("proc", "/proc", "proc"),
    special("sysfs", "/sys", "sysfs"),
    with(
        special("devtmpfs", "/dev", "devtmpfs"),
        MountFlags::NOSUID,
        Some(c"mode=0755"),
    ),
    with(
        special("devpts", "/dev/pts", "devpts"),
        MountFlags::NOSUID.union(MountFlags::NOEXEC),
        Some(c"gid=5,mode=0620,ptmxmode=0666"),
    ),
    with(
        special("tmpfs", "/dev/shm", "tmpfs"),
        MountFlags::NOSUID.union(MountFlags::NODEV),
        Some(c"mode=1777"),
    ),
    with(
        special("tmpfs", "/run", "tmpfs"),
        MountFlags::NOSUID.union(MountFlags::NODEV),
        Some(c"mode=0755"),
    ),
    with(
        special("tmpfs", "/tmp", "tmpfs"),
        MountFlags::NOSUID.union(MountFlags::NODEV),
        Some(c"mode=1777"),
    ),
    special("cgroup2", "/sys/fs/cgroup", "cgroup2"),
    special("debugfs", "/sys/kernel/debug", "debugfs"),
    special("tracefs", "/sys/kernel/tracing", "tracefs"),
];

/// Names user space expects in `/dev`.
const LINKS: &[(&str, &str)] = &[
    ("/proc/self/fd", "/dev/fd"),
    ("/proc/self/fd/0", "/dev/stdin"),
    ("/proc/self/fd/1", "/dev/stdout"),
    ("/proc/self/fd/2", "/dev/stderr"),
];

/// List of modules in the image that the guest needs before it can speak, one
/// path per line, in loading order.
const BOOT_MODULES: &str = "/lib/modules/topolab/load";

/// Makes the machine usable, in the root the image wants.
///
/// # Errors
/// The image has a root of its own and there is no way to it.
pub fn prepare() -> Result<(), String> {
    make_usable();
    load_boot_modules();
    if door::pass()? {
        make_usable();
    }
    Ok(())
}

/// Makes a root usable. What fails is said in the kernel log and the boot
/// goes on: most workloads do without most file systems.
fn make_usable() {
    let mut missing = Vec::new();
    for entry in MOUNTS {
        if let Err(error) = mount_one(entry) {
            missing.push(format!(
                "mount {} on {}: {error}",
                entry.fstype, entry.target
            ));
        }
    }
    open_console();
    for line in missing {
        kmsg::say(Level::Notice, &line);
    }
    for (to, link) in LINKS {
        // They exist when the image brought a populated /dev.
        let _ = std::os::unix::fs::symlink(to, link);
    }
}

/// Takes everything down again that [`prepare`] mounted, for a root that mounts its
/// own.
pub fn unmount_all() {
    for entry in MOUNTS.iter().rev() {
        // What was not mounted need not be taken down.
        let _ = unmount(entry.target, UnmountFlags::DETACH);
    }
}

fn mount_one(entry: &Mount) -> std::io::Result<()> {
    fs::create_dir_all(entry.target)?;
    match mount(
        entry.source,
        entry.target,
        entry.fstype,
        entry.flags,
        entry.data,
    ) {
        // Something mounted it before us.
        Err(rustix::io::Errno::BUSY) => Ok(()),
        result => Ok(result?),
    }
}

/// Gives file descriptors 0 to 2 to the console: the kernel opened none when
/// the image has no `/dev/console`.
fn open_console() {
    let Ok(console) = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open("/dev/console")
    else {
        return;
    };
    let results = [
        rustix::stdio::dup2_stdin(&console),
        rustix::stdio::dup2_stdout(&console),
        rustix::stdio::dup2_stderr(&console),
    ];
    if let Some(error) = results.into_iter().find_map(Result::err) {
        kmsg::say(Level::Notice, &format!("no console: {error}"));
    }
}

fn load_boot_modules() {
    let Ok(list) = fs::read_to_string(BOOT_MODULES) else {
        return;
    };
    for path in list.lines().filter(|line| !line.is_empty()) {
        if let Err(error) = modules::load_file(Path::new(path), "") {
            kmsg::say(Level::Error, &format!("cannot load module {path}: {error}"));
        }
    }
}

/// Longest wait for dirty pages on the way down.
const SYNC_LIMIT: Duration = Duration::from_secs(5);

/// Writes dirty pages back and switches the machine off. Returns only when the
/// kernel refuses.
pub fn power_off() {
    let (done, synced) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        rustix::fs::sync();
        // The receiver is gone when the limit was over first.
        let _ = done.send(());
    });
    if synced.recv_timeout(SYNC_LIMIT).is_err() {
        kmsg::say(Level::Error, "sync takes too long, powering off without it");
    }
    if let Err(error) = reboot(RebootCommand::PowerOff) {
        kmsg::say(Level::Error, &format!("cannot power off: {error}"));
    }
}
