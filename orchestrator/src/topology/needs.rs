//! Kernel options without which a guest cannot show the topology: found before
//! anything boots, so that a cell is "not testable" and not "wrong".

use topolab_protocol::observed::Observed;

use super::{Topology, cmdline};

/// Options a topology needs and a kernel lacks, each with the reason, one
/// sentence per option. `value` gives an option's value (`y`, `m`, a number),
/// without `CONFIG_`; `None` when it is not set.
pub fn lacking(topology: &Topology, value: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let on = |option: &str| matches!(value(option).as_deref(), Some("y" | "m"));
    let number = |option: &str| value(option).and_then(|v| v.parse::<u64>().ok());
    let mut reasons = Vec::new();
    for (why, options) in needed(topology) {
        for option in options {
            if !on(option) {
                reasons.push(format!("{why} CONFIG_{option}, which this kernel lacks"));
            }
        }
    }
    let vcpus = u64::from(topology.vcpus());
    if let Some(most) = number("NR_CPUS").filter(|most| *most < vcpus) {
        reasons.push(format!(
            "{vcpus} vCPUs are more than CONFIG_NR_CPUS={most} of this kernel"
        ));
    }
    let nodes = topology.nodes.len() as u64;
    if let Some(shift) = number("NODES_SHIFT").filter(|shift| *shift < 32 && nodes > 1 << shift) {
        reasons.push(format!(
            "{nodes} nodes are more than CONFIG_NODES_SHIFT={shift} of this kernel allows"
        ));
    }
    reasons
}

fn needed(topology: &Topology) -> Vec<(&'static str, Vec<&'static str>)> {
    let mut needed = Vec::new();
    if topology.vcpus() > 1 {
        needed.push(("several CPUs need", vec!["SMP"]));
    }
    if topology.nodes.len() > 1 {
        needed.push((
            "several nodes need",
            vec!["NUMA", "ACPI_NUMA", "X86_64_ACPI_NUMA"],
        ));
    }
    if topology.cpus.clusters > 1 {
        needed.push(("clusters need", vec!["SCHED_CLUSTER"]));
    }
    if topology.hmat.is_some() {
        needed.push(("memory attributes need", vec!["ACPI_HMAT"]));
    }
    if topology.preferred_cores.is_some() {
        // DEBUG_FS: the proof reads the flags of the scheduling domains there.
        let options = vec![
            "SCHED_MC_PRIO",
            "X86_AMD_PSTATE",
            "ACPI_CPPC_LIB",
            "DEBUG_FS",
        ];
        needed.push(("preferred cores need", options));
    }
    if topology.cpus.last_apic_id() >= 255 {
        let options = vec!["X86_X2APIC", "IRQ_REMAP", "INTEL_IOMMU"];
        needed.push(("APIC ids above 254 need", options));
    }
    for (word, why, option) in [
        ("isolcpus", "`isolcpus=` needs", "CPU_ISOLATION"),
        ("nohz_full", "`nohz_full=` needs", "NO_HZ_FULL"),
        ("rcu_nocbs", "`rcu_nocbs=` needs", "RCU_NOCB_CPU"),
    ] {
        if cmdline::value(&topology.cmdline, word).is_some() {
            needed.push((why, vec![option]));
        }
    }
    needed
}

/// Why a guest that booted cannot show the topology although nothing went wrong:
/// its kernel has no driver that takes rankings. `None` when it has one, or when
/// the driver was not even asked for.
pub fn not_testable(topology: &Topology, observed: &Observed) -> Option<String> {
    topology.preferred_cores.as_ref()?;
    let asked = cmdline::value(&topology.cmdline, "amd_pstate")?;
    if cmdline::value(&observed.cmdline, "amd_pstate") != Some(asked)
        || observed.cpus.iter().any(|cpu| cpu.ranking.is_some())
    {
        return None;
    }
    let kernel = &observed.kernel_release;
    match observed.amd_pstate.as_deref() {
        None | Some("" | "disable") => Some(format!(
            "preferred cores need the amd-pstate driver, which kernel {kernel} does not run"
        )),
        Some(mode) => Some(format!(
            "the amd-pstate driver of kernel {kernel} (mode {mode}) shows no rankings; Linux 6.9 and later do"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use topolab_protocol::observed::CpuView;

    fn topology(text: &str) -> Topology {
        Topology::from_text("t.yaml", text).unwrap_or_else(|problems| panic!("{problems}"))
    }

    const RANKED: &str = "{name: a, cpus: {cores: 2}, memory: 1G, preferred_cores: [1, 2]}";

    #[test]
    fn each_missing_option_has_its_reason() {
        let ranked = topology(RANKED);
        let all = |option: &str| Some(if option.ends_with("CPUS") { "64" } else { "y" }.into());
        assert_eq!(lacking(&ranked, all), Vec::<String>::new());
        let without = |option: &str| (option != "SCHED_MC_PRIO").then(|| "y".to_string());
        assert_eq!(
            lacking(&ranked, without),
            ["preferred cores need CONFIG_SCHED_MC_PRIO, which this kernel lacks"]
        );
    }

    #[test]
    fn counts_beyond_the_kernels_are_found() {
        let many = topology(
            "{name: a, cpus: {sockets: 4, cores: 80}, nodes: [{memory: 1G}, {memory: 1G}, {memory: 1G}, {memory: 1G}], distances: {0-1: 20, 0-2: 20, 0-3: 20, 1-2: 20, 1-3: 20, 2-3: 20}, cmdline: nohz_full=1}",
        );
        let small = |option: &str| match option {
            "NR_CPUS" => Some("64".to_string()),
            "NODES_SHIFT" => Some("1".to_string()),
            "X86_X2APIC" | "NO_HZ_FULL" => None,
            _ => Some("y".to_string()),
        };
        assert_eq!(
            lacking(&many, small),
            [
                "APIC ids above 254 need CONFIG_X86_X2APIC, which this kernel lacks",
                "`nohz_full=` needs CONFIG_NO_HZ_FULL, which this kernel lacks",
                "320 vCPUs are more than CONFIG_NR_CPUS=64 of this kernel",
                "4 nodes are more than CONFIG_NODES_SHIFT=1 of this kernel allows",
            ]
        );
    }

    #[test]
    fn a_kernel_without_the_driver_is_not_testable() {
        let ranked = topology(RANKED);
        let mut observed = Observed {
            kernel_release: "6.1.0".into(),
            cmdline: ranked.cmdline.clone(),
            cpus: vec![CpuView::default(); 2],
            ..Observed::default()
        };
        assert_eq!(
            not_testable(&ranked, &observed).unwrap(),
            "preferred cores need the amd-pstate driver, which kernel 6.1.0 does not run"
        );
        observed.amd_pstate = Some("guided".into());
        assert_eq!(
            not_testable(&ranked, &observed).unwrap(),
            "the amd-pstate driver of kernel 6.1.0 (mode guided) shows no rankings; Linux 6.9 and later do"
        );
        observed.cpus[1].ranking = Some(2);
        assert_eq!(not_testable(&ranked, &observed), None);
        // A word that never reached the kernel is a wrong topology.
        observed.cpus[1].ranking = None;
        observed.cmdline = "quiet".into();
        assert_eq!(not_testable(&ranked, &observed), None);
    }
}
