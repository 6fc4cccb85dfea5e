//! The machine a guest must see.
//!
//! What a file says is a [`spec::Spec`]; [`check`] proves it consistent and
//! makes a [`Topology`], the only thing QEMU arguments are built from; what
//! the guest then reports is held against it by [`proof`]. Everything here is
//! pure except [`Topology::read`], which reads its one file.

pub mod check;
pub mod cmdline;
mod cpulist;
pub mod draw;
mod layout;
pub mod needs;
mod pin;
pub mod proof;
pub mod scale;
pub mod size;
pub mod spec;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use serde::Serialize;

pub use cpulist::{CpuList, CpuListError, MAX_CPUS};
pub use layout::{CpuLayout, Level, Place};
pub use pin::{PinPolicy, PinPolicyError};
pub use spec::{Associativity, Oddity, OptionalPart, WritePolicy};

use crate::document::{Document, Problems};

/// A machine that was checked: its parts agree with each other.
///
/// vCPUs are numbered as QEMU and the kernel number them: threads of a core
/// first, then cores, clusters, dies and sockets. Made by [`check`] alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Topology {
    /// Name, unique in the library.
    pub name: String,
    /// Sockets down to threads.
    pub cpus: CpuLayout,
    /// NUMA nodes, at least one. Node N is the entry N.
    pub nodes: Vec<Node>,
    /// Distance from row to column, 10 on the diagonal, 255 where a node
    /// cannot be reached. `None`: the file gives none, QEMU writes no SLIT and
    /// the kernel assumes 10 and 20.
    pub distances: Option<Vec<Vec<u8>>>,
    /// How fast memory is from where.
    pub hmat: Option<Hmat>,
    /// Who shares which cache.
    pub caches: Caches,
    /// Named sets of CPUs.
    pub sets: BTreeMap<String, CpuList>,
    /// Words for the kernel's command line: the file's, with the sets filled
    /// in, and those the topology itself needs.
    pub cmdline: String,
    /// Ranking of each vCPU, the higher the more preferred.
    pub preferred_cores: Option<Vec<u32>>,
    /// Where vCPUs run on the host.
    pub pin: PinPolicy,
    /// CPU model and flags asked for by the file.
    pub cpu: CpuModel,
    /// What guest memory is made of.
    pub memory_backing: MemoryBacking,
    /// Oddities the file says it means.
    pub deliberate: BTreeSet<Oddity>,
    /// Parts the machine may go without where QEMU cannot make them.
    pub optional: BTreeSet<OptionalPart>,
}

/// A NUMA node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Node {
    /// Its vCPUs; none for a node of memory alone.
    pub cpus: CpuList,
    /// Bytes of memory; 0 for a memoryless node.
    pub memory: u64,
    /// The node whose CPUs reach this memory best; the node itself when it has
    /// CPUs, `None` when the file does not say.
    pub initiator: Option<u32>,
}

/// How fast memory is from where: ACPI's Heterogeneous Memory Attribute Table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hmat {
    /// One entry per pair of a node with CPUs and a node with memory.
    pub paths: Vec<MemoryPath>,
    /// Caches in front of a node's memory, by node and level.
    pub caches: Vec<MemoryCache>,
}

/// How fast one node's memory is for another's CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryPath {
    /// The node with CPUs.
    pub initiator: u32,
    /// The node with memory.
    pub target: u32,
    /// Nanoseconds.
    pub latency: u32,
    /// Bytes per second.
    pub bandwidth: u64,
}

/// A cache in front of a node's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct MemoryCache {
    /// The node.
    pub node: u32,
    /// Level, 1 nearest to the memory.
    pub level: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes of a line.
    pub line: u32,
    /// How lines find their place.
    pub associativity: Associativity,
    /// What a write does.
    pub policy: WritePolicy,
}

/// Who shares a cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Caches {
    /// L2.
    pub l2: Level,
    /// L3, the last level.
    pub l3: Level,
}

impl Caches {
    /// What QEMU makes when it is not told: an L2 cache per core, or per cluster
    /// where there are clusters, and an L3 cache per die.
    pub fn usual(cpus: &CpuLayout) -> Self {
        Self {
            l2: if cpus.clusters > 1 {
                Level::Cluster
            } else {
                Level::Core
            },
            l3: Level::Die,
        }
    }
}

/// CPU model and flags, as in `-cpu MODEL,FLAG=on`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CpuModel {
    /// QEMU's name of the model; `None` leaves the choice to the bench.
    pub model: Option<String>,
    /// `+flag`, `-flag` or `property=value`.
    pub flags: Vec<String>,
}

/// What guest memory is made of on the host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryBacking {
    /// Size of the huge pages, bytes; `None` for ordinary memory.
    pub hugepages: Option<u64>,
    /// Touch every page before the guest starts.
    pub prealloc: bool,
}

/// Distance of a node to itself in ACPI's SLIT.
pub const LOCAL_DISTANCE: u8 = 10;
/// Distance the kernel assumes between nodes when there is no SLIT.
pub const REMOTE_DISTANCE: u8 = 20;
/// ACPI's mark for a node that cannot be reached.
pub const UNREACHABLE: u8 = 255;

impl Topology {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        check::check(&Document::read(path)?)
    }

    /// Checks a text; `name` stands for the file in messages.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn from_text(name: &str, text: &str) -> Result<Self, Problems> {
        check::check(&Document::from_text(name, text)?)
    }

    /// How many vCPUs.
    pub fn vcpus(&self) -> u32 {
        self.cpus.count()
    }

    /// All memory, bytes.
    pub fn memory(&self) -> u64 {
        self.nodes.iter().map(|n| n.memory).sum()
    }

    /// Where a vCPU sits.
    pub fn place(&self, vcpu: u32) -> Place {
        self.cpus.place(vcpu)
    }

    /// The node of a vCPU.
    pub fn node_of(&self, vcpu: u32) -> usize {
        self.nodes
            .iter()
            .position(|n| n.cpus.contains(vcpu))
            .expect("a checked topology puts every vCPU in a node")
    }

    /// Distance between two nodes as the guest's kernel sees it.
    pub fn distance(&self, from: usize, to: usize) -> u8 {
        match &self.distances {
            Some(matrix) => matrix[from][to],
            None if from == to => LOCAL_DISTANCE,
            None => REMOTE_DISTANCE,
        }
    }
}
