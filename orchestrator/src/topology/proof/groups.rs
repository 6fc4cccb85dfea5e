//! Who shares what: packages, dies, clusters, siblings and caches.

use topolab_protocol::observed::CpuView;

use super::Proof;
use crate::topology::{CpuList, Level};

impl Proof<'_> {
    pub(super) fn groups(&mut self) {
        let layout = self.topology.cpus;
        self.group("packages", Level::Socket, |cpu| &cpu.package_siblings);
        if layout.dies > 1 {
            self.group("dies", Level::Die, |cpu| &cpu.die_siblings);
        }
        if layout.clusters > 1 {
            self.group("clusters", Level::Cluster, |cpu| &cpu.cluster_siblings);
        }
        self.group("threads of a core", Level::Core, |cpu| &cpu.smt_siblings);
        self.group("last-level caches", self.topology.caches.l3, |cpu| &cpu.llc);
    }

    fn group(&mut self, field: &str, level: Level, read: impl Fn(&CpuView) -> &Option<String>) {
        let asked = self.asked_groups(level);
        let mut seen: Vec<Option<CpuList>> = vec![None; self.topology.vcpus() as usize];
        for cpu in &self.observed.cpus {
            if let Some(slot) = seen.get_mut(cpu.cpu as usize) {
                *slot = read(cpu).as_ref().and_then(|list| list.parse().ok());
            }
        }
        let wrong: Vec<(u32, &CpuList)> = asked
            .iter()
            .flat_map(|group| group.iter().map(move |vcpu| (vcpu, group)))
            .filter(|(vcpu, group)| seen[*vcpu as usize].as_ref() != Some(group))
            .collect();
        let Some((vcpu, group)) = wrong.first() else {
            let text = written(&asked);
            self.texts(field, text.clone(), text);
            return;
        };
        // The first CPU that sees other company says enough, and how many more do.
        let others = match wrong.len() - 1 {
            0 => String::new(),
            n => format!(" ({n} more CPUs differ)"),
        };
        let mine = match &seen[*vcpu as usize] {
            Some(list) => list.to_string(),
            None => "nothing".to_string(),
        };
        self.row(
            field,
            format!("cpu {vcpu} with {group}"),
            format!("{mine}{others}"),
            false,
        );
    }
}

/// A few groups in full, many by their first and last.
fn written(groups: &[CpuList]) -> String {
    let text = |groups: &[CpuList]| {
        let all: Vec<String> = groups.iter().map(CpuList::to_string).collect();
        all.join(" | ")
    };
    match groups {
        [first, second, .., last] if groups.len() > 8 => {
            format!("{first} | {second} | … | {last} ({} groups)", groups.len())
        }
        _ => text(groups),
    }
}

/// Values with repetitions counted: `166 ×4, 216, 231`.
pub(super) fn runs(values: &[u32]) -> String {
    let mut parts: Vec<(u32, usize)> = Vec::new();
    for &value in values {
        match parts.last_mut() {
            Some((last, count)) if *last == value => *count += 1,
            _ => parts.push((value, 1)),
        }
    }
    let parts: Vec<String> = parts
        .into_iter()
        .map(|(value, count)| match count {
            1 => value.to_string(),
            _ => format!("{value} ×{count}"),
        })
        .collect();
    parts.join(", ")
}
