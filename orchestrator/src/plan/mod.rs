//! What a campaign will do, worked out before anything starts.

mod cell;

pub use cell::Cell;
