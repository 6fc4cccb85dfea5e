//! topolab: the engine. It boots guests with odd topologies, builds kernels
//! with and without each patch, runs workloads and compares their samples.
//!
//! Nothing here prints, exits or looks for the user's folders: the command
//! line (`src/bin/topolab`) does, and listens to the events.

#![deny(clippy::print_stdout, clippy::print_stderr, clippy::exit)]

pub mod agent_binary;
pub mod batch;
pub mod bisect;
pub mod campaign;
pub mod compare;
pub mod document;
pub mod event;
pub mod guest;
pub mod host;
pub mod image;
pub mod kernel;
pub mod outcome;
pub mod parallel;
pub mod plan;
pub mod qemu;
pub mod readings;
pub mod report;
pub mod run;
pub mod stats;
pub mod store;
pub mod topology;
