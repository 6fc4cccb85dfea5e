//! One run: a guest from its start to its end.
//!
//! [`execute`] is what a campaign calls, [`warm`] the same with guests that are
//! booted once and restored. Inside, one loop ([`engine`]) owns all
//! state; the conversation with the agent ([`dialogue`]), the clocks
//! ([`clocks`]), the console ([`console`], [`splat`]) and the verdict
//! ([`judge`]) are plain values it asks.

mod attend;
mod carried;
mod clocks;
mod console;
mod dialogue;
mod engine;
pub mod entrance;
mod event;
mod execute;
mod fitting;
mod judge;
mod kept;
mod lab;
mod needs;
mod pinning;
mod splat;
mod unit;
pub mod warm;

pub use clocks::Limits;
pub use console::clean;
pub use engine::{Inspect, Session};
pub use event::{Cancel, RunEvent, Stop, Typed};
pub use execute::execute;
pub use lab::{Bench, Lab, LabWish, Overcommit, PinWish, QEMU};
pub use splat::{Scanner, Splat, SplatKind};
pub use unit::{KernelImage, RunResult, RunUnit, command_line};
