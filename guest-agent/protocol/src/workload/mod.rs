//! What runs in the guest. One variant per workload; the parameters here are
//! what an experiment file may write below the workload's name.

mod command;
mod itmt_stall;
mod lru_drain;
mod monitors;
mod numa_scan;
mod rt_push_ipi;

use serde::{Deserialize, Serialize};

pub use command::{Command, Ktap, Parser, Pattern, Script};
pub use itmt_stall::ItmtStall;
pub use lru_drain::{Isolation, LruDrain, WriteMode};
pub use monitors::{Blocked, Counter, KernelLog, Monitors, RawTrace};
pub use numa_scan::NumaScan;
pub use rt_push_ipi::{RtPushIpi, RtTask};

/// A workload and its parameters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Threads touch memory under NUMA balancing.
    NumaScan(NumaScan),
    /// Pages are moved between nodes while isolated CPUs never yield.
    LruDrain(LruDrain),
    /// Three real-time tasks make CPUs pull by IPI.
    RtPushIpi(RtPushIpi),
    /// Two workers and a waker on ranked CPUs.
    ItmtStall(ItmtStall),
    /// A program of the user.
    Command(Command),
    /// A script of the user, written in the experiment file.
    Script(Script),
    /// A program that prints KTAP or TAP, such as kselftest's.
    Ktap(Ktap),
}

impl Workload {
    /// The name an experiment file uses.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NumaScan(_) => "numa-scan",
            Self::LruDrain(_) => "lru-drain",
            Self::RtPushIpi(_) => "rt-push-ipi",
            Self::ItmtStall(_) => "itmt-stall",
            Self::Command(_) => "command",
            Self::Script(_) => "script",
            Self::Ktap(_) => "ktap",
        }
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
