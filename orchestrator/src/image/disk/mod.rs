//! User spaces with a disk: recipes, disks made by mmdebstrap, and disks made
//! by somebody else. A disk is never written to by a run: each run gets an
//! overlay of its own.

mod debian;
mod existing;
mod layer;
pub mod overlay;
mod packages;
mod recipe;
pub mod spec;
mod steps;

pub use debian::{
    DebianError, Disk, Freshness, Manifest, build, built, file_hash, recorded_packages, visitor_key,
};
pub use existing::{ExistingError, Logins, Root, find_root, user_space};
pub use layer::{AGENT, Keys};
pub use packages::{Difference, Packages};
pub use recipe::{
    Base, ConsoleLogin, DEBIAN_MIRROR, Debian, DiskFormat, Existing, Initramfs, Mirror, Recipe,
    SshServer,
};
pub use steps::{Privilege, StepError, Tools};
