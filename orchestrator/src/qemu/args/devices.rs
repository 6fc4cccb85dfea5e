//! What a run brings: kernel, image, console, QMP and the agent's port.

use super::{Args, Value};

/// What a run brings. Paths are UTF-8; commas in them are fine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Devices {
    /// Kernel image.
    pub kernel: String,
    /// Initial RAM file system.
    pub initrd: Option<String>,
    /// Kernel command line, whole; begins with [`super::BOOT_WORDS`].
    pub append: String,
    /// Unix socket QEMU listens on for QMP.
    pub qmp: String,
    /// Unix socket QEMU listens on for the agent's port.
    pub agent: String,
    /// File the console is written to, raw.
    pub console: String,
    /// Extra ACPI tables.
    pub acpi_tables: Vec<String>,
    /// Where a saved guest comes from (QEMU's `-incoming`), such as `unix:PATH`.
    /// The sandbox forbids `exec:`.
    pub incoming: Option<String>,
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
    let console = Value::new("file")
        .set("id", "console")
        .set("path", &devices.console);
    args.add("-chardev", console);
    args.add("-serial", "chardev:console");
    args.add("-chardev", socket("qmp", &devices.qmp));
    args.add("-mon", "chardev=qmp,mode=control");
    args.add("-chardev", socket("agent", &devices.agent));
    args.add("-device", "virtio-serial-pci,id=serial");
    let port = Value::new("virtserialport")
        .set("bus", "serial.0")
        .set("chardev", "agent")
        .set("name", topolab_protocol::PORT_NAME);
    args.add("-device", port);
    // Tells QMP of a panic at once; the console may still be printing it.
    args.add("-device", "pvpanic-pci");
    args.add("-rtc", "base=utc");
}

/// A socket that QEMU listens on without waiting for anyone.
fn socket(id: &str, path: &str) -> Value {
    Value::new("socket")
        .set("id", id)
        .set("path", path)
        .set("server", "on")
        .set("wait", "off")
}
