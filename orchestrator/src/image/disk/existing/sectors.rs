//! Bytes of a disk, whatever format its file has. Nothing is mounted, nothing is
//! written.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
};

use crate::image::disk::DiskFormat;

/// A disk that can be read from.
pub(super) struct Sectors {
    from: From,
    /// Bytes of the disk as a guest sees it.
    pub(super) len: u64,
}

enum From {
    File(File),
    Tool(Tool),
}

/// qcow2 is read by QEMU's own tool, a piece at a time, each once.
struct Tool {
    program: PathBuf,
    path: PathBuf,
    pieces: BTreeMap<u64, Vec<u8>>,
}

/// Bytes asked of the tool at once.
const PIECE: u64 = 1 << 20;

/// The first bytes of a qcow2 file (QEMU's docs/interop/qcow2.txt).
const QCOW2: [u8; 4] = *b"QFI\xfb";

/// The format of a file, by its first bytes.
pub(super) fn format(path: &Path) -> io::Result<DiskFormat> {
    let mut magic = [0; 4];
    let read = File::open(path)?.read(&mut magic)?;
    Ok(if read == 4 && magic == QCOW2 {
        DiskFormat::Qcow2
    } else {
        DiskFormat::Raw
    })
}

impl Sectors {
    pub(super) fn open(path: &Path, format: DiskFormat, qemu: &Path) -> io::Result<Self> {
        if format == DiskFormat::Raw {
            let file = File::open(path)?;
            let len = file.metadata()?.len();
            let from = From::File(file);
            return Ok(Self { from, len });
        }
        let program = qemu.with_file_name("qemu-img");
        let mut command = Command::new(&program);
        command
            .args(["info", "-U", "-f", format.name(), "--output=json"])
            .arg(path);
        let told: serde_json::Value = serde_json::from_slice(&output(command)?)?;
        let len = told["virtual-size"].as_u64();
        let len = len.ok_or_else(|| io::Error::other("qemu-img tells no virtual size"))?;
        let from = From::Tool(Tool {
            program,
            path: path.into(),
            pieces: BTreeMap::new(),
        });
        Ok(Self { from, len })
    }

    /// Reads exactly `into.len()` bytes.
    pub(super) fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64);
        if end.is_none_or(|end| end > self.len) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        match &mut self.from {
            From::File(file) => file.read_exact_at(into, offset),
            From::Tool(tool) => tool.read_at(offset, into),
        }
    }

    /// The first bytes at a place, fewer at the end of the disk.
    pub(super) fn head(&mut self, offset: u64, wanted: u64) -> io::Result<Vec<u8>> {
        let len = wanted.min(self.len.saturating_sub(offset));
        let mut bytes = vec![0; usize::try_from(len).map_err(io::Error::other)?];
        self.read_at(offset, &mut bytes)?;
        Ok(bytes)
    }
}

impl Tool {
    fn read_at(&mut self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < into.len() {
            let at = offset + done as u64;
            let number = at / PIECE;
            let piece = self.piece(number)?;
            let from = usize::try_from(at % PIECE).map_err(io::Error::other)?;
            let Some(rest) = piece.get(from..).filter(|rest| !rest.is_empty()) else {
                return Err(io::ErrorKind::UnexpectedEof.into());
            };
            let count = rest.len().min(into.len() - done);
            into[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
        }
        Ok(())
    }

    fn piece(&mut self, number: u64) -> io::Result<&[u8]> {
        if !self.pieces.contains_key(&number) {
            let out = tempfile::NamedTempFile::new()?;
            let mut command = Command::new(&self.program);
            command
                .args(["dd", "-U", "-f", "qcow2", "-O", "raw"])
                .args([format!("bs={PIECE}"), format!("skip={number}")])
                // Counted from the beginning of the disk, not from the first piece read.
                .arg(format!("count={}", number + 1))
                .arg(format!("if={}", self.path.display()))
                .arg(format!("of={}", out.path().display()));
            output(command)?;
            let mut bytes = std::fs::read(out.path())?;
            bytes.truncate(usize::try_from(PIECE).map_err(io::Error::other)?);
            self.pieces.insert(number, bytes);
        }
        Ok(&self.pieces[&number])
    }
}

fn output(mut command: Command) -> io::Result<Vec<u8>> {
    let output = command.env("LC_ALL", "C").output()?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(said.trim().to_string()))
}
