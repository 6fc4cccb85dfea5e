//! Who a kernel is: the build id of its ELF file, the release in a bzImage's header.

use std::fs;
use std::io;
use std::path::Path;

use object::Object;

use super::patch::hex;

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
}
