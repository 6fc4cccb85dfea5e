//! `numa-scan`: memory touched under NUMA balancing.

use serde::{Deserialize, Serialize};

use super::parse_size;

/// Parameters of `numa-scan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct NumaScan {
    /// Memory touched, such as `256M`; bytes or K, M, G, T suffixes (powers of 1024).
    pub memory: String,
    /// Seconds of touching.
    pub seconds: f64,
    /// Ends as soon as the scanner has gone over the memory so often, and after
    /// `seconds` at the latest: what is counted then is the work of so many scans
    /// and does not depend on how fast the machine is. 0: only time ends it.
    pub scans: u32,
    /// Threads that share the work.
    pub threads: u32,
    /// cgroup below the root in which the task runs (made by `settings`);
    /// absent: the root.
    pub cgroup: Option<String>,
}

impl Default for NumaScan {
    fn default() -> Self {
        Self {
            memory: "128M".into(),
            seconds: 5.0,
            scans: 0,
            threads: 1,
            cgroup: None,
        }
    }
}

impl NumaScan {
    /// `memory` in bytes; `None` when it is no size.
    pub fn memory_bytes(&self) -> Option<u64> {
        parse_size(&self.memory)
    }
}
