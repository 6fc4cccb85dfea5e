//! Sockets down to threads, and the rankings of cores.

use super::Checker;
use crate::{
    document::At,
    topology::{
        CpuLayout, MAX_CPUS,
        spec::{Cpus, Spec},
    },
};

impl Checker<'_> {
    /// The layout; `None` when a count makes it meaningless.
    pub(super) fn cpus(&mut self, cpus: &At<Cpus>) -> Option<CpuLayout> {
        let named = [
            ("sockets", &cpus.sockets),
            ("dies", &cpus.dies),
            ("clusters", &cpus.clusters),
            ("modules", &cpus.modules),
            ("cores", &cpus.cores),
            ("threads", &cpus.threads),
        ];
        let mut zero = false;
        for (name, value) in named {
            if let Some(value) = value.as_ref().filter(|v| v.value == 0) {
                let message = format!("`{name}` is 0, but a machine has at least one of each");
                self.problem(
                    value,
                    message,
                    format!("write `{name}: 1`, or leave it out"),
                );
                zero = true;
            }
        }
        if let (Some(clusters), Some(modules)) = (&cpus.clusters, &cpus.modules)
            && clusters.value != modules.value
        {
            let message = format!(
                "`clusters` is {}, but `modules` is {}; both name the cores that share an L2 cache",
                clusters.value, modules.value
            );
            self.problem(modules, message, "leave `modules` out".to_string());
        }
        if zero {
            return None;
        }
        let of = |value: &Option<At<u32>>| value.as_ref().map_or(1, |v| v.value);
        let clusters = cpus.clusters.or(cpus.modules);
        let layout = CpuLayout {
            sockets: of(&cpus.sockets),
            dies: of(&cpus.dies),
            clusters: of(&clusters),
            cores: of(&cpus.cores),
            threads: of(&cpus.threads),
            lone_cores: 0,
        };
        let product = self.product(cpus, &layout)?;
        if let Some(count) = cpus.count.filter(|count| u64::from(count.value) != product) {
            let message = format!(
                "`count` is {}, but {} make {product}",
                count.value,
                in_words(&layout)
            );
            let rest = product / u64::from(layout.cores);
            let wanted = u64::from(count.value);
            let help = if wanted > 0 && wanted.is_multiple_of(rest) {
                format!("write `cores: {}`, or `count: {product}`", wanted / rest)
            } else {
                format!("write `count: {product}`, or leave it out")
            };
            self.problem(&count, message, help);
        }
        Some(layout)
    }

    fn product(&mut self, cpus: &At<Cpus>, layout: &CpuLayout) -> Option<u64> {
        let product = [
            layout.sockets,
            layout.dies,
            layout.clusters,
            layout.cores,
            layout.threads,
        ]
        .into_iter()
        .try_fold(1u64, |product, n| product.checked_mul(u64::from(n)))
        .filter(|product| *product <= u64::from(MAX_CPUS));
        if product.is_none() {
            let message = format!(
                "{} are more than {MAX_CPUS} CPUs, the most an x86 kernel can have",
                in_words(layout)
            );
            self.problem(cpus, message, None);
        }
        product
    }

    /// Rankings per vCPU.
    pub(super) fn preferred_cores(&mut self, spec: &Spec, cpus: &CpuLayout) -> Option<Vec<u32>> {
        let written = spec.preferred_cores.as_ref()?;
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
}

/// `2 sockets × 4 cores`.
fn in_words(layout: &CpuLayout) -> String {
    let parts: Vec<String> = [
        (layout.sockets, "socket"),
        (layout.dies, "die"),
        (layout.clusters, "cluster"),
        (layout.cores, "core"),
        (layout.threads, "thread"),
    ]
    .into_iter()
    .filter(|(n, name)| *n > 1 || *name == "socket" || *name == "core")
    .map(|(n, name)| format!("{n} {name}{}", if n == 1 { "" } else { "s" }))
    .collect();
    parts.join(" × ")
}
