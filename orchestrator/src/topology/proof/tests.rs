use topolab_protocol::observed::{CpuView, MemorySideCache, NodeView, Observed};

use super::{Difference, compare, rows};
use crate::topology::{Level, Topology, cmdline, size::MIB};

const TEXT: &str = "
name: t
cpus: {sockets: 2, cores: 2, threads: 2}
nodes:
  - {cpus: 0-3, memory: 1G}
  - {cpus: 4-7, memory: 512M}
distances: [[10, 21], [21, 10]]
sets: {isolated: 4-7}
cmdline: isolcpus=nohz,domain,{isolated} nohz_full={isolated}
preferred_cores: [166, 216, 231, 221]
";

fn topology() -> Topology {
    Topology::from_text("t.yaml", TEXT).unwrap_or_else(|problems| panic!("{problems}"))
}

/// What a guest reports that is just as asked.
fn perfect(topology: &Topology) -> Observed {
    let siblings = |vcpu: u32, level: Level| {
        let groups = topology.cpus.groups(level);
        let group = groups.into_iter().find(|g| g.contains(vcpu)).unwrap();
        Some(group.to_string())
    };
    Observed {
        online: format!("0-{}", topology.vcpus() - 1),
        possible: format!("0-{}", topology.vcpus() - 1),
        cmdline: format!("console=ttyS0 {}", topology.cmdline),
        cpus: (0..topology.vcpus())
            .map(|cpu| CpuView {
                cpu,
                smt_siblings: siblings(cpu, Level::Core),
                package_siblings: siblings(cpu, Level::Socket),
                die_siblings: siblings(cpu, Level::Die),
                llc: siblings(cpu, Level::Die),
                ranking: topology.preferred_cores.as_ref().map(|r| r[cpu as usize]),
                ..CpuView::default()
            })
            .collect(),
        nodes: (0..)
            .zip(&topology.nodes)
            .map(|(node, asked)| NodeView {
                node,
                cpus: asked.cpus.to_string(),
                mem_total: asked.memory - 40 * MIB,
                distances: (0..topology.nodes.len())
                    .map(|to| topology.distance(node as usize, to).into())
                    .collect(),
                ..NodeView::default()
            })
            .collect(),
        isolated: Some("4-7".into()),
        nohz_full: Some("4-7".into()),
        itmt_enabled: Some(true),
        domains: [(
            "MC".to_string(),
            "SD_BALANCE_NEWIDLE SD_ASYM_PACKING".to_string(),
        )]
        .into(),
        ..Observed::default()
    }
}

/// The differences after one thing was changed, as they are told.
fn after(change: impl FnOnce(&mut Observed)) -> Vec<String> {
    let topology = topology();
    let mut observed = perfect(&topology);
    change(&mut observed);
    compare(&topology, &cmdline::words(&topology.cmdline), &observed)
        .iter()
        .map(Difference::to_string)
        .collect()
}

#[test]
fn a_guest_as_asked_has_no_difference() {
    assert_eq!(after(|_| {}), Vec::<String>::new());
    let topology = topology();
    let words = cmdline::words(&topology.cmdline);
    insta::assert_debug_snapshot!(
        rows(&topology, &words, &perfect(&topology))
            .into_iter()
            .map(|row| format!("{} | {} | {}", row.field, row.asked, row.seen))
            .collect::<Vec<_>>()
    );
}

#[test]
fn each_wrong_thing_is_named() {
    assert_eq!(
        after(|o| o.online = "0-6".into()),
        ["cpus online: asked 0-7, seen 0-6"]
    );
    assert_eq!(
        after(|o| o.cpus[2].smt_siblings = Some("2".into())),
        ["threads of a core: asked cpu 2 with 2-3, seen 2"]
    );
    assert_eq!(
        after(|o| {
            for cpu in &mut o.cpus {
                cpu.llc = Some("0-7".into());
            }
        }),
        ["last-level caches: asked cpu 0 with 0-3, seen 0-7 (7 more CPUs differ)"]
    );
    assert_eq!(
        after(|o| o.nodes[1].cpus = "5-7".into()),
        ["node 1 cpus: asked 4-7, seen 5-7"]
    );
    assert_eq!(
        after(|o| o.nodes[0].mem_total = 512 * MIB),
        ["node 0 memory: asked 1G, seen 512M"]
    );
    assert_eq!(
        after(|o| o.nodes[0].mem_present = Some(1024 * MIB - 5 * MIB)),
        ["node 0 memory: asked 1G, seen 1019M"]
    );
    assert_eq!(
        after(|o| o.nodes[0].mem_present = Some(1024 * MIB - 392 * 1024)),
        Vec::<String>::new()
    );
    assert_eq!(
        after(|o| o.nodes[0].mem_present = Some(1025 * MIB)),
        ["node 0 memory: asked 1G, seen 1025M"]
    );
    assert_eq!(
        after(|o| o.nodes[0].distances = vec![10, 20]),
        ["node 0 distances: asked 10 21, seen 10 20"]
    );
    assert_eq!(
        after(|o| {
            o.nodes.pop();
        }),
        [
            "nodes: asked 0-1, seen 0",
            "node 0 distances: asked 10, seen 10 21"
        ]
    );
    assert_eq!(
        after(|o| o.nohz_full = None),
        ["nohz_full: asked 4-7, seen none"]
    );
    assert_eq!(
        after(|o| o.isolated = Some(String::new())),
        ["isolated: asked 4-7, seen none"]
    );
    assert_eq!(
        after(|o| o.cmdline = o.cmdline.replace("nohz_full=4-7", "nohz_full=4")),
        ["command line: asked nohz_full=4-7, seen absent"]
    );
    assert_eq!(
        after(|o| o
            .complaints
            .push("SLIT table looks invalid. Not used.".into())),
        ["kernel complaints: asked none, seen SLIT table looks invalid. Not used."]
    );
}

/// Memory behind the nodes: attributes of the best initiator, and caches.
#[test]
fn each_wrong_memory_attribute_is_named() {
    let text = "
name: t
cpus: {cores: 2}
nodes: [{cpus: 0-1, memory: 512M}, {memory: 512M, initiator: 0}]
distances: {0-1: 30}
hmat:
  latency: [[80, 250]]
  bandwidth: [[20G, 5G]]
  caches: [{node: 1, size: 64M}]
";
    let topology = Topology::from_text("t.yaml", text).unwrap_or_else(|p| panic!("{p}"));
    let mut observed = perfect(&topology);
    observed.isolated = None;
    observed.nohz_full = None;
    for (node, latency, bandwidth) in [(0, 80, 20480), (1, 250, 5120)] {
        let view: &mut NodeView = &mut observed.nodes[node];
        view.initiators0 = vec![0];
        for (name, value) in [("latency", latency), ("bandwidth", bandwidth)] {
            view.access0.insert(format!("read_{name}"), value);
            view.access0.insert(format!("write_{name}"), value);
        }
    }
    let cache = MemorySideCache {
        level: 1,
        size: 64 * MIB,
    };
    observed.nodes[1].memory_caches = vec![cache];
    let words: [&str; 0] = [];
    let told = |observed: &Observed| -> Vec<String> {
        let differences = compare(&topology, &words, observed);
        differences.iter().map(Difference::to_string).collect()
    };
    assert_eq!(told(&observed), Vec::<String>::new());
    let mut wrong = observed.clone();
    wrong.nodes[1].access0.insert("read_latency".into(), 80);
    wrong.nodes[1].initiators0.clear();
    assert_eq!(
        told(&wrong),
        [
            "node 1 initiators: asked 0, seen none",
            "node 1 read latency: asked 250 ns, seen 80 ns"
        ]
    );
    let mut wrong = observed.clone();
    wrong.nodes[1].memory_caches.clear();
    assert_eq!(
        told(&wrong),
        ["node 1 memory-side caches: asked level 1 64M, seen none"]
    );
}

#[test]
fn each_wrong_ranking_is_named() {
    assert_eq!(
        after(|o| {
            let ranking = o.cpus[2].ranking;
            o.cpus[2].ranking = o.cpus[4].ranking;
            o.cpus[4].ranking = ranking;
        }),
        [
            "ranking of cpu 2: asked 216, seen 231",
            "ranking of cpu 4: asked 231, seen 216"
        ]
    );
    assert_eq!(
        after(|o| o.itmt_enabled = None),
        ["ITMT: asked on, seen absent"]
    );
    assert_eq!(
        after(|o| o.domains = [("MC".to_string(), "SD_NUMA".to_string())].into()),
        ["scheduling domains: asked SD_ASYM_PACKING, seen not in MC"]
    );
    assert_eq!(
        after(|o| o.domains.clear()),
        ["scheduling domains: asked SD_ASYM_PACKING, seen no domains in debugfs"]
    );
}
