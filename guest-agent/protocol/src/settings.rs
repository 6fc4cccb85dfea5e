//! What is written in the guest before a workload runs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Settings of one cell. Applied in the order of the fields here; undone in
/// reverse. `{name}` in values stands for a CPU set of the topology and is
/// filled in by the host.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Settings {
    /// Kernel modules to load, name to parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub modules: BTreeMap<String, String>,
    /// `kernel.numa_balancing: 1` writes `/proc/sys/kernel/numa_balancing`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctl: BTreeMap<String, Scalar>,
    /// Scheduler features: name to on or off (`RT_PUSH_IPI: true`).
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub sched_features: BTreeMap<String, bool>,
    /// Runtime of the fair server on every CPU, nanoseconds; 0 turns it off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fair_server_runtime_ns: Option<u64>,
    /// The ITMT switch, wherever this kernel has it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub itmt: Option<bool>,
    /// CPUs to take offline, cpulist syntax.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offline: Option<Scalar>,
    /// cgroup-v2 groups by path below the root: file name to value, written in
    /// alphabetical order except that `cpuset.cpus.partition` comes last.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub cgroups: BTreeMap<String, BTreeMap<String, Scalar>>,
    /// Any file: absolute path to value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, Scalar>,
}

/// A value as users write it: text, a number or a switch (written as 1 or 0).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum Scalar {
    /// `true` and `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Text(String),
}

impl std::fmt::Display for Scalar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bool(on) => write!(f, "{}", u8::from(*on)),
            Self::Int(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// What became of one setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SettingRecord {
    /// The file written, or `module NAME`.
    pub what: String,
    /// What was there before; absent when there was nothing to read.
    pub before: Option<String>,
    /// What was written.
    pub wanted: String,
    /// What was read back.
    pub got: String,
}
