//! Which of the old cores each new core stands for.

use std::collections::BTreeMap;

use super::{cpus_of, smallest};
use crate::topology::{CpuLayout, CpuList, Level, Node, Topology};

/// The smaller machine's cores.
pub(super) struct Chosen {
    pub layout: CpuLayout,
    /// For each new core the old core it stands for.
    stands_for: Vec<u32>,
}

/// What makes two old cores interchangeable: their node, their number of
/// threads, and the sets of each thread.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    node: usize,
    lone: bool,
    sets: Vec<Vec<String>>,
}

/// Walks the new cores in order; each takes the class that is most behind its
/// share, among those of its group, so that shares hold over the whole machine.
pub(super) fn cores(topology: &Topology, layout: CpuLayout, notes: &mut Vec<String>) -> Chosen {
    let old = topology.cpus;
    let classes: Vec<Class> = (0..old.core_count())
        .map(|core| class(topology, core))
        .collect();
    let groups = layout.sockets * layout.dies * layout.clusters;
    let per_group = old.core_count() / groups;
    let ratio = f64::from(layout.core_count()) / f64::from(old.core_count());
    let mut behind: BTreeMap<Class, f64> = BTreeMap::new();
    let mut stands_for = Vec::new();
    for group in 0..groups {
        let members: Vec<u32> = (group * per_group..(group + 1) * per_group).collect();
        for core in &members {
            *behind.entry(classes[*core as usize].clone()).or_default() += ratio;
        }
        let mut taken: BTreeMap<Class, u32> = BTreeMap::new();
        let lone = if groups == 1 { layout.lone_cores } else { 0 };
        for new in 0..layout.cores {
            let wants_lone = lone > 0 && new >= layout.cores - lone;
            let best = members
                .iter()
                .map(|core| &classes[*core as usize])
                .filter(|class| lone == 0 || class.lone == wants_lone)
                .max_by(|a, b| {
                    // A node without a core yet comes first, then who is most behind.
                    let fresh = |class: &Class| !taken.keys().any(|t| t.node == class.node);
                    (fresh(a), behind[*a])
                        .partial_cmp(&(fresh(b), behind[*b]))
                        .expect("shares are finite")
                        .then_with(|| b.cmp(a))
                })
                .expect("a group has cores of each kind")
                .clone();
            *behind.get_mut(&best).expect("seen above") -= 1.0;
            *taken.entry(best).or_default() += 1;
        }
        stands_for.extend(representatives(topology, &members, &classes, &taken));
    }
    let mut chosen = Chosen { layout, stands_for };
    chosen.keep_extremes(topology, &classes);
    chosen.keep_sets(topology, &classes, notes);
    chosen
}

fn class(topology: &Topology, core: u32) -> Class {
    let cpus = cpus_of(&topology.cpus, core);
    let sets = cpus
        .iter()
        .map(|cpu| {
            let sets = topology.sets.iter();
            sets.filter(|(_, list)| list.contains(cpu))
                .map(|(name, _)| name.clone())
                .collect()
        })
        .collect();
    Class {
        node: topology.node_of(cpus.first().expect("a core has a thread")),
        lone: cpus.len() < topology.cpus.threads,
        sets,
    }
}

/// For each class taken, that many of its cores, evenly spread; in old order.
fn representatives(
    topology: &Topology,
    members: &[u32],
    classes: &[Class],
    taken: &BTreeMap<Class, u32>,
) -> Vec<u32> {
    let mut cores = Vec::new();
    for (class, count) in taken {
        let of_class: Vec<u32> = members
            .iter()
            .copied()
            .filter(|core| classes[*core as usize] == *class)
            .collect();
        let all = u32::try_from(of_class.len()).expect("fewer cores than CPUs");
        for pick in 0..*count {
            let at = (2 * pick + 1) * all / (2 * count);
            cores.push(of_class[at as usize]);
        }
    }
    cores.sort_unstable_by_key(|core| (topology.cpus.core_and_thread(*core).0, *core));
    cores.sort_unstable();
    cores
}

impl Chosen {
    /// The best and the least ranked core stay, each in place of a neighbour.
    fn keep_extremes(&mut self, topology: &Topology, classes: &[Class]) {
        let Some(rankings) = &topology.preferred_cores else {
            return;
        };
        let rank = |core: u32| {
            let first = cpus_of(&topology.cpus, core).first();
            rankings[first.expect("a core has a thread") as usize]
        };
        let all = 0..topology.cpus.core_count();
        let best = all
            .clone()
            .max_by_key(|core| (rank(*core), u32::MAX - core));
        let least = all.min_by_key(|core| (rank(*core), *core));
        let mut kept = Vec::new();
        for core in [best, least].into_iter().flatten() {
            let there = self.stands_for.iter().any(|c| rank(*c) == rank(core));
            let class = &classes[core as usize];
            let place = (0..self.stands_for.len())
                .filter(|new| !kept.contains(new))
                .filter(|new| classes[self.stands_for[*new] as usize] == *class)
                .min_by_key(|new| self.stands_for[*new].abs_diff(core));
            if let Some(place) = place.filter(|_| !there) {
                self.stands_for[place] = core;
            }
            kept.extend(self.stands_for.iter().position(|c| *c == core));
        }
    }

    /// Every set keeps a CPU, at the cost of the class that has most cores.
    fn keep_sets(&mut self, topology: &Topology, classes: &[Class], notes: &mut Vec<String>) {
        for (name, cpus) in &topology.sets {
            if !self.image(topology, cpus).is_empty() {
                continue;
            }
            let members: Vec<u32> = (0..topology.cpus.core_count())
                .filter(|core| !cpus_of(&topology.cpus, *core).and(cpus).is_empty())
                .collect();
            let common = |new: &usize| {
                let class = &classes[self.stands_for[*new] as usize];
                let same = self.stands_for.iter();
                same.filter(|core| classes[**core as usize] == *class)
                    .count()
            };
            let level = smallest(&self.layout);
            let found = members.iter().find_map(|core| {
                let node = classes[*core as usize].node;
                let lone = classes[*core as usize].lone;
                let place = (0..self.stands_for.len())
                    .filter(|new| {
                        let other = self.stands_for[*new];
                        let class = &classes[other as usize];
                        class.node == node
                            && class.lone == lone
                            && same_group(&topology.cpus, level, other, *core)
                    })
                    .max_by_key(common)?;
                Some((place, *core))
            });
            match found {
                Some((place, core)) => {
                    self.stands_for[place] = core;
                    notes.push(format!(
                        "set {name}: its share is less than a CPU, it keeps one"
                    ));
                }
                None => notes.push(format!("set {name} lost all of its CPUs")),
            }
        }
    }

    /// New vCPUs that stand for members of an old list. Threads that are gone
    /// are stood for by the first.
    fn image(&self, topology: &Topology, cpus: &CpuList) -> CpuList {
        let new = (0..self.layout.count()).filter(|vcpu| {
            let (core, thread) = self.layout.core_and_thread(*vcpu);
            let old = cpus_of(&topology.cpus, self.stands_for[core as usize]);
            if self.layout.threads < topology.cpus.threads {
                return !old.and(cpus).is_empty();
            }
            old.iter()
                .nth(thread as usize)
                .is_some_and(|cpu| cpus.contains(cpu))
        });
        new.collect()
    }

    pub fn nodes(&self, topology: &Topology) -> Vec<Node> {
        let nodes = topology.nodes.iter();
        nodes
            .map(|node| Node {
                cpus: self.image(topology, &node.cpus),
                ..node.clone()
            })
            .collect()
    }

    pub fn sets(&self, topology: &Topology, notes: &mut Vec<String>) -> BTreeMap<String, CpuList> {
        let mut sets = BTreeMap::new();
        for (name, cpus) in &topology.sets {
            let small = self.image(topology, cpus);
            let share = |part: u32, all: u32| 100.0 * f64::from(part) / f64::from(all);
            let before = share(cpus.len(), topology.vcpus());
            let after = share(small.len(), self.layout.count());
            if (before - after).abs() > 10.0 {
                notes.push(format!(
                    "set {name}: {after:.0} % of the CPUs, where {before:.0} % were"
                ));
            }
            sets.insert(name.clone(), small);
        }
        sets
    }

    pub fn rankings(&self, topology: &Topology, notes: &mut Vec<String>) -> Option<Vec<u32>> {
        let old = topology.preferred_cores.as_ref()?;
        let rankings: Vec<u32> = (0..self.layout.count())
            .map(|vcpu| {
                let core = self.stands_for[self.layout.core_and_thread(vcpu).0 as usize];
                let first = cpus_of(&topology.cpus, core).first();
                old[first.expect("a core has a thread") as usize]
            })
            .collect();
        let differ = rankings.iter().any(|r| *r != rankings[0]);
        if !differ {
            notes.push("rankings are left out: all that remain are equal".into());
        }
        differ.then_some(rankings)
    }
}

/// Whether two cores of the whole machine are in one group.
fn same_group(layout: &CpuLayout, level: Level, one: u32, other: u32) -> bool {
    let group = |core: u32| {
        let first = cpus_of(layout, core).first();
        layout.group_index(first.expect("a core has a thread"), level)
    };
    group(one) == group(other)
}
