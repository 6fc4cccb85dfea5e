//! The host's end of the agent's wire.

mod link;
pub mod ssh;

pub use link::{AgentLink, FromAgent, SendError};
