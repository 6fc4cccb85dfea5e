//! What a run brings: kernel, image, console, QMP and the agent's port.

use super::{Args, Value};

/// The host's side of a character device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Chardev {
    /// Nobody listens.
    #[default]
    Null,
    /// A connected socket that QEMU inherits under this number.
    Inherited(i32),
    /// A Unix socket QEMU listens on, without waiting for anyone.
    Socket(String),
    /// QEMU's own terminal.
    Terminal,
}

impl Chardev {
    fn argument(&self, id: &str) -> Value {
        match self {
            Self::Null => Value::new("null").set("id", id),
            Self::Inherited(number) => Value::new("socket").set("id", id).set("fd", number),
            Self::Socket(path) => Value::new("socket")
                .set("id", id)
                .set("path", path)
                .set("server", "on")
                .set("wait", "off"),
            Self::Terminal => Value::new("stdio").set("id", id).set("signal", "off"),
        }
    }
}

/// What a run brings. Paths are UTF-8; commas in them are fine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// Kernel image.
    pub kernel: String,
    /// Initial RAM file system.
    pub initrd: Option<String>,
    /// Kernel command line, whole; begins with [`super::BOOT_WORDS`].
    pub append: String,
    /// QMP.
    pub control: Chardev,
    /// The agent's port.
    pub agent: Chardev,
    /// The serial console.
    pub console: Chardev,
    /// The guest's disk, `/dev/vda`.
    pub disk: Option<Drive>,
    /// A folder of the host that the guest may read.
    pub share: Option<Share>,
    /// The guest's network.
    pub network: Network,
    /// Extra ACPI tables.
    pub acpi_tables: Vec<String>,
    /// Where a saved guest comes from (QEMU's `-incoming`), such as `unix:PATH`.
    /// The sandbox forbids `exec:`.
    pub incoming: Option<String>,
}

/// The guest's network.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Network {
    /// It has none.
    #[default]
    None,
    /// QEMU's user network without a way out; a port of 127.0.0.1 that the host's
    /// kernel chooses leads to this port of the guest.
    Forward(u16),
}

/// A disk as QEMU opens it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drive {
    /// The file.
    pub path: String,
    /// QEMU's name of its format.
    pub format: &'static str,
}

/// A folder of the host that the guest may read, over 9p.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Share {
    /// The folder.
    pub folder: String,
    /// What the guest calls it.
    pub tag: &'static str,
}

pub(super) fn add(args: &mut Args, devices: &Devices) {
    args.add("-kernel", devices.kernel.clone());
    if let Some(initrd) = &devices.initrd {
        args.add("-initrd", initrd.clone());
    }
    args.add("-append", devices.append.clone());
    for table in &devices.acpi_tables {
        args.add("-acpitable", format!("file={}", table.replace(',', ",,")));
    }
    if let Some(incoming) = &devices.incoming {
        args.add("-incoming", incoming.clone());
    }
    if let Some(drive) = &devices.disk {
        let backend = Value::new("id=disk,if=none")
            .set("format", drive.format)
            .set("file", &drive.path)
            // What a guest wrote is thrown away with its overlay: no write has
            // to reach the host's disk.
            .set("cache", "unsafe");
        args.add("-drive", backend);
        args.add("-device", "virtio-blk-pci,drive=disk");
    }
    if let Some(share) = &devices.share {
        let backend = Value::new("local,id=share")
            .set("path", &share.folder)
            .set("security_model", "none")
            .set("readonly", "on")
            // Several file systems below one folder have inode numbers in common.
            .set("multidevs", "remap");
        args.add("-fsdev", backend);
        let device = Value::new("virtio-9p-pci,fsdev=share").set("mount_tag", share.tag);
        args.add("-device", device);
    }
    if let Network::Forward(port) = devices.network {
        let backend = Value::new("user,id=net")
            .set("restrict", "on")
            .set("hostfwd", format!("tcp:127.0.0.1:0-:{port}"));
        args.add("-netdev", backend);
        // No option ROM: nothing boots from this network.
        args.add("-device", "virtio-net-pci,netdev=net,romfile=");
    }
    args.add("-chardev", devices.console.argument("console"));
    args.add("-serial", "chardev:console");
    args.add("-chardev", devices.control.argument("control"));
    args.add("-mon", "chardev=control,mode=control");
    args.add("-chardev", devices.agent.argument("agent"));
    args.add("-device", "virtio-serial-pci,id=serial");
    let port = Value::new("virtserialport")
        // Ports without an id send no events when they are opened and closed.
        .set("id", "port")
        .set("bus", "serial.0")
        .set("chardev", "agent")
        .set("name", topolab_protocol::PORT_NAME);
    args.add("-device", port);
    // Tells QMP of a panic at once; the console may still be printing it.
    args.add("-device", "pvpanic-pci");
    args.add("-rtc", "base=utc");
}
