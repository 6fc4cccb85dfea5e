//! An initramfs that leads to a root of its own: it loads the drivers the root needs,
//! mounts it, lays what is brought along into it, and lets its init take over.
//!
//! What a host's program needs comes along with it, but never over what the root has:
//! its own libraries stay.

use std::path::Path;

use super::{
    Archive, ImageError, ImageSpec, LoaderPaths, add_modules, guest_path, libraries, read,
};

/// Where the agent reads how to go (`guest-agent/src/door.rs` reads all four).
const DOOR: &str = "/topolab/door";
const FILES: &str = "/topolab/files";
const ADDITIONS: &str = "/topolab/additions";

/// Modules without which a stock kernel does not mount the disk of a guest or has no
/// network for SSH. A kernel that lacks one, or has it built in, does without.
pub const DISK_MODULES: [&str; 5] = [
    "crc32c_generic",
    "crc32c_cryptoapi",
    "ext4",
    "virtio_blk",
    "virtio_net",
];
/// The same for a root that is a folder of the host.
pub const SHARE_MODULES: [&str; 3] = ["9pnet_virtio", "9p", "overlay"];

/// Where an initramfs leads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Door {
    /// A block device, or a tag of 9p.
    pub source: String,
    /// File system; nothing: every one the kernel has is tried.
    pub fstype: Option<String>,
    /// Options of that file system.
    pub options: String,
    /// The root is only read, and a layer in memory takes what is written.
    pub layered: bool,
    /// The root's own PID 1; nothing: the agent stays.
    pub init: Option<String>,
}

impl Door {
    /// As the agent reads it.
    fn text(&self) -> String {
        let lines = [
            Some(format!("source {}\n", self.source)),
            self.fstype
                .as_ref()
                .map(|fstype| format!("type {fstype}\n")),
            (!self.options.is_empty()).then(|| format!("options {}\n", self.options)),
            self.layered.then(|| "layered\n".to_string()),
            self.init.as_ref().map(|init| format!("init {init}\n")),
        ];
        lines.into_iter().flatten().collect()
    }
}

/// Puts such an initramfs together. Reads host files, writes nothing.
///
/// # Errors
/// When something named is not there or two things want one path.
pub fn assemble(spec: &ImageSpec, door: &Door) -> Result<Archive, ImageError> {
    let agent_alone = ImageSpec {
        agent: spec.agent.clone(),
        ..ImageSpec::default()
    };
    let mut archive = super::assemble(&agent_alone)?;
    archive.file(DOOR, 0o644, door.text().into_bytes())?;
    let paths = LoaderPaths::read(Path::new("/"));
    let added = |path: &str| format!("{ADDITIONS}{path}");
    for program in &spec.programs {
        archive.file(&added(&guest_path(program)), 0o755, read(program)?)?;
        for (path, source) in libraries::closure(program, &paths)? {
            archive.file(&added(&path), 0o755, read(&source)?)?;
        }
    }
    for file in &spec.files {
        let path = format!("{FILES}{}", file.path);
        archive.file(&path, file.mode, read(&file.source)?)?;
    }
    if let Some(choice) = &spec.modules {
        add_modules(&mut archive, choice, "")?;
        add_modules(&mut archive, choice, ADDITIONS)?;
    }
    Ok(archive)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::ImageFile;

    #[test]
    fn what_is_brought_lies_beside_the_initramfs_own_files() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("script");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let spec = ImageSpec {
            agent: b"agent".to_vec(),
            programs: vec!["/bin/ls".into()],
            files: vec![ImageFile {
                source: script,
                path: "/root/script".into(),
                mode: 0o755,
            }],
            modules: None,
        };
        let door = Door {
            source: "/dev/vda".into(),
            fstype: Some("ext4".into()),
            init: Some("/sbin/init".into()),
            ..Door::default()
        };
        let archive = assemble(&spec, &door).unwrap();
        for path in [
            "/init",
            "/topolab/door",
            "/topolab/files/root/script",
            "/topolab/additions/bin/ls",
        ] {
            assert!(archive.contains(path), "{path}");
        }
        assert!(!archive.contains("/bin/ls"));
        let mut bytes = Vec::new();
        archive.write(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.contains("source /dev/vda\ntype ext4\ninit /sbin/init\n"));
        assert!(text.contains("topolab/additions/lib"), "libc is brought");
    }
}
