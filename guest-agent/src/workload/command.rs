//! Workload `command`: a program of the user.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use topolab_protocol::frame::{STREAM_STDERR, STREAM_STDOUT};
use topolab_protocol::message::{AgentMessage, ExitStatus};
use topolab_protocol::sample::{Better, MetricKind};
use topolab_protocol::workload::Command as Parameters;

use super::{Session, Stdin, Stopped, plain, terminal};
use crate::children::{Ended, Started};
use crate::launch::{self, Streams};
use crate::link::CHUNK;

/// Where programs are looked for.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How long output is still read after the command has ended and everything
/// it left running was killed.
const DRAIN_LIMIT: Duration = Duration::from_secs(3);

/// Runs the program to its end.
pub fn run(session: &Session, parameters: &Parameters) -> Result<ExitStatus, Stopped> {
    let mut command = prepare(parameters)?;
    let terminal = if parameters.tty {
        let terminal = Arc::new(open_terminal(&mut command)?);
        // Before the command exists, so that its first question has the right answer.
        session.control.attach_terminal(Arc::clone(&terminal));
        Some(terminal)
    } else {
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        None
    };
    let streams = match terminal {
        Some(_) => Streams::Terminal,
        None => Streams::Pipes,
    };
    launch::prepare(
        &mut command,
        Path::new("/"),
        parameters.cgroup.as_deref(),
        streams,
    )
    .map_err(Stopped::failed)?;
    session.phase("measure");
    let begin = Instant::now();
    let started = match session.children.spawn(&mut command) {
        Ok(started) => started,
        Err(error) => return Ok(not_started(session, &parameters.argv[0], &error)),
    };
    // The command holds the only other open ends of its streams now.
    drop(command);
    let leader = started.process.id();
    let (ended, readers) = connect(session, started, terminal);
    session.control.attach(&session.children, leader);
    let status = wait(session, &ended, leader, parameters.timeout);
    let elapsed = begin.elapsed();
    // The next run must not share the machine with what the command left.
    session.children.kill_leftovers(leader);
    session.control.detach();
    drain(session, readers);
    session.sample(plain(
        "elapsed",
        elapsed.as_nanos() as f64,
        MetricKind::Duration,
        "ns",
        Better::Lower,
    ));
    Ok(status)
}

fn prepare(parameters: &Parameters) -> Result<Command, Stopped> {
    let Some(program) = parameters.argv.first() else {
        return Err(Stopped::failed("argv is empty: nothing to run"));
    };
    let folder = parameters.cwd.as_deref().unwrap_or("/");
    if !Path::new(folder).is_dir() {
        return Err(Stopped::failed(format!("cwd {folder} is no folder")));
    }
    let mut command = Command::new(program);
    command
        .args(&parameters.argv[1..])
        .env_clear()
        .env("PATH", PATH)
        .env("HOME", "/root")
        .env("TERM", "linux")
        .envs(&parameters.env)
        .current_dir(folder);
    Ok(command)
}

fn open_terminal(command: &mut Command) -> Result<OwnedFd, Stopped> {
    let mut open = || -> std::io::Result<OwnedFd> {
        let (ours, theirs) = terminal::open()?;
        command
            .stdin(theirs.try_clone()?)
            .stdout(theirs.try_clone()?)
            .stderr(theirs);
        Ok(ours)
    };
    open().map_err(|error| Stopped::failed(format!("cannot open a terminal: {error}")))
}

/// Exit codes of a shell for a program it cannot run (POSIX, Shell Command
/// Language, 2.8.2).
fn not_started(session: &Session, program: &str, error: &std::io::Error) -> ExitStatus {
    session.note(format!("cannot run {program}: {error}"));
    let code = match error.kind() {
        std::io::ErrorKind::NotFound => 127,
        _ => 126,
    };
    ExitStatus::Exited { code }
}

/// Connects the command's streams with the host's. Returns where its exit
/// arrives and the threads that read its output.
fn connect(
    session: &Session,
    started: Started,
    terminal: Option<Arc<OwnedFd>>,
) -> (Receiver<Ended>, Vec<JoinHandle<()>>) {
    let Started { mut process, ended } = started;
    let forward_to = |stream: u16| {
        let link = session.link.clone();
        move |bytes: &[u8]| link.data(stream, bytes)
    };
    let mut readers = Vec::new();
    if let Some(terminal) = terminal {
        let both = terminal
            .try_clone()
            .and_then(|reading| Ok((reading, terminal.try_clone()?)));
        match both {
            Ok((reading, writing)) => {
                readers.push(forward(File::from(reading), forward_to(STREAM_STDOUT)));
                feed(session, File::from(writing), Input::Terminal);
            }
            Err(error) => session.note(format!("the terminal is lost: {error}")),
        }
        return (ended, readers);
    }
    if let Some(output) = process.stdout.take() {
        readers.push(forward(output, forward_to(STREAM_STDOUT)));
    }
    if let Some(errors) = process.stderr.take() {
        readers.push(forward(errors, forward_to(STREAM_STDERR)));
    }
    if let Some(input) = process.stdin.take() {
        feed(session, input, Input::Pipe);
    }
    (ended, readers)
}

fn forward(
    mut from: impl Read + Send + 'static,
    to: impl Fn(&[u8]) + Send + 'static,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut buffer = vec![0; CHUNK];
        loop {
            match from.read(&mut buffer) {
                // A terminal whose last user is gone fails with EIO.
                Ok(0) => return,
                Ok(n) => to(&buffer[..n]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    Pipe,
    Terminal,
}

/// Writes the host's input to the command from a thread of its own: a command
/// that does not read must not stop the conversation.
fn feed(session: &Session, mut to: impl Write + Send + 'static, kind: Input) {
    // End-of-file character of a terminal in its initial modes (termios(3), VEOF).
    const END_OF_FILE: u8 = 4;
    let Some(from) = session.control.take_stdin() else {
        return;
    };
    let link = session.link.clone();
    std::thread::spawn(move || {
        let mut taken = 0;
        for input in from {
            match input {
                Stdin::Bytes(bytes) => {
                    if to.write_all(&bytes).is_err() {
                        return;
                    }
                    taken += bytes.len() as u64;
                    link.say(&AgentMessage::StdinTaken { bytes: taken });
                }
                Stdin::Close if kind == Input::Terminal => {
                    // The terminal itself stays open for output.
                    let _ = to.write_all(&[END_OF_FILE]);
                }
                Stdin::Close => return,
            }
        }
    });
}

fn wait(session: &Session, ended: &Receiver<Ended>, leader: u32, timeout: f64) -> ExitStatus {
    let limit = Duration::try_from_secs_f64(timeout).unwrap_or(Duration::MAX);
    let outcome = if limit.is_zero() {
        ended.recv().map_err(|_| RecvTimeoutError::Disconnected)
    } else {
        ended.recv_timeout(limit)
    };
    match outcome {
        Ok(Ended::Code(code)) => ExitStatus::Exited { code },
        Ok(Ended::Signal(signal)) => ExitStatus::Signalled { signal },
        Err(RecvTimeoutError::Timeout) => {
            session.children.signal_group(leader, libc::SIGKILL);
            // Collected here so that nothing of it is left when the run ends.
            let _ = ended.recv_timeout(DRAIN_LIMIT);
            ExitStatus::Failed {
                reason: format!("killed: still running after its limit of {timeout} s"),
            }
        }
        Err(RecvTimeoutError::Disconnected) => ExitStatus::Failed {
            reason: "its end was lost".into(),
        },
    }
}

fn drain(session: &Session, readers: Vec<JoinHandle<()>>) {
    let begin = Instant::now();
    for reader in readers {
        while !reader.is_finished() {
            if begin.elapsed() > DRAIN_LIMIT {
                session
                    .note("a process left behind still holds the output; the rest of it is lost");
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
