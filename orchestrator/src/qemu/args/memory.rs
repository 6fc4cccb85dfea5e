//! Memory and NUMA nodes.

use super::{Args, Bench, Value, hmat};
use crate::topology::{CpuLayout, CpuList, Level, Place, Topology, size::MIB};

pub(super) fn add(args: &mut Args, topology: &Topology, bench: &Bench) {
    args.add("-m", format!("{}M", topology.memory() / MIB));
    for index in 0..topology.nodes.len() {
        backend(args, topology, bench, index);
    }
    for (index, node) in topology.nodes.iter().enumerate() {
        let mut value = Value::new("node").set("nodeid", index);
        if node.memory > 0 {
            value = value.set("memdev", format!("mem{index}"));
        }
        // Nodes with CPUs are their own initiators.
        if let Some(initiator) = node.initiator.filter(|_| topology.hmat.is_some())
            && node.cpus.is_empty()
        {
            value = value.set("initiator", initiator);
        }
        args.add("-numa", value);
    }
    for (index, node) in topology.nodes.iter().enumerate() {
        for place in places(&topology.cpus, &node.cpus) {
            args.add("-numa", format!("cpu,node-id={index},{place}"));
        }
    }
    distances(args, topology);
    hmat::add(args, topology);
}

fn backend(args: &mut Args, topology: &Topology, bench: &Bench, index: usize) {
    let bytes = topology.nodes[index].memory;
    if bytes == 0 {
        return;
    }
    let backing = topology.memory_backing;
    // A memfd needs no mounted hugetlbfs.
    let kind = match backing.hugepages {
        Some(_) => "memory-backend-memfd",
        None => "memory-backend-ram",
    };
    let mut value = Value::new(kind)
        .set("id", format!("mem{index}"))
        .set("size", format!("{}M", bytes / MIB));
    if let Some(size) = backing.hugepages {
        value = value
            .set("hugetlb", "on")
            .set("hugetlbsize", format!("{}M", size / MIB));
    }
    if backing.prealloc {
        value = value.set("prealloc", "on");
    }
    if let Some(Some(host)) = bench.host_nodes.get(index) {
        for (start, end) in host.nodes.ranges() {
            value = value.set("host-nodes", format!("{start}-{end}"));
        }
        value = value.set("policy", host.policy.word());
    }
    args.add("-object", value);
}

fn distances(args: &mut Args, topology: &Topology) {
    let Some(matrix) = &topology.distances else {
        return;
    };
    let all = 0..matrix.len();
    let symmetric = all
        .clone()
        .all(|from| all.clone().all(|to| matrix[from][to] == matrix[to][from]));
    for (from, row) in matrix.iter().enumerate() {
        for (to, distance) in row.iter().enumerate() {
            // QEMU mirrors a pair that is given once, but wants both directions of
            // all pairs where those of one differ.
            let mirrored = symmetric && to < from;
            if from != to && !mirrored {
                args.add("-numa", format!("dist,src={from},dst={to},val={distance}"));
            }
        }
    }
}

/// Names a set of vCPUs in as few `-numa cpu` properties as possible: a socket
/// that belongs to the set as a whole needs no cores.
fn places(layout: &CpuLayout, cpus: &CpuList) -> Vec<String> {
    let mut names = Vec::new();
    for socket in layout.groups(Level::Socket) {
        name_group(layout, cpus, &socket, Level::Socket, &mut names);
    }
    names
}

fn name_group(
    layout: &CpuLayout,
    cpus: &CpuList,
    group: &CpuList,
    level: Level,
    names: &mut Vec<String>,
) {
    let inside = group.and(cpus);
    let Some(first) = inside.first() else {
        return;
    };
    let Place {
        socket,
        die,
        cluster,
        core,
        ..
    } = layout.place(first);
    let mut parts = vec![format!("socket-id={socket}")];
    let mut narrow = |at_most: Level, key: &str, value: u32| {
        if level <= at_most {
            parts.push(format!("{key}={value}"));
        }
    };
    // QEMU refuses names of levels that have one part each.
    if layout.dies > 1 {
        narrow(Level::Die, "die-id", die);
    }
    if layout.clusters > 1 {
        narrow(Level::Cluster, "module-id", cluster);
    }
    narrow(Level::Core, "core-id", core);
    let name = parts.join(",");
    if inside == *group {
        names.push(name);
        return;
    }
    let next = match level {
        Level::Socket => Level::Die,
        Level::Die => Level::Cluster,
        Level::Cluster => Level::Core,
        Level::Core => {
            names.extend(inside.iter().map(|vcpu| {
                let thread = layout.place(vcpu).thread;
                format!("{name},thread-id={thread}")
            }));
            return;
        }
    };
    for smaller in layout.groups(next) {
        if smaller.is_subset(group) {
            name_group(layout, cpus, &smaller, next, names);
        }
    }
}
