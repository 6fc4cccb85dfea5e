//! The conversation: what the host asks, what the agent answers.
//!
//! Order of a run: the agent says [`AgentMessage::Hello`] as soon as its port
//! is open and [`AgentMessage::Heartbeat`] once a second from then on; the host
//! answers [`HostMessage::Welcome`], may send files with
//! [`HostMessage::Put`], then [`HostMessage::Apply`] (answered by
//! [`AgentMessage::Applied`]) and [`HostMessage::Start`]. Samples and output
//! follow until [`AgentMessage::Exit`], the only message that makes a run
//! complete. [`HostMessage::Undo`] restores what was applied (answered by
//! [`AgentMessage::Undone`]); [`HostMessage::PowerOff`] is answered by
//! [`AgentMessage::Bye`] and ends the guest.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    observed::Observed,
    sample::Sample,
    settings::{SettingRecord, Settings},
    workload::{Monitors, Workload},
};

/// What the host says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum HostMessage {
    /// Answer to hello; the agent may work from now on.
    Welcome {
        /// [`crate::PROTOCOL_VERSION`] of the host.
        protocol: u16,
        /// Wall clock of the host, nanoseconds since the epoch, so that a
        /// restored guest can set its clock.
        now_ns: u64,
        /// Random bytes (hex) mixed into the guest's entropy pool.
        entropy: String,
    },
    /// Writes a file in the guest; its bytes follow as data frames on stream
    /// [`crate::frame::STREAM_FILE`], `size` of them in total.
    Put {
        /// Absolute path in the guest; parents are made.
        path: String,
        /// Permission bits.
        mode: u32,
        /// Bytes that follow.
        size: u64,
    },
    /// Writes settings, reads each back, remembers what was there. A setting
    /// that cannot be put in place is answered by [`AgentMessage::NotTestable`]
    /// after those before it were undone.
    Apply {
        /// What to write.
        settings: Settings,
    },
    /// Runs a workload. The standard input of a `command` stays open until
    /// [`HostMessage::CloseStdin`]. A second start while one runs is answered
    /// by [`AgentMessage::Failed`].
    Start {
        /// Echoed in [`AgentMessage::Exit`].
        run: String,
        /// What runs.
        workload: Workload,
        /// What is watched around it.
        monitors: Box<Monitors>,
        /// Named CPU sets of the topology, cpulist syntax; the agent keeps
        /// itself on `housekeeping` when it is there.
        sets: BTreeMap<String, String>,
        /// Seed for whatever the workload draws.
        seed: u64,
    },
    /// No more bytes follow on stream [`crate::frame::STREAM_STDIN`].
    CloseStdin,
    /// The terminal of an interactive command changed size.
    Resize {
        /// Rows.
        rows: u16,
        /// Columns.
        cols: u16,
    },
    /// Sends a signal to the running command.
    Signal {
        /// Signal number.
        signal: i32,
    },
    /// Asks for a file; answered by [`AgentMessage::File`], or by
    /// [`AgentMessage::Failed`] when it cannot be read.
    Get {
        /// Absolute path in the guest.
        path: String,
        /// More than this many bytes are cut.
        limit: u64,
    },
    /// Looks at the machine again; answered by [`AgentMessage::Observed`].
    Observe,
    /// Asks for what the kernel itself wrote to its log, to tell it from text
    /// that programs wrote to the console; answered by
    /// [`AgentMessage::KernelLog`].
    KernelLog,
    /// Restores what [`HostMessage::Apply`] changed.
    Undo,
    /// Ends what runs, syncs and powers off.
    PowerOff,
}

/// What the agent says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "kebab-case", deny_unknown_fields)]
pub enum AgentMessage {
    /// First message, repeated every half second until welcomed.
    Hello {
        /// [`crate::PROTOCOL_VERSION`] of the agent.
        protocol: u16,
        /// Package version of the agent.
        agent: String,
        /// Milliseconds since the guest kernel started.
        uptime_ms: u64,
        /// What the guest sees.
        observed: Box<Observed>,
    },
    /// Still alive.
    Heartbeat {
        /// Counts up from 0.
        seq: u64,
        /// Milliseconds since the guest kernel started.
        uptime_ms: u64,
    },
    /// A file of [`HostMessage::Put`] is written.
    Stored {
        /// Its path.
        path: String,
    },
    /// Settings are written and read back.
    Applied {
        /// One entry per setting, in the order written.
        records: Vec<SettingRecord>,
    },
    /// This guest cannot do what was asked (a setting its kernel lacks, a
    /// missing device): says nothing about the kernel's quality.
    NotTestable {
        /// Why.
        reason: String,
    },
    /// A named step of the workload begins.
    Phase {
        /// Such as `warm-up`, `measure`, `undo`.
        name: String,
    },
    /// One measured value.
    Sample(Sample),
    /// A remark for the log.
    Note {
        /// The remark.
        text: String,
    },
    /// Text kept beside the samples, such as the stack of a blocked task.
    Evidence {
        /// A file name without folders.
        name: String,
        /// Its content.
        text: String,
    },
    /// The running command has read this many bytes of its standard input in
    /// total. The host keeps at most [`crate::STDIN_WINDOW`] bytes in flight.
    StdinTaken {
        /// Bytes read so far.
        bytes: u64,
    },
    /// The workload ended. Without this message a run has no result.
    Exit {
        /// From [`HostMessage::Start`].
        run: String,
        /// How it ended.
        status: ExitStatus,
        /// How many [`AgentMessage::Sample`] were sent for this run.
        samples: u64,
    },
    /// Head of a file asked for by [`HostMessage::Get`]; its bytes follow on
    /// stream [`crate::frame::STREAM_FILE`].
    File {
        /// Its path.
        path: String,
        /// Bytes that follow.
        size: u64,
        /// The file is longer than the limit.
        cut: bool,
    },
    /// Answer to [`HostMessage::Observe`].
    Observed {
        /// What the guest sees.
        observed: Box<Observed>,
    },
    /// Answer to [`HostMessage::KernelLog`].
    KernelLog {
        /// Number of the oldest record that is still there; 0: none was
        /// overwritten.
        first: u64,
        /// The kernel's records, oldest first, at most the last 256 KiB.
        lines: Vec<String>,
    },
    /// Everything that [`HostMessage::Apply`] changed is as it was.
    Undone {
        /// What could not be restored.
        failed: Vec<String>,
    },
    /// A request failed in the agent itself.
    Failed {
        /// What was asked.
        request: String,
        /// Why it failed.
        reason: String,
    },
    /// Last message before power-off.
    Bye,
}

/// How a workload ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "how", rename_all = "kebab-case", deny_unknown_fields)]
pub enum ExitStatus {
    /// A command exited, or a built-in workload did its work (code 0).
    Exited {
        /// Exit code.
        code: i32,
    },
    /// A command died of a signal.
    Signalled {
        /// Signal number.
        signal: i32,
    },
    /// A built-in workload could not do its work.
    Failed {
        /// Why.
        reason: String,
    },
}
