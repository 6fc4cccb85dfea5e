//! How a bisection can end.

use serde::{Deserialize, Serialize};

use super::ends::Comparison;

/// A candidate that may be the culprit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Suspect {
    /// Its index in the history.
    pub candidate: u32,
    /// Probability (0 to 1) that it is the culprit.
    pub probability: f64,
}

/// The end of a bisection.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "verdict", rename_all = "kebab-case")]
pub enum Verdict {
    /// One candidate is the culprit.
    Found {
        /// It, with the confidence reached.
        culprit: Suspect,
    },
    /// The culprit is one of these, and no testable tree tells them apart.
    FoundAmong {
        /// In the order of the history; their probabilities together reach the
        /// wanted confidence.
        suspects: Vec<Suspect>,
    },
    /// The allowed runs did not suffice.
    Undecided {
        /// The smallest set that reaches the wanted confidence, most probable first.
        suspects: Vec<Suspect>,
        /// Which limit was met.
        reason: String,
    },
    /// The ends do not differ: there is nothing to look for.
    EndsAlike {
        /// The ends in numbers.
        ends: Comparison,
    },
    /// The end called good is the worse one.
    EndsSwapped {
        /// The ends in numbers.
        ends: Comparison,
    },
    /// An end is not what it was said to be, or cannot be tested.
    EndRefused {
        /// Which end and why.
        reason: String,
    },
    /// Answers contradict each other: no candidate can be the culprit.
    Contradiction {
        /// What contradicts what.
        reason: String,
    },
    /// Stopped from outside; it can be resumed.
    Aborted {
        /// Why.
        reason: String,
    },
}
