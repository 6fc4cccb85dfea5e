//! Disks made by mke2fs and by hand, looked into through both formats.

use std::{fs, process::Command};

use super::*;

const QEMU: &str = "/usr/bin/qemu-system-x86_64";

/// The head of an ELF file for a processor, with its machine number.
fn elf(machine: u16) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[18..20].copy_from_slice(&machine.to_le_bytes());
    bytes
}

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{program}: {output:?}");
}

struct Bench(tempfile::TempDir);

impl Bench {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// An ext4 of 16 MiB with a root in it.
    fn ext4(&self, machine: u16, server: bool) -> Vec<u8> {
        let tree = self.path("tree");
        let _ = fs::remove_dir_all(&tree);
        for folder in ["usr/bin", "usr/sbin", "etc/ssh"] {
            fs::create_dir_all(tree.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink("usr/bin", tree.join("bin")).unwrap();
        fs::write(tree.join("usr/bin/dash"), elf(machine)).unwrap();
        std::os::unix::fs::symlink("dash", tree.join("usr/bin/sh")).unwrap();
        if server {
            fs::write(tree.join("usr/sbin/sshd"), "server").unwrap();
            let key = "ssh-ed25519 AAAAkey root@somewhere\n";
            fs::write(tree.join("etc/ssh/ssh_host_ed25519_key.pub"), key).unwrap();
        }
        self.pack()
    }

    /// An ext4 with what stands in the tree now.
    fn pack(&self) -> Vec<u8> {
        let (tree, file) = (self.path("tree"), self.path("fs"));
        let _ = fs::remove_file(&file);
        let (tree, name) = (tree.display().to_string(), file.display().to_string());
        run(
            "/usr/sbin/mke2fs",
            &["-q", "-F", "-t", "ext4", "-d", &tree, &name, "16M"],
        );
        fs::read(file).unwrap()
    }

    fn disk(&self, bytes: &[u8]) -> PathBuf {
        let path = self.path("disk.raw");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn find(&self, bytes: &[u8]) -> Result<Root, ExistingError> {
        find_root(&self.disk(bytes), DiskFormat::Raw, Path::new(QEMU))
    }
}

/// A disk with a GPT; each part has a type and content and begins at a MiB.
fn gpt(parts: &[([u8; 16], &[u8])]) -> Vec<u8> {
    let mut disk = vec![0; 1 << 20];
    disk[510..512].copy_from_slice(&[0x55, 0xaa]);
    disk[446 + 4] = 0xee;
    disk[446 + 12..446 + 16].copy_from_slice(&u32::MAX.to_le_bytes());
    disk[512..520].copy_from_slice(b"EFI PART");
    disk[512 + 72..512 + 80].copy_from_slice(&2u64.to_le_bytes());
    disk[512 + 80..512 + 84].copy_from_slice(&128u32.to_le_bytes());
    disk[512 + 84..512 + 88].copy_from_slice(&128u32.to_le_bytes());
    for (index, (kind, content)) in parts.iter().enumerate() {
        let at = 1024 + 128 * index;
        let first = disk.len() as u64 / 512;
        let last = first + content.len() as u64 / 512 - 1;
        disk[at..at + 16].copy_from_slice(kind);
        disk[at + 32..at + 40].copy_from_slice(&first.to_le_bytes());
        disk[at + 40..at + 48].copy_from_slice(&last.to_le_bytes());
        disk.extend_from_slice(content);
        disk.resize(disk.len().next_multiple_of(1 << 20), 0);
    }
    disk
}

const LINUX: [u8; 16] = *b"\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4";
const ARM_ROOT: [u8; 16] = *b"\x45\xb0\x21\xb9\xf0\x1d\xc3\x41\xaf\x44\x4c\x6f\x28\x0d\x3f\xae";

#[test]
fn a_file_system_without_a_table_and_one_behind_a_boot_partition() {
    let bench = Bench::new();
    let root = bench.ext4(object::elf::EM_X86_64, true);
    let found = bench.find(&root).unwrap();
    assert_eq!(found.device, "/dev/vda");
    assert_eq!(found.host_key.as_deref(), Some("ssh-ed25519 AAAAkey"));
    let boot = vec![0; 2 << 20];
    let found = bench.find(&gpt(&[(LINUX, &boot), (LINUX, &root)])).unwrap();
    assert_eq!(found.device, "/dev/vda2");
}

#[test]
fn a_compressed_qcow2_is_looked_into_as_well() {
    let bench = Bench::new();
    let raw = bench.disk(&gpt(&[(LINUX, &bench.ext4(object::elf::EM_X86_64, true))]));
    let qcow2 = bench.path("disk.qcow2");
    let (from, to) = (raw.display().to_string(), qcow2.display().to_string());
    run(
        "qemu-img",
        &["convert", "-c", "-f", "raw", "-O", "qcow2", &from, &to],
    );
    let existing = Existing {
        path: qcow2,
        format: None,
        root: None,
        user: "debian".into(),
        key: Some("/k".into()),
        host_key: None,
    };
    let space = user_space(&existing, Path::new(QEMU), &Logins::default()).unwrap();
    assert!(
        space.words.starts_with("root=/dev/vda1 rw ip="),
        "{}",
        space.words
    );
    assert_eq!(space.disk.unwrap().format, DiskFormat::Qcow2);
    let Reach::Ssh(login) = space.reach else {
        panic!("over SSH");
    };
    assert_eq!(login.host_key.as_deref(), Some("ssh-ed25519 AAAAkey"));
}

#[test]
fn other_processors_are_told() {
    let bench = Bench::new();
    let arm = bench.ext4(object::elf::EM_AARCH64, true);
    let text = bench.find(&arm).unwrap_err().to_string();
    assert!(
        text.ends_with("is made for aarch64, guests here are x86_64"),
        "{text}"
    );
    let text = bench
        .find(&gpt(&[(ARM_ROOT, &arm)]))
        .unwrap_err()
        .to_string();
    assert!(
        text.ends_with("is made for aarch64, guests here are x86_64"),
        "{text}"
    );
}

#[test]
fn an_encrypted_root_is_told_although_a_boot_partition_can_be_read() {
    let bench = Bench::new();
    let boot = bench.ext4(object::elf::EM_X86_64, false);
    let mut secret = vec![0; 20 << 20];
    secret[..6].copy_from_slice(b"LUKS\xba\xbe");
    let text = bench
        .find(&gpt(&[(LINUX, &boot), (LINUX, &secret)]))
        .unwrap_err()
        .to_string();
    assert!(
        text.ends_with("is encrypted (LUKS on partition 2)"),
        "{text}"
    );
}

#[test]
fn missing_roots_servers_and_keys_are_told() {
    let bench = Bench::new();
    let text = bench.find(&vec![0; 2 << 20]).unwrap_err().to_string();
    assert!(
        text.contains("no partition table and no file system"),
        "{text}"
    );
    let text = bench.find(b"").unwrap_err().to_string();
    assert!(text.contains("no root file system on"), "{text}");
    let text = bench
        .find(&gpt(&[(LINUX, &[0; 1 << 20])]))
        .unwrap_err()
        .to_string();
    assert!(text.ends_with("partition 1 is unknown"), "{text}");
    let text = bench.find(&bench.ext4(62, false)).unwrap_err().to_string();
    assert!(text.contains("has no SSH server"), "{text}");
    let mut xfs = vec![0; 1 << 20];
    xfs[..4].copy_from_slice(b"XFSB");
    let text = bench.find(&gpt(&[(LINUX, &xfs)])).unwrap_err().to_string();
    assert!(text.contains("is on xfs; only ext4"), "{text}");
    let mut existing = Existing {
        path: bench.disk(&bench.ext4(62, true)),
        format: None,
        root: None,
        user: "root".into(),
        key: None,
        host_key: None,
    };
    let error = user_space(&existing, Path::new(QEMU), &Logins::default()).unwrap_err();
    assert!(matches!(error, ExistingError::NoKey { .. }), "{error}");

    // A key of ours comes in where systemd takes it, and nobody has put another.
    let own = bench.path("own");
    fs::write(bench.path("own.pub"), "ssh-ed25519 AAAAown topolab\n").unwrap();
    let logins = Logins {
        own: Some(own.clone()),
        ..Logins::default()
    };
    let error = user_space(&existing, Path::new(QEMU), &logins).unwrap_err();
    assert!(matches!(error, ExistingError::NoKey { .. }), "{error}");
    let place = bench.path("tree/usr/lib/tmpfiles.d");
    let with_provision = |bench: &Bench, keys: bool| {
        bench.ext4(62, true);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("provision.conf"), "").unwrap();
        if keys {
            fs::create_dir_all(bench.path("tree/root/.ssh")).unwrap();
            fs::write(bench.path("tree/root/.ssh/authorized_keys"), "").unwrap();
        }
        let bytes = bench.pack();
        bench.disk(&bytes)
    };
    existing.path = with_provision(&bench, true);
    assert!(user_space(&existing, Path::new(QEMU), &logins).is_err());
    existing.path = with_provision(&bench, false);
    let space = user_space(&existing, Path::new(QEMU), &logins).unwrap();
    assert_eq!(space.ssh().unwrap().key, LoginKey::File(own));
    let words = crate::topology::cmdline::words(&space.words);
    assert_eq!(
        words.last(),
        Some(&"\"systemd.set_credential=ssh.authorized_keys.root:ssh-ed25519 AAAAown topolab\"")
    );
}

#[test]
fn a_damaged_file_system_is_told() {
    let bench = Bench::new();
    let mut root = bench.ext4(62, true);
    // The superblock's block size.
    root[1024 + 24] = 200;
    let text = bench.find(&root).unwrap_err().to_string();
    assert!(text.contains("the ext4 on /dev/vda is damaged"), "{text}");
}
