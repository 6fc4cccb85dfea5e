//! The way from an initramfs to a root of its own: what the image says is mounted,
//! what it brings is laid into it, and the root's own init takes over, or we go on
//! inside.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, mount_move, unmount};

/// What the image says of its door: lines of a key, a blank and a value.
const DOOR: &str = "/topolab/door";
/// Files laid over the root, whatever is there.
const FILES: &str = "topolab/files";
/// Files for places where the root has nothing.
const ADDITIONS: &str = "topolab/additions";
/// Where the root is mounted before it becomes the root.
const ROOT: &str = "/topolab/root";
/// Where the parts of a layered root are mounted.
const LOWER: &str = "/topolab/lower";
const LAYER: &str = "/topolab/layer";
/// Where our files are seen from within the root.
const SEEN: &str = "/run/topolab-door";
/// A disk may take so long to appear.
const DEVICE: Duration = Duration::from_secs(20);

/// What stands in the file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Door {
    /// A block device, or a tag of 9p.
    source: String,
    /// File system; empty: every one the kernel has is tried.
    fstype: String,
    /// Options of that file system.
    options: String,
    /// The root is only read, and a layer in memory takes what is written.
    layered: bool,
    /// The root's own PID 1; empty: we stay.
    init: String,
}

impl Door {
    fn parse(text: &str) -> Result<Self, String> {
        let mut door = Self::default();
        for line in text.lines().filter(|line| !line.is_empty()) {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            match key {
                "source" => door.source = value.into(),
                "type" => door.fstype = value.into(),
                "options" => door.options = value.into(),
                "layered" => door.layered = true,
                "init" => door.init = value.into(),
                other => return Err(format!("{DOOR} says {other:?}, which is unknown")),
            }
        }
        if door.source.is_empty() {
            return Err(format!("{DOOR} names no source"));
        }
        Ok(door)
    }
}

/// Goes through the door when the image has one. Returns when there is none, or when
/// we are inside and stay PID 1: true then.
///
/// # Errors
/// Why there is no way; nothing works then.
pub fn pass() -> Result<bool, String> {
    let text = match fs::read_to_string(DOOR) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(format!("{DOOR}: {error}")),
    };
    let door = Door::parse(&text)?;
    mount_root(&door)?;
    enter()?;
    let laid = lay_files();
    // What is brought may matter to nobody who boots; it is said, and that is all.
    if let Err(error) = laid {
        crate::kmsg::say(crate::kmsg::Level::Error, &format!("files: {error}"));
    }
    let _ = unmount(SEEN, UnmountFlags::DETACH);
    let _ = fs::remove_dir(SEEN);
    if door.init.is_empty() {
        return Ok(true);
    }
    let error = std::process::Command::new(&door.init).env_clear().exec();
    Err(format!("cannot start {} of the root: {error}", door.init))
}

fn mount_root(door: &Door) -> Result<(), String> {
    let told = |what: &str, error: io::Error| format!("cannot mount {what}: {error}");
    for folder in [ROOT, LOWER, LAYER] {
        fs::create_dir_all(folder).map_err(|error| told(folder, error))?;
    }
    if door.source.starts_with('/') {
        wait_for(&door.source)?;
    }
    let (target, flags) = if door.layered {
        (LOWER, MountFlags::RDONLY)
    } else {
        (ROOT, MountFlags::empty())
    };
    let types = if door.fstype.is_empty() {
        block_types(&fs::read_to_string("/proc/filesystems").unwrap_or_default())
    } else {
        vec![door.fstype.clone()]
    };
    let options = CString::new(door.options.clone()).map_err(|error| error.to_string())?;
    let mut last = io::Error::from(io::ErrorKind::Unsupported);
    let mounted = types.iter().any(|fstype| {
        match mount(&door.source, target, fstype.as_str(), flags, &*options) {
            Ok(()) => true,
            Err(error) => {
                last = error.into();
                false
            }
        }
    });
    if !mounted {
        let what = format!("{} as {}", door.source, types.join(", "));
        return Err(told(&what, last));
    }
    if door.layered {
        layer().map_err(|error| told("a layer over the root", error))?;
    }
    Ok(())
}

/// A layer in memory over [`LOWER`].
fn layer() -> io::Result<()> {
    mount("tmpfs", LAYER, "tmpfs", MountFlags::empty(), c"mode=0755")?;
    for part in ["upper", "work"] {
        fs::create_dir(Path::new(LAYER).join(part))?;
    }
    let options = format!("lowerdir={LOWER},upperdir={LAYER}/upper,workdir={LAYER}/work");
    let options = CString::new(options)?;
    mount("root", ROOT, "overlay", MountFlags::empty(), &*options)?;
    Ok(())
}

/// Disks appear while drivers look for them.
fn wait_for(device: &str) -> Result<(), String> {
    let begin = Instant::now();
    while !Path::new(device).exists() {
        if begin.elapsed() > DEVICE {
            return Err(format!("there is no {device} after {} s", DEVICE.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// File systems of block devices, from `/proc/filesystems`.
fn block_types(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.starts_with("nodev"));
    lines.map(|line| line.trim().to_string()).collect()
}

/// The mounted root becomes the root, with our files seen below [`SEEN`].
fn enter() -> Result<(), String> {
    let told = |error: io::Error| format!("cannot enter the root: {error}");
    let seen = format!("{ROOT}{SEEN}");
    fs::create_dir_all(&seen)
        .and_then(|()| Ok(mount_bind("/", &seen)?))
        .map_err(told)?;
    crate::init::unmount_all();
    let go = || -> io::Result<()> {
        std::env::set_current_dir(ROOT)?;
        mount_move(".", "/")?;
        rustix::process::chroot(".")?;
        std::env::set_current_dir("/")
    };
    go().map_err(told)
}

/// Lays the image's files into the root. The root's own links lead within it, since
/// it is the root by now.
fn lay_files() -> io::Result<()> {
    let seen = Path::new(SEEN);
    for (part, over) in [(ADDITIONS, false), (FILES, true)] {
        let from = seen.join(part);
        if from.is_dir() {
            lay(&from, Path::new("/"), over)?;
        }
    }
    Ok(())
}

fn lay(from: &Path, to: &Path, over: bool) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let about = fs::symlink_metadata(&source)?;
        if about.is_dir() {
            if !target.is_dir() {
                fs::create_dir_all(&target)?;
            }
            lay(&source, &target, over)?;
            continue;
        }
        if fs::symlink_metadata(&target).is_ok() {
            if !over {
                continue;
            }
            fs::remove_file(&target)?;
        }
        if about.is_symlink() {
            symlink(fs::read_link(&source)?, &target)?;
        } else {
            fs::copy(&source, &target)?;
            let mode = fs::Permissions::from_mode(about.permissions().mode() & 0o7777);
            fs::set_permissions(&target, mode)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_read() {
        let text = "source root\ntype 9p\noptions trans=virtio,ro\nlayered\n";
        let door = Door::parse(text).unwrap();
        assert_eq!(
            door,
            Door {
                source: "root".into(),
                fstype: "9p".into(),
                options: "trans=virtio,ro".into(),
                layered: true,
                init: String::new(),
            }
        );
        assert!(
            Door::parse("type ext4\n")
                .unwrap_err()
                .contains("no source")
        );
        assert!(
            Door::parse("source /dev/vda\nsize 3\n")
                .unwrap_err()
                .contains("\"size\"")
        );
        let list = "nodev\tsysfs\n\text4\nnodev\t9p\n\tvfat\n";
        assert_eq!(block_types(list), ["ext4", "vfat"]);
    }

    #[test]
    fn additions_fill_gaps_and_files_go_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for place in ["from/lib/deep", "root/usr/lib"] {
            fs::create_dir_all(path(place)).unwrap();
        }
        symlink("usr/lib", path("root/lib")).unwrap();
        fs::write(path("from/lib/libc"), "host").unwrap();
        fs::write(path("from/lib/deep/new"), "new").unwrap();
        fs::write(path("root/usr/lib/libc"), "own").unwrap();
        let read = |name: &str| fs::read_to_string(path(name)).unwrap();
        lay(&path("from"), &path("root"), false).unwrap();
        assert_eq!(read("root/usr/lib/libc"), "own");
        assert_eq!(read("root/usr/lib/deep/new"), "new");
        lay(&path("from"), &path("root"), true).unwrap();
        assert_eq!(read("root/usr/lib/libc"), "host");
        assert!(path("root/lib").is_symlink());
    }
}
