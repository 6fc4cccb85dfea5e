//! What is shared must lie within one node, and caches within each other.

use super::{Checker, named, pairs::here};
use crate::topology::{
    Caches, CpuLayout, CpuList, Level, Node,
    spec::{Oddity, Spec},
};

impl Checker<'_> {
    /// Who shares which cache.
    pub(super) fn caches(&mut self, spec: &Spec, cpus: &CpuLayout) -> Caches {
        let usual = Caches::usual(cpus);
        let Some(written) = &spec.caches else {
            return usual;
        };
        let caches = Caches {
            l2: written.l2.map_or(usual.l2, |l2| l2.value),
            l3: written.l3.map_or(usual.l3, |l3| l3.value),
        };
        if caches.l3 < caches.l2 {
            let message = format!(
                "an L3 cache per {}, but an L2 cache per {}",
                word(caches.l3),
                word(caches.l2)
            );
            let help = "who shares an L2 cache shares the L3 cache behind it".to_string();
            let place = written.l3.as_ref().map_or(here(written), here);
            self.problem(&place, message, help);
        }
        let ranked = spec.preferred_cores.is_some() || spec.hybrid.is_some();
        if ranked && caches != usual {
            let message = "rankings need an AMD model, on which QEMU shares caches as usual";
            self.problem(written, message, "leave `caches` out".to_string());
        }
        caches
    }

    /// Groups that lie in several nodes, unless the file says that it means it.
    pub(super) fn sharing(
        &mut self,
        spec: &Spec,
        cpus: &CpuLayout,
        caches: &Caches,
        nodes: &[Node],
    ) {
        let Some(written) = &spec.nodes else {
            return;
        };
        let meant = |oddity: Oddity| spec.deliberate.iter().any(|d| d.value == oddity);
        let near = if cpus.clusters > 1 {
            Level::Cluster
        } else {
            Level::Core
        };
        let mut levels = vec![(near, Oddity::CoreSpansNodes, "core-spans-nodes")];
        levels.push((caches.l3, Oddity::LlcSpansNodes, "llc-spans-nodes"));
        for (level, oddity, key) in levels {
            if meant(oddity) {
                continue;
            }
            let torn = cpus.groups(level).into_iter().find_map(|group| {
                let ends = ends(&group, nodes);
                (ends.len() > 1).then_some((group, ends))
            });
            let Some((group, ends)) = torn else {
                continue;
            };
            let what = match (oddity, level) {
                (Oddity::LlcSpansNodes, _) => "share a last-level cache",
                (_, Level::Core) => "are threads of one core",
                (_, _) => "are one cluster",
            };
            let list: Vec<String> = ends.iter().map(usize::to_string).collect();
            let message = format!(
                "{} {what}, but lie in nodes {}",
                named(&group),
                list.join(" and ")
            );
            let help = match oddity {
                Oddity::LlcSpansNodes => format!(
                    "give each node sockets or dies of its own (`sockets: {}`), or add `deliberate: [{key}]`",
                    nodes.iter().filter(|n| !n.cpus.is_empty()).count()
                ),
                _ => format!("move them into one node, or add `deliberate: [{key}]`"),
            };
            self.problem(written, message, help);
            // A torn core tears its caches too; one message is enough.
            break;
        }
    }
}

/// Nodes that hold some of a group.
fn ends(group: &CpuList, nodes: &[Node]) -> Vec<usize> {
    (0..nodes.len())
        .filter(|node| !nodes[*node].cpus.and(group).is_empty())
        .collect()
}

fn word(level: Level) -> &'static str {
    match level {
        Level::Core => "core",
        Level::Cluster => "cluster",
        Level::Die => "die",
        Level::Socket => "socket",
    }
}
