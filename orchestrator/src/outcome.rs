//! How a run ended.

use serde::{Deserialize, Serialize};

/// Outcome of a run. Only the first five speak about the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "kebab-case")]
pub enum Outcome {
    /// The workload ended well and every sample arrived.
    Completed,
    /// The workload ended, but not well.
    WorkloadFailed {
        /// Exit code, signal or the workload's own words.
        reason: String,
    },
    /// The guest died or stood still before the agent said hello.
    BootFailed {
        /// Why it is thought so.
        reason: String,
    },
    /// The kernel panicked.
    GuestPanic {
        /// Normalised title: the same bug has the same title.
        title: String,
    },
    /// The workload ended, but the kernel printed an oops, a warning or the like.
    GuestSplat {
        /// Normalised title.
        title: String,
    },
    /// No progress within one of the run's clocks.
    GuestHang {
        /// The phase that did not end.
        phase: String,
        /// Which clock, and after how long.
        reason: String,
    },
    /// This kernel or bench cannot do what the cell asks.
    NotTestable {
        /// Why.
        reason: String,
    },
    /// The guest does not see the machine that was asked for.
    WrongTopology {
        /// `field: asked A, seen B`, one per difference.
        differences: Vec<String>,
    },
    /// The lab failed; says nothing about the kernel.
    LabFailed {
        /// Which part: `qemu`, `emulator`, `disk`, `agent`, `pin`, `identity`, `interrupted`.
        part: String,
        /// Why.
        reason: String,
    },
}

impl Outcome {
    /// The class alone, as in files and tables.
    pub fn class(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::WorkloadFailed { .. } => "workload-failed",
            Self::BootFailed { .. } => "boot-failed",
            Self::GuestPanic { .. } => "guest-panic",
            Self::GuestSplat { .. } => "guest-splat",
            Self::GuestHang { .. } => "guest-hang",
            Self::NotTestable { .. } => "not-testable",
            Self::WrongTopology { .. } => "wrong-topology",
            Self::LabFailed { .. } => "lab-failed",
        }
    }

    /// What to say beside the class; empty for a completed run.
    pub fn detail(&self) -> String {
        match self {
            Self::Completed => String::new(),
            Self::WorkloadFailed { reason }
            | Self::BootFailed { reason }
            | Self::NotTestable { reason } => reason.clone(),
            Self::GuestPanic { title } | Self::GuestSplat { title } => title.clone(),
            Self::GuestHang { phase, reason } => format!("{phase}: {reason}"),
            Self::WrongTopology { differences } => differences.join("; "),
            Self::LabFailed { part, reason } => format!("{part}: {reason}"),
        }
    }

    /// Whether the run's samples may be used.
    pub fn has_result(&self) -> bool {
        matches!(self, Self::Completed)
    }

    /// Whether trying again may help: only the lab's own failures.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Self::LabFailed { .. })
    }
}
