//! Sockets down to threads.

use super::Checker;
use crate::{
    document::At,
    topology::{
        CpuLayout, MAX_CPUS,
        spec::{Cpus, HybridSpec},
    },
};

impl Checker<'_> {
    /// The layout; `None` when a count makes it meaningless.
    pub(super) fn cpus(
        &mut self,
        cpus: &At<Cpus>,
        hybrid: Option<&At<HybridSpec>>,
    ) -> Option<CpuLayout> {
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
        let mut layout = CpuLayout {
            sockets: of(&cpus.sockets),
            dies: of(&cpus.dies),
            clusters: of(&clusters),
            cores: of(&cpus.cores),
            threads: of(&cpus.threads),
            lone_cores: 0,
        };
        if let Some(hybrid) = hybrid {
            self.hybrid(cpus, hybrid, &mut layout)?;
        }
        self.product(cpus, &layout)?;
        let product = u64::from(layout.count());
        if let Some(count) = cpus.count.filter(|count| u64::from(count.value) != product) {
            let message = format!(
                "`count` is {}, but {} make {product}",
                count.value,
                in_words(&layout)
            );
            let rest = product / u64::from(layout.cores);
            let wanted = u64::from(count.value);
            let help = if wanted > 0 && wanted.is_multiple_of(rest) && hybrid.is_none() {
                format!("write `cores: {}`, or `count: {product}`", wanted / rest)
            } else {
                format!("write `count: {product}`, or leave it out")
            };
            self.problem(&count, message, help);
        }
        Some(layout)
    }

    /// Cores of a hybrid processor; the efficient ones have one thread.
    fn hybrid(
        &mut self,
        cpus: &At<Cpus>,
        hybrid: &At<HybridSpec>,
        layout: &mut CpuLayout,
    ) -> Option<()> {
        let mut sound = true;
        for (name, count) in [
            ("performance", &hybrid.performance),
            ("efficient", &hybrid.efficient),
        ] {
            if count.value == 0 || count.value > MAX_CPUS {
                let message = format!("a hybrid processor with {} {name} cores", count.value);
                let help = "it has at least one of each; leave `hybrid` out otherwise".to_string();
                self.problem(count, message, help);
                sound = false;
            }
        }
        for (name, count) in [
            ("sockets", layout.sockets),
            ("dies", layout.dies),
            ("clusters", layout.clusters),
        ] {
            if count > 1 {
                let message =
                    format!("a hybrid processor is one piece, but there are {count} {name}");
                self.problem(hybrid, message, format!("leave `{name}` out"));
                sound = false;
            }
        }
        if !sound {
            return None;
        }
        let sum = hybrid.performance.value + hybrid.efficient.value;
        if let Some(cores) = cpus.cores.filter(|cores| cores.value != sum) {
            let message = format!(
                "`cores` is {}, but {} performance and {} efficient cores make {sum}",
                cores.value, hybrid.performance.value, hybrid.efficient.value
            );
            self.problem(
                &cores,
                message,
                format!("write `cores: {sum}`, or leave it out"),
            );
        }
        layout.cores = sum;
        if layout.threads > 1 {
            layout.lone_cores = hybrid.efficient.value;
        }
        Some(())
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
