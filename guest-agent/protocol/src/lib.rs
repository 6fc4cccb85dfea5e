//! What the orchestrator and the guest agent say to each other.
//!
//! [`frame`] is the wire: length-prefixed, checksummed, versioned frames that
//! can be found again after garbage. [`message`] is the conversation carried
//! in them. The other modules hold the data both sides share: what the guest
//! sees ([`observed`]), what is written before a run ([`settings`]), what
//! runs ([`workload`]) and what it yields ([`sample`]).

pub mod frame;
pub mod labels;
pub mod message;
pub mod observed;
pub mod sample;
pub mod settings;
pub mod workload;

/// Version of the conversation. The host refuses an agent that speaks another.
pub const PROTOCOL_VERSION: u16 = 1;

/// Name of the virtio-serial port the agent looks for below
/// `/sys/class/virtio-ports/*/name`.
pub const PORT_NAME: &str = "org.topolab.agent.0";

/// Bytes of standard input the host may send ahead of
/// [`message::AgentMessage::StdinTaken`]. The agent buffers no more than this.
pub const STDIN_WINDOW: u64 = 1 << 20;
