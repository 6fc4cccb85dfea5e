//! Comparisons and campaigns as people and other programs read them.

pub mod csv;
pub mod json;
pub mod markdown;
pub mod names;
pub mod number;
pub mod text;
pub mod words;
