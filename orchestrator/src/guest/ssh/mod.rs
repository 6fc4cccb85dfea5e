//! Machines reached over SSH: guests from images that do not have our agent, and
//! real machines. The agent is uploaded, started, and spoken to over the session.
//!
//! libssh2 blocks, so a thread of its own serves each connection; its other end
//! is a socket like the agent's port of a guest.

mod carry;
mod connect;
mod copy;
mod files;
mod patience;
mod sit;
mod target;

pub use carry::{CarryError, carry};
pub use connect::{Access, ConnectError, Connection, HostKey, Identity, connect};
pub use copy::{Copied, Room, copy_in, copy_out};
pub use files::{Place, RemoteError, RootBy, download, run, survey, upload};
pub use patience::Patience;
pub use sit::{Ended, Hand, Seat, Stream, TerminalKind, Typed, sit};
pub use target::{SSH_PORT, Target, TargetError};

/// An error with its causes, in a line.
pub fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;
