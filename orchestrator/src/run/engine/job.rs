//! What goes into a run of the engine, and what comes out.

use std::{fs::File, io, os::fd::OwnedFd, path::Path};

use tokio::sync::mpsc;
use topolab_protocol::observed::Observed;

use crate::{
    image::SshLogin,
    outcome::Outcome,
    qemu::process::{Channel, Launch},
    run::{
        attend::Attendant,
        carried::Carrier,
        clocks::Limits,
        dialogue::Dialogue,
        event::{Cancel, RunEvent, Typed},
    },
    store::record::Trust,
};

/// What the engine drives.
pub struct Job<'a> {
    /// QEMU and its arguments.
    pub launch: Launch,
    /// Its control socket, the agent's port and the console.
    pub channels: Channels,
    /// Other open files that QEMU inherits under their numbers.
    pub files: Vec<OwnedFd>,
    /// The file in which the guest is saved once it is proved, in place of
    /// running the workload.
    pub save: Option<File>,
    /// How closely the guest is looked at.
    pub inspect: Inspect,
    /// How the guest's SSH server is entered, when there is one.
    pub login: Option<SshLogin>,
    /// Brings the agent into a guest whose image does not have it.
    pub carrier: Option<Carrier>,
    /// The run's folder.
    pub folder: &'a Path,
    /// How long things may take.
    pub limits: Limits,
    /// What is said to the agent.
    pub dialogue: Dialogue,
    /// What the host does beside it.
    pub attendant: Attendant,
    /// The guest is emulated.
    pub emulated: bool,
    /// Complaints of the kernel that are known, as parts of their titles.
    pub allowed: &'a [String],
}

/// How closely a guest is looked at, beyond what every failure gets.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Inspect {
    /// A debugger connects before the guest starts, and starts it.
    pub gdb: bool,
    /// A guest that panicked or hangs writes its memory to `memory.elf` in the
    /// run's folder, for `crash` or drgn.
    pub dump: bool,
    /// A guest that panicked or hangs stays, stopped, until the run is cancelled.
    pub keep: bool,
}

impl Inspect {
    /// Whether a panic must leave the guest standing.
    pub(in crate::run) fn stops_at_panic(self) -> bool {
        self.dump || self.keep
    }
}

/// The sockets of one QEMU.
#[derive(Debug)]
pub struct Channels {
    /// QMP.
    pub control: Channel,
    /// The agent's virtio-serial port.
    pub agent: Channel,
    /// The guest's serial console.
    pub console: Channel,
}

impl Channels {
    /// Opens the three, QEMU's ends from number 100 on.
    ///
    /// # Errors
    /// When no more files may be opened.
    pub fn open() -> io::Result<Self> {
        Ok(Self {
            control: Channel::open(100)?,
            agent: Channel::open(100)?,
            console: Channel::open(100)?,
        })
    }
}

/// Who watches and steers a run.
pub struct Session<'a> {
    /// Hears what happens.
    pub events: &'a mut (dyn FnMut(RunEvent) + Send),
    /// Stops the run.
    pub cancel: Cancel,
    /// What is typed for the workload.
    pub typed: Option<mpsc::Receiver<Typed>>,
}

/// What a run left behind.
#[derive(Debug)]
pub struct Left {
    /// How it ended.
    pub outcome: Outcome,
    /// Start of QEMU to hello, milliseconds.
    pub hello_ms: Option<u64>,
    /// Start of QEMU to its end, milliseconds.
    pub wall_ms: u64,
    /// Phases with their milliseconds.
    pub phases: Vec<(String, u64)>,
    /// The conversation.
    pub dialogue: Dialogue,
    /// What the guest said it sees.
    pub observed: Option<Box<Observed>>,
    /// Whether durations may be judged.
    pub trust: Trust,
    /// Last console lines.
    pub console_tail: Vec<String>,
    /// Remarks of the engine.
    pub notes: Vec<String>,
    /// QEMU's version, when it told.
    pub qemu_version: Option<String>,
}

impl Left {
    /// What is left of a run whose QEMU was never started.
    pub(super) fn not_started(
        dialogue: Dialogue,
        trust: Trust,
        part: &str,
        reason: String,
    ) -> Self {
        Self {
            outcome: Outcome::LabFailed {
                part: part.into(),
                reason,
            },
            hello_ms: None,
            wall_ms: 0,
            phases: Vec::new(),
            dialogue,
            observed: None,
            trust,
            console_tail: Vec::new(),
            notes: Vec::new(),
            qemu_version: None,
        }
    }
}
