//! One guest, one inbox, one loop. Console, QMP, agent, clocks and the user all
//! arrive here; nothing else changes the state of a run.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use tokio::{
    io::AsyncReadExt,
    net::{UnixStream, unix::pipe},
    sync::mpsc,
};
use topolab_protocol::{
    STDIN_WINDOW,
    frame::{STREAM_STDERR, STREAM_STDIN, STREAM_STDOUT},
    message::{AgentMessage, HostMessage},
    observed::Observed,
};

use super::{
    attend::Attendant,
    carried::{self, Carrier, Carrying},
    clocks::{Clock, Clocks, Limits},
    console::{Console, clean},
    dialogue::{Dialogue, Step},
    event::{Cancel, RunEvent, Typed},
    judge::{Facts, Why, judge},
};
use crate::{
    guest::{AgentLink, FromAgent, SendError, ssh::CarryError},
    outcome::Outcome,
    qemu::{
        process::{Channel, Launch, Qemu, QemuExit},
        qmp::{End, Qmp, QmpEvent},
    },
    store::record::Trust,
};

/// Bytes of the workload's output kept on disk.
const OUTPUT: u64 = 64 << 20;
/// Bytes kept of what QEMU writes.
const STDERR: usize = 16 * 1024;
/// Items that may wait in the inbox; whoever brings more waits.
const INBOX: usize = 256;
/// A panicked guest may print for so long before it is ended.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// A guest asked to power off may take so long.
const POWER_OFF: Duration = Duration::from_secs(10);
/// QEMU may take so long to quit when asked, then it is killed.
const QUIT: Duration = Duration::from_secs(3);
/// After the agent has closed its port, a panic or power-off shows within this.
const DEAF: Duration = Duration::from_secs(1);
/// A guest that shuts down ends its SSH sessions this long before itself.
const SHUTDOWN: Duration = Duration::from_secs(15);
/// What is left in pipes of a dead process arrives within this.
const DRAIN: Duration = Duration::from_secs(2);

/// What the engine drives.
pub struct Job<'a> {
    /// QEMU and its arguments.
    pub launch: Launch,
    /// Its control socket, the agent's port and the console.
    pub channels: Channels,
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
    /// Options the agent needs and the kernel lacks.
    pub lacks: Vec<String>,
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

enum Input {
    Console(Vec<u8>),
    ConsoleClosed,
    Agent(FromAgent),
    Words(Vec<u8>),
    WordsEnd,
}

/// What one turn of the loop took.
enum Turn {
    Input(Input),
    Qmp(QmpEvent),
    Exited(QemuExit),
    Typed(Option<Typed>),
    Lost(CarryError),
    Cancelled,
    Deadline,
}

struct Open {
    console: bool,
    agent: bool,
    words: bool,
}

struct Engine<'a> {
    session: Session<'a>,
    attendant: Attendant,
    qemu: Qemu,
    qmp: Option<Qmp>,
    inbox: mpsc::Receiver<Input>,
    qmp_events: mpsc::UnboundedReceiver<QmpEvent>,
    link: AgentLink,
    console: Console,
    output: OutputLog,
    folder: PathBuf,
    clocks: Clocks,
    dialogue: Dialogue,
    observed: Option<Box<Observed>>,
    words: Vec<u8>,
    open: Open,
    end: Option<End>,
    exit: Option<QemuExit>,
    panicked: bool,
    /// The agent closed its port; the run ends then unless something better
    /// explains it before.
    deaf: Option<Instant>,
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
    let clocks = Clocks::start(job.limits, started);
    let facts = Static {
        emulated: job.emulated,
        allowed: job.allowed,
        lacks: job.lacks,
    };
    let opened = Console::create(&job.folder.join("console.log"))
        .and_then(|console| Ok((console, OutputLog::create(&job.folder.join("output.log"))?)));
    let (console, output) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            return not_started(job.dialogue, job.attendant.trust, "disk", error.to_string());
        }
    };
    let Channels {
        control,
        agent,
        console: console_channel,
    } = job.channels;
    let mut files = vec![control.theirs, console_channel.theirs];
    let mut carrier = None;
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
            return not_started(
                job.dialogue,
                job.attendant.trust,
                "qemu",
                format!("{error}{cause}"),
            );
        }
    };
    let (sender, inbox) = mpsc::channel(INBOX);
    let (qmp_sender, qmp_events) = mpsc::unbounded_channel();
    tokio::spawn(read_console(console_channel.ours, sender.clone()));
    tokio::spawn(read_words(words, sender.clone()));
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
        output,
        folder: job.folder.into(),
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
        deaf: None,
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
    engine.tell(RunEvent::Phase {
        name: "boot".into(),
    });
    engine.prepare(control.ours, qmp_sender).await;
    engine.work().await;
    engine.tidy().await;
    engine.leave(&facts)
}

struct Static<'a> {
    emulated: bool,
    allowed: &'a [String],
    lacks: Vec<String>,
}

fn not_started(dialogue: Dialogue, trust: Trust, part: &str, reason: String) -> Left {
    Left {
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
        if let Err((part, reason)) = self.attendant.before_start(&self.qemu, &qmp).await {
            self.stop_because(Why::Lab { part, reason });
        } else if let Err(error) = qmp.resume().await {
            self.stop_because(Why::Lab {
                part: "qemu",
                reason: error.to_string(),
            });
        } else if let Some((carrier, wire)) = self.carrier.take() {
            match carrier.begin(&qmp, wire).await {
                Ok(carrying) => self.carrying = Some(carrying),
                Err(why) => self.stop_because(why),
            }
        }
        self.qmp = Some(qmp);
    }

    /// The loop of the run proper.
    async fn work(&mut self) {
        while self.why.is_none() {
            let (deadline, clock) = self.clocks.next();
            let deaf = self.deaf.filter(|deaf| *deaf < deadline);
            match self.turn(deaf.unwrap_or(deadline)).await {
                Turn::Deadline if deaf.is_some() => {
                    let why = self.lost.take().unwrap_or(Why::Deaf);
                    self.stop_because(why);
                }
                Turn::Deadline => self.out_of_time(clock),
                turn => self.take(turn),
            }
            if self.panicked || self.is_panic_printed() {
                self.stop_because(Why::Panicked);
            }
        }
    }

    fn is_panic_printed(&self) -> bool {
        let mut splats = self.console.splats().iter();
        splats.any(|splat| splat.kind == super::splat::SplatKind::Panic)
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

    fn take(&mut self, turn: Turn) {
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
                Step::End(outcome) => {
                    self.stop_measuring();
                    self.stop_because(Why::Said(outcome));
                }
            }
        }
    }

    fn stop_measuring(&mut self) {
        if std::mem::take(&mut self.measuring) {
            self.attendant.end();
        }
    }

    fn enter(&mut self, name: String) {
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
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_ns = now.map(|now| u64::try_from(now.as_nanos()).unwrap_or(0));
        let steps = self.dialogue.accept(now_ns.unwrap_or(0), entropy());
        self.follow(steps);
    }

    fn say(&mut self, message: &HostMessage) {
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

    fn evidence(&self, name: &str, text: &str) -> io::Result<()> {
        let folder = self.folder.join("evidence");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join(name), text)
    }

    /// Ends the guest, then QEMU, then reads what is left in the pipes.
    async fn tidy(&mut self) {
        self.stop_measuring();
        match &self.why {
            Some(Why::Said(_)) if self.observed.is_some() => {
                self.enter("power-off".into());
                self.say(&HostMessage::PowerOff);
                self.until_exit(POWER_OFF).await;
                if self.exit.is_none() {
                    self.note(format!(
                        "the guest did not power off within {} s",
                        POWER_OFF.as_secs()
                    ));
                }
            }
            // Its last words are still on their way.
            Some(Why::Panicked) => self.until_exit(LAST_WORDS).await,
            _ => {}
        }
        if self.exit.is_none()
            && let Some(qmp) = self.qmp.take()
        {
            let quit = qmp.quit().await;
            if quit.is_ok() {
                self.until_exit(QUIT).await;
            }
            self.qmp = Some(qmp);
        }
        if self.exit.is_none() {
            self.qemu.kill();
            self.until_exit(QUIT).await;
        }
        let deadline = Instant::now() + DRAIN;
        while self.open.console || self.open.agent || self.open.words {
            match self.turn(deadline).await {
                Turn::Deadline => break,
                turn => self.take(turn),
            }
        }
    }

    async fn until_exit(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.exit.is_none() {
            match self.turn(deadline).await {
                Turn::Deadline => break,
                turn => self.take(turn),
            }
        }
    }

    fn leave(mut self, fixed: &Static<'_>) -> Left {
        let now = Instant::now();
        if self.damaged > 1 {
            self.note(format!("{} damages on the agent's port", self.damaged));
        }
        if self.console.is_cut() {
            self.note("the console log was cut".into());
        }
        if self.output.cut {
            self.note("the output log was cut".into());
        }
        let stderr = clean_lines(&self.words);
        let facts = Facts {
            why: self.why.take().expect("the loop ends with a reason"),
            greeted: self.observed.is_some(),
            emulated: fixed.emulated,
            splats: self.console.splats(),
            allowed: fixed.allowed,
            panicked: self.panicked,
            end: self.end,
            exit: self.exit,
            stderr: &stderr,
            lacks: &fixed.lacks,
        };
        let outcome = judge(&facts);
        if !stderr.trim().is_empty() && !matches!(outcome, Outcome::LabFailed { .. }) {
            self.notes.push(format!("QEMU wrote: {}", stderr.trim()));
        }
        Left {
            outcome,
            hello_ms: self.clocks.hello_ms(),
            wall_ms: self.clocks.wall_ms(now),
            phases: self.clocks.phases(now),
            dialogue: self.dialogue,
            observed: self.observed,
            trust: self.attendant.trust,
            console_tail: self.console.tail(),
            notes: self.notes,
            qemu_version: self.qmp.as_ref().map(|qmp| qmp.version().into()),
        }
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

/// Several lines, cleaned each.
fn clean_lines(bytes: &[u8]) -> String {
    let lines = bytes.split(|&byte| byte == b'\n').map(clean);
    lines.collect::<Vec<_>>().join("\n")
}

async fn read_console(mut stream: UnixStream, inbox: mpsc::Sender<Input>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let bytes = buffer[..count].to_vec();
        if inbox.send(Input::Console(bytes)).await.is_err() {
            return;
        }
    }
    let _ = inbox.send(Input::ConsoleClosed).await;
}

async fn read_words(mut pipe: pipe::Receiver, inbox: mpsc::Sender<Input>) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        if inbox
            .send(Input::Words(buffer[..count].to_vec()))
            .await
            .is_err()
        {
            return;
        }
    }
    let _ = inbox.send(Input::WordsEnd).await;
}

/// The workload's output on disk, bounded.
struct OutputLog {
    file: File,
    written: u64,
    cut: bool,
}

impl OutputLog {
    fn create(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: File::create(path)?,
            written: 0,
            cut: false,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let room = usize::try_from(OUTPUT.saturating_sub(self.written)).unwrap_or(usize::MAX);
        let part = &bytes[..bytes.len().min(room)];
        self.file.write_all(part)?;
        self.written += part.len() as u64;
        if part.len() < bytes.len() && !self.cut {
            self.cut = true;
            self.file
                .write_all(b"\n[topolab: the output goes on; no more of it is kept]\n")?;
        }
        Ok(())
    }
}
