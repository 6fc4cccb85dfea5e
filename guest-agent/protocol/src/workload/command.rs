//! `command`, `script` and `ktap`: programs of the user.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

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
