//! Who a kernel is: the build id of its ELF file, the release in a bzImage's header.

use std::fs;
use std::io;
use std::path::Path;

use object::Object;

use super::patch::hex;
use super::tools::command;

/// GNU build id of a vmlinux, lower-case hex; nothing when the file has none.
pub(super) fn build_id(vmlinux: &Path) -> io::Result<Option<String>> {
    let bytes = fs::read(vmlinux)?;
    let file = object::File::parse(&*bytes).map_err(io::Error::other)?;
    let id = file.build_id().map_err(io::Error::other)?;
    Ok(id.map(hex))
}

/// The `uname -r` that a bzImage's header announces.
///
/// Documentation/arch/x86/boot.rst: "HdrS" at 0x202, and at 0x20e the offset less
/// 0x200 of a text `RELEASE (BUILDER) …`.
pub(super) fn bzimage_release(bytes: &[u8]) -> Option<String> {
    if bytes.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let offset = u16::from_le_bytes(bytes.get(0x20e..0x210)?.try_into().ok()?);
    let text = bytes.get(usize::from(offset) + 0x200..)?;
    let end = text.iter().take(512).position(|b| *b == b' ' || *b == 0)?;
    let release = std::str::from_utf8(&text[..end]).ok()?;
    (!release.is_empty()).then(|| release.to_owned())
}

/// How a bzImage's kernel is compressed: magic numbers and the program that
/// unpacks them (scripts/extract-vmlinux has the same list).
const PACKED: [(&[u8], &str); 5] = [
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"BZh", "bzip2"),
];

/// GNU build id of the kernel inside a bzImage, lower-case hex. Nothing when the
/// program that unpacks it is missing: the id is then not known beforehand.
///
/// Documentation/arch/x86/boot.rst: the number of setup sectors at 0x1f1, the
/// compressed kernel at payload_offset (0x248) behind them, payload_length at 0x24c.
pub(super) async fn bzimage_build_id(bytes: &[u8]) -> Option<String> {
    let payload = payload(bytes)?;
    let (_, program) = PACKED
        .iter()
        .find(|(magic, _)| payload.starts_with(magic))?;
    let folder = tempfile::tempdir().ok()?;
    let packed = folder.path().join("payload");
    fs::write(&packed, payload).ok()?;
    // What follows the payload makes some of them complain at the end.
    let unpacked = command(Path::new(program))
        .arg("-dc")
        .arg("--")
        .arg(&packed)
        .output()
        .await
        .ok()?
        .stdout;
    let file = object::File::parse(&*unpacked).ok()?;
    file.build_id().ok()?.map(hex)
}

fn payload(bytes: &[u8]) -> Option<&[u8]> {
    if bytes.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let number = |at: usize| -> Option<usize> {
        let field = bytes.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(field)).ok()
    };
    // Zero stands for four, for the sake of very old loaders.
    let sectors = match bytes.get(0x1f1)? {
        0 => 4,
        sectors => usize::from(*sectors),
    };
    let start = (sectors + 1) * 512 + number(0x248)?;
    bytes.get(start..start.checked_add(number(0x24c)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_is_read_and_other_files_are_not() {
        let mut image = vec![0; 0x400];
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        image[0x300..0x310].copy_from_slice(b"6.12.117 (a@b) #");
        assert_eq!(bzimage_release(&image).as_deref(), Some("6.12.117"));
        assert_eq!(bzimage_release(b"\x7fELF"), None);
        image[0x20e] = 0xff;
        image[0x20f] = 0xff;
        assert_eq!(bzimage_release(&image), None);
    }

    #[tokio::test]
    async fn the_id_is_found_inside_a_compressed_kernel() {
        // Any ELF file with an id will do for a kernel; this test is one.
        let kernel = std::env::current_exe().unwrap();
        let known = build_id(&kernel).unwrap();
        let packed = command(Path::new("gzip"))
            .args(["-1", "-c", "--"])
            .arg(&kernel)
            .output()
            .await
            .unwrap()
            .stdout;
        let mut image = vec![0; 0x400];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        let length = u32::try_from(packed.len()).unwrap();
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend(packed);
        image.extend([0; 64]);
        assert_eq!(bzimage_build_id(&image).await, known);
        image.truncate(0x500);
        assert_eq!(bzimage_build_id(&image).await, None);
    }
}
