//! What the engine says while it works. Terminal, JSON lines and tests listen.
//!
//! Order of a campaign: [`Event::CampaignStarted`]; for each kernel
//! [`Event::BuildStarted`], any number of [`Event::BuildProgress`],
//! [`Event::BuildEnded`]; for each run [`Event::RunStarted`], any number of
//! [`Event::RunPhase`], [`Event::RunEnded`]; at last [`Event::CampaignEnded`].
//! [`Event::Note`] may come at any time.

use std::path::PathBuf;

use serde::Serialize;

use crate::{outcome::Outcome, plan::Cell, store::KernelMeta};

/// One thing that happened.
#[derive(Debug, Clone, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The plan stands and the results folder is made.
    CampaignStarted {
        /// Name of the experiment.
        name: String,
        /// Results folder.
        folder: PathBuf,
        /// Cells.
        cells: usize,
        /// Runs still to do.
        runs: usize,
        /// Seed of the order.
        seed: u64,
    },
    /// A kernel is about to be built.
    BuildStarted {
        /// As in [`Cell::kernel`].
        kernel: String,
    },
    /// A build goes on.
    BuildProgress {
        /// As in [`Cell::kernel`].
        kernel: String,
        /// What it does: `fetch`, `unpack`, `configure`, `compile`, …
        step: String,
        /// Objects compiled.
        done: u32,
        /// Objects expected, when a build before this one tells.
        of: Option<u32>,
    },
    /// A build ended.
    BuildEnded {
        /// The kernel, or why there is none.
        kernel: KernelMeta,
    },
    /// A run begins.
    RunStarted {
        /// Place in the order.
        index: usize,
        /// Which cell.
        cell: Cell,
        /// Which round.
        round: u32,
        /// Which try.
        attempt: u32,
    },
    /// A run enters a phase: `boot`, `prepare`, or one of the workload's.
    RunPhase {
        /// Place in the order.
        index: usize,
        /// Name of the phase.
        phase: String,
    },
    /// A run ended and is saved.
    RunEnded {
        /// Place in the order.
        index: usize,
        /// Which cell.
        cell: Cell,
        /// Which round.
        round: u32,
        /// Which try.
        attempt: u32,
        /// How it ended.
        outcome: Outcome,
        /// Milliseconds from the start of QEMU to its end.
        wall_ms: u64,
        /// Milliseconds from the start of QEMU to hello.
        hello_ms: Option<u64>,
        /// Samples it yielded.
        samples: usize,
    },
    /// A remark.
    Note {
        /// The remark.
        text: String,
    },
    /// The campaign ended.
    CampaignEnded {
        /// Results folder.
        folder: PathBuf,
        /// Runs that completed.
        completed: usize,
        /// Runs that ended otherwise.
        other: usize,
        /// Runs that were not tried.
        missing: usize,
    },
}
