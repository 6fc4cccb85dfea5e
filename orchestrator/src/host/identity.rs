//! What two runs must agree on about their host before they may be compared.

use std::{fs, path::Path};

/// Name and parts of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its name.
    pub host: String,
    /// `uname -r`.
    pub kernel: String,
    /// `model name` of the first CPU.
    pub cpu: String,
    /// Microcode revision; empty where the kernel does not show one.
    pub microcode: String,
    /// All of it and the host's boot in one text: what is remembered about this
    /// host holds as long as the key is the same.
    pub key: String,
}

impl Identity {
    /// Reads `proc/sys/kernel` and `proc/cpuinfo` below `root`. What cannot be
    /// read stays empty.
    pub fn read(root: &Path) -> Self {
        let word = |path: &str| {
            let text = fs::read_to_string(root.join(path)).unwrap_or_default();
            text.trim().to_string()
        };
        let info = fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
        let field = |name: &str| {
            let mut lines = info.lines().filter_map(|line| line.split_once(':'));
            let found = lines.find(|(key, _)| key.trim() == name);
            found.map_or_else(String::new, |(_, value)| value.trim().into())
        };
        let [host, kernel] =
            ["hostname", "osrelease"].map(|n| word(&format!("proc/sys/kernel/{n}")));
        let [cpu, microcode] = ["model name", "microcode"].map(field);
        let boot = word("proc/sys/kernel/random/boot_id");
        Self {
            key: [&host, &kernel, &cpu, &microcode, &boot]
                .map(String::as_str)
                .join("\n"),
            host,
            kernel,
            cpu,
            microcode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_read_from_its_files() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc/sys/kernel")).unwrap();
        fs::write(root.path().join("proc/sys/kernel/osrelease"), "6.1.0-x\n").unwrap();
        let info =
            "processor\t: 0\nmodel name\t: Big CPU: fast\nmicrocode\t: 0xa1\n\nprocessor\t: 1\n";
        fs::write(root.path().join("proc/cpuinfo"), info).unwrap();
        let read = Identity::read(root.path());
        assert_eq!(
            read,
            Identity {
                host: String::new(),
                kernel: "6.1.0-x".into(),
                cpu: "Big CPU: fast".into(),
                microcode: "0xa1".into(),
                key: "\n6.1.0-x\nBig CPU: fast\n0xa1\n".into(),
            }
        );
    }
}
