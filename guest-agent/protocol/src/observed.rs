//! What the guest really sees, read from sysfs and procfs by the agent and
//! compared by the host with the topology that was asked for.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The guest's view of itself. Absent values mean the kernel does not show them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Observed {
    /// `uname -r`.
    pub kernel_release: String,
    /// GNU build id of vmlinux from `/sys/kernel/notes`, lower-case hex.
    pub build_id: String,
    /// `/proc/cmdline`, without the final newline.
    pub cmdline: String,
    /// `/sys/devices/system/cpu/possible`, cpulist.
    pub possible: String,
    /// `/sys/devices/system/cpu/online`, cpulist.
    pub online: String,
    /// Per online CPU, ascending.
    pub cpus: Vec<CpuView>,
    /// Per online node, ascending.
    pub nodes: Vec<NodeView>,
    /// `/sys/devices/system/cpu/isolated`, cpulist.
    pub isolated: Option<String>,
    /// `/sys/devices/system/cpu/nohz_full`, cpulist ("" for none).
    pub nohz_full: Option<String>,
    /// The ITMT switch (sysctl or debugfs layout); absent: this kernel has none
    /// or no driver registered rankings.
    pub itmt_enabled: Option<bool>,
    /// `/sys/devices/system/cpu/amd_pstate/prefcore`.
    pub prefcore: Option<String>,
    /// `/sys/devices/system/cpu/amd_pstate/status`.
    pub amd_pstate: Option<String>,
    /// Scheduling domains of CPU 0 from debugfs (needs `sched_verbose`):
    /// domain name (`SMT`, `MC`, …) to its flags.
    pub domains: BTreeMap<String, String>,
    /// `MemTotal` of `/proc/meminfo`, bytes.
    pub mem_total: u64,
    /// Kernel messages that complain about the topology.
    pub complaints: Vec<String>,
    /// `vendor_id` and `model name` of the first CPU.
    pub cpu_model: String,
    /// Clock source in use.
    pub clocksource: String,
}

/// One CPU as the guest sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CpuView {
    /// Number.
    pub cpu: u32,
    /// `topology/physical_package_id`.
    pub package: Option<i64>,
    /// `topology/die_id`.
    pub die: Option<i64>,
    /// `topology/cluster_id`.
    pub cluster: Option<i64>,
    /// `topology/core_id`.
    pub core: Option<i64>,
    /// `topology/thread_siblings_list`.
    pub smt_siblings: Option<String>,
    /// `topology/die_cpus_list`.
    pub die_siblings: Option<String>,
    /// `topology/cluster_cpus_list`.
    pub cluster_siblings: Option<String>,
    /// `topology/package_cpus_list`.
    pub package_siblings: Option<String>,
    /// `shared_cpu_list` of the deepest unified cache, and its level.
    pub llc: Option<String>,
    /// Level of that cache.
    pub llc_level: Option<u32>,
    /// `cpufreq/amd_pstate_prefcore_ranking`.
    pub ranking: Option<u32>,
    /// `cpufreq/amd_pstate_highest_perf`.
    pub highest_perf: Option<u32>,
    /// `cpufreq/scaling_governor`.
    pub governor: Option<String>,
}

/// One NUMA node as the guest sees it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct NodeView {
    /// Number.
    pub node: u32,
    /// `cpulist`.
    pub cpus: String,
    /// `MemTotal` of `meminfo`, bytes: what the kernel's allocator has.
    pub mem_total: u64,
    /// `present` of the node's zones in `/proc/zoneinfo`, bytes: what the node
    /// has, the kernel's own share included.
    pub mem_present: Option<u64>,
    /// `distance`, one per online node in ascending order.
    pub distances: Vec<u32>,
    /// HMAT access class 0: read/write bandwidth (MB/s) and latency (ns), by file name.
    pub access0: BTreeMap<String, u64>,
    /// Initiator nodes of access class 0, from `access0/initiators`.
    pub initiators0: Vec<u32>,
    /// Memory-side caches, by level.
    pub memory_caches: Vec<MemorySideCache>,
}

/// A cache in front of a node's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MemorySideCache {
    /// Level, from 1.
    pub level: u32,
    /// Bytes.
    pub size: u64,
}
