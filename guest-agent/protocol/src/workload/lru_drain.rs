//! `lru-drain`: who moves pages waits for every CPU to empty its LRU batches,
//! and a CPU whose real-time task never yields does not.

use serde::{Deserialize, Serialize};

/// Parameters of `lru-drain`. The defaults fit two nodes of 1 GiB and the set
/// `isolated` of the topology.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct LruDrain {
    /// Memory of the anchor, the task whose pages are moved.
    pub anchor: String,
    /// Node the anchor's pages are on at first.
    pub from_node: u32,
    /// Node they are moved to, by a write to `cpuset.mems`.
    pub to_node: u32,
    /// Whether churners run on the isolated CPUs.
    pub churn: bool,
    /// CPUs of the churners, cpulist; absent: the topology's set `isolated`.
    pub churn_cpus: Option<String>,
    /// Memory each churner touches and gives back in turn.
    pub churn_memory: String,
    /// Pages a churner touches before it spins; with a number that is no multiple
    /// of the kernel's batch (31 in 6.12) the batch is hardly ever empty then.
    pub churn_pages: u32,
    /// Microseconds it spins in user space after so many pages. Who moves pages
    /// switches batching off and waits a grace period before it looks at the
    /// batches; a page touched in between takes its CPU's batch with it
    /// (`lru_cache_disable()`), so a spin should be much longer than that.
    pub churn_spin_us: f64,
    /// Their memory is locked, so that their pages pass the batches for locked
    /// pages too.
    pub churn_mlock: bool,
    /// Their SCHED_FIFO priority.
    pub churn_priority: u32,
    /// How `cpuset.mems` is opened.
    pub write: WriteMode,
    /// Forks a task into another control group while the pages move.
    pub fork: bool,
    /// How the churners' CPUs are isolated.
    pub isolation: Isolation,
    /// The churners are ended after this many seconds of waiting, and the write
    /// counts as stalled.
    pub limit: f64,
}

impl Default for LruDrain {
    fn default() -> Self {
        Self {
            anchor: "16M".into(),
            from_node: 1,
            to_node: 0,
            churn: true,
            churn_cpus: None,
            churn_memory: "8M".into(),
            churn_pages: 16,
            churn_spin_us: 20_000.0,
            churn_mlock: false,
            churn_priority: 80,
            write: WriteMode::Blocking,
            fork: false,
            isolation: Isolation::Boot,
            limit: 20.0,
        }
    }
}

/// How `cpuset.mems` is opened for the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WriteMode {
    /// As a shell does.
    Blocking,
    /// With `O_NONBLOCK`.
    NonBlocking,
}

/// How CPUs are isolated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Isolation {
    /// By the command line (`isolcpus=`, `nohz_full=`); nothing to do.
    Boot,
    /// By an isolated cpuset partition that the workload makes, after ordinary
    /// tasks have left something in the CPUs' batches and before the churners
    /// take the CPUs over.
    Partition,
}
