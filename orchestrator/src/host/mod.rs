//! The host: what it is, what it can do, and how busy it was.
//!
//! Every reader takes the folder in which `proc` and `sys` lie, so that a
//! folder of files can stand for another host.

mod identity;
mod load;

pub use identity::Identity;
pub use load::{Window, WindowEnd};
