//! Whether this bench can make a topology, and what it must leave out.

use super::{Accel, Bench, Capabilities, machine::FIRST_WIDE_APIC_ID};
use crate::topology::{Caches, CpuLayout, OptionalPart, Topology};

/// A topology as this bench can make it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fitted {
    /// The machine; what the guest reports is held against this one.
    pub topology: Topology,
    /// What was left out, for the reader.
    pub left_out: Vec<String>,
}

/// Leaves out the optional parts that this QEMU cannot make.
///
/// # Errors
/// Every reason why the machine cannot be had here: the cell is not testable.
pub fn fit(topology: &Topology, bench: &Bench) -> Result<Fitted, Vec<String>> {
    let Capabilities {
        max_cpus,
        modules,
        smp_cache,
        emulated_x2apic,
    } = bench.capabilities;
    let mut fitted = Fitted {
        topology: topology.clone(),
        left_out: Vec::new(),
    };
    let mut reasons = Vec::new();
    let CpuLayout {
        clusters, cores, ..
    } = topology.cpus;
    let may_go = |part: OptionalPart| topology.optional.contains(&part);
    if clusters > 1 && !(modules && smp_cache) {
        let why = "this QEMU lacks `modules` or `smp-cache` (9.2 and later have both)";
        if may_go(OptionalPart::Clusters) {
            fitted.topology.cpus.cores = clusters * cores;
            fitted.topology.cpus.clusters = 1;
            if topology.caches == Caches::usual(&topology.cpus) {
                fitted.topology.caches = Caches::usual(&fitted.topology.cpus);
            }
            fitted.left_out.push(format!("clusters: {why}"));
        } else {
            reasons.push(format!("{clusters} clusters per die: {why}"));
        }
    }
    let cpus = fitted.topology.cpus;
    if fitted.topology.caches != Caches::usual(&cpus) && !smp_cache {
        let why = "this QEMU lacks `smp-cache` (9.2 and later have it)";
        if may_go(OptionalPart::Caches) {
            fitted.topology.caches = Caches::usual(&cpus);
            fitted.left_out.push(format!("caches: {why}"));
        } else {
            reasons.push(format!("caches shared in an unusual way: {why}"));
        }
    }
    // Threads that single-threaded cores lack still take a number each.
    let numbered = cpus.core_count() * cpus.threads;
    if numbered > max_cpus {
        reasons.push(format!(
            "{numbered} vCPUs: the q35 machine of this QEMU takes at most {max_cpus}"
        ));
    }
    let emulated = matches!(bench.accel, Accel::Tcg { .. });
    if emulated && !emulated_x2apic && cpus.last_apic_id() >= FIRST_WIDE_APIC_ID {
        reasons.push(format!(
            "APIC ids up to {}: this QEMU emulates no x2APIC (9.0 and later do); KVM has one",
            cpus.last_apic_id()
        ));
    }
    if reasons.is_empty() {
        Ok(fitted)
    } else {
        Err(reasons)
    }
}
