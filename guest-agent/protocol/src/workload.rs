//! What runs in the guest. One variant per workload; the parameters here are
//! what an experiment file may write below the workload's name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A workload and its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Threads touch memory under NUMA balancing.
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

impl NumaScan {
    /// `memory` in bytes; `None` when it is no size.
    pub fn memory_bytes(&self) -> Option<u64> {
        parse_size(&self.memory)
    }
}

/// Bytes of a size such as `4096`, `256M` or `1G` (powers of 1024); `None`
/// when the text is no whole number with at most one of the suffixes K, M, G, T,
/// or over 64 bits.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let shift = match text.chars().last()?.to_ascii_uppercase() {
        'K' => 10,
        'M' => 20,
        'G' => 30,
        'T' => 40,
        _ => 0,
    };
    let digits = if shift == 0 {
        text
    } else {
        &text[..text.len() - 1]
    };
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(parse_size("4096"), Some(4096));
        assert_eq!(parse_size("256M"), Some(256 << 20));
        assert_eq!(parse_size("1g"), Some(1 << 30));
        for bad in ["", "M", "-1", "1.5G", "1GiB", "+3", "99999999999T", "é"] {
            assert_eq!(parse_size(bad), None, "{bad}");
        }
    }
}
