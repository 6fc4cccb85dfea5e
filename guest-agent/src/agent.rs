//! The conversation with the host.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use topolab_protocol::PROTOCOL_VERSION;
use topolab_protocol::frame::{Frame, STREAM_FILE, STREAM_STDIN, parse_message};
use topolab_protocol::message::{AgentMessage, HostMessage};

use crate::children::Children;
use crate::cpulist;
use crate::files;
use crate::kmsg::{self, Level};
use crate::link::{Ends, Link, Received};
use crate::observe::observe;
use crate::own_cpus;
use crate::settings::Journal;
use crate::welcome;
use crate::workload::{Control, Session, Stdin};

/// What the agent is in its guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// PID 1: the machine is its own.
    Init,
    /// A service beside others.
    Service,
}

/// How the conversation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The host asked to power off.
    PowerOff,
    /// The port is gone.
    PortLost,
}

/// What happens to the agent, in one place and one order.
enum Event {
    Received(Received),
    /// With the run's last message.
    RunEnded(AgentMessage),
}

/// Between two looks whether hello or heartbeat is due.
const PULSE: Duration = Duration::from_millis(500);
/// Longest wait for the last words to leave.
const FLUSH_LIMIT: Duration = Duration::from_secs(2);

struct Agent {
    role: Role,
    link: Link,
    children: Children,
    control: Arc<Control>,
    welcomed: Arc<AtomicBool>,
    journal: Journal,
    incoming: Option<files::Incoming>,
    running: Option<String>,
    events: Sender<Event>,
}

/// Talks with the host until it ends the conversation.
pub fn converse(ends: Ends, role: Role) -> End {
    let (events, inbox) = channel();
    let deliver = events.clone();
    let link = Link::start(ends, move |received| {
        deliver.send(Event::Received(received)).is_ok()
    });
    let welcomed = Arc::new(AtomicBool::new(false));
    start_pulse(link.clone(), Arc::clone(&welcomed));
    let mut agent = Agent {
        role,
        link,
        children: Children::start(),
        control: Arc::default(),
        welcomed,
        journal: Journal::new(Path::new("/")),
        incoming: None,
        running: None,
        events,
    };
    agent.serve(&inbox)
}

/// Hello until welcomed, and a heartbeat each second, from a thread that never
/// waits for the host.
fn start_pulse(link: Link, welcomed: Arc<AtomicBool>) {
    let observed = Box::new(observe(Path::new("/")));
    std::thread::Builder::new()
        .name("topolab-pulse".into())
        .spawn(move || {
            let mut seq = 0;
            for tick in 0u64.. {
                if !welcomed.load(Ordering::Acquire) {
                    link.say_if_idle(&AgentMessage::Hello {
                        protocol: PROTOCOL_VERSION,
                        agent: env!("CARGO_PKG_VERSION").into(),
                        uptime_ms: uptime_ms(),
                        observed: observed.clone(),
                    });
                }
                // Every second tick is a second after the one before.
                if tick % 2 == 1 {
                    link.say_if_idle(&AgentMessage::Heartbeat {
                        seq,
                        uptime_ms: uptime_ms(),
                    });
                    seq += 1;
                }
                std::thread::sleep(PULSE);
            }
        })
        .expect("the first threads of a process start");
}

fn uptime_ms() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    let millis = now.tv_sec * 1000 + now.tv_nsec / 1_000_000;
    u64::try_from(millis).unwrap_or(0)
}

impl Agent {
    fn serve(&mut self, inbox: &Receiver<Event>) -> End {
        for event in inbox {
            match event {
                Event::RunEnded(last) => {
                    // The host may start the next run as soon as it hears this.
                    self.running = None;
                    self.control.end();
                    self.link.say(&last);
                }
                Event::Received(Received::Frame(Frame::Message(json))) => {
                    match parse_message(&json) {
                        Ok(HostMessage::PowerOff) => {
                            self.say_bye();
                            return End::PowerOff;
                        }
                        Ok(message) => self.answer(message),
                        Err(error) => self.fail("a message", &error.to_string()),
                    }
                }
                Event::Received(Received::Frame(Frame::Data { stream, bytes })) => {
                    self.data(stream, bytes);
                }
                Event::Received(Received::Gone) => {
                    self.leave();
                    return End::PortLost;
                }
                Event::Received(Received::Damage(damage)) => self.link.say(&AgentMessage::Note {
                    text: format!("received {damage}"),
                }),
            }
        }
        End::PortLost
    }

    fn answer(&mut self, message: HostMessage) {
        match message {
            HostMessage::Welcome {
                protocol,
                now_ns,
                entropy,
            } => {
                self.welcomed.store(true, Ordering::Release);
                if protocol != PROTOCOL_VERSION {
                    let reason = format!(
                        "the host speaks version {protocol}, this agent {PROTOCOL_VERSION}"
                    );
                    self.fail("welcome", &reason);
                }
                if self.role == Role::Init {
                    welcome::set_clock(now_ns);
                    welcome::add_entropy(&entropy);
                }
            }
            HostMessage::Put { path, mode, size } => {
                self.incoming = Some(files::Incoming::open(&path, mode, size));
                self.data(STREAM_FILE, Vec::new());
            }
            HostMessage::Apply { settings } => self.apply(&settings),
            HostMessage::Start {
                run,
                workload,
                monitors,
                sets,
                // No workload draws anything yet.
                seed: _,
            } => {
                if let Some(running) = &self.running {
                    let reason = format!("run {running} has not ended");
                    return self.fail("start", &reason);
                }
                if let Some(housekeeping) = sets.get("housekeeping") {
                    self.keep_to(housekeeping);
                }
                self.running = Some(run.clone());
                self.control.begin();
                self.start(Session {
                    link: self.link.clone(),
                    children: self.children.clone(),
                    run,
                    workload,
                    monitors,
                    sets,
                    control: Arc::clone(&self.control),
                    sent: AtomicU64::new(0),
                });
            }
            HostMessage::CloseStdin => self.control.stdin(Stdin::Close),
            HostMessage::Resize { rows, cols } => self.control.resize(rows, cols),
            HostMessage::Signal { signal } => self.control.signal(&self.children, signal),
            HostMessage::Get { path, limit } => {
                if let Err(error) = files::send(&self.link, &path, limit) {
                    self.fail(&format!("get {path}"), &error.to_string());
                }
            }
            HostMessage::Observe => self.link.say(&AgentMessage::Observed {
                observed: Box::new(observe(Path::new("/"))),
            }),
            HostMessage::KernelLog => self.link.say(&kmsg::kernel_log(Path::new("/"))),
            HostMessage::Undo => match &self.running {
                Some(running) => {
                    let reason = format!("run {running} has not ended");
                    self.fail("undo", &reason);
                }
                None => {
                    let failed = self.journal.undo();
                    self.link.say(&AgentMessage::Undone { failed });
                }
            },
            HostMessage::PowerOff => unreachable!("ends the conversation before it gets here"),
        }
    }

    fn apply(&mut self, settings: &topolab_protocol::settings::Settings) {
        match self.journal.apply(settings) {
            Ok(records) => self.link.say(&AgentMessage::Applied { records }),
            Err(error) => {
                for failed in self.journal.undo() {
                    self.link.say(&AgentMessage::Note {
                        text: format!("not restored: {failed}"),
                    });
                }
                self.link.say(&AgentMessage::NotTestable {
                    reason: error.to_string(),
                });
            }
        }
    }

    fn keep_to(&self, housekeeping: &str) {
        let kept = cpulist::parse(housekeeping)
            .ok_or_else(|| "no CPU list".to_string())
            .and_then(|cpus| own_cpus::keep_to(&cpus).map_err(|error| error.to_string()));
        if let Err(reason) = kept {
            self.link.say(&AgentMessage::Note {
                text: format!("the agent cannot keep to CPUs {housekeeping}: {reason}"),
            });
        }
    }

    fn start(&self, session: Session) {
        let events = self.events.clone();
        std::thread::Builder::new()
            .name("topolab-run".into())
            .spawn(move || {
                let run = std::panic::AssertUnwindSafe(|| session.run());
                let last = std::panic::catch_unwind(run).unwrap_or_else(|_| session.broken());
                // The conversation may have ended first.
                let _ = events.send(Event::RunEnded(last));
            })
            .expect("a guest that cannot start one thread cannot run a workload");
    }

    fn data(&mut self, stream: u16, bytes: Vec<u8>) {
        match stream {
            STREAM_STDIN => self.control.stdin(Stdin::Bytes(bytes)),
            STREAM_FILE => {
                let Some(incoming) = &mut self.incoming else {
                    return self.fail("put", "bytes of a file that was not announced");
                };
                let Some(stored) = incoming.take(&bytes) else {
                    return;
                };
                self.incoming = None;
                match stored {
                    Ok(path) => self.link.say(&AgentMessage::Stored { path }),
                    Err(error) => self.fail("put", &error.to_string()),
                }
            }
            other => self.fail("data", &format!("no stream {other}")),
        }
    }

    fn fail(&self, request: &str, reason: &str) {
        self.link.say(&AgentMessage::Failed {
            request: request.into(),
            reason: reason.into(),
        });
    }

    /// Nobody listens any more: leaves the machine as it was found.
    fn leave(&mut self) {
        self.control.signal(&self.children, libc::SIGKILL);
        for failed in self.journal.undo() {
            kmsg::say(Level::Error, &format!("not restored: {failed}"));
        }
    }

    fn say_bye(&self) {
        self.control.signal(&self.children, libc::SIGKILL);
        self.link.say(&AgentMessage::Bye);
        self.link.flush(FLUSH_LIMIT);
    }
}

/// Switches a guest off whose PID 1 is somebody else.
pub fn power_off_service() {
    let asked = std::process::Command::new("systemctl")
        .arg("poweroff")
        .status();
    if !asked.is_ok_and(|status| status.success()) {
        crate::init::power_off();
    }
}
