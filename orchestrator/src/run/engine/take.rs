//! What happens becomes a change of the run's state, here and nowhere else.

use std::{
    fs::File,
    io,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

use topolab_protocol::{
    frame::{STREAM_STDERR, STREAM_STDIN, STREAM_STDOUT},
    message::{AgentMessage, HostMessage},
    observed::Observed,
};

use super::{
    DEAF, Engine, SHUTDOWN, STDERR,
    inbox::{Input, Turn},
};
use crate::{
    guest::{FromAgent, SendError, ssh::CarryError},
    qemu::qmp::QmpEvent,
    run::{
        carried,
        console::clean,
        dialogue::Step,
        event::{RunEvent, Typed},
        judge::Why,
    },
};

impl Engine<'_> {
    pub(super) fn take(&mut self, turn: Turn) {
        match turn {
            Turn::Cancelled => self.stop_because(Why::Cancelled),
            Turn::Qmp(event) => self.qmp_event(&event),
            Turn::Exited(exit) => {
                self.exit = Some(exit);
                self.stop_because(Why::Ended);
            }
            Turn::Typed(typed) => self.typed(typed),
            Turn::Lost(error) => self.agent_lost(&error),
            Turn::Input(Input::Console(bytes)) => self.console_bytes(&bytes),
            // A serial line whose guest does not read loses what is typed.
            Turn::Input(Input::ConsoleTyped(bytes)) => {
                let _ = self.console_in.try_write(&bytes);
            }
            Turn::Input(Input::ConsoleClosed) => {
                self.open.console = false;
                if let Some(line) = self.console.finish() {
                    self.tell(RunEvent::Console(line));
                }
            }
            Turn::Input(Input::Words(bytes)) => {
                // The first words name the cause, the last ones the end.
                let room = STDERR.saturating_sub(self.words.len());
                self.words.extend(&bytes[..bytes.len().min(room)]);
            }
            Turn::Input(Input::WordsEnd) => self.open.words = false,
            Turn::Input(Input::Agent(item)) => self.agent_item(item),
            Turn::Deadline => {}
        }
    }

    fn qmp_event(&mut self, event: &QmpEvent) {
        match event {
            QmpEvent::Panicked => self.panicked = true,
            QmpEvent::Shutdown(end) | QmpEvent::Reset(end) => {
                self.end.get_or_insert(*end);
            }
            // What is sent to a restored guest before this is dropped by QEMU.
            QmpEvent::PortOpened => {
                if let Some(first) = self.dialogue.open() {
                    self.say(&first);
                }
            }
            // An agent that comes back has forgotten what it was doing.
            QmpEvent::PortClosed if self.observed.is_some() => {
                self.deaf.get_or_insert_with(|| Instant::now() + DEAF);
            }
            QmpEvent::PortClosed => {}
            QmpEvent::MemoryFailure => self.note("the host reported a memory error".into()),
            QmpEvent::Watchdog | QmpEvent::Stopped | QmpEvent::Resumed | QmpEvent::Closed => {}
        }
    }

    /// The session to the agent is over. Before hello that ends the run; later
    /// the guest may be on its way down and say more.
    fn agent_lost(&mut self, error: &CarryError) {
        self.carrying = None;
        let why = carried::why(error);
        if self.observed.is_none() {
            return self.stop_because(why);
        }
        self.deaf = Some(Instant::now() + SHUTDOWN);
        self.lost = Some(why);
    }

    fn console_bytes(&mut self, bytes: &[u8]) {
        if let Some(desk) = &self.desk {
            desk.show(bytes);
        }
        match self.console.push(bytes) {
            Ok(lines) => {
                for line in lines {
                    self.tell(RunEvent::Console(line));
                }
            }
            Err(error) => self.disk_failed(&error),
        }
    }

    fn disk_failed(&mut self, error: &io::Error) {
        let reason = format!("cannot write below `{}`: {error}", self.folder.display());
        self.disk.get_or_insert_with(|| reason.clone());
        self.stop_because(Why::Lab {
            part: "disk",
            reason,
        });
    }

    fn agent_item(&mut self, item: FromAgent) {
        match item {
            FromAgent::Message(message) => {
                self.clocks.heard(Instant::now());
                if let AgentMessage::StdinTaken { bytes } = *message {
                    self.stdin_taken = self.stdin_taken.max(bytes.min(self.stdin_sent));
                    return;
                }
                let steps = self.dialogue.hear(*message);
                self.follow(steps);
            }
            FromAgent::Data { stream, bytes } => {
                self.clocks.heard(Instant::now());
                if stream == STREAM_STDOUT || stream == STREAM_STDERR {
                    if let Err(error) = self.output.write(&bytes) {
                        self.disk_failed(&error);
                    }
                    if stream == STREAM_STDOUT {
                        self.dialogue.printed(&bytes);
                    }
                    self.tell(RunEvent::Output { stream, bytes });
                }
            }
            FromAgent::Damaged(error) => {
                self.damaged += 1;
                if self.damaged == 1 {
                    self.note(format!("damage on the agent's port: {error}"));
                }
            }
            FromAgent::Unknown { reason } => {
                self.stop_because(Why::Lab {
                    part: "agent",
                    reason: format!(
                        "the agent said something unknown: {}",
                        clean(reason.as_bytes())
                    ),
                });
            }
            FromAgent::Closed => {
                // Usually QEMU is about to end; its exit tells more.
                self.open.agent = false;
            }
        }
    }

    fn follow(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Say(message) => self.say(&message),
                Step::Tell(event) => self.tell(event),
                Step::Phase(name) => self.enter(name),
                Step::Check(observed) => self.check(observed),
                Step::Begin => {
                    self.measuring = true;
                    self.attendant.begin(&self.qemu);
                }
                Step::Evidence { name, text } => {
                    if let Err(error) = self.evidence(&name, &text) {
                        self.disk_failed(&error);
                    }
                }
                Step::KernelLog { first, lines } => self.kernel_log = Some((first, lines)),
                Step::End(outcome) => {
                    self.stop_measuring();
                    self.stop_because(Why::Said(outcome));
                }
            }
        }
    }

    pub(super) fn stop_measuring(&mut self) {
        if std::mem::take(&mut self.measuring) {
            self.attendant.end();
        }
    }

    pub(super) fn enter(&mut self, name: String) {
        self.clocks.enter(&name, Instant::now());
        self.tell(RunEvent::Phase { name });
    }

    fn check(&mut self, observed: Box<Observed>) {
        self.clocks.greeted(Instant::now());
        self.tell(RunEvent::Hello {
            after_ms: self.clocks.hello_ms().unwrap_or_default(),
            observed: observed.clone(),
        });
        let wrong = self.attendant.check(&observed);
        self.observed = Some(observed);
        if let Some(outcome) = wrong {
            return self.stop_because(Why::Said(outcome));
        }
        if self.save.is_some() {
            return self.stop_because(Why::Proved);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = now.map(|now| u64::try_from(now.as_nanos()).unwrap_or(0));
        let steps = self.dialogue.accept(now_ns.unwrap_or(0), entropy());
        self.follow(steps);
    }

    pub(super) fn say(&mut self, message: &HostMessage) {
        match self.link.say(message) {
            Ok(()) => {}
            // Its end is on the way through the inbox.
            Err(SendError::Closed) => {}
            Err(error) => self.stop_because(Why::Lab {
                part: "agent",
                reason: error.to_string(),
            }),
        }
    }

    fn typed(&mut self, typed: Option<Typed>) {
        match typed {
            Some(Typed::Bytes(bytes)) => {
                self.stdin_sent += bytes.len() as u64;
                if let Err(error @ SendError::Full) = self.link.data(STREAM_STDIN, bytes) {
                    self.stop_because(Why::Lab {
                        part: "agent",
                        reason: error.to_string(),
                    });
                }
            }
            Some(Typed::End) => self.say(&HostMessage::CloseStdin),
            Some(Typed::Size { rows, cols }) => self.say(&HostMessage::Resize { rows, cols }),
            Some(Typed::Signal(signal)) => self.say(&HostMessage::Signal { signal }),
            None => self.session.typed = None,
        }
    }

    pub(super) fn evidence(&self, name: &str, text: &str) -> io::Result<()> {
        let folder = self.folder.join("evidence");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), text)
    }
}

/// Random bytes for the guest, hex. A guest whose host has none to give does
/// without.
fn entropy() -> String {
    let mut bytes = [0; 32];
    let read =
        File::open("/dev/urandom").and_then(|mut file| io::Read::read_exact(&mut file, &mut bytes));
    match read {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(_) => String::new(),
    }
}
