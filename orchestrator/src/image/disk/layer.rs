//! What is laid over a Debian tree to make it a guest: the agent and its unit,
//! the SSH server's keys, the network of QEMU's user mode, and what does not run.

use super::{ConsoleLogin, Debian, SshServer};
use crate::image::{Archive, ArchiveError};

/// Where the agent lies in a guest.
pub const AGENT: &str = "/usr/lib/topolab/agent";

/// The agent greets when systemd has finished starting, so that no workload is
/// measured in the noise of a boot, and `systemctl is-system-running` has an
/// answer. The shell is replaced by the agent once it does.
const AGENT_UNIT: &str = "\
[Unit]
Description=topolab agent

[Service]
ExecStart=/bin/sh -c 'systemctl is-system-running --wait >/dev/null 2>&1; exec /usr/lib/topolab/agent --service'
Environment=HOME=/root
Restart=on-failure
RestartSec=1
Delegate=yes
KillMode=mixed
TasksMax=infinity
LimitNOFILE=1048576
OOMScoreAdjust=-1000
";

/// Where the network's script lies in a guest.
const NETWORK: &str = "/usr/lib/topolab/network";

const NETWORK_UNIT: &str = "\
[Unit]
Description=Address of QEMU's user network
DefaultDependencies=no
Before=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/lib/topolab/network
";

/// Address and gateway of QEMU's user network (its `-netdev user` gives the
/// first guest 10.0.2.15 in 10.0.2.0/24). Set by hand: no DHCP client has to run. A
/// guest without a card has nothing to set.
const NETWORK_SCRIPT: &str = "\
#!/bin/sh
set -e
for card in /sys/class/net/e*; do
    [ -e \"$card\" ] || exit 0
    name=${card##*/}
    ip link set \"$name\" up
    ip address replace 10.0.2.15/24 dev \"$name\"
    ip route replace default via 10.0.2.2
    exit 0
done
";

const SSHD: &str = "\
HostKey /etc/ssh/topolab_host_key
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UseDNS no
";

/// Status lines on an emulated serial port cost more than the services they
/// are about; failures are still told.
const MANAGER: &str = "\
[Manager]
ShowStatus=error
DefaultTimeoutStopSec=10s
";

const JOURNAL: &str = "\
[Journal]
Storage=volatile
RateLimitBurst=0
";

const AUTOLOGIN: &str = "\
[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root --noclear %I $TERM
";

/// Keys of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Keys {
    /// Public key that may log in as root, as in `authorized_keys`.
    pub login: String,
    /// The server's own private key.
    pub host: Vec<u8>,
}

/// Puts the layer together.
///
/// `identity` is 32 hex digits: the guest's machine id, so that no boot of it
/// is a first boot.
///
/// # Errors
/// Never for a checked recipe: the paths are fixed and differ.
pub fn layer(
    debian: &Debian,
    agent: Vec<u8>,
    keys: Option<&Keys>,
    identity: &str,
) -> Result<Archive, ArchiveError> {
    let mut archive = Archive::new();
    let mut text = |path: &str, text: &str| archive.file(path, 0o644, text.into());
    text("/etc/hostname", "topolab\n")?;
    text("/etc/hosts", "127.0.0.1 localhost topolab\n::1 localhost\n")?;
    text("/etc/machine-id", &format!("{identity}\n"))?;
    text("/etc/fstab", "# The kernel mounts the root file system.\n")?;
    text("/etc/systemd/system.conf.d/topolab.conf", MANAGER)?;
    text("/etc/systemd/journald.conf.d/topolab.conf", JOURNAL)?;
    text("/etc/systemd/system/topolab-agent.service", AGENT_UNIT)?;
    archive.file(AGENT, 0o755, agent)?;
    enable(&mut archive, "topolab-agent.service")?;
    if debian.ssh == SshServer::Keyed
        && let Some(keys) = keys
    {
        let unit = "/etc/systemd/system/topolab-network.service";
        archive.file(unit, 0o644, NETWORK_UNIT.into())?;
        archive.file(NETWORK, 0o755, NETWORK_SCRIPT.into())?;
        enable(&mut archive, "topolab-network.service")?;
        archive.file("/etc/ssh/sshd_config.d/topolab.conf", 0o644, SSHD.into())?;
        archive.file("/etc/ssh/topolab_host_key", 0o600, keys.host.clone())?;
        let login = format!("{}\n", keys.login.trim_end());
        archive.file("/root/.ssh/authorized_keys", 0o600, login.into_bytes())?;
    }
    match debian.console {
        ConsoleLogin::Root => {
            let path = "/etc/systemd/system/serial-getty@ttyS0.service.d/topolab.conf";
            archive.file(path, 0o644, AUTOLOGIN.into())?;
        }
        // systemd-getty-generator starts one for every console= on the command line.
        ConsoleLogin::Off => mask(&mut archive, "serial-getty@ttyS0.service")?,
    }
    for unit in &debian.mask {
        mask(&mut archive, unit)?;
    }
    Ok(archive)
}

fn enable(archive: &mut Archive, unit: &str) -> Result<(), ArchiveError> {
    let wants = "/etc/systemd/system/multi-user.target.wants";
    archive.link(&format!("{wants}/{unit}"), &format!("../{unit}"))
}

fn mask(archive: &mut Archive, unit: &str) -> Result<(), ArchiveError> {
    archive.link(&format!("/etc/systemd/system/{unit}"), "/dev/null")
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use super::*;
    use crate::{
        document::Document,
        image::disk::{Base, Recipe},
    };

    fn debian(rest: &str) -> Debian {
        let text = format!("name: d\ndebian: {{suite: bookworm{rest}}}\n");
        let document = Document::from_text("d.yaml", &text).unwrap();
        match Recipe::check(&document, Path::new("")).unwrap().base {
            Base::Debian(debian) => debian,
            other => panic!("{other:?}"),
        }
    }

    fn unpacked(debian: &Debian) -> tempfile::TempDir {
        let keys = Keys {
            login: "ssh-ed25519 AAAA topolab".into(),
            host: b"private".to_vec(),
        };
        let archive = layer(debian, b"agent".to_vec(), Some(&keys), &"0".repeat(32)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        archive.unpack(folder.path()).unwrap();
        folder
    }

    #[test]
    fn keys_are_private_and_no_password_is_taken() {
        let root = unpacked(&debian(""));
        let mode = |path: &str| {
            let meta = fs::metadata(root.path().join(path)).unwrap();
            meta.permissions().mode() & 0o777
        };
        assert_eq!(mode("etc/ssh/topolab_host_key"), 0o600);
        assert_eq!(mode("root/.ssh/authorized_keys"), 0o600);
        assert_eq!(mode("usr/lib/topolab/agent"), 0o755);
        let sshd = fs::read_to_string(root.path().join("etc/ssh/sshd_config.d/topolab.conf"));
        assert!(sshd.unwrap().contains("PasswordAuthentication no\n"));
    }

    #[test]
    fn masked_units_point_to_nothing_and_the_console_is_shut() {
        let root = unpacked(&debian(", mask: [apt-daily.timer]"));
        for unit in ["apt-daily.timer", "serial-getty@ttyS0.service"] {
            let target = fs::read_link(root.path().join("etc/systemd/system").join(unit));
            assert_eq!(target.unwrap(), Path::new("/dev/null"));
        }
        let open = unpacked(&debian(", console_login: true"));
        let units = open.path().join("etc/systemd/system");
        assert!(!units.join("serial-getty@ttyS0.service").exists());
        assert!(
            units
                .join("serial-getty@ttyS0.service.d/topolab.conf")
                .exists()
        );
    }

    #[test]
    fn without_ssh_there_is_no_key_and_no_network() {
        let root = unpacked(&debian(", ssh: false"));
        assert!(!root.path().join("etc/ssh").exists());
        assert!(!root.path().join("root").exists());
        let wants = root
            .path()
            .join("etc/systemd/system/multi-user.target.wants");
        let units: Vec<_> = fs::read_dir(wants)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        assert_eq!(units, ["topolab-agent.service"]);
    }

    #[test]
    fn no_unit_has_words_that_systemd_would_fill_in() {
        // systemd.service(5): `$` in a command line is systemd's own, not the shell's.
        for unit in [AGENT_UNIT, NETWORK_UNIT] {
            assert!(!unit.contains('$'), "{unit}");
        }
    }

    #[test]
    fn a_unit_masked_twice_is_masked() {
        unpacked(&debian(", mask: [serial-getty@ttyS0.service]"));
    }
}
