//! From a recipe to a user space that a run can take: assembled, built once and
//! found again, or looked into.

use std::path::Path;

use super::{
    ImageError, ImageFile, ImageSpec, UserSpace, build,
    disk::{self, Base, DebianError, ExistingError, Freshness, Logins, Tools},
};

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
    /// Things of the host cannot be brought into this kind of image.
    #[error("{what} cannot be brought into an image of kind `{kind}`")]
    Alien {
        /// What was to be brought.
        what: String,
        /// The kind, as the recipe's key.
        kind: &'static str,
    },
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
            nothing_alien(base, &parts)?;
            let folder = bench.cache.join(DISK_FOLDER);
            let agent = &parts.agent;
            let disk = disk::build(debian, agent, &folder, bench.tools, bench.freshness, say)?;
            Ok(disk.into())
        }
        Base::Existing(existing) => {
            nothing_alien(base, &parts)?;
            let mut logins = bench.logins.clone();
            // Without a key of ours there may be one of the user's.
            logins.own = disk::visitor_key(&bench.cache.join(DISK_FOLDER), bench.tools).ok();
            Ok(disk::user_space(existing, bench.qemu, &logins)?)
        }
        Base::Host => {
            nothing_alien(base, &parts)?;
            Err(ReadyError::Alien {
                what: "the host's root".into(),
                kind: base.kind(),
            })
        }
    }
}

fn nothing_alien(base: &Base, parts: &ImageSpec) -> Result<(), ReadyError> {
    let programs = parts.programs.iter().map(|path| path.display().to_string());
    let files = parts.files.iter().map(|file| file.path.clone());
    let all: Vec<String> = programs.chain(files).collect();
    if all.is_empty() {
        return Ok(());
    }
    Err(ReadyError::Alien {
        what: all.join(", "),
        kind: base.kind(),
    })
}
