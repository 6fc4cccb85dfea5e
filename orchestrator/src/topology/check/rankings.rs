//! Preferred cores: rankings, and what they ask of the processor.

use super::Checker;
use crate::topology::{
    CpuLayout,
    spec::{HybridSpec, Spec},
};

/// Rankings of performance and efficient cores when the file gives none: the
/// order is all that counts. The values are those of a preferred and of an
/// ordinary core of a Ryzen.
const PERFORMANCE: u32 = 231;
const EFFICIENT: u32 = 166;

/// Processors that the kernel believes to have CPPC by their family and model
/// (`cpc_supported_by_cpu()`, `arch/x86/kernel/acpi/cppc.c`).
const WITH_CPPC: [&str; 4] = ["EPYC-Rome", "EPYC-Milan", "EPYC-Genoa", "EPYC-Turin"];

impl Checker<'_> {
    /// Rankings per vCPU.
    pub(super) fn preferred_cores(&mut self, spec: &Spec, cpus: &CpuLayout) -> Option<Vec<u32>> {
        self.model(spec, cpus);
        let Some(written) = &spec.preferred_cores else {
            return spec.hybrid.as_ref().map(|hybrid| ranked(hybrid, cpus));
        };
        let mut bad = false;
        for ranking in written.iter() {
            // The kernel keeps them in 8 bits; 0 means that firmware has none
            // (drivers/cpufreq/amd-pstate.c).
            if ranking.value == 0 || ranking.value > 255 {
                let message = format!("the ranking {} is not in 1 to 255", ranking.value);
                self.problem(ranking, message, None);
                bad = true;
            }
        }
        let given = written.len();
        let (vcpus, cores) = (cpus.count() as usize, cpus.core_count() as usize);
        if given != vcpus && given != cores {
            let message = if vcpus == cores {
                format!("there are {given} rankings, but {cores} cores")
            } else {
                format!("there are {given} rankings, but {cores} cores with {vcpus} vCPUs")
            };
            self.problem(written, message, "give one per core".to_string());
            return None;
        }
        let rankings: Vec<u32> = (0..cpus.count())
            .map(|vcpu| {
                let index = if given == vcpus {
                    vcpu
                } else {
                    cpus.core_and_thread(vcpu).0
                };
                written[index as usize].value
            })
            .collect();
        for vcpu in 1..cpus.count() {
            let (core, thread) = cpus.core_and_thread(vcpu);
            let (before, here) = (rankings[vcpu as usize - 1], rankings[vcpu as usize]);
            if thread > 0 && before != here {
                let message =
                    format!("threads of core {core} have the rankings {before} and {here}");
                let help = "the kernel ranks cores; give one ranking per core".to_string();
                self.problem(&written[vcpu as usize], message, help);
                bad = true;
            }
        }
        if !bad && rankings.iter().all(|r| *r == rankings[0]) {
            // amd_detect_prefcore() in arch/x86/kernel/acpi/cppc.c.
            let message = format!("every ranking is {}", rankings[0]);
            let help = "the kernel only uses rankings when two differ; leave them out otherwise";
            self.problem(written, message, help.to_string());
            bad = true;
        }
        (!bad).then_some(rankings)
    }

    /// What rankings ask of the processor.
    fn model(&mut self, spec: &Spec, cpus: &CpuLayout) {
        if spec.preferred_cores.is_none() && spec.hybrid.is_none() {
            return;
        }
        let model = spec.cpu.as_ref().and_then(|cpu| cpu.model.as_ref());
        if let Some(model) = model
            && !WITH_CPPC.iter().any(|known| model.starts_with(known))
        {
            let message = format!(
                "the kernel takes no rankings from the CPU model `{}`",
                model.value
            );
            let help = format!("write one of {}, or leave it out", WITH_CPPC.join(", "));
            self.problem(model, message, help);
        }
        if let Some(dies) = spec.cpus.dies.filter(|_| cpus.dies > 1) {
            let message = format!(
                "rankings need an AMD model, on which the kernel does not see {} dies",
                dies.value
            );
            let help = format!(
                "write `sockets: {}` for as many last-level caches, and leave `dies` out",
                cpus.sockets * cpus.dies
            );
            self.problem(&dies, message, help);
        }
        if cpus.clusters > 1 {
            let message = "rankings need an AMD model, on which the kernel does not see clusters";
            self.problem(&spec.cpus, message, "leave `clusters` out".to_string());
        }
    }
}

/// Rankings of a hybrid processor, per vCPU.
fn ranked(hybrid: &HybridSpec, cpus: &CpuLayout) -> Vec<u32> {
    (0..cpus.count())
        .map(|vcpu| {
            if cpus.core_and_thread(vcpu).0 < hybrid.performance.value {
                PERFORMANCE
            } else {
                EFFICIENT
            }
        })
        .collect()
}
