//! `command`, `script` and `ktap`: programs of the user.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sample::{Better, MetricKind};

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
    /// What else is read from its standard output, by metric name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, Pattern>,
    /// Whose output it is, when the host knows how to read that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parser: Option<Parser>,
}

/// Parameters of `script`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Script {
    /// The script's text. Its first line may name its interpreter (`#!`);
    /// `/bin/sh` without one.
    pub text: String,
    /// Arguments of the script.
    pub args: Vec<String>,
    /// Environment beside `PATH`, `HOME` and `TERM`.
    pub env: BTreeMap<String, String>,
    /// Working folder in the guest.
    pub cwd: Option<String>,
    /// Killed after this many seconds; 0: the run's own limit.
    pub timeout: f64,
    /// cgroup below the root.
    pub cgroup: Option<String>,
    /// What else is read from its standard output, by metric name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub metrics: BTreeMap<String, Pattern>,
    /// Whose output it is, when the host knows how to read that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parser: Option<Parser>,
}

/// Parameters of `ktap`: those of `command`; what it prints on standard output
/// is read as KTAP (`Documentation/dev-tools/ktap.rst`) or TAP 13/14.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Ktap {
    /// Program and arguments, as typed; no shell in between.
    pub argv: Vec<String>,
    /// Environment beside `PATH`, `HOME` and `TERM`.
    pub env: BTreeMap<String, String>,
    /// Working folder in the guest.
    pub cwd: Option<String>,
    /// Killed after this many seconds; 0: the run's own limit.
    pub timeout: f64,
    /// cgroup below the root.
    pub cgroup: Option<String>,
}

/// A metric found in a program's output by a regular expression.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Pattern {
    /// Each match in a line is a sample: its group `value`, or else its first
    /// group, is the number; other named groups become labels.
    pub regex: String,
    /// Unit of the number.
    pub unit: String,
    /// What kind of quantity it is; durations and rates are not judged on a
    /// bench that cannot carry them.
    pub kind: MetricKind,
    /// Which direction is good news.
    pub better: Better,
}

impl Default for Pattern {
    fn default() -> Self {
        Self {
            regex: String::new(),
            unit: "count".into(),
            kind: MetricKind::Count,
            better: Better::Neither,
        }
    }
}

/// Programs whose output the host can read without being told how.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Parser {
    /// One JSON object a line: `{"metric": …, "value": …}` with `unit`, `kind`,
    /// `better` and `labels` as wanted, or numbers by name.
    JsonLines,
    /// `hackbench`.
    Hackbench,
    /// `cyclictest`, with `--quiet`.
    Cyclictest,
    /// `schbench`, which needs `2>&1`: it prints on standard error.
    Schbench,
    /// `stress-ng --yaml /dev/stdout --metrics`.
    StressNg,
    /// `perf bench`.
    PerfBench,
}
