//! Comparisons and campaigns as people and other programs read them.

pub mod campaign;
pub mod csv;
pub mod grid;
pub mod history;
pub mod html;
pub mod json;
pub mod jsonl;
pub mod junit;
pub mod kcidb;
pub mod ktap;
pub mod markdown;
pub mod names;
pub mod number;
pub mod pivot;
pub mod text;
pub mod words;
