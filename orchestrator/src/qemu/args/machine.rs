//! The machine, its accelerator and its processors.

use super::{Accel, Args, Bench, Value};
use crate::topology::{CpuLayout, Topology};

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
    // Firmware and kernel look for each of these; the fewer, the sooner init starts.
    let machine = Value::new("q35")
        .set("usb", "off")
        .set("vmport", "off")
        .set("smm", "off")
        .set("sata", "off")
        .set("smbus", "off")
        .set("i8042", "off");
    args.add("-machine", machine);
    args.add("-accel", bench.accel.to_string());
    args.add("-cpu", cpu(topology, bench));
    let CpuLayout {
        sockets,
        dies,
        cores,
        threads,
        ..
    } = topology.cpus;
    let smp = Value::new(format!("cpus={}", topology.vcpus()))
        .set("sockets", sockets)
        .set("dies", dies)
        .set("cores", cores)
        .set("threads", threads);
    args.add("-smp", smp);
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
    let model = match (model, bench.accel) {
        (Some(model), _) => model.as_str(),
        // KVM keeps the host's vendor unless it is named.
        (None, Accel::Kvm) if topology.preferred_cores.is_some() => {
            "EPYC-Milan,vendor=AuthenticAMD"
        }
        (None, Accel::Tcg { .. }) if topology.preferred_cores.is_some() => "EPYC-Milan",
        (None, Accel::Kvm) => "host",
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
