//! Which virtual CPU runs on which host CPUs. Pure.

use serde::Serialize;

use super::{CoreKind, HostCpu, Inventory};
use crate::topology::{CpuList, Level, PinPolicy, Topology};

/// How vCPUs and host CPUs belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinMode {
    /// Siblings on siblings and nodes on nodes.
    Paired,
    /// Each vCPU on a host CPU of its own, siblings not kept together.
    OneToOne,
    /// As the user wrote it.
    Explicit,
    /// The host's scheduler decides.
    None,
}

/// A plan. Applying it is another matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PinPlan {
    /// How it was made.
    pub mode: PinMode,
    /// Host CPUs of each vCPU; empty with [`PinMode::None`].
    pub vcpus: Vec<CpuList>,
    /// Host CPUs of QEMU's other threads; `None`: wherever the host likes.
    pub others: Option<CpuList>,
    /// Host node of each guest node; empty when memory is not bound.
    pub nodes: Vec<Option<u32>>,
    /// What is not as it should be, for the reader.
    pub notes: Vec<String>,
}

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// Siblings and nodes of the guest do not fit the host's free ones.
    #[error("cannot pair: {reason}")]
    Unpaired {
        /// What does not fit.
        reason: String,
    },
    /// The user's map names CPUs that cannot be used.
    #[error("host CPUs {cpus} {why}")]
    Unusable {
        /// The CPUs.
        cpus: CpuList,
        /// `are offline`, `do not exist`, `are not allowed to this process`, `are leased to other guests`.
        why: &'static str,
    },
    /// The user's map names vCPUs that the guest does not have.
    #[error("the pin map names vCPUs {vcpus}; the guest has {count}")]
    NoSuchVcpus {
        /// The vCPUs.
        vcpus: CpuList,
        /// How many there are.
        count: u32,
    },
    /// The user's map leaves vCPUs out.
    #[error("the pin map says nothing about vCPUs {vcpus}")]
    Missing {
        /// The vCPUs.
        vcpus: CpuList,
    },
}

impl PinPlan {
    /// No pinning.
    pub fn none() -> Self {
        Self {
            mode: PinMode::None,
            vcpus: Vec::new(),
            others: None,
            nodes: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Every host CPU on which a vCPU is pinned.
    pub fn used(&self) -> CpuList {
        self.vcpus
            .iter()
            .fold(CpuList::new(), |all, cpus| all.or(cpus))
    }
}

/// Makes a plan. `leased` are host CPUs that other guests are pinned to.
///
/// # Errors
/// With `paired` and explicit maps, when they cannot be had. `auto` falls back
/// and says so in the notes.
pub fn plan(
    topology: &Topology,
    policy: &PinPolicy,
    host: &Inventory,
    leased: &CpuList,
) -> Result<PinPlan, PinError> {
    match policy {
        PinPolicy::None => Ok(PinPlan::none()),
        PinPolicy::Paired => paired(topology, host, leased),
        PinPolicy::Map(pairs) => explicit(topology, pairs, host, leased),
        PinPolicy::Auto => Ok(match paired(topology, host, leased) {
            Ok(plan) => plan,
            Err(error) => {
                let mut plan = one_to_one(topology, host, leased);
                plan.notes.insert(0, error.to_string());
                plan
            }
        }),
    }
}

/// A free core of the host.
struct Core<'a> {
    first: &'a HostCpu,
    threads: CpuList,
}

/// Cores of which every online thread is allowed and free, best first: fast
/// before slow, together what shares a cache, the core of CPU 0 last because
/// interrupts and the user's own work tend to be there.
fn free_cores<'a>(host: &'a Inventory, leased: &CpuList) -> Vec<Core<'a>> {
    let free = host.allowed.without(leased);
    let heads = host
        .cpus
        .iter()
        .filter(|cpu| cpu.siblings.first() == Some(cpu.cpu));
    let mut cores: Vec<Core<'_>> = heads
        .filter(|cpu| cpu.siblings.and(leased).is_empty())
        .map(|cpu| Core {
            first: cpu,
            threads: cpu.siblings.and(&free),
        })
        .filter(|core| !core.threads.is_empty())
        .collect();
    cores.sort_by_key(|core| {
        let cpu = core.first;
        (
            cpu.kind,
            cpu.siblings.contains(0),
            cpu.node,
            cpu.llc.first(),
            cpu.cpu,
        )
    });
    cores
}

fn paired(topology: &Topology, host: &Inventory, leased: &CpuList) -> Result<PinPlan, PinError> {
    let cores = free_cores(host, leased);
    let mut used = vec![false; cores.len()];
    let guest_cores = topology.cpus.groups(Level::Core);
    let mut vcpus = vec![CpuList::new(); topology.vcpus() as usize];
    let mut nodes = vec![None; topology.nodes.len()];
    let mut taken: Vec<u32> = Vec::new();
    let mut notes = Vec::new();
    for (index, node) in topology.nodes.iter().enumerate() {
        let wanted: Vec<&CpuList> = guest_cores
            .iter()
            .filter(|core| core.first().is_some_and(|first| node.cpus.contains(first)))
            .collect();
        if wanted.is_empty() {
            continue;
        }
        let fits = |host_node: u32| fit(&wanted, &cores, &used, host_node);
        // A host node of its own if there is one, else one that has room.
        let fresh = host
            .nodes
            .iter()
            .map(|node| node.node)
            .filter(|n| !taken.contains(n));
        let shared = taken.clone();
        let found = fresh.chain(shared).find_map(|n| Some((n, fits(n)?)));
        let Some((host_node, chosen)) = found else {
            let threads = wanted.iter().map(|core| core.len()).max().unwrap_or(1);
            return Err(PinError::Unpaired {
                reason: format!(
                    "node {index} wants {} cores of {threads} thread{}; free host cores per node: {}",
                    wanted.len(),
                    if threads == 1 { "" } else { "s" },
                    per_node(&cores, &used, host, threads)
                ),
            });
        };
        if taken.contains(&host_node) {
            notes.push(format!(
                "guest node {index} shares host node {host_node} with another"
            ));
        }
        taken.push(host_node);
        nodes[index] = Some(host_node);
        for (guest, at) in wanted.iter().zip(chosen) {
            used[at] = true;
            for (vcpu, cpu) in guest.iter().zip(cores[at].threads.iter()) {
                vcpus[vcpu as usize] = CpuList::from_iter([cpu]);
            }
        }
    }
    let kinds: Vec<CoreKind> = cores
        .iter()
        .zip(&used)
        .filter(|(_, used)| **used)
        .map(|(core, _)| core.first.kind)
        .collect();
    if kinds.contains(&CoreKind::Performance) && kinds.contains(&CoreKind::Efficient) {
        notes.push("vCPUs are on host cores of both kinds: their speeds differ".into());
    }
    let mut plan = PinPlan {
        mode: PinMode::Paired,
        vcpus,
        others: None,
        // Binding memory says nothing on a host of one node.
        nodes: if host.nodes.len() > 1 {
            nodes
        } else {
            Vec::new()
        },
        notes,
    };
    leave_room(&mut plan, host, leased);
    Ok(plan)
}

/// Free cores of one host node for these guest cores, in order; preferably all
/// behind one cache.
fn fit(wanted: &[&CpuList], cores: &[Core<'_>], used: &[bool], node: u32) -> Option<Vec<usize>> {
    let free = |at: &usize| !used[*at] && cores[*at].first.node == node;
    let candidates: Vec<usize> = (0..cores.len()).filter(free).collect();
    let caches = candidates.iter().map(|&at| &cores[at].first.llc);
    let within = caches.map(Some).chain([None]);
    within
        .map(|cache| {
            let near = candidates
                .iter()
                .copied()
                .filter(|&at| cache.is_none_or(|cache| cores[at].first.llc == *cache));
            choose(wanted, cores, &near.collect::<Vec<_>>())
        })
        .find_map(|chosen| chosen)
}

fn choose(wanted: &[&CpuList], cores: &[Core<'_>], near: &[usize]) -> Option<Vec<usize>> {
    let mut left = near.to_vec();
    wanted
        .iter()
        .map(|guest| {
            // A lone thread does not need a core with two: leave those to pairs.
            let enough = |at: &&usize| cores[**at].threads.len() >= guest.len();
            let best =
                left.iter().filter(enough).copied().min_by_key(|&at| {
                    (cores[at].first.kind, cores[at].threads.len() - guest.len())
                })?;
            left.retain(|&at| at != best);
            Some(best)
        })
        .collect()
}

fn per_node(cores: &[Core<'_>], used: &[bool], host: &Inventory, threads: u32) -> String {
    let counts = host.nodes.iter().map(|node| {
        let fitting = cores.iter().zip(used).filter(|(core, used)| {
            !**used && core.first.node == node.node && core.threads.len() >= threads
        });
        fitting.count().to_string()
    });
    counts.collect::<Vec<_>>().join(", ")
}

fn one_to_one(topology: &Topology, host: &Inventory, leased: &CpuList) -> PinPlan {
    let cores = free_cores(host, leased);
    // One thread of every core first, then the others.
    let mut free = Vec::new();
    for round in 0..host.threads_per_core() as usize {
        free.extend(
            cores
                .iter()
                .filter_map(|core| core.threads.iter().nth(round)),
        );
    }
    let wanted = topology.vcpus() as usize;
    if wanted > free.len() {
        let mut plan = PinPlan::none();
        plan.notes.push(format!(
            "not pinned: {wanted} vCPUs, {} free host CPUs",
            free.len()
        ));
        return plan;
    }
    let mut plan = PinPlan {
        mode: PinMode::OneToOne,
        vcpus: free
            .iter()
            .take(wanted)
            .map(|&cpu| CpuList::from_iter([cpu]))
            .collect(),
        others: None,
        nodes: Vec::new(),
        notes: Vec::new(),
    };
    leave_room(&mut plan, host, leased);
    plan
}

/// Gives QEMU's other threads the CPUs that no vCPU has.
fn leave_room(plan: &mut PinPlan, host: &Inventory, leased: &CpuList) {
    let quiet = host.whole_cores(&plan.used());
    let rest = host.allowed.without(leased);
    let beside = rest.without(&quiet);
    if !beside.is_empty() {
        plan.others = Some(beside);
        return;
    }
    let siblings = rest.without(&plan.used());
    if siblings.is_empty() {
        plan.notes
            .push("no host CPU is left for QEMU's own threads".into());
    } else {
        plan.notes
            .push("QEMU's own threads run beside vCPUs on the same cores".into());
        plan.others = Some(siblings);
    }
}

fn explicit(
    topology: &Topology,
    pairs: &[(CpuList, CpuList)],
    host: &Inventory,
    leased: &CpuList,
) -> Result<PinPlan, PinError> {
    let count = topology.vcpus();
    let mut vcpus = vec![CpuList::new(); count as usize];
    for (guest, cpus) in pairs {
        // A map from beside the topology's file was not checked against it.
        let beyond = guest.without(&CpuList::all(count));
        if !beyond.is_empty() {
            let vcpus = beyond;
            return Err(PinError::NoSuchVcpus { vcpus, count });
        }
        let checks = [
            (cpus.without(&host.online), "are offline or do not exist"),
            (
                cpus.without(&host.allowed),
                "are not allowed to this process",
            ),
            (cpus.and(leased), "are leased to other guests"),
        ];
        for (bad, why) in checks {
            if !bad.is_empty() {
                return Err(PinError::Unusable { cpus: bad, why });
            }
        }
        if guest.len() == cpus.len() {
            for (vcpu, cpu) in guest.iter().zip(cpus.iter()) {
                vcpus[vcpu as usize] = CpuList::from_iter([cpu]);
            }
        } else {
            for vcpu in guest.iter() {
                vcpus[vcpu as usize] = cpus.clone();
            }
        }
    }
    let missing = (0..).zip(&vcpus).filter(|(_, cpus)| cpus.is_empty());
    let missing: CpuList = missing.map(|(vcpu, _)| vcpu).collect();
    if !missing.is_empty() {
        return Err(PinError::Missing { vcpus: missing });
    }
    let mut plan = PinPlan {
        mode: PinMode::Explicit,
        vcpus,
        others: None,
        nodes: Vec::new(),
        notes: Vec::new(),
    };
    leave_room(&mut plan, host, leased);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::inventory::fixture::{self, Host};

    fn guest(text: &str) -> Topology {
        Topology::from_text("t", &format!("name: t\n{text}")).unwrap_or_else(|e| panic!("{e}"))
    }

    fn cpus(text: &str) -> CpuList {
        CpuList::parse(text, 64).unwrap()
    }

    fn made(
        host: &Host,
        guest: &Topology,
        policy: &PinPolicy,
        leased: &str,
    ) -> Result<PinPlan, PinError> {
        let host = Inventory::read(host.path()).unwrap();
        let leased = if leased.is_empty() {
            CpuList::new()
        } else {
            cpus(leased)
        };
        plan(guest, policy, &host, &leased)
    }

    /// `0 4 | 1`: where each vCPU is, then QEMU.
    fn shown(plan: &PinPlan) -> String {
        let vcpus: Vec<String> = plan.vcpus.iter().map(ToString::to_string).collect();
        let others = plan.others.as_ref().map_or("-".into(), ToString::to_string);
        format!("{} | {others}", vcpus.join(" "))
    }

    #[test]
    fn siblings_stay_together_and_cpu_0_is_left_to_others() {
        let smt = guest("cpus: {cores: 2, threads: 2}\nmemory: 1G\n");
        let plan = made(&fixture::laptop(), &smt, &PinPolicy::Paired, "").unwrap();
        assert_eq!(shown(&plan), "1 5 2 6 | 0,3-4,7");
        assert_eq!(plan.notes, Vec::<String>::new());
        assert_eq!(plan.nodes, Vec::<Option<u32>>::new());
        let all = guest("cpus: {cores: 4, threads: 2}\nmemory: 1G\n");
        let plan = made(&fixture::laptop(), &all, &PinPolicy::Paired, "").unwrap();
        assert_eq!(shown(&plan), "1 5 2 6 3 7 0 4 | -");
        assert_eq!(plan.notes, ["no host CPU is left for QEMU's own threads"]);
    }

    #[test]
    fn cores_without_siblings_get_a_core_each() {
        let cores = guest("cpus: {cores: 4}\nmemory: 1G\n");
        let plan = made(&fixture::laptop(), &cores, &PinPolicy::Paired, "").unwrap();
        assert_eq!(shown(&plan), "1 2 3 0 | 4-7");
        assert_eq!(
            plan.notes,
            ["QEMU's own threads run beside vCPUs on the same cores"]
        );
    }

    #[test]
    fn guest_nodes_go_to_host_nodes_of_their_own() {
        let two = guest(
            "cpus: {sockets: 2, cores: 2, threads: 2}\nnodes: [{cpus: 0-3, memory: 1G}, {cpus: 4-7, memory: 1G}]\n",
        );
        let plan = made(&fixture::server(), &two, &PinPolicy::Paired, "").unwrap();
        assert_eq!(plan.nodes, [Some(0), Some(1)]);
        assert_eq!(shown(&plan), "1 9 2 10 4 12 5 13 | 0,6-8,11,14-15");
    }

    #[test]
    fn an_offline_sibling_makes_a_core_useless_for_pairs() {
        let wide = guest("cpus: {cores: 4, threads: 2}\nmemory: 1G\n");
        let plan = made(&fixture::server(), &wide, &PinPolicy::Paired, "").unwrap();
        // Only the second socket has four whole cores.
        assert_eq!(shown(&plan), "4 12 5 13 6 14 7 15 | 0-2,8-11");
        let wider = guest("cpus: {cores: 5, threads: 2}\nmemory: 1G\n");
        let error = made(&fixture::server(), &wider, &PinPolicy::Paired, "").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot pair: node 0 wants 5 cores of 2 threads; free host cores per node: 3, 4"
        );
    }

    #[test]
    fn leased_cores_are_passed_over_with_their_siblings() {
        let smt = guest("cpus: {cores: 1, threads: 2}\nmemory: 1G\n");
        let plan = made(&fixture::laptop(), &smt, &PinPolicy::Paired, "1,6").unwrap();
        assert_eq!(shown(&plan), "3 7 | 0,2,4-5");
        let error = made(&fixture::laptop(), &smt, &PinPolicy::Paired, "0-3").unwrap_err();
        assert!(matches!(error, PinError::Unpaired { .. }));
    }

    #[test]
    fn auto_falls_back_and_says_so() {
        let smt = guest("cpus: {cores: 1, threads: 2}\nmemory: 1G\n");
        let plan = made(&fixture::container(), &smt, &PinPolicy::Auto, "").unwrap();
        assert_eq!(plan.mode, PinMode::OneToOne);
        assert_eq!(shown(&plan), "1 2 | -");
        assert!(
            plan.notes[0].starts_with("cannot pair: "),
            "{:?}",
            plan.notes
        );
        let four = guest("cpus: {cores: 4}\nmemory: 1G\n");
        let plan = made(&fixture::container(), &four, &PinPolicy::Auto, "").unwrap();
        assert_eq!(plan.mode, PinMode::None);
        assert_eq!(plan.notes[1], "not pinned: 4 vCPUs, 2 free host CPUs");
    }

    #[test]
    fn fast_cores_come_first_and_a_mixture_is_told() {
        let two = guest("cpus: {cores: 2}\nmemory: 1G\n");
        let plan = made(&fixture::hybrid(), &two, &PinPolicy::Paired, "").unwrap();
        assert_eq!(shown(&plan), "2 0 | 4-7");
        let four = guest("cpus: {cores: 4}\nmemory: 1G\n");
        let plan = made(&fixture::hybrid(), &four, &PinPolicy::Paired, "").unwrap();
        assert_eq!(
            plan.notes,
            ["vCPUs are on host cores of both kinds: their speeds differ"]
        );
    }

    #[test]
    fn maps_are_taken_as_written_or_refused() {
        let four = guest("cpus: {cores: 4}\nmemory: 1G\n");
        let map = |text: &[(&str, &str)]| {
            PinPolicy::Map(text.iter().map(|(a, b)| (cpus(a), cpus(b))).collect())
        };
        let plan = made(
            &fixture::laptop(),
            &four,
            &map(&[("0-1", "2-3"), ("2-3", "4-6")]),
            "",
        );
        assert_eq!(shown(&plan.unwrap()), "2 3 4-6 4-6 | 0-1,7");
        let refused = |pairs: &[(&str, &str)], leased: &str| {
            made(&fixture::server(), &four, &map(pairs), leased)
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            refused(&[("0-3", "2-5")], ""),
            "host CPUs 3 are offline or do not exist"
        );
        assert_eq!(
            refused(&[("0-3", "4-7")], "5"),
            "host CPUs 5 are leased to other guests"
        );
        assert_eq!(
            refused(&[("0-1", "4-5")], ""),
            "the pin map says nothing about vCPUs 2-3"
        );
        assert_eq!(
            refused(&[("0-5", "4-9")], ""),
            "the pin map names vCPUs 4-5; the guest has 4"
        );
        let error = made(&fixture::container(), &four, &map(&[("0-3", "0-3")]), "").unwrap_err();
        assert_eq!(
            error.to_string(),
            "host CPUs 0,3 are not allowed to this process"
        );
    }

    /// A host of equal cores, some of whose CPUs are offline.
    fn host_of(nodes: u32, cores: u32, threads: u32, offline: &CpuList) -> Inventory {
        let per_node = cores * threads;
        let online = CpuList::all(nodes * per_node).without(offline);
        let node_cpus = |node: u32| -> CpuList {
            (node * per_node..(node + 1) * per_node)
                .collect::<CpuList>()
                .and(&online)
        };
        let cpus = online.iter().map(|cpu| {
            let first = cpu / threads * threads;
            HostCpu {
                cpu,
                package: cpu / per_node,
                siblings: (first..first + threads).collect::<CpuList>().and(&online),
                llc: node_cpus(cpu / per_node),
                node: cpu / per_node,
                kind: CoreKind::Performance,
            }
        });
        Inventory {
            allowed: online.clone(),
            cpus: cpus.collect(),
            nodes: (0..nodes)
                .map(|node| crate::host::HostNode {
                    node,
                    cpus: node_cpus(node),
                    memory: 1 << 30,
                    free: 1 << 30,
                    hugepages: std::collections::BTreeMap::new(),
                })
                .collect(),
            online,
        }
    }

    proptest::proptest! {
        #[test]
        fn every_plan_uses_free_cpus_once_and_a_paired_one_keeps_the_shape(
            (nodes, cores, threads) in (1u32..4, 1u32..5, 1u32..3),
            (guest_nodes, guest_cores, guest_threads) in (1u32..3, 1u32..4, 1u32..3),
            offline in proptest::collection::btree_set(0u32..32, 0..4),
            forbidden in proptest::collection::btree_set(0u32..32, 0..4),
            leased in proptest::collection::btree_set(0u32..32, 0..4),
        ) {
            let offline: CpuList = offline.into_iter().filter(|&cpu| cpu != 0).collect();
            let mut host = host_of(nodes, cores, threads, &offline);
            host.allowed = host.allowed.without(&forbidden.into_iter().collect());
            let leased: CpuList = leased.into_iter().collect();
            let per = guest_cores * guest_threads;
            let lists: Vec<String> = (0..guest_nodes)
                .map(|node| format!("{{cpus: {}-{}, memory: 256M}}", node * per, (node + 1) * per - 1))
                .collect();
            let guest = guest(&format!(
                "cpus: {{sockets: {guest_nodes}, cores: {guest_cores}, threads: {guest_threads}}}\nnodes: [{}]\n",
                lists.join(", ")
            ));
            let plan = plan(&guest, &PinPolicy::Auto, &host, &leased).unwrap();
            let free = host.allowed.without(&leased);
            proptest::prop_assert!(plan.used().is_subset(&free));
            if let Some(others) = &plan.others {
                proptest::prop_assert!(others.is_subset(&free) && others.and(&plan.used()).is_empty());
            }
            if plan.mode == PinMode::None {
                proptest::prop_assert!(!plan.notes.is_empty());
                return Ok(());
            }
            proptest::prop_assert_eq!(plan.used().len(), guest.vcpus());
            // Nobody else's core is disturbed.
            proptest::prop_assert!(host.whole_cores(&plan.used()).and(&leased).is_empty());
            if plan.mode == PinMode::Paired {
                for core in guest.cpus.groups(Level::Core) {
                    let on: CpuList = core.iter().filter_map(|v| plan.vcpus[v as usize].first()).collect();
                    let host_core = &host.cpu(on.first().unwrap()).unwrap().siblings;
                    proptest::prop_assert!(on.is_subset(host_core), "{core} on {on}");
                }
                for node in &guest.nodes {
                    let on: Vec<u32> = node.cpus.iter()
                        .filter_map(|v| host.cpu(plan.vcpus[v as usize].first()?).map(|cpu| cpu.node))
                        .collect();
                    proptest::prop_assert!(on.windows(2).all(|pair| pair[0] == pair[1]));
                }
            }
        }
    }
}
