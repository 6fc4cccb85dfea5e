//! The machine, its accelerator and its processors.

use super::{Accel, Args, Bench, Value};
use crate::topology::{Caches, Level, Topology};

/// The first APIC id that an interrupt message without remapping cannot name.
pub(super) const FIRST_WIDE_APIC_ID: u32 = 255;

pub(super) fn add(args: &mut Args, topology: &Topology, bench: &Bench) {
    // Nothing that is not asked for: no default devices, no user configuration.
    args.flag("-nodefaults");
    args.flag("-no-user-config");
    args.add("-display", "none");
    // A guest that resets itself is over, whatever the reason.
    args.flag("-no-reboot");
    // The guest goes on after telling of its panic, so that the console gets all of it.
    args.add("-action", "panic=none");
    let sandbox = Value::new("on")
        .set("obsolete", "deny")
        .set("elevateprivileges", "deny")
        .set("spawn", "deny")
        .set("resourcecontrol", "deny");
    args.add("-sandbox", sandbox);
    args.add("-machine", q35(topology, bench));
    args.add("-accel", bench.accel.to_string());
    args.add("-cpu", cpu(topology, bench));
    args.add("-smp", smp(topology));
    if topology.cpus.last_apic_id() >= FIRST_WIDE_APIC_ID {
        let iommu = Value::new("intel-iommu")
            .set("intremap", "on")
            .set("eim", "on");
        args.add("-device", iommu);
    }
}

fn q35(topology: &Topology, bench: &Bench) -> Value {
    // Firmware and kernel look for each of these; the fewer, the sooner init starts.
    let mut machine = Value::new("q35")
        .set("usb", "off")
        .set("vmport", "off")
        .set("smm", "off")
        .set("sata", "off")
        .set("smbus", "off")
        .set("i8042", "off");
    if topology.hmat.is_some() {
        machine = machine.set("hmat", "on");
    }
    if bench.accel == Accel::Kvm && topology.cpus.last_apic_id() >= FIRST_WIDE_APIC_ID {
        // The remapping unit is QEMU's, so the I/O APIC must be, too.
        machine = machine.set("kernel-irqchip", "split");
    }
    let caches = topology.caches;
    if topology.cpus.clusters > 1 || caches != Caches::usual(&topology.cpus) {
        for (index, (cache, level)) in [("l2", caches.l2), ("l3", caches.l3)].iter().enumerate() {
            machine = machine
                .set(&format!("smp-cache.{index}.cache"), cache)
                .set(&format!("smp-cache.{index}.topology"), word(*level));
        }
    }
    machine
}

/// QEMU's word for a level.
fn word(level: Level) -> &'static str {
    match level {
        Level::Core => "core",
        Level::Cluster => "module",
        Level::Die => "die",
        Level::Socket => "socket",
    }
}

fn smp(topology: &Topology) -> Value {
    let layout = topology.cpus;
    // Single-threaded cores come one by one as devices; `cpus` counts the others.
    let started = (layout.core_count() - layout.lone_cores) * layout.threads;
    let mut smp = Value::new(format!("cpus={started}"));
    if layout.lone_cores > 0 {
        smp = smp.set("maxcpus", layout.core_count() * layout.threads);
    }
    smp = smp.set("sockets", layout.sockets).set("dies", layout.dies);
    if layout.clusters > 1 {
        smp = smp.set("modules", layout.clusters);
    }
    smp.set("cores", layout.cores)
        .set("threads", layout.threads)
}

/// Cores with one thread where others have more: QEMU starts without them, and
/// only their first threads are plugged in before the guest runs.
pub(super) fn add_lone_cores(args: &mut Args, topology: &Topology, bench: &Bench) {
    let layout = topology.cpus;
    let model = cpu(topology, bench);
    let model = model.split(',').next().unwrap_or(&model);
    for vcpu in layout.count() - layout.lone_cores..layout.count() {
        let place = layout.place(vcpu);
        let device = Value::new(format!("{model}-x86_64-cpu"))
            .set("socket-id", place.socket)
            .set("die-id", place.die)
            .set("core-id", place.core)
            .set("thread-id", place.thread);
        args.add("-device", device);
    }
}

/// CPU model and flags.
///
/// The emulator's `max` calls itself an AMD processor without the topology
/// leaves, so its dies and caches do not show. With an Intel identity the
/// kernel reads leaves 4, 0xB and 0x1F, which QEMU fills from `-smp`: packages,
/// dies, siblings and caches then come out as asked.
///
/// Preferred cores need a processor whose family and model the kernel trusts
/// with CPPC (`cpc_supported_by_cpu()` in `arch/x86/kernel/acpi/cppc.c`).
pub fn cpu(topology: &Topology, bench: &Bench) -> String {
    let model = bench.cpu_model.as_ref().or(topology.cpu.model.as_ref());
    let ranked = topology.preferred_cores.is_some();
    let grouped = topology.cpus.dies > 1 || topology.cpus.clusters > 1;
    let model = match (model, bench.accel) {
        (Some(model), _) => model.as_str(),
        // KVM keeps the host's vendor unless it is named.
        (None, Accel::Kvm) if ranked => "EPYC-Milan,vendor=AuthenticAMD",
        (None, Accel::Tcg { .. }) if ranked => {
            "max,vendor=AuthenticAMD,family=25,model=1,stepping=1"
        }
        (None, Accel::Kvm) => "host",
        // Firmware asks for a leaf beyond the last with a stray subleaf; QEMU 10.0
        // answers with the last leaf, and dies when that is 0x1F.
        (None, Accel::Tcg { .. }) if grouped => {
            "max,vendor=GenuineIntel,family=6,model=85,stepping=7,min-level=32"
        }
        (None, Accel::Tcg { .. }) => "max,vendor=GenuineIntel,family=6,model=85,stepping=7",
    };
    let mut value = Value::new(model);
    for flag in &topology.cpu.flags {
        value = match (flag.split_at(1), flag.split_once('=')) {
            (("+", name), _) => value.set(name, "on"),
            (("-", name), _) => value.set(name, "off"),
            (_, Some((name, text))) => value.set(name, text),
            (_, None) => unreachable!("a checked flag begins with + or -, or holds ="),
        };
    }
    value.into()
}
