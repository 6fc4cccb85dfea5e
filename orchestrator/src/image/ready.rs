//! From a recipe to a user space that a run can take: assembled, built once and
//! found again, or looked into.

use std::path::Path;

use sha2::{Digest, Sha256};

use super::{
    Door, ImageError, ImageFile, ImageSpec, UserSpace, build, build_door,
    disk::{self, Base, DebianError, ExistingError, Freshness, Logins, Tools},
    door::{DISK_MODULES, SHARE_MODULES},
};
use crate::topology::cmdline;

/// What making a user space needs of the host.
#[derive(Debug, Clone, Copy)]
pub struct Workbench<'a> {
    /// Root of the cache.
    pub cache: &'a Path,
    /// The programs that make disks.
    pub tools: &'a Tools,
    /// The QEMU program.
    pub qemu: &'a Path,
    /// What may let us into images of others.
    pub logins: &'a Logins,
    /// Whether what is in the cache is good enough.
    pub freshness: Freshness,
}

/// Why there is no user space.
#[derive(Debug, thiserror::Error)]
pub enum ReadyError {
    /// The initramfs.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// A disk of ours.
    #[error(transparent)]
    Debian(#[from] DebianError),
    /// A disk of somebody else.
    #[error(transparent)]
    Existing(#[from] ExistingError),
}

/// Folder of the cache for images in memory.
pub const INITRAMFS_FOLDER: &str = "images";
/// Folder of the cache for disks of ours.
pub const DISK_FOLDER: &str = "disks";

/// Makes a user space of a recipe. `parts` is the agent and what an experiment
/// or a command line adds to the recipe; `say` hears the lines of programs that
/// build a disk.
///
/// # Errors
/// Something is missing, or a program failed.
pub fn user_space(
    base: &Base,
    mut parts: ImageSpec,
    bench: &Workbench<'_>,
    say: &mut dyn FnMut(&str),
) -> Result<UserSpace, ReadyError> {
    match base {
        Base::Initramfs(initramfs) => {
            parts.programs.extend(initramfs.programs.iter().cloned());
            let files = initramfs.files.iter().map(|(path, source)| ImageFile {
                source: source.clone(),
                path: path.clone(),
                mode: 0o644,
            });
            parts.files.extend(files);
            Ok(build(&parts, &bench.cache.join(INITRAMFS_FOLDER))?.into())
        }
        Base::Debian(debian) => {
            let folder = bench.cache.join(DISK_FOLDER);
            let agent = &parts.agent;
            let disk = disk::build(debian, agent, &folder, bench.tools, bench.freshness, say)?;
            let door = Door {
                source: "/dev/vda".into(),
                fstype: Some("ext4".into()),
                options: String::new(),
                layered: false,
                init: Some("/sbin/init".into()),
            };
            with_door(disk.into(), parts, &door, bench)
        }
        Base::Existing(existing) => {
            let mut logins = bench.logins.clone();
            // Without a key of ours there may be one of the user's.
            logins.own = disk::visitor_key(&bench.cache.join(DISK_FOLDER), bench.tools).ok();
            let space = disk::user_space(existing, bench.qemu, &logins)?;
            let root = cmdline::value(&space.words, "root").unwrap_or_default();
            let door = Door {
                source: root.into(),
                init: Some("/sbin/init".into()),
                ..Door::default()
            };
            with_door(space, parts, &door, bench)
        }
        Base::Host => host(parts, bench),
    }
}

/// A disk as it is, or behind an initramfs when the kernel has modules or something is
/// brought along.
fn with_door(
    space: UserSpace,
    mut parts: ImageSpec,
    door: &Door,
    bench: &Workbench<'_>,
) -> Result<UserSpace, ReadyError> {
    if let Some(choice) = &mut parts.modules {
        choice.also_at_boot(&DISK_MODULES);
        if choice.at_boot.is_empty() && choice.on_request.is_empty() {
            parts.modules = None;
        }
    }
    if parts.programs.is_empty() && parts.files.is_empty() && parts.modules.is_none() {
        return Ok(space);
    }
    let image = build_door(&parts, door, &bench.cache.join(INITRAMFS_FOLDER))?;
    Ok(UserSpace {
        sha256: both(&space.sha256, &image.sha256),
        initrd: Some(image),
        ..space
    })
}

/// One name for two parts.
fn both(one: &str, other: &str) -> String {
    format!("{:x}", Sha256::digest(format!("{one} {other}")))
}

/// Tag of the host's root on its way into a guest.
pub const SHARE: &str = "root";

/// The host's root, with the agent as PID 1 inside.
fn host(mut parts: ImageSpec, bench: &Workbench<'_>) -> Result<UserSpace, ReadyError> {
    if let Some(choice) = &mut parts.modules {
        choice.also_at_boot(&SHARE_MODULES);
    }
    let door = Door {
        source: SHARE.into(),
        fstype: Some("9p".into()),
        // Nobody changes the files that a guest looks at, so it may keep what it read
        // (the kernel's Documentation/filesystems/9p.rst).
        options: "trans=virtio,version=9p2000.L,cache=loose,msize=262144,ro".into(),
        layered: true,
        init: None,
    };
    // Its own files are all there.
    parts.programs.clear();
    let image = build_door(&parts, &door, &bench.cache.join(INITRAMFS_FOLDER))?;
    let mut space = UserSpace::from(image);
    space.share = Some("/".into());
    Ok(space)
}
