//! Files that the host puts into the guest and takes out of it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use topolab_protocol::frame::STREAM_FILE;
use topolab_protocol::message::AgentMessage;

use crate::link::{CHUNK, Link};

/// Why a file was not stored or sent.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The path is relative.
    #[error("{path:?} is not absolute")]
    Relative {
        /// The path.
        path: String,
    },
    /// More bytes came than were announced.
    #[error("{path}: {extra} bytes more than announced")]
    TooMuch {
        /// The path.
        path: String,
        /// How many more.
        extra: u64,
    },
    /// Reading or writing failed.
    #[error("{}: {source}", path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}

/// A file on its way into the guest. Its bytes are taken to the last even when
/// writing fails, because they are on their way already.
pub struct Incoming {
    path: String,
    left: u64,
    mode: u32,
    file: Result<File, FileError>,
}

impl Incoming {
    /// Makes the file and its parents. An error is told when all bytes came.
    pub fn open(path: &str, mode: u32, size: u64) -> Self {
        Self {
            path: path.into(),
            left: size,
            mode,
            file: create(path),
        }
    }

    /// Takes the next bytes; yields when the last one came.
    pub fn take(&mut self, bytes: &[u8]) -> Option<Result<String, FileError>> {
        let count = bytes.len() as u64;
        if count > self.left {
            return Some(Err(FileError::TooMuch {
                path: self.path.clone(),
                extra: count - self.left,
            }));
        }
        self.left -= count;
        if let Ok(file) = &mut self.file
            && let Err(source) = file.write_all(bytes)
        {
            self.file = Err(failed(&self.path, source));
        }
        (self.left == 0).then(|| self.finish())
    }

    fn finish(&mut self) -> Result<String, FileError> {
        let gone = FileError::Relative {
            path: self.path.clone(),
        };
        let file = std::mem::replace(&mut self.file, Err(gone))?;
        file.set_permissions(fs::Permissions::from_mode(self.mode))
            .map_err(|source| failed(&self.path, source))?;
        Ok(self.path.clone())
    }
}

fn create(path: &str) -> Result<File, FileError> {
    let file = Path::new(path);
    if !file.is_absolute() {
        return Err(FileError::Relative { path: path.into() });
    }
    file.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| File::create(file))
        .map_err(|source| failed(path, source))
}

fn failed(path: &str, source: std::io::Error) -> FileError {
    FileError::Io {
        path: path.into(),
        source,
    }
}

/// Sends a file, at most `limit` bytes of it.
///
/// # Errors
/// When it cannot be read; nothing was sent then.
pub fn send(link: &Link, path: &str, limit: u64) -> Result<(), FileError> {
    let read = || -> std::io::Result<(File, u64, bool)> {
        let file = File::open(path)?;
        let size = file.metadata()?;
        if !size.is_file() {
            return Err(std::io::Error::other("not a regular file"));
        }
        Ok((file, size.len(), size.len() > limit))
    };
    let (file, size, cut) = read().map_err(|source| failed(path, source))?;
    if size > 0 {
        say_head(link, path, size.min(limit), cut);
        stream(link, file, size.min(limit));
        return Ok(());
    }
    // Files of procfs and sysfs say nothing of their size.
    let mut bytes = Vec::new();
    file.take(limit.saturating_add(1))
        .read_to_end(&mut bytes)
        .map_err(|source| failed(path, source))?;
    let cut = bytes.len() as u64 > limit;
    if cut {
        bytes.pop();
    }
    say_head(link, path, bytes.len() as u64, cut);
    link.data(STREAM_FILE, &bytes);
    Ok(())
}

fn say_head(link: &Link, path: &str, size: u64, cut: bool) {
    link.say(&AgentMessage::File {
        path: path.into(),
        size,
        cut,
    });
}

/// Sends exactly the bytes announced: a file that shrank meanwhile is filled
/// up with zeros, and a note says so.
fn stream(link: &Link, mut file: File, mut left: u64) {
    let mut buffer = vec![0; CHUNK];
    let mut short = false;
    while left > 0 {
        let want = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let got = match file.read(&mut buffer[..want]) {
            Ok(n) if n > 0 => n,
            _ => {
                short = true;
                buffer.fill(0);
                want
            }
        };
        link.data(STREAM_FILE, &buffer[..got]);
        left -= got as u64;
    }
    if short {
        link.say(&AgentMessage::Note {
            text: "the file became shorter while it was sent; its end is zeros".into(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_stored_in_pieces_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let name = path.to_str().unwrap();
        let mut incoming = Incoming::open(name, 0o755, 4);
        assert!(incoming.take(b"ab").is_none());
        assert_eq!(incoming.take(b"cd").unwrap().unwrap(), name);
        assert_eq!(fs::read(&path).unwrap(), b"abcd");
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o755);
    }

    #[test]
    fn an_error_is_told_after_the_last_byte() {
        let mut incoming = Incoming::open("/proc/no/such", 0o644, 4);
        assert!(incoming.take(b"ab").is_none());
        assert!(incoming.take(b"cd").unwrap().is_err());
        let mut incoming = Incoming::open("relative", 0o644, 0);
        let error = incoming.take(b"").unwrap().unwrap_err();
        assert!(matches!(error, FileError::Relative { .. }));
    }

    #[test]
    fn more_bytes_than_announced_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let mut incoming = Incoming::open(path.to_str().unwrap(), 0o644, 1);
        let error = incoming.take(b"abc").unwrap().unwrap_err();
        assert!(matches!(error, FileError::TooMuch { extra: 2, .. }));
    }
}
