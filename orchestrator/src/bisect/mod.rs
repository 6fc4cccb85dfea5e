//! Bisection of a number, an outcome or a build: over a patch series or a git
//! history.
//!
//! [`Engine`] is a machine that asks and is answered; it knows candidates
//! ([`History`]), answers ([`Observation`]) and rules ([`Rules`]), and nothing of
//! git, builds or guests.

pub mod account;
mod channel;
pub mod confirm;
mod drive;
mod ends;
mod engine;
pub mod git;
pub mod guests;
mod history;
pub mod html;
pub mod judge;
mod noise;
mod observation;
pub mod plot;
mod posterior;
mod replay;
pub mod script;
pub mod session;
pub mod simulate;
pub mod step;
pub mod text;
mod verdict;

pub use channel::Channel;
pub use drive::{DriveError, OTHER_TRIES, Progress, Ready, Run, TRIES, Tree, drive, is_broken};
pub use ends::{Comparison, Ends};
pub use engine::{AnswerError, Costs, Engine, Question, Step, Tally};
pub use history::{History, HistoryError};
pub use noise::{Group, Noise};
pub use observation::{Answer, Observation, Place, Rules, Sought, Worse};
pub use posterior::Posterior;
pub use replay::git_log;
pub use verdict::{Suspect, Verdict};
