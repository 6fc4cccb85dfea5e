//! The build check of a series: does each patch build on every target, what does it
//! newly complain about, and does the next one heal it?
//!
//! Each target has a tree of its own that moves from prefix to prefix, so a patch
//! costs what it recompiles. What compilers say is kept per compiled object: an
//! object that is not compiled again still has the complaints of its last time.

mod checkpatch;
mod compare;
mod run;
mod seen;
mod target;

pub use checkpatch::{Checkpatch, StyleNote};
pub use compare::{Finding, introduced};
pub use run::{CheckRequest, check};
pub use target::{TargetError, TargetSpec};

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a check found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckReport {
    /// The kernel.
    pub kernel: String,
    /// The series.
    pub series: String,
    /// The targets, in the order of the cells.
    pub targets: Vec<TargetReport>,
    /// The patches in order; those after the first bad one are missing when the
    /// check was to stop there.
    pub patches: Vec<PatchReport>,
}

/// A target, and how the kernel without the series does on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TargetReport {
    /// `ARCH:CONFIG:COMPILER`.
    pub target: String,
    /// First line of the compiler's `--version`.
    pub compiler: String,
    /// Why it cannot be tested; nothing when it can.
    pub not_tested: Option<String>,
    /// Errors of the kernel without the series.
    pub base_errors: u32,
    /// Warnings of the kernel without the series.
    pub base_warnings: u32,
    /// Seconds its build took.
    pub seconds: f64,
}

/// What a patch does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PatchReport {
    /// Its number in the series, from 1.
    pub number: u32,
    /// Its subject.
    pub subject: String,
    /// True when it has a `Signed-off-by:`.
    pub signed_off: bool,
    /// What the tree's checkpatch.pl says; nothing when it was not asked.
    pub checkpatch: Option<Checkpatch>,
    /// One for each target.
    pub cells: Vec<Cell>,
}

impl PatchReport {
    /// True when a bisection can stop here: it builds on every target that was
    /// tested.
    pub fn bisects(&self) -> bool {
        !self.cells.iter().any(|cell| {
            matches!(
                cell.status,
                Status::Broken | Status::StillBroken { .. } | Status::NotApplicable { .. }
            )
        })
    }
}

/// What a patch does to one target, compared with the patch before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// `ARCH:CONFIG:COMPILER`.
    pub target: String,
    /// How it stands.
    pub status: Status,
    /// Errors that are new with this patch.
    pub errors: Vec<Finding>,
    /// Warnings that are new with this patch, in the files it touches.
    pub warnings: Vec<Finding>,
    /// Number of errors of the patch before that are gone.
    pub healed: u32,
    /// Objects compiled.
    pub recompiled: u32,
    /// Seconds it took.
    pub seconds: f64,
    /// Commands that show the same, to be pasted into a tree with the patches.
    pub reproduce: Vec<String>,
    /// Log of everything that was made in the target's tree; nothing when it is gone.
    pub log: Option<PathBuf>,
}

/// How a patch stands on a target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum Status {
    /// It builds.
    Ok,
    /// It does not build, and the patch before it did (or failed otherwise).
    Broken,
    /// It does not build for a reason an earlier patch brought.
    StillBroken {
        /// That patch; 0 for the kernel without the series.
        since: u32,
    },
    /// It does not apply on top of the ones before it.
    NotApplicable {
        /// Why.
        reason: String,
    },
    /// The target cannot be tested.
    NotTested {
        /// Why.
        reason: String,
    },
}

impl CheckReport {
    /// True when a patch breaks a build that worked without it.
    pub fn broken(&self) -> bool {
        let cells = self.patches.iter().flat_map(|patch| &patch.cells);
        cells
            .into_iter()
            .any(|cell| matches!(cell.status, Status::Broken | Status::NotApplicable { .. }))
    }
}
