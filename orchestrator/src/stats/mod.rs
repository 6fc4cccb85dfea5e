//! Statistics over runs: pure functions over slices, each with its source.
//!
//! The path of a comparison: values of two sides ([`Sample`]) → a change with
//! its interval and a p-value ([`verdict::measure`]) → all p-values of a table
//! corrected together ([`correction`]) → a [`verdict::Verdict`].

pub mod bootstrap;
pub mod change_point;
pub mod correction;
pub mod judge;
pub mod permutation;
pub mod power;
pub mod rank;
mod sample;
pub mod sequential;
pub mod shape;
pub mod summary;
pub mod verdict;

pub use sample::Sample;
