//! The guest's console: kept raw on disk up to a bound, its last lines in
//! memory, and what the kernel said about itself.
//!
//! It is evidence only. Nothing on it is a result.

use std::{collections::VecDeque, io, path::Path};

use super::{
    kept::KeptLog,
    splat::{Scanner, Splat},
};

/// Bytes kept on disk. What comes after is read and dropped.
pub const KEPT: u64 = 16 << 20;
/// Lines kept in memory.
const TAIL: usize = 400;
/// Longer lines are cut, in memory only.
const LINE: usize = 1024;

/// The console of one guest.
#[derive(Debug)]
pub struct Console {
    log: KeptLog,
    line: Vec<u8>,
    tail: VecDeque<String>,
    /// Whole lines so far.
    lines: u64,
    scanner: Scanner,
}

impl Console {
    /// Starts a log.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            log: KeptLog::create(path, KEPT)?,
            line: Vec::new(),
            tail: VecDeque::new(),
            lines: 0,
            scanner: Scanner::default(),
        })
    }

    /// Takes what the guest printed; gives the whole lines among it, cleaned.
    ///
    /// # Errors
    /// When the log cannot be written. The bytes were looked at all the same.
    pub fn push(&mut self, bytes: &[u8]) -> io::Result<Vec<String>> {
        let mut lines = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' => lines.push(self.end_line()),
                b'\r' => {}
                _ if self.line.len() < LINE => self.line.push(byte),
                _ => {}
            }
        }
        self.log.write(bytes)?;
        Ok(lines)
    }

    /// The console is closed: an unfinished line counts as one.
    pub fn finish(&mut self) -> Option<String> {
        let rest = (!self.line.is_empty()).then(|| self.end_line());
        self.scanner.finish();
        rest
    }

    fn end_line(&mut self) -> String {
        let line = clean(&self.line);
        self.line.clear();
        self.scanner.line(&line);
        self.lines += 1;
        if self.tail.len() == TAIL {
            self.tail.pop_front();
        }
        self.tail.push_back(line.clone());
        line
    }

    /// Whether the log was cut at [`KEPT`].
    pub fn is_cut(&self) -> bool {
        self.log.is_cut()
    }

    /// The last lines, oldest first.
    pub fn tail(&self) -> Vec<String> {
        let mut tail: Vec<String> = self.tail.iter().cloned().collect();
        if !self.line.is_empty() {
            tail.push(clean(&self.line));
        }
        tail
    }

    /// How many whole lines there were.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// Lines after the first `count`, as far as they are still in memory.
    pub fn since(&self, count: u64) -> Vec<String> {
        let new = usize::try_from(self.lines - count).unwrap_or(usize::MAX);
        let from = self.tail.len().saturating_sub(new);
        self.tail.iter().skip(from).cloned().collect()
    }

    /// What the kernel said about itself so far.
    pub fn splats(&self) -> &[Splat] {
        self.scanner.found()
    }
}

/// Text without control codes and terminal escapes, so that it is inert
/// wherever it is shown. Bytes that are no UTF-8 become U+FFFD.
pub fn clean(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c == '\u{1b}' {
            // A control sequence ends with a byte from `@` to `~` (ECMA-48 5.4).
            if chars.next_if_eq(&'[').is_some() {
                while let Some(c) = chars.next_if(|c| (' '..='?').contains(c)) {
                    let _ = c;
                }
                chars.next_if(|c| ('@'..='~').contains(c));
            }
        } else if c == '\t' {
            out.push(' ');
        } else if !c.is_control() && !is_direction(c) {
            out.push(c);
        }
    }
    out
}

/// Marks that change the direction of the text after them (Unicode UAX #9).
fn is_direction(c: char) -> bool {
    matches!(c, '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn console() -> (tempfile::TempDir, Console) {
        let dir = tempfile::tempdir().unwrap();
        let console = Console::create(&dir.path().join("console.log")).unwrap();
        (dir, console)
    }

    #[test]
    fn lines_are_cleaned_in_memory_and_raw_on_disk() {
        let (dir, mut console) = console();
        let raw = b"\x1b[1;31mred\x1b[0m\r\nhalf \xff\n\xe2\x80\xaeevil\x07 100%s\nno end";
        let lines = console.push(raw).unwrap();
        assert_eq!(lines, ["red", "half \u{fffd}", "evil 100%s"]);
        assert_eq!(console.tail().last().unwrap(), "no end");
        assert_eq!(console.finish(), Some("no end".into()));
        assert_eq!(std::fs::read(dir.path().join("console.log")).unwrap(), raw);
    }

    #[test]
    fn an_endless_console_is_bounded_on_disk_and_in_memory() {
        let (dir, mut console) = console();
        let chunk = vec![b'x'; 1 << 20];
        for _ in 0..20 {
            console.push(&chunk).unwrap();
        }
        assert!(console.is_cut());
        let len = std::fs::metadata(dir.path().join("console.log"))
            .unwrap()
            .len();
        assert!(len > KEPT && len < KEPT + 100, "{len}");
        assert_eq!(console.tail(), ["x".repeat(LINE)]);
    }
}
