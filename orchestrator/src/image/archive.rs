//! A cpio archive as the kernel unpacks it at boot, the same bytes for the
//! same content: entries in the order of their paths, no times, no owners,
//! inode numbers that count up.
//!
//! The format is `newc`, described in the kernel's
//! `Documentation/driver-api/early-userspace/buffer-format.rst`.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

use cpio::newc;

/// An archive being put together. Parent folders are made as needed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Archive {
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Folder,
    File { mode: u32, bytes: Vec<u8> },
    Link { target: String },
    Char { mode: u32, major: u32, minor: u32 },
}

/// Something that cannot be put into an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    /// Paths are absolute, without `.`, `..` and empty parts.
    #[error("`{path}` is no absolute path without `.` and `..`")]
    Path {
        /// The path asked for.
        path: String,
    },
    /// Two different things at one path.
    #[error("two different things want to be `{path}` in the image")]
    Taken {
        /// The path both want.
        path: String,
    },
    /// `newc` holds files below 4 GiB.
    #[error("`{path}` has {len} bytes, a cpio archive holds less than 4 GiB per file")]
    TooLong {
        /// Where it was to be.
        path: String,
        /// Its length in bytes.
        len: usize,
    },
}

impl Archive {
    /// An archive without entries.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a folder (mode 0755).
    ///
    /// # Errors
    /// When the path is not absolute or holds something else already.
    pub fn folder(&mut self, path: &str) -> Result<(), ArchiveError> {
        self.insert(path, Entry::Folder)
    }

    /// Adds a file with permission bits `mode`. The same file twice is fine.
    ///
    /// # Errors
    /// When the path is not absolute, holds something else already, or the
    /// file is too long for the format.
    pub fn file(&mut self, path: &str, mode: u32, bytes: Vec<u8>) -> Result<(), ArchiveError> {
        if u32::try_from(bytes.len()).is_err() {
            return Err(ArchiveError::TooLong {
                path: path.into(),
                len: bytes.len(),
            });
        }
        self.insert(path, Entry::File { mode, bytes })
    }

    /// Adds a symbolic link.
    ///
    /// # Errors
    /// As [`Archive::folder`].
    pub fn link(&mut self, path: &str, target: &str) -> Result<(), ArchiveError> {
        let target = target.into();
        self.insert(path, Entry::Link { target })
    }

    /// Adds a character device.
    ///
    /// # Errors
    /// As [`Archive::folder`].
    pub fn char_device(
        &mut self,
        path: &str,
        mode: u32,
        major: u32,
        minor: u32,
    ) -> Result<(), ArchiveError> {
        self.insert(path, Entry::Char { mode, major, minor })
    }

    /// Whether something is at this path.
    pub fn contains(&self, path: &str) -> bool {
        path.strip_prefix('/')
            .is_some_and(|path| self.entries.contains_key(path))
    }

    fn insert(&mut self, path: &str, entry: Entry) -> Result<(), ArchiveError> {
        let parts = path.strip_prefix('/').filter(|rest| {
            rest.split('/')
                .all(|part| !part.is_empty() && part != "." && part != ".." && !part.contains('\0'))
        });
        let Some(parts) = parts else {
            return Err(ArchiveError::Path { path: path.into() });
        };
        for (at, _) in parts.match_indices('/') {
            self.put(&parts[..at], Entry::Folder)?;
        }
        self.put(parts, entry)
    }

    fn put(&mut self, path: &str, entry: Entry) -> Result<(), ArchiveError> {
        match self.entries.get(path) {
            Some(there) if *there != entry => Err(ArchiveError::Taken {
                path: format!("/{path}"),
            }),
            Some(_) => Ok(()),
            None => {
                self.entries.insert(path.into(), entry);
                Ok(())
            }
        }
    }

    /// Lays the entries out below `folder`, which is there and empty. Folders
    /// get mode 0755 whatever the caller's umask is.
    ///
    /// # Errors
    /// When something cannot be made; devices need root.
    pub fn unpack(&self, folder: &Path) -> io::Result<()> {
        for (path, entry) in &self.entries {
            let path = folder.join(path);
            match entry {
                Entry::Folder => {
                    fs::create_dir(&path)?;
                    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
                }
                Entry::File { mode, bytes } => {
                    // Never readable by others, even for a moment: it may be a key.
                    let mut options = fs::OpenOptions::new();
                    let mut file = options
                        .write(true)
                        .create_new(true)
                        .mode(0o600)
                        .open(&path)?;
                    file.write_all(bytes)?;
                    file.set_permissions(fs::Permissions::from_mode(*mode))?;
                }
                Entry::Link { target } => std::os::unix::fs::symlink(target, &path)?,
                Entry::Char { mode, major, minor } => rustix::fs::mknodat(
                    rustix::fs::CWD,
                    &path,
                    rustix::fs::FileType::CharacterDevice,
                    rustix::fs::Mode::from_raw_mode(*mode),
                    rustix::fs::makedev(*major, *minor),
                )?,
            }
        }
        Ok(())
    }

    /// Writes the archive.
    ///
    /// # Errors
    /// When writing fails.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        // Sorting by path puts every folder before what it holds, because a
        // path is longer than its parent's.
        for (ino, (path, entry)) in (1..).zip(&self.entries) {
            let head = newc::Builder::new(path).ino(ino);
            let (head, bytes): (_, &[u8]) = match entry {
                Entry::Folder => (
                    head.mode(0o755)
                        .nlink(2)
                        .set_mode_file_type(newc::ModeFileType::Directory),
                    &[],
                ),
                Entry::File { mode, bytes } => (
                    head.mode(*mode)
                        .set_mode_file_type(newc::ModeFileType::Regular),
                    bytes,
                ),
                Entry::Link { target } => (
                    head.mode(0o777)
                        .set_mode_file_type(newc::ModeFileType::Symlink),
                    target.as_bytes(),
                ),
                Entry::Char { mode, major, minor } => (
                    head.mode(*mode)
                        .rdev_major(*major)
                        .rdev_minor(*minor)
                        .set_mode_file_type(newc::ModeFileType::Char),
                    &[],
                ),
            };
            let len = u32::try_from(bytes.len()).expect("lengths were checked when added");
            let mut writer = head.write(&mut out, len);
            writer.write_all(bytes)?;
            writer.finish()?;
        }
        newc::trailer(&mut out)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn listing(bytes: &[u8]) -> Vec<(String, u32, u32, Vec<u8>)> {
        let mut rest = bytes;
        let mut seen = Vec::new();
        loop {
            let mut reader = newc::Reader::new(rest).unwrap();
            if reader.entry().is_trailer() {
                return seen;
            }
            let mut content = Vec::new();
            reader.read_to_end(&mut content).unwrap();
            let entry = reader.entry();
            assert_eq!(entry.mtime(), 0);
            seen.push((entry.name().into(), entry.ino(), entry.mode(), content));
            rest = reader.finish().unwrap();
        }
    }

    #[test]
    fn entries_come_sorted_with_their_parents_and_the_order_of_adding_does_not_matter() {
        let mut one = Archive::new();
        one.file("/bin/b", 0o755, b"B".to_vec()).unwrap();
        one.link("/a", "bin/b").unwrap();
        one.char_device("/dev/console", 0o600, 5, 1).unwrap();
        let mut other = Archive::new();
        other.char_device("/dev/console", 0o600, 5, 1).unwrap();
        other.link("/a", "bin/b").unwrap();
        other.file("/bin/b", 0o755, b"B".to_vec()).unwrap();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        one.write(&mut first).unwrap();
        other.write(&mut second).unwrap();
        assert_eq!(first, second);
        let text = |s: &str| s.as_bytes().to_vec();
        assert_eq!(
            listing(&first),
            [
                ("a".into(), 1, 0o120_777, text("bin/b")),
                ("bin".into(), 2, 0o040_755, text("")),
                ("bin/b".into(), 3, 0o100_755, text("B")),
                ("dev".into(), 4, 0o040_755, text("")),
                ("dev/console".into(), 5, 0o020_600, text("")),
            ]
        );
    }

    #[test]
    fn entries_become_files_below_a_folder() {
        let mut archive = Archive::new();
        archive.file("/etc/key", 0o600, b"secret".to_vec()).unwrap();
        archive.link("/etc/off.service", "/dev/null").unwrap();
        let folder = tempfile::tempdir().unwrap();
        archive.unpack(folder.path()).unwrap();
        let key = folder.path().join("etc/key");
        assert_eq!(fs::read(&key).unwrap(), b"secret");
        assert_eq!(
            fs::metadata(&key).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let link = fs::read_link(folder.path().join("etc/off.service")).unwrap();
        assert_eq!(link, Path::new("/dev/null"));
    }

    #[test]
    fn odd_paths_and_conflicts_are_refused() {
        let mut archive = Archive::new();
        for path in ["relative", "/", "/a/../b", "/a//b", "/./a", "/nul\0"] {
            assert_eq!(
                archive.folder(path),
                Err(ArchiveError::Path { path: path.into() })
            );
        }
        archive.file("/a", 0o644, b"1".to_vec()).unwrap();
        archive.file("/a", 0o644, b"1".to_vec()).unwrap();
        let taken = Err(ArchiveError::Taken { path: "/a".into() });
        assert_eq!(archive.file("/a", 0o644, b"2".to_vec()), taken);
        assert_eq!(archive.file("/a/b", 0o644, b"2".to_vec()), taken);
        assert!(archive.contains("/a"));
        assert!(!archive.contains("/a/b"));
    }
}
