//! Results folders: what is in them and how it is kept.

pub mod record;
