//! What a campaign will do, worked out before anything starts.

mod cell;
pub mod estimate;
mod experiment;
mod fill;
mod order;

pub use cell::Cell;
pub use experiment::{
    Accel, BenchSpec, Boot, ExperimentSpec, ImageSpec, Limits, Overcommit, glob, short_name,
};
pub use fill::{UnknownSet, fill, fill_text};
pub use order::{PlannedRun, order};
