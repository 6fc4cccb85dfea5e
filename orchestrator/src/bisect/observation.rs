//! What can be asked about, and what a measurement can answer.

use serde::{Deserialize, Serialize};

use crate::stats::judge::Effect;

/// A tree that can be measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// The end that is known to be good; before every candidate.
    GoodEnd,
    /// The end that is known to be bad; holds every candidate.
    BadEnd,
    /// The tree at a candidate, by its index in the history.
    At(u32),
}

/// What one measurement of a place answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "kebab-case")]
pub enum Observation {
    /// The metric of one run.
    Value {
        /// In the metric's unit.
        value: f64,
    },
    /// Whether one run showed the sought outcome.
    Event {
        /// It did.
        seen: bool,
    },
    /// Good beyond doubt (a build that passed, a script that said so).
    Good,
    /// Bad beyond doubt.
    Bad,
    /// Nothing can be learned here: broken build, broken boot, another crash.
    Untestable {
        /// Why.
        reason: String,
    },
    /// The build gave the very image of another place: what holds there holds here.
    SameAs {
        /// The other place.
        place: Place,
    },
    /// The bisection cannot go on: the lab failed again and again, or the script
    /// asked to stop.
    Abort {
        /// Why.
        reason: String,
    },
}

/// One answer, as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Where.
    pub place: Place,
    /// What.
    #[serde(flatten)]
    pub observation: Observation,
}

/// What is sought, and in which words measurements answer.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Sought {
    /// A change of a metric; answers are [`Observation::Value`].
    Level {
        /// Smallest change worth finding; a share is one of the good end's mean.
        min_effect: Effect,
        /// In which direction the bad end lies, when the metric tells.
        worse: Option<Worse>,
    },
    /// An outcome that need not show in every run; answers are [`Observation::Event`].
    Event,
    /// Something one look decides; answers are [`Observation::Good`] and
    /// [`Observation::Bad`].
    Certain,
}

/// Which way a metric gets worse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Worse {
    /// More is worse.
    Higher,
    /// Less is worse.
    Lower,
}

/// How much certainty is wanted, and how much may be spent.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Rules {
    /// What is sought.
    pub sought: Sought,
    /// Probability (0 to 1) the culprit must reach before it is named.
    pub confidence: f64,
    /// Runs of each end before they are first compared.
    pub end_runs: u32,
    /// Runs of each end at most.
    pub max_end_runs: u32,
    /// Runs of one candidate at most; then it counts as undecided and is left.
    pub max_step_runs: u32,
    /// Runs over all at most, ends included.
    pub max_runs: u32,
    /// Runs the culprit and each of its parents must have had, so that no single
    /// odd run names a commit.
    pub decisive_runs: u32,
}

impl Rules {
    /// Limits that suit what is sought.
    pub fn new(sought: Sought) -> Self {
        let certain = sought == Sought::Certain;
        Self {
            sought,
            confidence: 0.995,
            end_runs: if certain { 1 } else { 5 },
            max_end_runs: if certain { 1 } else { 60 },
            max_step_runs: if certain { 1 } else { 60 },
            max_runs: 1000,
            decisive_runs: if certain { 1 } else { 2 },
        }
    }
}
