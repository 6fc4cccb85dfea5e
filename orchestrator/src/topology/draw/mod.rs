//! Drawings of a topology: text for terminals and mails, SVG for slides.

mod block;
mod marks;
mod svg;
mod text;

pub use svg::svg;
pub use text::text;

use super::{CpuList, Level, Topology};

/// More vCPUs than this and runs of equal cores are drawn as one.
const FOLD_ABOVE: u32 = 64;

/// A core, or a run of cores that look the same.
struct Cores {
    /// Their vCPUs.
    cpus: CpuList,
    /// How many cores.
    count: u32,
    /// Threads of each.
    threads: u32,
    /// Ranking, when the topology has some.
    ranking: Option<u32>,
    /// Marks of the sets they are in.
    marks: String,
}

/// The cores within a group of vCPUs, folded into runs on a large machine.
fn cores(topology: &Topology, group: &CpuList, marks: &[marks::Mark]) -> Vec<Cores> {
    let mut cores: Vec<Cores> = Vec::new();
    for core in topology.cpus.groups(Level::Core) {
        let cpus = core.and(group);
        let Some(first) = cpus.first() else {
            continue;
        };
        let one = Cores {
            count: 1,
            threads: cpus.len(),
            ranking: topology
                .preferred_cores
                .as_ref()
                .map(|rankings| rankings[first as usize]),
            marks: marks::of(marks, &cpus),
            cpus,
        };
        match cores.last_mut() {
            Some(run) if topology.vcpus() > FOLD_ABOVE && run.looks_like(&one) => {
                run.cpus = run.cpus.or(&one.cpus);
                run.count += 1;
            }
            _ => cores.push(one),
        }
    }
    cores
}

impl Cores {
    fn looks_like(&self, other: &Self) -> bool {
        (self.threads, self.ranking, &self.marks) == (other.threads, other.ranking, &other.marks)
    }
}

/// Parts of a node: groups of a level that have vCPUs in it, each with its
/// number, and whether all of the group is in the node.
fn parts(topology: &Topology, level: Level, within: &CpuList) -> Vec<(u32, CpuList, bool)> {
    (0..)
        .zip(topology.cpus.groups(level))
        .filter_map(|(index, group)| {
            let inside = group.and(within);
            (!inside.is_empty()).then(|| (index, inside.clone(), inside == group))
        })
        .collect()
}

/// Title of a frame: its name, and the caches shared within it. A level of
/// which there is one in the next has no frame of its own.
fn title(topology: &Topology, name: &str, level: Level, whole: bool) -> String {
    let layout = topology.cpus;
    let mut levels = vec![level];
    if level == Level::Socket && layout.dies == 1 {
        levels.push(Level::Die);
    }
    if levels.contains(&Level::Die) && layout.clusters == 1 {
        levels.push(Level::Cluster);
    }
    let mut parts = vec![name.to_string()];
    if !whole {
        parts[0].push_str(" (part)");
    }
    if levels.contains(&topology.caches.l3) {
        parts.push("L3".into());
    }
    if levels.contains(&topology.caches.l2) {
        parts.push("L2".into());
    }
    parts.retain(|part| !part.is_empty());
    parts.join(" · ")
}

/// `2 sockets × 4 cores × 2 threads`.
fn shape(topology: &Topology) -> String {
    let layout = topology.cpus;
    let per_socket = layout.core_count() / layout.sockets / layout.dies / layout.clusters;
    let counted = [
        (layout.sockets, "socket"),
        (layout.dies, "die"),
        (layout.clusters, "cluster"),
        (per_socket, "core"),
        (layout.threads, "thread"),
    ];
    let parts: Vec<String> = counted
        .into_iter()
        .filter(|(n, name)| *n > 1 || ["socket", "core"].contains(name))
        .map(|(n, name)| format!("{n} {name}{}", if n == 1 { "" } else { "s" }))
        .collect();
    let lone = match layout.lone_cores {
        0 => String::new(),
        n => format!(" (the last {n} cores with one thread)"),
    };
    parts.join(" × ") + &lone
}

#[cfg(test)]
mod tests;
