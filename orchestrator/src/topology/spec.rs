//! A topology as its file says it, before anything is checked.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::document::At;

/// A topology file.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Spec {
    /// Name of the machine: letters, digits, `-`, `_`, `.`.
    pub name: At<String>,
    /// Sockets, cores and threads.
    pub cpus: At<Cpus>,
    /// Size of all memory (`2G`). Needed when there are no `nodes`; beside them
    /// it is checked against their sum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<At<String>>,
    /// NUMA nodes in order. Left out: one node with everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<At<Vec<At<NodeSpec>>>>,
    /// Distances between nodes: a matrix, or pairs like `{0-1: 21}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distances: Option<At<Distances>>,
    /// The distance from A to B may differ from that from B to A.
    #[serde(default)]
    pub asymmetric: bool,
    /// Named sets of CPUs, in the kernel's cpulist syntax.
    #[serde(default)]
    pub sets: BTreeMap<String, At<String>>,
    /// Words for the kernel's command line; `{name}` stands for a set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmdline: Option<At<String>>,
    /// Rankings, one per vCPU or one per core, 1 to 255, the higher the more preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_cores: Option<At<Vec<At<u32>>>>,
    /// Where vCPUs run on the host: `auto`, `paired`, `none`, or a map like `{0-3: 2-5}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<At<Pin>>,
    /// CPU model and flags of QEMU's `-cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// What guest memory is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_backing: Option<Backing>,
}

/// Sockets down to threads; each count is per the next larger one, 1 when left out.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Cpus {
    /// Sockets of the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sockets: Option<At<u32>>,
    /// Dies per socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dies: Option<At<u32>>,
    /// Clusters per die: cores that share an L2 cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<At<u32>>,
    /// QEMU's word for clusters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub modules: Option<At<u32>>,
    /// Cores per cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cores: Option<At<u32>>,
    /// Threads per core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<At<u32>>,
    /// All vCPUs; checked against the product of the others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<At<u32>>,
}

/// A NUMA node.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct NodeSpec {
    /// Its vCPUs, in the kernel's cpulist syntax. When no node has any, they are
    /// spread evenly over the nodes; else a node without has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<At<String>>,
    /// Size of its memory (`512M`); left out or `0`: a memoryless node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<At<String>>,
}

/// Distances between nodes.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Distances {
    /// One row per node: the distances from it to each node.
    Matrix(Vec<Vec<u32>>),
    /// `A-B` to the distance; both ways unless `asymmetric`.
    Pairs(BTreeMap<String, u32>),
}

/// Where vCPUs run on the host.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Pin {
    /// By a rule.
    Rule(PinRule),
    /// Guest CPUs to host CPUs.
    Map(BTreeMap<String, String>),
}

/// Rules for pinning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PinRule {
    /// Paired where the host can, else each vCPU on a CPU of its own, else none.
    Auto,
    /// Siblings on siblings and nodes on nodes, or fail.
    Paired,
    /// The host's scheduler decides.
    None,
}

/// CPU model and flags.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Cpu {
    /// QEMU's name of the model (`qemu-system-x86_64 -cpu help`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<At<String>>,
    /// `+flag`, `-flag` or `property=value`.
    pub flags: Vec<At<String>>,
}

/// What guest memory is made of.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Backing {
    /// Size of huge pages: `2M` or `1G`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hugepages: Option<At<String>>,
    /// Touch every page before the guest starts.
    pub prealloc: bool,
}
