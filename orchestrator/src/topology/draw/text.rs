//! A topology as text.

use super::{
    Cores, FOLD_ABOVE,
    block::Block,
    cores,
    marks::{self, Mark},
    parts, shape,
};
use crate::topology::{CpuList, Level, OptionalPart, PinPolicy, Topology, size::Size};

/// Beyond this many nodes a matrix of distances helps nobody.
const LARGEST_MATRIX: usize = 24;

/// Draws a topology at most `width` columns wide, if that is at all possible.
pub fn text(topology: &Topology, width: usize) -> String {
    let marks = marks::assign(topology);
    let mut lines = vec![
        format!(
            "{}: {} vCPU{}, {} of memory",
            topology.name,
            topology.vcpus(),
            if topology.vcpus() == 1 { "" } else { "s" },
            Size(topology.memory())
        ),
        shape(topology),
        String::new(),
    ];
    lines.extend(nodes(topology, &marks, width).into_lines());
    lines.push(String::new());
    lines.extend(legend(topology, &marks));
    lines.extend(distances(topology));
    lines.extend(hmat(topology));
    lines.extend(wrapped("cmdline", &topology.cmdline, width));
    lines.extend(pin(topology));
    lines.extend(processor(topology));
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines.join("\n")
}

/// Nodes side by side, in as few lines as possible.
fn nodes(topology: &Topology, marks: &[Mark], width: usize) -> Block {
    let gap = 1;
    let mut best: Option<Block> = None;
    for columns in (1..=topology.nodes.len()).rev() {
        let each = (width + gap) / columns - gap;
        let blocks: Vec<Block> = (0..topology.nodes.len())
            .map(|index| node(topology, marks, index, each))
            .collect();
        let drawn = Block::flow(&blocks, gap, width);
        let better = best.as_ref().is_none_or(|best| {
            let fits = |block: &Block| block.width() <= width;
            (!fits(&drawn), drawn.height()) < (!fits(best), best.height())
        });
        if better {
            best = Some(drawn);
        }
    }
    best.expect("a topology has a node")
}

fn node(topology: &Topology, marks: &[Mark], index: usize, limit: usize) -> Block {
    let node = &topology.nodes[index];
    let memory = match node.memory {
        0 => "no memory".to_string(),
        bytes => Size(bytes).to_string(),
    };
    let inside = limit.saturating_sub(4);
    let content = if node.cpus.is_empty() {
        Block::new(&["no CPUs".into()])
    } else {
        let sockets: Vec<Block> = parts(topology, Level::Socket, &node.cpus)
            .into_iter()
            .map(|(index, cpus, whole)| socket(topology, marks, index, &cpus, whole, inside))
            .collect();
        Block::flow(&sockets, 1, inside)
    };
    content.framed(&format!("node {index} · {memory}"))
}

fn socket(
    topology: &Topology,
    marks: &[Mark],
    index: u32,
    cpus: &CpuList,
    whole: bool,
    limit: usize,
) -> Block {
    let inside = limit.saturating_sub(4);
    let title = super::title(topology, &format!("socket {index}"), Level::Socket, whole);
    if topology.cpus.dies == 1 {
        return die(topology, marks, cpus, inside).framed(&title);
    }
    let dies: Vec<Block> = parts(topology, Level::Die, cpus)
        .into_iter()
        .map(|(index, cpus, whole)| {
            let name = format!("die {}", index % topology.cpus.dies);
            let content = die(topology, marks, &cpus, inside.saturating_sub(4));
            content.framed(&super::title(topology, &name, Level::Die, whole))
        })
        .collect();
    Block::flow(&dies, 1, inside).framed(&title)
}

fn die(topology: &Topology, marks: &[Mark], cpus: &CpuList, limit: usize) -> Block {
    if topology.cpus.clusters == 1 {
        return all_cores(topology, marks, cpus, limit);
    }
    let clusters: Vec<Block> = parts(topology, Level::Cluster, cpus)
        .into_iter()
        .map(|(index, cpus, whole)| {
            let name = format!("cluster {}", index % topology.cpus.clusters);
            let title = super::title(topology, &name, Level::Cluster, whole);
            let content = all_cores(topology, marks, &cpus, limit.saturating_sub(4));
            content.framed(&title)
        })
        .collect();
    Block::flow(&clusters, 1, limit)
}

fn all_cores(topology: &Topology, marks: &[Mark], cpus: &CpuList, limit: usize) -> Block {
    let folded = topology.vcpus() > FOLD_ABOVE;
    let digits = (topology.vcpus() - 1).to_string().len();
    let blocks: Vec<Block> = cores(topology, cpus, marks)
        .iter()
        .map(|cores| {
            if folded {
                run(cores)
            } else {
                core(cores, topology.cpus.threads as usize, digits)
            }
        })
        .collect();
    if folded {
        return Block::above(&blocks);
    }
    // Cores of equal width, so that rows stand below each other.
    Block::flow(&blocks, 1, limit)
}

/// A core: its threads, its ranking and its sets, one below the other. A core
/// with fewer threads than others leaves their rows empty.
fn core(core: &Cores, threads: usize, digits: usize) -> Block {
    let ranking = core.ranking.map(|ranking| format!("r{ranking}"));
    let width = digits
        .max(ranking.as_ref().map_or(0, String::len))
        .max(core.marks.chars().count());
    let mut lines: Vec<String> = core
        .cpus
        .iter()
        .map(|cpu| format!("{cpu:>width$}"))
        .collect();
    lines.resize(threads, String::new());
    if let Some(ranking) = ranking {
        lines.push(format!("{ranking:>width$}"));
    }
    if !core.marks.is_empty() {
        lines.push(format!("{:>width$}", core.marks));
    }
    Block::new(&lines)
}

/// A run of cores on one line: `16 cores × 2: 0-31  r166  h`.
fn run(cores: &Cores) -> Block {
    let each = match cores.threads {
        1 => String::new(),
        n => format!(" × {n}"),
    };
    let plural = if cores.count == 1 { "" } else { "s" };
    let mut line = format!("{} core{plural}{each}: {}", cores.count, cores.cpus);
    if let Some(ranking) = cores.ranking {
        line.push_str("  r");
        line.push_str(&ranking.to_string());
    }
    if !cores.marks.is_empty() {
        line.push_str("  ");
        line.push_str(&cores.marks);
    }
    Block::new(&[line])
}

fn legend(topology: &Topology, marks: &[Mark]) -> Vec<String> {
    let mut lines = Vec::new();
    let folded = topology.vcpus() > FOLD_ABOVE;
    let mut below = Vec::new();
    if topology.preferred_cores.is_some() {
        below.push("ranking after r");
    }
    if !marks.is_empty() {
        below.push("letters of its sets");
    }
    if !below.is_empty() {
        let place = if folded { "beside" } else { "below" };
        lines.push(format!("{place} each core: {}", below.join(", ")));
    }
    for mark in marks {
        lines.push(format!("  {} {}: {}", mark.letter, mark.name, mark.cpus));
    }
    if !lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

fn distances(topology: &Topology) -> Vec<String> {
    let count = topology.nodes.len();
    if count == 1 {
        return Vec::new();
    }
    let Some(matrix) = &topology.distances else {
        return vec![
            "distances: none given, the kernel assumes 10 and 20".into(),
            String::new(),
        ];
    };
    if count > LARGEST_MATRIX {
        let all = matrix.iter().flatten();
        let far = all.clone().max().copied().unwrap_or_default();
        let near = all.filter(|d| **d > 10).min().copied().unwrap_or_default();
        return vec![
            format!("distances: {count} × {count}, from {near} to {far}"),
            String::new(),
        ];
    }
    let head: String = (0..count).map(|to| format!("{to:>4}")).collect();
    let mut lines = vec![format!("distances{head}")];
    for (from, row) in matrix.iter().enumerate() {
        let cells: String = row
            .iter()
            .map(|distance| format!("{distance:>4}"))
            .collect();
        lines.push(format!("{from:>9}{cells}"));
    }
    lines.push(String::new());
    lines
}

fn hmat(topology: &Topology) -> Vec<String> {
    let Some(hmat) = &topology.hmat else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    if hmat.paths.len() <= LARGEST_MATRIX {
        for path in &hmat.paths {
            lines.push(format!(
                "node {} to memory of node {}: {} ns, {}/s",
                path.initiator,
                path.target,
                path.latency,
                Size(path.bandwidth)
            ));
        }
    } else {
        lines.push(format!(
            "paths to memory: {} are described",
            hmat.paths.len()
        ));
    }
    for cache in &hmat.caches {
        lines.push(format!(
            "memory-side cache of node {}, level {}: {}",
            cache.node,
            cache.level,
            Size(cache.size)
        ));
    }
    lines.push(String::new());
    lines
}

/// A text after a label, broken between words.
fn wrapped(label: &str, text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(format!("{label}: {word}")),
        }
    }
    lines
}

fn pin(topology: &Topology) -> Vec<String> {
    match &topology.pin {
        PinPolicy::Auto => Vec::new(),
        PinPolicy::Paired => vec!["pin: paired".into()],
        PinPolicy::None => vec!["pin: none".into()],
        PinPolicy::Map(pairs) => {
            let pairs: Vec<String> = pairs
                .iter()
                .map(|(guest, host)| format!("{guest} on host {host}"))
                .collect();
            vec![format!("pin: {}", pairs.join(", "))]
        }
    }
}

fn processor(topology: &Topology) -> Vec<String> {
    let mut lines = Vec::new();
    if topology.caches.l3 == Level::Core {
        lines.push("caches: each core has an L3 of its own".to_string());
    }
    for part in &topology.optional {
        let name = match part {
            OptionalPart::Clusters => "clusters",
            OptionalPart::Caches => "caches",
        };
        lines.push(format!("optional: {name}, where QEMU cannot make them"));
    }
    let cpu = &topology.cpu;
    if cpu.model.is_some() || !cpu.flags.is_empty() {
        let model = cpu.model.as_deref().unwrap_or("the bench's model");
        lines.push(
            format!("cpu: {model} {}", cpu.flags.join(" "))
                .trim_end()
                .to_string(),
        );
    }
    let backing = topology.memory_backing;
    let mut memory = Vec::new();
    if let Some(size) = backing.hugepages {
        memory.push(format!("huge pages of {}", Size(size)));
    }
    if backing.prealloc {
        memory.push("touched before the start".to_string());
    }
    if !memory.is_empty() {
        lines.push(format!("memory: {}", memory.join(", ")));
    }
    lines
}
