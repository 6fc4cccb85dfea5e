//! Comparisons and campaigns as people and other programs read them.

pub mod names;
pub mod number;
pub mod text;
pub mod words;
