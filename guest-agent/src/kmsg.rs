//! The kernel log: what the agent says there when it has no port, and the
//! records the kernel itself wrote.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use topolab_protocol::message::AgentMessage;

/// How loud a line is, as syslog counts (RFC 5424 section 6.2.1).
#[derive(Debug, Clone, Copy)]
pub enum Level {
    /// Something is broken.
    Error = 3,
    /// Something is missing and the agent goes on.
    Notice = 5,
}

/// Writes one line to the kernel log, and to standard error when there is no
/// kernel log to write to.
pub fn say(level: Level, text: &str) {
    let line = line(level, text);
    let written = OpenOptions::new()
        .write(true)
        .open("/dev/kmsg")
        .and_then(|mut kmsg| kmsg.write_all(line.as_bytes()));
    if written.is_err() {
        // Nobody is left to tell when standard error is closed too.
        let _ = writeln!(std::io::stderr(), "topolab-agent: {text}");
    }
}

/// One line as `/dev/kmsg` takes it; the kernel cuts a record at about 1000 bytes.
fn line(level: Level, text: &str) -> String {
    let mut text: String = text.replace('\n', " ");
    let mut end = text.len().min(900);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    format!("<{}>topolab-agent: {text}", level as u8)
}

/// One record of the kernel log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Syslog priority: facility × 8 + level.
    pub priority: u32,
    /// Counts up; a gap means lost records.
    pub seq: u64,
    /// Microseconds since boot.
    pub time_us: u64,
    /// The message.
    pub text: String,
}

impl Record {
    /// Written by the kernel, not by user space through `/dev/kmsg` (which
    /// cannot choose facility 0; see `devkmsg_write` in `kernel/printk/printk.c`).
    pub fn by_kernel(&self) -> bool {
        self.priority < 8
    }
}

/// Reads a record as `/dev/kmsg` yields it
/// (`Documentation/ABI/testing/dev-kmsg`): `prio,seq,time,flags[,…];text`, and
/// lines of dictionary after the first.
pub fn parse(record: &str) -> Option<Record> {
    let (head, text) = record.split_once(';')?;
    let mut fields = head.split(',');
    Some(Record {
        priority: fields.next()?.parse().ok()?,
        seq: fields.next()?.parse().ok()?,
        time_us: fields.next()?.parse().ok()?,
        text: text.lines().next().unwrap_or_default().to_string(),
    })
}

/// Reader of the kernel log that never waits.
pub struct Reader {
    file: File,
}

impl Reader {
    /// Opens the log at its oldest record.
    ///
    /// # Errors
    /// When there is no `/dev/kmsg` below `root`.
    pub fn open(root: &Path) -> std::io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(root.join("dev/kmsg"))?;
        Ok(Self { file })
    }

    /// The records written since the last call.
    pub fn records(&mut self) -> Vec<Record> {
        let mut records = Vec::new();
        // One read yields one record; the kernel's own bound is 8 KiB of text.
        let mut buffer = [0; 16 * 1024];
        loop {
            match self.file.read(&mut buffer) {
                Ok(0) => return records,
                Ok(n) => records.extend(parse(&String::from_utf8_lossy(&buffer[..n]))),
                // EPIPE: records were overwritten before they were read; the
                // next read continues at the oldest one.
                Err(error) if error.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => return records,
            }
        }
    }
}

/// Bytes of the kernel log that are told; a frame holds a megabyte.
const TOLD: usize = 256 * 1024;

/// What the kernel itself wrote to its log, for the host.
pub fn kernel_log(root: &Path) -> AgentMessage {
    let records = Reader::open(root).map_or_else(|_| Vec::new(), |mut reader| reader.records());
    // Without a log nothing can be told from anything, as if all were lost.
    let mut first = records.first().map_or(u64::MAX, |record| record.seq);
    let mut room = TOLD;
    let mut lines = Vec::new();
    for record in records.into_iter().rev() {
        let Some(left) = room.checked_sub(record.text.len() + 1) else {
            first = record.seq + 1;
            break;
        };
        room = left;
        if record.by_kernel() {
            lines.push(record.text);
        }
    }
    lines.reverse();
    AgentMessage::KernelLog { first, lines }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_with_their_origin() {
        let kernel = parse("3,339,5140900,-;BUG: arch topology borken\n SUBSYSTEM=cpu\n").unwrap();
        assert_eq!(
            kernel,
            Record {
                priority: 3,
                seq: 339,
                time_us: 5_140_900,
                text: "BUG: arch topology borken".into()
            }
        );
        assert!(kernel.by_kernel());
        let user = parse("12,340,5141000,-;BUG: arch topology borken").unwrap();
        assert!(!user.by_kernel());
        assert_eq!(parse("no record"), None);
    }

    #[test]
    fn lines_are_single_and_short() {
        let line = line(Level::Error, &"ä\n".repeat(1000));
        assert!(line.len() < 1000 && !line.contains('\n'));
        assert!(line.starts_with("<3>topolab-agent: ä"));
    }
}
