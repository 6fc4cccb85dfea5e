//! What lies where on a disk: partition tables and the marks of file systems.
//! Pure: bytes in, findings out. Nothing here believes a length it reads.

/// A part of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// Its number, as in `/dev/vda1`.
    pub number: u32,
    /// First byte.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The processor its type says it is the root of, where it says so.
    pub root_of: Option<&'static str>,
}

/// What a part of a disk holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content {
    /// ext2, ext3 or ext4.
    Ext4,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
    /// LUKS: encrypted.
    Luks,
    /// A physical volume of LVM.
    Lvm,
    /// Nothing that is known here.
    Unknown,
}

impl Content {
    /// Tells by the marks of a part's first bytes (at least 68 KiB of it).
    pub fn of(head: &[u8]) -> Self {
        let is = |at: usize, mark: &[u8]| head.get(at..at + mark.len()) == Some(mark);
        if is(0, b"LUKS\xba\xbe") {
            Self::Luks
        } else if is(0x438, &[0x53, 0xef]) {
            Self::Ext4
        } else if is(0, b"XFSB") {
            Self::Xfs
        } else if is(0x10040, b"_BHRfS_M") {
            Self::Btrfs
        } else if is(0x200, b"LABELONE") {
            Self::Lvm
        } else {
            Self::Unknown
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::Luks => "LUKS (encrypted)",
            Self::Lvm => "LVM",
            Self::Unknown => "unknown",
        }
    }
}

/// Bytes of a sector in partition tables of virtual disks.
const SECTOR: u64 = 512;
/// More partitions than any image has.
const MOST: u32 = 128;

/// Types of partitions that are the root of some processor, first three fields
/// in little-endian order as on disk (the Discoverable Partitions Specification).
const ROOTS: [([u8; 16], &str); 3] = [
    (
        *b"\xe3\xbc\x68\x4f\xcd\xe8\xb1\x4d\x96\xe7\xfb\xca\xf9\x84\xb7\x09",
        "x86_64",
    ),
    (
        *b"\x45\xb0\x21\xb9\xf0\x1d\xc3\x41\xaf\x44\x4c\x6f\x28\x0d\x3f\xae",
        "aarch64",
    ),
    (
        *b"\xac\x36\xe3\x77\xbc\xc0\xa4\x44\xb4\x2d\x5d\x5a\x9b\xf2\x37\x02",
        "riscv64",
    ),
];

/// Partitions in the first MiB's tables: GPT where there is one (UEFI 5.3), the
/// four primary ones of an MBR otherwise. Empty for a disk without a table.
pub fn partitions(head: &[u8]) -> Vec<Partition> {
    if head.get(512..520) == Some(b"EFI PART") {
        return gpt(head);
    }
    if head.get(510..512) != Some(&[0x55, 0xaa]) {
        return Vec::new();
    }
    (1..=4)
        .filter_map(|number| mbr_entry(head, number))
        .collect()
}

fn gpt(head: &[u8]) -> Vec<Partition> {
    let entries_at = word64(head, 512 + 72).unwrap_or(0).saturating_mul(SECTOR);
    let count = word32(head, 512 + 80).unwrap_or(0).min(MOST);
    let size = u64::from(word32(head, 512 + 84).unwrap_or(0));
    let mut found = Vec::new();
    for index in 0..count {
        let at = entries_at.saturating_add(u64::from(index) * size);
        let Ok(at) = usize::try_from(at) else { break };
        let Some(entry) = at.checked_add(56).and_then(|end| head.get(at..end)) else {
            break;
        };
        let kind: [u8; 16] = entry[..16].try_into().expect("sixteen bytes");
        if kind == [0; 16] {
            continue;
        }
        let first = word64(entry, 32).unwrap_or(0);
        let last = word64(entry, 40).unwrap_or(0);
        let root_of = ROOTS
            .iter()
            .find(|(root, _)| *root == kind)
            .map(|(_, name)| *name);
        found.push(Partition {
            number: index + 1,
            start: first.saturating_mul(SECTOR),
            len: last
                .saturating_sub(first)
                .saturating_add(1)
                .saturating_mul(SECTOR),
            root_of,
        });
    }
    found
}

fn mbr_entry(head: &[u8], number: u32) -> Option<Partition> {
    let at = 446 + 16 * (number as usize - 1);
    let entry = head.get(at..at + 16)?;
    let len = u64::from(word32(entry, 12)?) * SECTOR;
    // Type 0 is no partition, 5 and 15 hold others.
    if matches!(entry[4], 0 | 5 | 15) || len == 0 {
        return None;
    }
    Some(Partition {
        number,
        start: u64::from(word32(entry, 8)?) * SECTOR,
        len,
        root_of: None,
    })
}

fn word32(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_le_bytes(word))
}

fn word64(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_le_bytes(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_mbr_is_read() {
        let mut head = vec![0; 1 << 20];
        head[510..512].copy_from_slice(&[0x55, 0xaa]);
        head[446 + 16 + 4] = 0x83;
        head[446 + 16 + 8..446 + 16 + 12].copy_from_slice(&2048u32.to_le_bytes());
        head[446 + 16 + 12..446 + 16 + 16].copy_from_slice(&100u32.to_le_bytes());
        assert_eq!(
            partitions(&head),
            [Partition {
                number: 2,
                start: 1 << 20,
                len: 51200,
                root_of: None
            }]
        );
    }

    #[test]
    fn marks_are_told_apart() {
        let with = |at: usize, mark: &[u8]| {
            let mut head = vec![0; 68 << 10];
            head[at..at + mark.len()].copy_from_slice(mark);
            Content::of(&head)
        };
        assert_eq!(with(0x438, &[0x53, 0xef]), Content::Ext4);
        assert_eq!(with(0, b"LUKS\xba\xbe\0\x02"), Content::Luks);
        assert_eq!(with(0, b"XFSB"), Content::Xfs);
        assert_eq!(with(0x10040, b"_BHRfS_M"), Content::Btrfs);
        assert_eq!(with(0x200, b"LABELONE"), Content::Lvm);
        assert_eq!(Content::of(&[]), Content::Unknown);
    }

    proptest! {
        #[test]
        fn no_table_makes_it_panic(
            noise in proptest::collection::vec(any::<u8>(), 0..4096),
            mark in 0u8..3,
        ) {
            let mut head = noise;
            match mark {
                1 if head.len() >= 520 => head[512..520].copy_from_slice(b"EFI PART"),
                2 if head.len() >= 512 => head[510..512].copy_from_slice(&[0x55, 0xaa]),
                _ => {}
            }
            prop_assert!(partitions(&head).len() <= MOST as usize);
            Content::of(&head);
        }
    }
}
