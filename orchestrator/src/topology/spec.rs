//! A topology as its file says it, before anything is checked.

use std::{collections::BTreeMap, fmt};

use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer, Serialize,
    de::{self, IntoDeserializer, MapAccess, Visitor},
};
use topolab_protocol::settings::Scalar;

use super::Level;
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
    pub distances: Option<At<Table<u32>>>,
    /// The distance from A to B may differ from that from B to A.
    #[serde(default)]
    pub asymmetric: bool,
    /// How fast memory is from where, and caches in front of it (ACPI's HMAT).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hmat: Option<At<HmatSpec>>,
    /// Who shares which cache, where it is not as usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caches: Option<At<CachesSpec>>,
    /// Named sets of CPUs, in the kernel's cpulist syntax.
    #[serde(default)]
    pub sets: BTreeMap<String, At<String>>,
    /// Words for the kernel's command line; `{name}` stands for a set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cmdline: Option<At<String>>,
    /// Rankings, one per vCPU or one per core, 1 to 255, the higher the more preferred.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferred_cores: Option<At<Vec<At<u32>>>>,
    /// Performance cores first, then efficient ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hybrid: Option<At<HybridSpec>>,
    /// Where vCPUs run on the host: `auto`, `paired`, `none`, or a map like `{0-3: 2-5}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pin: Option<At<Pin>>,
    /// CPU model and flags of QEMU's `-cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    /// What guest memory is made of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_backing: Option<Backing>,
    /// Oddities that are meant, and not mistakes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deliberate: Vec<At<Oddity>>,
    /// Parts the machine may go without where this QEMU cannot make them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub optional: Vec<At<OptionalPart>>,
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
    /// For a node without CPUs under `hmat`: the node whose CPUs reach it best.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub initiator: Option<At<u32>>,
}

/// Values for pairs of nodes.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Table<T> {
    /// One row per node it is seen from: the values to each node.
    Matrix(Vec<Vec<T>>),
    /// `A-B` to the value from A to B.
    Pairs(BTreeMap<String, T>),
}

/// How fast memory is from where, and caches in front of it.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HmatSpec {
    /// Latency in nanoseconds from each node with CPUs to each with memory: a
    /// matrix (one row per node with CPUs), or pairs like `{0-2: 250}`.
    pub latency: At<Table<u32>>,
    /// Bandwidth per second, such as `20G`, for the same pairs.
    pub bandwidth: At<Table<Scalar>>,
    /// Caches in front of a node's memory.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub caches: Vec<At<MemoryCacheSpec>>,
}

/// A cache in front of a node's memory.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MemoryCacheSpec {
    /// The node.
    pub node: At<u32>,
    /// Level, 1 to 3, 1 nearest to the memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<At<u32>>,
    /// Size (`64M`).
    pub size: At<String>,
    /// Bytes of a line, 64 when left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<At<u32>>,
    /// How lines find their place.
    #[serde(default)]
    pub associativity: Associativity,
    /// What a write does.
    #[serde(default)]
    pub policy: WritePolicy,
}

/// How lines of a memory-side cache find their place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Associativity {
    /// Not told.
    None,
    /// One place for each line.
    #[default]
    Direct,
    /// Several, by a rule that is not told.
    Complex,
}

/// What a write to a memory-side cache does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WritePolicy {
    /// Not told.
    None,
    /// It reaches memory later.
    #[default]
    WriteBack,
    /// It reaches memory at once.
    WriteThrough,
}

/// Who shares a cache.
#[derive(Debug, Clone, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct CachesSpec {
    /// Who shares an L2 cache; the cluster when there are clusters, else the core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l2: Option<At<Level>>,
    /// Who shares an L3 cache; the die when left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub l3: Option<At<Level>>,
}

/// Performance cores first, then efficient ones with one thread each.
#[derive(Debug, Clone, Deserialize, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HybridSpec {
    /// How many performance cores, each with `cpus.threads` threads.
    pub performance: At<u32>,
    /// How many efficient cores, each with one thread.
    pub efficient: At<u32>,
}

/// Something a machine rarely has, and only a file that says so may ask for.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Oddity {
    /// CPUs that share a last-level cache are in different nodes.
    LlcSpansNodes,
    /// Threads of a core, or cores of a cluster, are in different nodes.
    CoreSpansNodes,
    /// The node of the boot CPU has no memory.
    MemorylessBootNode,
}

/// A part that a machine may go without.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum OptionalPart {
    /// Clusters: their cores then lie in the die directly.
    Clusters,
    /// Caches shared in an unusual way: they are then shared as usual.
    Caches,
}

/// Where vCPUs run on the host.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Pin {
    /// By a rule.
    Rule(PinRule),
    /// Guest CPUs to host CPUs.
    Map(BTreeMap<String, Scalar>),
}

/// By hand: serde reads untagged enums through a buffer, in which the key of
/// `{0: 2}` is a number and no longer a text.
impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AnyPin;
        impl<'de> Visitor<'de> for AnyPin {
            type Value = Pin;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a rule or a map of CPUs")
            }

            fn visit_str<E: de::Error>(self, rule: &str) -> Result<Pin, E> {
                PinRule::deserialize(rule.into_deserializer()).map(Pin::Rule)
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Pin, A::Error> {
                let mut map = BTreeMap::new();
                while let Some((guest, host)) = access.next_entry()? {
                    map.insert(guest, host);
                }
                Ok(Pin::Map(map))
            }
        }
        deserializer.deserialize_any(AnyPin)
    }
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
