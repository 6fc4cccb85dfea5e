//! The guest's user space: an initramfs with the agent as PID 1 and what the
//! experiment names, built without root and without other programs.

mod archive;
pub mod disk;
mod door;
mod libraries;
mod modules;
pub mod ready;
mod user_space;

use std::{
    fs, io,
    io::Write,
    path::{Path, PathBuf},
};

pub use archive::{Archive, ArchiveError};
pub use door::Door;
pub use libraries::{LibraryError, LoaderPaths};
pub use modules::{ModuleError, ModuleTree};
use sha2::{Digest, Sha256};
pub use user_space::{GuestDisk, LoginKey, Reach, SshLogin, UserSpace};

/// File in the guest that lists modules to load before the agent looks for its
/// port: one absolute path per line, in order.
pub const MODULE_LIST: &str = "/lib/modules/topolab/load";

/// Modules without which a stock kernel has neither the agent's port nor the
/// panic device. Kernels that lack one, or have it built in, do without.
pub const BOOT_MODULES: [&str; 3] = ["virtio_pci", "virtio_console", "pvpanic-pci"];

/// What an image is made of.
#[derive(Debug, Clone, Default)]
pub struct ImageSpec {
    /// The agent's program, statically linked; becomes `/init`.
    pub agent: Vec<u8>,
    /// Host programs that come with their shared libraries, at the same paths.
    pub programs: Vec<PathBuf>,
    /// Other files.
    pub files: Vec<ImageFile>,
    /// The kernel's modules, when it has any.
    pub modules: Option<ModuleChoice>,
}

/// A file of the host and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFile {
    /// On the host.
    pub source: PathBuf,
    /// Absolute path in the guest.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
}

/// Which modules of a kernel go into the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleChoice {
    /// The modules of the kernel.
    pub tree: ModuleTree,
    /// Its release, the name of the folder below `/lib/modules` in the guest.
    pub release: String,
    /// Loaded by the agent before anything else.
    pub at_boot: Vec<String>,
    /// Put into the image with what they need, loaded on request.
    pub on_request: Vec<String>,
}

impl ModuleChoice {
    /// Loads these before anything else too, as far as this kernel has them.
    fn also_at_boot(&mut self, names: &[&str]) {
        let known = names.iter().filter(|name| self.tree.knows(name));
        let known: Vec<String> = known.map(|name| (*name).to_string()).collect();
        self.at_boot.extend(known);
    }

    /// The modules that make the agent reachable, as far as this kernel has
    /// them as modules.
    pub fn for_agent(tree: ModuleTree, release: &str) -> Self {
        let wanted = BOOT_MODULES.iter().filter(|name| tree.knows(name));
        Self {
            at_boot: wanted.map(|name| (*name).to_string()).collect(),
            on_request: Vec::new(),
            release: release.into(),
            tree,
        }
    }
}

/// Why an image could not be built.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// A file of the host cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The image cannot be stored.
    #[error("cannot write the image below `{}`", folder.display())]
    Write {
        /// The cache's folder.
        folder: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Its parts do not fit together.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A program's libraries are not there.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// A module is not there.
    #[error(transparent)]
    Module(#[from] ModuleError),
}

/// An image in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The file, named by its hash.
    pub path: PathBuf,
    /// SHA-256 of the file, lower-case hex.
    pub sha256: String,
    /// Its size in bytes.
    pub bytes: u64,
}

/// Puts an image together. Reads host files, writes nothing.
///
/// # Errors
/// When something named is not there or two things want one path.
pub fn assemble(spec: &ImageSpec) -> Result<Archive, ImageError> {
    let mut archive = Archive::new();
    for folder in ["/dev", "/proc", "/sys", "/run", "/tmp", "/root", "/etc"] {
        archive.folder(folder)?;
    }
    // The kernel opens /dev/console for PID 1 before devtmpfs is mounted
    // (console_on_rootfs in init/main.c): without this node the agent would
    // start with no standard streams.
    archive.char_device("/dev/console", 0o600, 5, 1)?;
    archive.char_device("/dev/null", 0o666, 1, 3)?;
    archive.file("/init", 0o755, spec.agent.clone())?;
    let paths = LoaderPaths::read(Path::new("/"));
    for program in &spec.programs {
        archive.file(&guest_path(program), 0o755, read(program)?)?;
        for (path, source) in libraries::closure(program, &paths)? {
            archive.file(&path, 0o755, read(&source)?)?;
        }
    }
    for file in &spec.files {
        archive.file(&file.path, file.mode, read(&file.source)?)?;
    }
    if let Some(choice) = &spec.modules {
        add_modules(&mut archive, choice, "")?;
    }
    Ok(archive)
}

/// Adds modules below the folder `root` of the archive; the list of those that are
/// loaded first only when that is the root.
fn add_modules(archive: &mut Archive, choice: &ModuleChoice, root: &str) -> Result<(), ImageError> {
    let at_boot = choice.tree.load_order(&choice.at_boot)?;
    let all: Vec<String> = choice
        .at_boot
        .iter()
        .chain(&choice.on_request)
        .cloned()
        .collect();
    let all = choice.tree.load_order(&all)?;
    let folder = format!("/lib/modules/{}", choice.release);
    for path in &all {
        let bytes = read(&choice.tree.folder().join(path))?;
        archive.file(&format!("{root}{folder}/{path}"), 0o644, bytes)?;
    }
    let dependencies = choice.tree.dependency_file(&all)?;
    archive.file(
        &format!("{root}{folder}/modules.dep"),
        0o644,
        dependencies.into_bytes(),
    )?;
    if !root.is_empty() {
        return Ok(());
    }
    let list: String = at_boot
        .iter()
        .map(|path| format!("{folder}/{path}\n"))
        .collect();
    archive.file(MODULE_LIST, 0o644, list.into_bytes())?;
    Ok(())
}

/// Builds an image and stores it below `folder` under the hash of its bytes.
/// An image that is there already is left alone.
///
/// The archive is not compressed: unpacking costs an emulated guest more time
/// than reading a few more megabytes from memory.
///
/// # Errors
/// As [`assemble`], and when the cache cannot be written.
pub fn build(spec: &ImageSpec, folder: &Path) -> Result<Image, ImageError> {
    keep(&assemble(spec)?, folder)
}

/// Builds an image that leads to a root of its own, and stores it as [`build`] does.
///
/// # Errors
/// As [`build`].
pub fn build_door(spec: &ImageSpec, door: &Door, folder: &Path) -> Result<Image, ImageError> {
    keep(&door::assemble(spec, door)?, folder)
}

fn keep(archive: &Archive, folder: &Path) -> Result<Image, ImageError> {
    let mut bytes = Vec::new();
    archive
        .write(&mut bytes)
        .expect("writing to memory does not fail");
    let sha256: String = Sha256::digest(&bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let path = folder.join(format!("{sha256}.cpio"));
    let image = Image {
        path: path.clone(),
        sha256,
        bytes: bytes.len() as u64,
    };
    let whole = fs::metadata(&path).is_ok_and(|there| there.len() == image.bytes);
    if !whole {
        store(&bytes, folder, &path).map_err(|source| ImageError::Write {
            folder: folder.into(),
            source,
        })?;
    }
    Ok(image)
}

/// Writes beside the final name and renames, so that no reader ever finds half
/// an image.
fn store(bytes: &[u8], folder: &Path, path: &Path) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, ImageError> {
    fs::read(path).map_err(|source| ImageError::Read {
        path: path.into(),
        source,
    })
}

/// Where a host program goes: the same absolute path.
fn guest_path(program: &Path) -> String {
    std::path::absolute(program)
        .unwrap_or_else(|_| program.into())
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_content_is_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let spec = ImageSpec {
            agent: b"agent".to_vec(),
            programs: vec!["/bin/ls".into()],
            ..ImageSpec::default()
        };
        let one = build(&spec, folder.path()).unwrap();
        let other = build(&spec, folder.path()).unwrap();
        assert_eq!(one, other);
        assert_eq!(fs::metadata(&one.path).unwrap().len(), one.bytes);
        let names: Vec<_> = fs::read_dir(folder.path()).unwrap().collect();
        assert_eq!(names.len(), 1);
    }

    #[test]
    fn a_truncated_image_is_written_again() {
        let folder = tempfile::tempdir().unwrap();
        let spec = ImageSpec {
            agent: b"agent".to_vec(),
            ..ImageSpec::default()
        };
        let image = build(&spec, folder.path()).unwrap();
        fs::write(&image.path, b"half").unwrap();
        build(&spec, folder.path()).unwrap();
        assert_eq!(fs::metadata(&image.path).unwrap().len(), image.bytes);
    }

    #[test]
    fn modules_come_with_their_list_and_dependencies() {
        let tree = tempfile::tempdir().unwrap();
        let dep = "k/virtio_console.ko: k/virtio.ko\nk/virtio.ko:\nk/brd.ko:\n";
        fs::write(tree.path().join("modules.dep"), dep).unwrap();
        fs::create_dir(tree.path().join("k")).unwrap();
        for name in ["virtio_console", "virtio", "brd"] {
            fs::write(tree.path().join(format!("k/{name}.ko")), name).unwrap();
        }
        let tree = ModuleTree::read(tree.path()).unwrap();
        let mut choice = ModuleChoice::for_agent(tree, "6.12.1");
        assert_eq!(choice.at_boot, ["virtio_console"]);
        choice.on_request = vec!["brd".into()];
        let archive = assemble(&ImageSpec {
            modules: Some(choice),
            ..ImageSpec::default()
        });
        let mut bytes = Vec::new();
        archive.unwrap().write(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains(
            "/lib/modules/6.12.1/k/virtio.ko\n/lib/modules/6.12.1/k/virtio_console.ko\n"
        ));
        assert!(text.contains("k/brd.ko:\nk/virtio.ko:\nk/virtio_console.ko: k/virtio.ko\n"));
    }
}
