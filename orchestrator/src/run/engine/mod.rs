//! One guest, one inbox, one loop. Console, QMP, agent, clocks and the user all
//! arrive here; nothing else changes the state of a run.

mod inbox;
mod job;
mod postmortem;
mod take;
mod tidy;

use std::{
    fs::File,
    os::fd::OwnedFd,
    path::PathBuf,
    time::{Duration, Instant},
};

use tokio::{
    net::{UnixStream, unix::OwnedWriteHalf},
    sync::mpsc,
};
use topolab_protocol::{STDIN_WINDOW, observed::Observed};

pub use job::{Channels, Inspect, Job, Left, Session};
pub(super) use postmortem::GDB_SOCKET;

use super::{
    attend::Attendant,
    carried::{Carrier, Carrying},
    clocks::{Clock, Clocks},
    console::Console,
    dialogue::Dialogue,
    entrance::{self, ConsoleDesk, Entrance, SshEntrance},
    event::RunEvent,
    judge::Why,
    kept::KeptLog,
    splat::SplatKind,
};
use crate::{
    guest::AgentLink,
    image::SshLogin,
    qemu::{
        process::{Qemu, QemuExit},
        qmp::{End, Qmp, QmpError, QmpEvent},
    },
};
use inbox::{Input, Open, Turn, read_console, read_words};

/// Bytes of the workload's output kept on disk.
const OUTPUT: u64 = 64 << 20;
/// Bytes kept of what QEMU writes.
const STDERR: usize = 16 * 1024;
/// Items that may wait in the inbox; whoever brings more waits.
const INBOX: usize = 256;
/// A panicked guest may print for so long before it is ended.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// After text of a panic was printed, so long a silence of the agent proves it.
const SILENCE: Duration = Duration::from_secs(3);
/// The kernel's log is waited for so long.
const KERNEL_LOG: Duration = Duration::from_secs(5);
/// A guest asked to power off may take so long.
const POWER_OFF: Duration = Duration::from_secs(10);
/// Reading a saved guest may take so long.
const RESTORE: Duration = Duration::from_secs(120);
/// Writing a stopped guest to a file may take so long.
const SAVE: Duration = Duration::from_secs(300);
/// QEMU may take so long to quit when asked, then it is killed.
const QUIT: Duration = Duration::from_secs(3);
/// After the agent has closed its port, a panic or power-off shows within this.
const DEAF: Duration = Duration::from_secs(1);
/// A guest that shuts down ends its SSH sessions this long before itself.
const SHUTDOWN: Duration = Duration::from_secs(15);
/// What is left in pipes of a dead process arrives within this.
const DRAIN: Duration = Duration::from_secs(2);

struct Engine<'a> {
    session: Session<'a>,
    attendant: Attendant,
    qemu: Qemu,
    qmp: Option<Qmp>,
    inbox: mpsc::Receiver<Input>,
    qmp_events: mpsc::UnboundedReceiver<QmpEvent>,
    link: AgentLink,
    console: Console,
    /// What is typed on the guest's serial line.
    console_in: OwnedWriteHalf,
    output: KeptLog,
    folder: PathBuf,
    save: Option<File>,
    inspect: Inspect,
    clocks: Clocks,
    dialogue: Dialogue,
    observed: Option<Box<Observed>>,
    words: Vec<u8>,
    open: Open,
    end: Option<End>,
    exit: Option<QemuExit>,
    panicked: bool,
    /// When text of a panic appeared on the console that is not decided yet.
    panic_printed: Option<Instant>,
    panic_forged: bool,
    /// What the kernel itself wrote, when it was asked.
    kernel_log: Option<(u64, Vec<String>)>,
    /// The agent closed its port; the run ends then unless something better
    /// explains it before.
    deaf: Option<Instant>,
    /// Where others sit down at the serial line.
    desk: Option<ConsoleDesk>,
    login: Option<SshLogin>,
    /// Not yet on its way.
    carrier: Option<(Carrier, OwnedFd)>,
    carrying: Option<Carrying>,
    /// What took the agent from us, told when the guest does not explain it.
    lost: Option<Why>,
    why: Option<Why>,
    notes: Vec<String>,
    measuring: bool,
    damaged: u64,
    stdin_sent: u64,
    stdin_taken: u64,
    disk: Option<String>,
}

/// Runs one guest to its end. Whatever happens, QEMU is gone afterwards.
pub async fn drive(job: Job<'_>, session: Session<'_>) -> Left {
    let started = Instant::now();
    let first = if job.dialogue.is_restored() {
        "restore"
    } else {
        "boot"
    };
    let clocks = Clocks::start(job.limits, first, started);
    let facts = Static {
        emulated: job.emulated,
        allowed: job.allowed,
    };
    let opened = Console::create(&job.folder.join("console.log")).and_then(|console| {
        Ok((
            console,
            KeptLog::create(&job.folder.join("output.log"), OUTPUT)?,
        ))
    });
    let (console, output) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            return Left::not_started(job.dialogue, job.attendant.trust, "disk", error.to_string());
        }
    };
    let Channels {
        control,
        agent,
        console: console_channel,
    } = job.channels;
    let mut files = vec![control.theirs, console_channel.theirs];
    let mut carrier = None;
    files.extend(job.files);
    match job.carrier {
        // What would be QEMU's end is the carrier's.
        Some(one) => carrier = Some((one, agent.theirs)),
        None => files.push(agent.theirs),
    }
    let (qemu, words) = match Qemu::start(&job.launch, files).await {
        Ok(started) => started,
        Err(error) => {
            let cause = std::error::Error::source(&error);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            return Left::not_started(
                job.dialogue,
                job.attendant.trust,
                "qemu",
                format!("{error}{cause}"),
            );
        }
    };
    let (sender, inbox) = mpsc::channel(INBOX);
    let (qmp_sender, qmp_events) = mpsc::unbounded_channel();
    let (console_out, console_in) = console_channel.ours.into_split();
    tokio::spawn(read_console(console_out, sender.clone()));
    tokio::spawn(read_words(words, sender.clone()));
    let desk = ConsoleDesk::open(job.folder, sender.clone(), Input::ConsoleTyped);
    let link = AgentLink::attach(agent.ours, sender, Input::Agent);
    let mut engine = Engine {
        session,
        attendant: job.attendant,
        qemu,
        qmp: None,
        inbox,
        qmp_events,
        link,
        console,
        console_in,
        output,
        folder: job.folder.into(),
        save: job.save,
        inspect: job.inspect,
        clocks,
        dialogue: job.dialogue,
        observed: None,
        words: Vec::new(),
        open: Open {
            console: true,
            agent: true,
            words: true,
        },
        end: None,
        exit: None,
        panicked: false,
        panic_printed: None,
        panic_forged: false,
        kernel_log: None,
        deaf: None,
        desk: desk.ok(),
        login: job.login,
        carrier,
        carrying: None,
        lost: None,
        why: None,
        notes: Vec::new(),
        measuring: false,
        damaged: 0,
        stdin_sent: 0,
        stdin_taken: 0,
        disk: None,
    };
    engine.tell(RunEvent::Started {
        pid: engine.qemu.pid(),
    });
    engine.tell(RunEvent::Phase { name: first.into() });
    engine.prepare(control.ours, qmp_sender).await;
    engine.work().await;
    engine.tidy().await;
    engine.leave(&facts)
}

struct Static<'a> {
    emulated: bool,
    allowed: &'a [String],
}

impl Engine<'_> {
    fn tell(&mut self, event: RunEvent) {
        (self.session.events)(event);
    }

    fn note(&mut self, text: String) {
        self.notes.push(text.clone());
        self.tell(RunEvent::Note(text));
    }

    fn stop_because(&mut self, why: Why) {
        self.why.get_or_insert(why);
    }

    /// Greets QMP, lets the caller prepare, starts the virtual CPUs.
    async fn prepare(&mut self, control: UnixStream, events: mpsc::UnboundedSender<QmpEvent>) {
        let mut greeting = tokio::spawn(Qmp::greet(control, events));
        // Greeting has a limit of its own; what QEMU writes meanwhile must be
        // read, or it would wait for us.
        let never = self.clocks.next().0;
        let greeting = loop {
            tokio::select! {
                biased;
                greeting = &mut greeting => break greeting.expect("greeting does not panic"),
                turn = self.turn(never) => self.take(turn),
            }
            if matches!(self.why, Some(Why::Cancelled)) {
                greeting.abort();
                return;
            }
        };
        let qmp = match greeting {
            Ok(qmp) => qmp,
            Err(error) => {
                // A QEMU that did not even greet has most likely said why and
                // ended; its exit code and its words say more than the socket.
                self.until_exit(DRAIN).await;
                return self.stop_because(Why::Lab {
                    part: "qemu",
                    reason: error.to_string(),
                });
            }
        };
        let attended = self.attendant.before_start(&self.qemu, &qmp).await;
        let restored = self.dialogue.is_restored();
        if let Err((part, reason)) = attended {
            self.stop_because(Why::Lab { part, reason });
        } else if self.inspect.gdb {
            // The debugger starts the guest.
        } else if let Err(error) = resume(&qmp, restored).await {
            // A saved guest that does not fit makes QEMU end and say why.
            self.until_exit(DRAIN).await;
            self.stop_because(Why::Lab {
                part: "qemu",
                reason: error.to_string(),
            });
        } else if let Err(why) = self.open_door(&qmp).await {
            self.stop_because(why);
        }
        self.qmp = Some(qmp);
    }

    /// Tells others how the guest is entered, and sends the agent through the door
    /// when it is not inside.
    async fn open_door(&mut self, qmp: &Qmp) -> Result<(), Why> {
        let mut ssh = None;
        if let Some(login) = &self.login {
            let port = entrance::forwarded_port(qmp).await;
            let port = port.map_err(|reason| Why::Lab {
                part: "qemu",
                reason,
            })?;
            ssh = Some(SshEntrance::new(login, port));
        }
        if let (Some((carrier, wire)), Some(ssh)) = (self.carrier.take(), &ssh) {
            self.carrying = Some(carrier.begin(ssh.access(), wire)?);
        }
        let entrance = Entrance {
            qemu: self.qemu.pid(),
            ssh,
        };
        entrance.write(&self.folder).map_err(|error| Why::Lab {
            part: "disk",
            reason: format!("cannot write below `{}`: {error}", self.folder.display()),
        })
    }

    /// The loop of the run proper.
    async fn work(&mut self) {
        while self.why.is_none() {
            let (deadline, clock) = self.clocks.next();
            let deaf = self.deaf.filter(|deaf| *deaf < deadline);
            let sooner = deaf.unwrap_or(deadline);
            let panic = self.panic_printed.map(|printed| printed + SILENCE);
            let panic = panic.filter(|panic| *panic < sooner);
            match self.turn(panic.unwrap_or(sooner)).await {
                Turn::Deadline if panic.is_some() => self.believe_panic(),
                Turn::Deadline if deaf.is_some() => {
                    let why = self.lost.take().unwrap_or(Why::Deaf);
                    self.stop_because(why);
                }
                Turn::Deadline => self.out_of_time(clock),
                turn => self.take(turn),
            }
            if self.panicked {
                self.stop_because(Why::Panicked);
            }
            self.watch_for_panic();
        }
    }

    /// A panic that was printed is believed when the agent falls silent (or
    /// QEMU tells of it, or the guest resets). Text of a panic from a guest
    /// whose agent goes on talking was written by somebody else.
    fn watch_for_panic(&mut self) {
        let printed = |engine: &Self| {
            let mut splats = engine.console.splats().iter();
            splats.any(|splat| splat.kind == SplatKind::Panic)
        };
        if self.panic_printed.is_none() && !self.panic_forged && printed(self) {
            self.panic_printed = Some(Instant::now());
        }
    }

    /// The time after a printed panic is over.
    fn believe_panic(&mut self) {
        let Some(printed) = self.panic_printed.take() else {
            return;
        };
        // What was on its way when the panic was printed does not count.
        if self.observed.is_some() && self.clocks.last_heard() > printed + SILENCE / 3 {
            self.panic_forged = true;
            self.note("text of a panic was printed, but the kernel goes on".into());
        } else {
            self.stop_because(Why::Panicked);
        }
    }

    fn out_of_time(&mut self, clock: Clock) {
        self.stop_because(Why::Clock {
            clock,
            phase: self.clocks.phase().into(),
            text: self.clocks.describe(clock),
        });
    }

    /// Waits for the next thing to happen, at most until `deadline`.
    async fn turn(&mut self, deadline: Instant) -> Turn {
        let running = self.exit.is_none();
        let asked = self.why.is_some();
        let window = self.stdin_sent - self.stdin_taken < STDIN_WINDOW / 2;
        let typing = window && self.dialogue.is_running();
        let typed = async {
            match &mut self.session.typed {
                Some(typed) if typing => typed.recv().await,
                _ => std::future::pending().await,
            }
        };
        let lost = async {
            match &mut self.carrying {
                Some(carrying) => carrying.failure().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = self.session.cancel.told(), if !asked => Turn::Cancelled,
            Some(event) = self.qmp_events.recv() => Turn::Qmp(event),
            // What was said before QEMU ended is taken before its end.
            Some(input) = self.inbox.recv() => Turn::Input(input),
            exit = self.qemu.wait(), if running => Turn::Exited(exit),
            typed = typed => Turn::Typed(typed),
            error = lost => Turn::Lost(error),
            () = tokio::time::sleep_until(deadline.into()) => Turn::Deadline,
        }
    }
}

/// Lets the virtual CPUs run, those of a restored guest once it is there.
async fn resume(qmp: &Qmp, restored: bool) -> Result<(), QmpError> {
    if restored {
        qmp.restored(RESTORE).await?;
    }
    qmp.resume().await
}
