//! A file that is written up to a bound, and says where it was cut.

use std::{
    fs::File,
    io::{self, Write},
    path::Path,
};

/// Bytes on disk, bounded. What comes after the bound is dropped.
#[derive(Debug)]
pub struct KeptLog {
    file: File,
    bound: u64,
    written: u64,
    cut: bool,
}

impl KeptLog {
    /// Starts an empty file that takes at most `bound` bytes.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(path: &Path, bound: u64) -> io::Result<Self> {
        Ok(Self {
            file: File::create(path)?,
            bound,
            written: 0,
            cut: false,
        })
    }

    /// Adds bytes as far as there is room, and a mark where the rest begins.
    ///
    /// # Errors
    /// When the disk does not take them.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = usize::try_from(self.bound - self.written).unwrap_or(usize::MAX);
        let part = &bytes[..bytes.len().min(room)];
        self.file.write_all(part)?;
        self.written += part.len() as u64;
        if part.len() < bytes.len() && !self.cut {
            self.cut = true;
            self.file
                .write_all(b"\n[topolab: this goes on; no more of it is kept]\n")?;
        }
        Ok(())
    }

    /// Whether anything was dropped.
    pub fn is_cut(&self) -> bool {
        self.cut
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_stands_once_where_the_rest_begins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = KeptLog::create(&path, 5).unwrap();
        log.write(b"abc").unwrap();
        assert!(!log.is_cut());
        log.write(b"defg").unwrap();
        log.write(b"hij").unwrap();
        assert!(log.is_cut());
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            text,
            "abcde\n[topolab: this goes on; no more of it is kept]\n"
        );
    }
}
