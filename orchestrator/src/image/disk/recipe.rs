//! How a guest's user space is made, checked.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::spec::{DebianSpec, ExistingSpec, FormatSpec, InitramfsSpec, Spec};
use crate::{
    document::{At, Document, Problems},
    topology::size,
};

/// A named user space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Its name.
    pub name: String,
    /// How it is made.
    pub base: Base,
}

/// The ways to make a user space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Base {
    /// The agent as PID 1 in memory.
    Initramfs(Initramfs),
    /// Debian with systemd on a disk.
    Debian(Debian),
    /// The running host's root.
    Host,
    /// A disk made by somebody else.
    Existing(Existing),
}

impl Base {
    /// The key that names this way in a file.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Initramfs(_) => "initramfs",
            Self::Debian(_) => "debian",
            Self::Host => "host",
            Self::Existing(_) => "existing",
        }
    }
}

/// What an initramfs holds beside the agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Initramfs {
    /// Host programs, absolute.
    pub programs: Vec<PathBuf>,
    /// Path in the guest to file of the host.
    pub files: BTreeMap<String, PathBuf>,
}

/// A Debian disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Debian {
    /// Release.
    pub suite: String,
    /// Where packages come from.
    pub mirror: Mirror,
    /// The recorded package list that the build must give.
    pub recorded: Option<PathBuf>,
    /// Every package asked for, sorted, each once.
    pub packages: Vec<String>,
    /// Bytes of the disk, whole MiB.
    pub size: u64,
    /// Whether an SSH server runs.
    pub ssh: SshServer,
    /// Who is logged in on the serial console.
    pub console: ConsoleLogin,
    /// Units that must not run, sorted, each once.
    pub mask: Vec<String>,
}

/// Where packages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mirror {
    /// A mirror, whatever it holds today.
    Live(String),
    /// A moment of snapshot.debian.org.
    Snapshot(String),
}

/// Whether an image runs an SSH server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SshServer {
    /// It does, with a key made for the image and no password.
    Keyed,
    /// It does not.
    Absent,
}

/// Who is logged in on the serial console.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConsoleLogin {
    /// Nobody, and nobody can.
    Off,
    /// root.
    Root,
}

/// A disk made by somebody else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// The disk.
    pub path: PathBuf,
    /// Its format, when the file names one.
    pub format: Option<DiskFormat>,
    /// Its root as the guest's kernel names it, when the file names it.
    pub root: Option<String>,
    /// Who logs in.
    pub user: String,
    /// Private key; `None`: those of the SSH agent.
    pub key: Option<PathBuf>,
    /// The server's public key, `TYPE BASE64`.
    pub host_key: Option<String>,
}

/// Formats of disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFormat {
    /// Sectors one after the other.
    Raw,
    /// QEMU's copy-on-write format.
    Qcow2,
}

impl DiskFormat {
    /// QEMU's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Where packages come from when the file does not say.
pub const DEBIAN_MIRROR: &str = "http://deb.debian.org/debian";
/// What every Debian image has: systemd as PID 1 and the bus `systemctl` and
/// `systemd-run` speak over.
pub const DEBIAN_PACKAGES: [&str; 2] = ["systemd-sysv", "dbus"];
/// What an SSH server and its network need.
pub const SSH_PACKAGES: [&str; 2] = ["openssh-server", "iproute2"];
/// A smaller disk does not hold the packages above.
pub const SMALLEST_DISK: u64 = 512 << 20;
/// Size of a disk when the file does not say.
pub const DEFAULT_DISK: u64 = 2 << 30;

/// Suffixes of systemd's units (systemd.unit(5)).
const UNIT_KINDS: [&str; 11] = [
    "service",
    "socket",
    "device",
    "mount",
    "automount",
    "swap",
    "target",
    "path",
    "timer",
    "slice",
    "scope",
];

impl Recipe {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        let folder = path.parent().unwrap_or(Path::new(""));
        Self::check(&Document::read(path)?, folder)
    }

    /// Checks a document; relative paths in it begin at `folder`.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn check(document: &Document, folder: &Path) -> Result<Self, Problems> {
        let parsed = document.parse::<Spec>()?;
        let mut checker = Checker {
            folder,
            problems: parsed.problems,
        };
        let base = checker.base(&parsed.value);
        let name = parsed.value.name.value;
        let mut problems = checker.problems;
        problems.sort();
        match base {
            Some(base) => problems.into_result(Self { name, base }),
            None => Err(problems
                .into_result(())
                .expect_err("a recipe that was not made has a problem")),
        }
    }
}

struct Checker<'a> {
    folder: &'a Path,
    problems: Problems,
}

impl Checker<'_> {
    /// `None` only after a problem was told.
    fn base(&mut self, spec: &Spec) -> Option<Base> {
        self.word(&spec.name, "an image's name", |c| {
            c.is_ascii_alphanumeric() || "-_.".contains(c)
        });
        let mut bases = Vec::new();
        if let Some(written) = &spec.initramfs {
            bases.push(Base::Initramfs(self.initramfs(written)));
        }
        if let Some(written) = &spec.debian {
            bases.push(Base::Debian(self.debian(written)));
        }
        if spec.host.is_some() {
            bases.push(Base::Host);
        }
        if let Some(written) = &spec.existing {
            bases.push(Base::Existing(self.existing(written)));
        }
        if bases.len() > 1 {
            let kinds: Vec<&str> = bases.iter().map(Base::kind).collect();
            let message = format!("one image cannot be both {}", kinds.join(" and "));
            let help = "keep one of these keys, and put the other into a file of its own";
            self.problems.at(&spec.name, message, help.to_string());
        }
        let first = bases.into_iter().next();
        if first.is_none() {
            let message = "the file does not say how this image is made";
            let help = "add one of the keys `debian`, `existing`, `host`, `initramfs`";
            self.problems.at(&spec.name, message, help.to_string());
        }
        first
    }

    fn initramfs(&mut self, written: &InitramfsSpec) -> Initramfs {
        for program in &written.programs {
            if !program.starts_with('/') {
                let message = format!("program `{}` is no absolute path", program.value);
                self.problems.at(program, message, None);
            }
        }
        for (path, source) in &written.files {
            if !path.starts_with('/') {
                let message = format!("`{path}` is no absolute path in the guest");
                self.problems.at(source, message, None);
            }
        }
        Initramfs {
            programs: written
                .programs
                .iter()
                .map(|p| PathBuf::from(&p.value))
                .collect(),
            files: written
                .files
                .iter()
                .map(|(path, source)| (path.clone(), self.folder.join(&source.value)))
                .collect(),
        }
    }

    fn debian(&mut self, written: &DebianSpec) -> Debian {
        self.word(&written.suite, "a suite", |c| {
            c.is_ascii_alphanumeric() || "-.".contains(c)
        });
        for package in &written.packages {
            // Debian Policy 5.6.1, and `=VERSION` as apt reads it (5.6.12).
            self.word(package, "a package", |c| {
                c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.=:~".contains(c)
            });
        }
        for unit in &written.mask {
            self.unit(unit);
        }
        let mut ssh = SshServer::Keyed;
        let mut packages: Vec<String> = DEBIAN_PACKAGES.iter().map(|p| (*p).to_string()).collect();
        if written.ssh == Some(false) {
            ssh = SshServer::Absent;
        } else {
            packages.extend(SSH_PACKAGES.iter().map(|p| (*p).to_string()));
        }
        packages.extend(written.packages.iter().map(|p| p.value.clone()));
        Debian {
            suite: written.suite.value.clone(),
            mirror: self.mirror(written),
            recorded: written
                .recorded
                .as_ref()
                .map(|path| self.folder.join(&path.value)),
            packages: sorted(packages),
            size: self.size(written.size.as_ref()),
            ssh,
            console: if written.console_login {
                ConsoleLogin::Root
            } else {
                ConsoleLogin::Off
            },
            mask: sorted(written.mask.iter().map(|u| u.value.clone()).collect()),
        }
    }

    fn mirror(&mut self, written: &DebianSpec) -> Mirror {
        if let (Some(mirror), Some(snapshot)) = (&written.mirror, &written.snapshot) {
            let message = format!(
                "packages cannot come from both the mirror `{}` and the snapshot `{}`",
                mirror.value, snapshot.value
            );
            self.problems
                .at(snapshot, message, "keep one of the two".to_string());
        }
        if let Some(snapshot) = &written.snapshot {
            if !is_moment(snapshot) {
                let message = format!("`{}` is no moment of snapshot.debian.org", snapshot.value);
                let help = "such as `20250520T000000Z`".to_string();
                self.problems.at(snapshot, message, help);
            }
            return Mirror::Snapshot(snapshot.value.clone());
        }
        let Some(mirror) = &written.mirror else {
            return Mirror::Live(DEBIAN_MIRROR.into());
        };
        let known = ["http://", "https://", "file://", "copy://"];
        let plain = !mirror.contains(|c: char| c.is_whitespace() || c.is_control());
        if !plain || !known.iter().any(|start| mirror.starts_with(start)) {
            let message = format!("`{}` is no address of a mirror", mirror.value);
            let help = format!("such as `{DEBIAN_MIRROR}`; http, https, file and copy are known");
            self.problems.at(mirror, message, help);
        }
        Mirror::Live(mirror.value.clone())
    }

    fn size(&mut self, written: Option<&At<String>>) -> u64 {
        let Some(written) = written else {
            return DEFAULT_DISK;
        };
        match size::parse(written) {
            Ok(bytes) if bytes < SMALLEST_DISK || bytes % (1 << 20) != 0 => {
                let message = format!(
                    "a disk of {} is {}",
                    written.value,
                    if bytes < SMALLEST_DISK {
                        "too small"
                    } else {
                        "no whole number of MiB"
                    }
                );
                let help = format!("at least {}", size::Size(SMALLEST_DISK));
                self.problems.at(written, message, help);
                bytes
            }
            Ok(bytes) => bytes,
            Err(error) => {
                self.problems.at(written, error.to_string(), None);
                DEFAULT_DISK
            }
        }
    }

    fn existing(&mut self, written: &ExistingSpec) -> Existing {
        if let Some(root) = &written.root
            && !root.starts_with("/dev/")
            && !["UUID=", "PARTUUID=", "LABEL="]
                .iter()
                .any(|p| root.starts_with(p))
        {
            let message = format!("`{}` names no root file system", root.value);
            self.problems
                .at(root, message, "such as `/dev/vda1`".to_string());
        }
        if let Some(user) = &written.user {
            self.word(user, "a user", |c| {
                c.is_ascii_alphanumeric() || "-_.".contains(c)
            });
        }
        if let Some(key) = &written.host_key
            && key.split_whitespace().count() != 2
        {
            let message = "a host key has a type and a text in base64";
            let help = "such as `ssh-ed25519 AAAA…`, printed by `ssh-keyscan HOST`";
            self.problems.at(key, message, help.to_string());
        }
        Existing {
            path: self.folder.join(&written.path.value),
            format: written.format.map(|format| match format {
                FormatSpec::Raw => DiskFormat::Raw,
                FormatSpec::Qcow2 => DiskFormat::Qcow2,
            }),
            root: written.root.as_ref().map(|root| root.value.clone()),
            user: written
                .user
                .as_ref()
                .map_or("root", |user| &user.value)
                .to_string(),
            key: written.key.as_ref().map(|key| self.folder.join(&key.value)),
            host_key: written.host_key.as_ref().map(|key| key.value.clone()),
        }
    }

    /// These words become arguments of programs: none may look like an option.
    fn word(&mut self, written: &At<String>, what: &str, allowed: fn(char) -> bool) {
        let sound = written.starts_with(|c: char| c.is_ascii_alphanumeric())
            && written.chars().all(allowed);
        if !sound {
            let message = format!("`{}` cannot be {what}", written.value);
            self.problems.at(written, message, None);
        }
    }

    fn unit(&mut self, written: &At<String>) {
        let (name, kind) = written.rsplit_once('.').unwrap_or((written, ""));
        let plain = name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || ":_.\\@-".contains(c));
        if name.is_empty() || !plain || !UNIT_KINDS.contains(&kind) {
            let message = format!("`{}` is no systemd unit", written.value);
            let help = "such as `apt-daily.timer`".to_string();
            self.problems.at(written, message, help);
        }
    }
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort();
    words.dedup();
    words
}

/// `YYYYMMDDTHHMMSSZ`, as snapshot.debian.org names its moments.
fn is_moment(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == 16
        && bytes[8] == b'T'
        && bytes[15] == b'Z'
        && bytes[..8]
            .iter()
            .chain(&bytes[9..15])
            .all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<Recipe, Problems> {
        Recipe::check(&Document::from_text("i.yaml", text)?, Path::new("/images"))
    }

    #[test]
    fn a_debian_image_has_what_systemd_and_ssh_need() {
        let recipe =
            check("name: d\ndebian: {suite: bookworm, packages: [procps], mask: [a.timer]}\n");
        let Base::Debian(debian) = recipe.unwrap().base else {
            panic!("a Debian image");
        };
        let packages = [
            "dbus",
            "iproute2",
            "openssh-server",
            "procps",
            "systemd-sysv",
        ];
        assert_eq!(debian.packages, packages);
        assert_eq!(debian.mirror, Mirror::Live(DEBIAN_MIRROR.into()));
        assert_eq!(debian.size, 2 << 30);
        assert_eq!(debian.console, ConsoleLogin::Off);
    }

    #[test]
    fn the_other_kinds() {
        let base = |text: &str| check(text).unwrap().base;
        assert_eq!(base("name: i\ninitramfs: {}\n").kind(), "initramfs");
        assert_eq!(base("name: h\nhost: {}\n"), Base::Host);
        let Base::Existing(cloud) =
            base("name: c\nexisting: {path: c.qcow2, user: debian, key: k}\n")
        else {
            panic!("an existing image");
        };
        assert_eq!(cloud.path, Path::new("/images/c.qcow2"));
        assert_eq!(cloud.key.as_deref(), Some(Path::new("/images/k")));
        assert_eq!(cloud.user, "debian");
    }

    #[test]
    fn every_problem_is_told_at_once() {
        let text = "name: my image\n\
                    debian:\n\
                    \x20 suite: --help\n\
                    \x20 mirror: ftp://x\n\
                    \x20 snapshot: yesterday\n\
                    \x20 packages: [Foo, ok]\n\
                    \x20 size: 10M\n\
                    \x20 mask: [apt-daily, b.timer]\n\
                    \x20 sshd: false\n";
        insta::assert_snapshot!(check(text).unwrap_err(), @"
        error: `my image` cannot be an image's name
         --> i.yaml:1:7
          |
        1 | name: my image
          |       ^^
        error: `--help` cannot be a suite
         --> i.yaml:3:10
          |
        3 |   suite: --help
          |          ^^^^^^
        error: packages cannot come from both the mirror `ftp://x` and the snapshot `yesterday`
         --> i.yaml:5:13
          |
        5 |   snapshot: yesterday
          |             ^^^^^^^^^
          |
          = help: keep one of the two
        error: `yesterday` is no moment of snapshot.debian.org
         --> i.yaml:5:13
          |
        5 |   snapshot: yesterday
          |             ^^^^^^^^^
          |
          = help: such as `20250520T000000Z`
        error: `Foo` cannot be a package
         --> i.yaml:6:14
          |
        6 |   packages: [Foo, ok]
          |              ^^^
        error: a disk of 10M is too small
         --> i.yaml:7:9
          |
        7 |   size: 10M
          |         ^^^
          |
          = help: at least 512M
        error: `apt-daily` is no systemd unit
         --> i.yaml:8:10
          |
        8 |   mask: [apt-daily, b.timer]
          |          ^^^^^^^^^
          |
          = help: such as `apt-daily.timer`
        error: unknown key `sshd`
         --> i.yaml:9:3
          |
        9 |   sshd: false
          |   ^^^^^
          |
          = help: did you mean `ssh`?
        ");
    }

    #[test]
    fn none_and_two_ways_to_make_an_image() {
        insta::assert_snapshot!(check("name: n\n").unwrap_err(), @"
        error: the file does not say how this image is made
         --> i.yaml:1:7
          |
        1 | name: n
          |       ^
          |
          = help: add one of the keys `debian`, `existing`, `host`, `initramfs`
        ");
        insta::assert_snapshot!(check("name: n\nhost: {}\ninitramfs: {}\n").unwrap_err(), @"
        error: one image cannot be both initramfs and host
         --> i.yaml:1:7
          |
        1 | name: n
          |       ^
          |
          = help: keep one of these keys, and put the other into a file of its own
        ");
    }

    #[test]
    fn an_existing_image_needs_sound_names() {
        let text = "name: n\nexisting: {path: a.raw, root: vda1, user: -x, host_key: AAAA}\n";
        insta::assert_snapshot!(check(text).unwrap_err(), @"
        error: `vda1` names no root file system
         --> i.yaml:2:31
          |
        2 | existing: {path: a.raw, root: vda1, user: -x, host_key: AAAA}
          |                               ^^^^
          |
          = help: such as `/dev/vda1`
        error: `-x` cannot be a user
         --> i.yaml:2:43
          |
        2 | existing: {path: a.raw, root: vda1, user: -x, host_key: AAAA}
          |                                           ^^
        error: a host key has a type and a text in base64
         --> i.yaml:2:57
          |
        2 | existing: {path: a.raw, root: vda1, user: -x, host_key: AAAA}
          |                                                         ^^^^
          |
          = help: such as `ssh-ed25519 AAAA…`, printed by `ssh-keyscan HOST`
        ");
    }
}
