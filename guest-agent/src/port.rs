//! Finding the virtio-serial port the host speaks through.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, FileType, Mode, OFlags};

/// Why there is no port.
#[derive(Debug, thiserror::Error)]
pub enum PortError {
    /// The kernel has no driver for it, or QEMU no device.
    #[error(
        "no virtio-serial port: {} is missing (the kernel needs CONFIG_VIRTIO_PCI and \
         CONFIG_VIRTIO_CONSOLE, or their modules in the image)", class.display()
    )]
    NoDriver {
        /// The folder that is missing.
        class: PathBuf,
    },
    /// Ports exist, ours does not.
    #[error("no virtio-serial port is named {name}; ports seen: {}", seen(.found))]
    NotFound {
        /// The name looked for.
        name: String,
        /// Names of the ports that exist.
        found: Vec<String>,
    },
    /// The port exists and cannot be opened.
    #[error("cannot open virtio-serial port {}", path.display())]
    Open {
        /// Its device node.
        path: PathBuf,
        /// Why.
        #[source]
        source: rustix::io::Errno,
    },
}

fn seen(found: &[String]) -> String {
    if found.is_empty() {
        "none".into()
    } else {
        found.join(", ")
    }
}

/// Device name (`vport1p1`) of the port called `name`, from the folder
/// `/sys/class/virtio-ports`.
///
/// # Errors
/// [`PortError::NoDriver`] and [`PortError::NotFound`].
pub fn find(class: &Path, name: &str) -> Result<String, PortError> {
    let entries = fs::read_dir(class).map_err(|_| PortError::NoDriver {
        class: class.to_path_buf(),
    })?;
    let mut found = Vec::new();
    for entry in entries.flatten() {
        // The name arrives by a control message after the device: a port
        // without one may still get it.
        let Ok(port) = fs::read_to_string(entry.path().join("name")) else {
            continue;
        };
        if port.trim_end() == name {
            return Ok(entry.file_name().to_string_lossy().into_owned());
        }
        found.push(port.trim_end().to_string());
    }
    found.sort();
    Err(PortError::NotFound {
        name: name.to_string(),
        found,
    })
}

/// Waits for the port and opens it non-blocking.
///
/// `complain` hears once, after `patience`, what is missing; the search goes on
/// until `limit`.
///
/// # Errors
/// What was missing when `limit` was over.
pub fn open(
    name: &str,
    patience: Duration,
    limit: Duration,
    complain: impl FnOnce(&PortError),
) -> Result<OwnedFd, PortError> {
    let begin = Instant::now();
    let mut complain = Some(complain);
    loop {
        let error = match find(Path::new("/sys/class/virtio-ports"), name).and_then(|d| device(&d))
        {
            Ok(port) => return Ok(port),
            Err(error) => error,
        };
        let waited = begin.elapsed();
        if waited >= patience
            && let Some(complain) = complain.take()
        {
            complain(&error);
        }
        if waited >= limit {
            return Err(error);
        }
        // Boots are timed to this port's first message, so look often at first.
        std::thread::sleep(Duration::from_millis(if waited < patience {
            2
        } else {
            100
        }));
    }
}

fn device(device: &str) -> Result<OwnedFd, PortError> {
    let path = Path::new("/dev").join(device);
    if !path.exists() {
        make_node(device, &path);
    }
    rustix::fs::open(
        &path,
        OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY,
        Mode::empty(),
    )
    .map_err(|source| PortError::Open { path, source })
}

/// Makes the device node where no devtmpfs did. The open that follows reports
/// what fails here.
fn make_node(device: &str, path: &Path) {
    let numbers = fs::read_to_string(
        Path::new("/sys/class/virtio-ports")
            .join(device)
            .join("dev"),
    );
    let Some((major, minor)) = numbers
        .as_deref()
        .ok()
        .and_then(|n| n.trim().split_once(':'))
    else {
        return;
    };
    if let (Ok(major), Ok(minor)) = (major.parse(), minor.parse()) {
        let _ = rustix::fs::mknodat(
            CWD,
            path,
            FileType::CharacterDevice,
            Mode::RUSR | Mode::WUSR,
            rustix::fs::makedev(major, minor),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_found_by_name_among_others() {
        let class = tempfile::tempdir().unwrap();
        let error = find(&class.path().join("gone"), "a").unwrap_err();
        assert!(
            error.to_string().contains("CONFIG_VIRTIO_CONSOLE"),
            "{error}"
        );

        for (device, name) in [("vport1p1", "org.qemu.guest_agent.0"), ("vport2p1", "mine")] {
            fs::create_dir(class.path().join(device)).unwrap();
            fs::write(class.path().join(device).join("name"), format!("{name}\n")).unwrap();
        }
        fs::create_dir(class.path().join("vport3p1")).unwrap();
        assert_eq!(find(class.path(), "mine").unwrap(), "vport2p1");
        let error = find(class.path(), "other").unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("ports seen: mine, org.qemu.guest_agent.0"),
            "{error}"
        );
    }
}
