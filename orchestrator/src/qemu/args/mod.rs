//! QEMU's whole command line from a topology, a bench and the devices of a run.

mod bench;
mod devices;
mod fit;
mod hmat;
mod machine;
mod memory;

use std::fmt::Display;

pub use bench::{Accel, Bench, Capabilities, HostNodes, MemoryPolicy, TcgThread};
pub use devices::{Chardev, Devices, Drive, Network, Share};
pub use fit::{Fitted, fit};
pub use machine::cpu;

use crate::topology::Topology;

/// Words every guest gets before the topology's: the console, and a panic that
/// ends the guest (`-no-reboot` turns the reboot into an exit).
///
/// `no_timer_check`: an emulated guest on a busy host misses the ticks by which the
/// kernel checks its timer, and panics ("IO-APIC + timer doesn't work"); under KVM
/// the kernel leaves that check out by itself (`paravirt_ops_setup` in
/// arch/x86/kernel/kvm.c).
pub const BOOT_WORDS: &str = "console=ttyS0 panic=-1 no_timer_check";

/// The arguments of `qemu-system-x86_64`, without the program itself.
pub fn build(topology: &Topology, bench: &Bench, devices: &Devices) -> Vec<String> {
    let mut args = Args::default();
    machine::add(&mut args, topology, bench);
    memory::add(&mut args, topology, bench);
    machine::add_lone_cores(&mut args, topology, bench);
    devices::add(&mut args, devices);
    args.list
}

/// Arguments in the making.
#[derive(Default)]
struct Args {
    list: Vec<String>,
}

impl Args {
    fn flag(&mut self, flag: &str) {
        self.list.push(flag.into());
    }

    fn add(&mut self, flag: &str, value: impl Into<String>) {
        self.list.push(flag.into());
        self.list.push(value.into());
    }
}

/// A value like `memory-backend-ram,id=mem0,size=1024M`.
struct Value(String);

impl Value {
    fn new(head: impl Into<String>) -> Self {
        Self(head.into())
    }

    /// Adds `,key=value`. A comma in the value is written twice, as QEMU reads it.
    fn set(mut self, key: &str, value: impl Display) -> Self {
        self.0.push(',');
        self.0.push_str(key);
        self.0.push('=');
        self.0.push_str(&value.to_string().replace(',', ",,"));
        self
    }
}

impl From<Value> for String {
    fn from(value: Value) -> Self {
        value.0
    }
}
