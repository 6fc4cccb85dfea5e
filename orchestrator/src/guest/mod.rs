//! The host's end of the agent's wire.

mod link;

pub use link::{AgentLink, FromAgent, SendError};
