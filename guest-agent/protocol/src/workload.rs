//! What runs in the guest. One variant per workload; the parameters here are
//! what an experiment file may write below the workload's name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A workload and its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// One task touches memory under NUMA balancing.
    NumaScan(NumaScan),
    /// A program of the user.
    Command(Command),
}

impl Workload {
    /// The name an experiment file uses.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NumaScan(_) => "numa-scan",
            Self::Command(_) => "command",
        }
    }
}

/// Parameters of `numa-scan`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct NumaScan {
    /// Memory touched, such as `256M`; bytes or K, M, G, T suffixes (powers of 1024).
    pub memory: String,
    /// Seconds of touching.
    pub seconds: f64,
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
            threads: 1,
            cgroup: None,
        }
    }
}

/// Parameters of `command`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Command {
    /// Program and arguments, as typed; no shell in between.
    pub argv: Vec<String>,
    /// Environment beside `PATH`, `HOME` and `TERM`.
    pub env: BTreeMap<String, String>,
    /// Working folder in the guest.
    pub cwd: Option<String>,
    /// Runs on a terminal of its own (host's window size).
    pub tty: bool,
    /// Killed after this many seconds; 0: the run's own limit.
    pub timeout: f64,
    /// cgroup below the root.
    pub cgroup: Option<String>,
}

/// What is watched around a workload.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Monitors {
    /// Deltas of these `/proc/vmstat` counters, as count metrics.
    pub vmstat: Vec<String>,
}
