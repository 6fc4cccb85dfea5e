//! Running workloads: what all of them share.

mod command;
mod itmt_stall;
mod lru_drain;
mod numa_scan;
mod own_child;
mod rt_push_ipi;
mod script;
mod terminal;

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use topolab_protocol::labels::Labels;
use topolab_protocol::message::{AgentMessage, ExitStatus};
use topolab_protocol::sample::{Better, MetricKind, Sample};
use topolab_protocol::workload::{Monitors, Workload};

use crate::children::Children;
use crate::link::Link;
use crate::monitor;

pub use own_child::{FLAG, child_main};

/// Bytes of one piece of evidence. JSON may need six bytes for one.
const EVIDENCE_PIECE: usize = 128 * 1024;

/// One run of a workload, as the thread that runs it sees it.
pub struct Session {
    /// Where samples and output go.
    pub link: Link,
    /// Starts child processes.
    pub children: Children,
    /// Name of the run, echoed in the exit message.
    pub run: String,
    /// What runs.
    pub workload: Workload,
    /// What is watched around it.
    pub monitors: Box<Monitors>,
    /// Named CPU sets of the topology, cpulist syntax.
    pub sets: BTreeMap<String, String>,
    /// Shared with the conversation, which passes signals and input on.
    pub control: Arc<Control>,
    /// Samples sent so far.
    pub sent: AtomicU64,
}

/// Why a workload has no result.
#[derive(Debug)]
pub enum Stopped {
    /// The guest lacks what the workload needs: says nothing about the kernel.
    NotTestable(String),
    /// The workload could not do its work.
    Failed(String),
}

impl Stopped {
    fn failed(reason: impl std::fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }
}

impl Session {
    /// Runs the workload and returns the run's last message: one
    /// [`AgentMessage::Exit`] or one [`AgentMessage::NotTestable`].
    pub fn run(&self) -> AgentMessage {
        match self.measure() {
            Ok(status) => self.exit(status),
            Err(Stopped::Failed(reason)) => self.exit(ExitStatus::Failed { reason }),
            Err(Stopped::NotTestable(reason)) => AgentMessage::NotTestable { reason },
        }
    }

    /// The last message of a run whose thread panicked; the panic itself is in
    /// the kernel log.
    pub fn broken(&self) -> AgentMessage {
        self.exit(ExitStatus::Failed {
            reason: "internal error of the agent, see the guest's kernel log".into(),
        })
    }

    fn measure(&self) -> Result<ExitStatus, Stopped> {
        let watch = monitor::Watch::start(Path::new("/"), &self.monitors)
            .map_err(|missing| Stopped::NotTestable(missing.to_string()))?;
        let status = match &self.workload {
            Workload::NumaScan(parameters) => numa_scan::run(self, parameters),
            Workload::LruDrain(parameters) => lru_drain::run(self, parameters),
            Workload::RtPushIpi(parameters) => rt_push_ipi::run(self, parameters),
            Workload::ItmtStall(parameters) => itmt_stall::run(self, parameters),
            Workload::Command(parameters) => command::run(self, parameters),
            Workload::Script(parameters) => script::run(self, parameters),
            Workload::Ktap(parameters) => command::run(self, &script::of_ktap(parameters)),
        }?;
        let seen = watch.finish().map_err(Stopped::failed)?;
        for sample in seen.samples {
            self.sample(sample);
        }
        for (name, text) in seen.evidence {
            self.evidence(&name, &text);
        }
        for path in seen.artefacts {
            self.artefact(&path);
        }
        Ok(status)
    }

    /// Sends a text to be kept beside the samples, in pieces that fit a frame;
    /// the host joins pieces of one name.
    fn evidence(&self, name: &str, text: &str) {
        let mut rest = text;
        while !rest.is_empty() {
            let mut cut = rest.len().min(EVIDENCE_PIECE);
            while !rest.is_char_boundary(cut) {
                cut -= 1;
            }
            let (piece, left) = rest.split_at(cut);
            self.link.say(&AgentMessage::Evidence {
                name: name.into(),
                text: piece.into(),
            });
            rest = left;
        }
    }

    fn artefact(&self, path: &Path) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match std::fs::read(path) {
            Ok(bytes) => self.evidence(&name, &String::from_utf8_lossy(&bytes)),
            Err(error) => self.note(format!("cannot read {}: {error}", path.display())),
        }
    }

    fn exit(&self, status: ExitStatus) -> AgentMessage {
        AgentMessage::Exit {
            run: self.run.clone(),
            status,
            samples: self.sent.load(Ordering::Acquire),
        }
    }

    fn sample(&self, sample: Sample) {
        self.sent.fetch_add(1, Ordering::AcqRel);
        self.link.say(&AgentMessage::Sample(sample));
    }

    fn phase(&self, name: &str) {
        self.link.say(&AgentMessage::Phase { name: name.into() });
    }

    fn note(&self, text: impl Into<String>) {
        self.link.say(&AgentMessage::Note { text: text.into() });
    }
}

/// A sample without labels.
fn plain(metric: &str, value: f64, kind: MetricKind, unit: &str, better: Better) -> Sample {
    Sample {
        metric: metric.into(),
        value,
        kind,
        unit: unit.into(),
        better,
        labels: Labels::new(),
    }
}

/// What reaches a running workload from the host.
#[derive(Debug, Default)]
pub struct Control {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Leader of the workload's process group.
    leader: Option<u32>,
    /// Sent before there was a leader.
    early_signal: Option<i32>,
    stdin: Option<Sender<Stdin>>,
    /// Until the workload takes it: input may come before the command runs.
    received: Option<Receiver<Stdin>>,
    /// The host's window; kept for terminals that open later.
    size: Option<(u16, u16)>,
    terminal: Option<Arc<OwnedFd>>,
}

/// What arrives on standard input.
#[derive(Debug)]
pub enum Stdin {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The end.
    Close,
}

impl Control {
    /// Called before a run begins, so that what arrives before its first process
    /// is kept for it.
    pub fn begin(&self) {
        let (sender, receiver) = channel();
        let mut state = self.lock();
        state.stdin = Some(sender);
        state.received = Some(receiver);
        state.early_signal = None;
    }

    /// Called when a run has ended.
    pub fn end(&self) {
        let mut state = self.lock();
        let size = state.size;
        *state = State {
            size,
            ..State::default()
        };
    }

    /// Sends a signal to the running processes, or to the first one there will be.
    pub fn signal(&self, children: &Children, signal: i32) {
        let mut state = self.lock();
        match state.leader {
            Some(leader) => children.signal_group(leader, signal),
            None => state.early_signal = Some(signal),
        }
    }

    /// Hands standard input on; nobody reads it when no command runs.
    pub fn stdin(&self, input: Stdin) {
        if let Some(stdin) = &self.lock().stdin {
            // The command may have ended a moment ago.
            let _ = stdin.send(input);
        }
    }

    /// Remembers the host's window size and passes it to an open terminal.
    pub fn resize(&self, rows: u16, cols: u16) {
        let mut state = self.lock();
        state.size = Some((rows, cols));
        if let Some(terminal) = &state.terminal {
            terminal::set_size(terminal, rows, cols);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    fn attach(&self, children: &Children, leader: u32) {
        let mut state = self.lock();
        state.leader = Some(leader);
        if let Some(signal) = state.early_signal.take() {
            children.signal_group(leader, signal);
        }
    }

    fn take_stdin(&self) -> Option<Receiver<Stdin>> {
        self.lock().received.take()
    }

    fn attach_terminal(&self, terminal: Arc<OwnedFd>) {
        let mut state = self.lock();
        if let Some((rows, cols)) = state.size {
            terminal::set_size(&terminal, rows, cols);
        }
        state.terminal = Some(terminal);
    }

    fn detach(&self) {
        let mut state = self.lock();
        state.leader = None;
        state.terminal = None;
    }
}
