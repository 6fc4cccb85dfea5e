//! Workloads that run in a process of their own: the agent's program again,
//! with a first argument that says which part to play.
//!
//! The child writes lines on standard output: what the part says on its way,
//! and last its result as JSON. The end of its standard input tells it to stop.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Session, Stopped, itmt_stall, lru_drain, numa_scan, rt_push_ipi};
use crate::children::{Children, Ended};
use crate::launch::{self, Streams};

/// First argument of a child; then the part's name and its parameters as JSON.
pub const FLAG: &str = "--child";

/// Plays a part and returns the exit code of the process.
pub fn child_main(part: &str, parameters: &str) -> ExitCode {
    let result = match part {
        numa_scan::PART => play(parameters, numa_scan::touch),
        rt_push_ipi::PART => play(parameters, rt_push_ipi::tasks),
        lru_drain::ANCHOR => play(parameters, lru_drain::anchor),
        lru_drain::CHURNER => play(parameters, lru_drain::churn),
        itmt_stall::PART => play(parameters, itmt_stall::play),
        _ => Err(format!("no part {part}")),
    };
    match result {
        Ok(json) => {
            say(&json);
            ExitCode::SUCCESS
        }
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::FAILURE
        }
    }
}

fn play<P: DeserializeOwned, R: Serialize>(
    parameters: &str,
    part: impl FnOnce(&P) -> Result<R, String>,
) -> Result<String, String> {
    let parameters = serde_json::from_str(parameters).map_err(|error| error.to_string())?;
    let result = part(&parameters)?;
    serde_json::to_string(&result).map_err(|error| error.to_string())
}

/// In the child: says a line to the agent. An agent that is gone closes the
/// input too, which ends the part.
pub fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// In the child: becomes true when the agent wants the part to stop.
pub fn stop_flag() -> Arc<AtomicBool> {
    let stop = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&stop);
    std::thread::spawn(move || {
        // Nothing is written there; the end is what counts.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        flag.store(true, Ordering::Release);
    });
    stop
}

/// In the child, without a stop flag: waits until the agent tells the part to
/// go on ([`Part::go_on`]).
///
/// # Errors
/// When the agent stops it instead.
pub fn wait_for_go() -> Result<(), String> {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(read) if read > 0 => Ok(()),
        _ => Err("stopped before it began".into()),
    }
}

/// A child that plays a part. Dropping it kills it.
pub struct Part {
    name: &'static str,
    children: Children,
    process: std::process::Child,
    lines: Receiver<String>,
    ended: Receiver<Ended>,
}

/// Starts a part in a child inside `cgroup`.
pub fn start<P: Serialize>(
    session: &Session,
    part: &'static str,
    parameters: &P,
    cgroup: Option<&str>,
) -> Result<Part, Stopped> {
    let json = serde_json::to_string(parameters).map_err(Stopped::failed)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args([FLAG, part, &json])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    launch::prepare(&mut command, Path::new("/"), cgroup, Streams::Pipes)
        .map_err(Stopped::failed)?;
    let mut started = session
        .children
        .spawn(&mut command)
        .map_err(|error| Stopped::failed(format!("cannot start {part}: {error}")))?;
    let output = started.process.stdout.take().expect("its output is a pipe");
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    Ok(Part {
        name: part,
        children: session.children.clone(),
        process: started.process,
        lines,
        ended: started.ended,
    })
}

/// Runs a part to its own end and returns its result.
pub fn run<P: Serialize, R: DeserializeOwned>(
    session: &Session,
    part: &'static str,
    parameters: &P,
    cgroup: Option<&str>,
) -> Result<R, Stopped> {
    let part = start(session, part, parameters, cgroup)?;
    session.control.attach(&session.children, part.pid());
    let result = part.result();
    session.control.detach();
    result
}

impl Part {
    /// The child's process id.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the next line.
    ///
    /// # Errors
    /// Why the child ended instead, or that it said nothing within `limit`.
    pub fn line(&mut self, limit: Duration) -> Result<String, Stopped> {
        match self.lines.recv_timeout(limit) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(Stopped::failed(format!(
                "{} said nothing for {} s",
                self.name,
                limit.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => Err(self.why_ended()),
        }
    }

    /// Tells the part to go on.
    ///
    /// # Errors
    /// When it is gone.
    pub fn go_on(&mut self) -> Result<(), Stopped> {
        let told = self.process.stdin.as_mut().map(|input| writeln!(input));
        match told {
            Some(Ok(())) => Ok(()),
            _ => Err(self.why_ended()),
        }
    }

    /// Tells the part to stop and returns its result.
    pub fn stop<R: DeserializeOwned>(mut self) -> Result<R, Stopped> {
        drop(self.process.stdin.take());
        self.result()
    }

    /// Waits for the end of a part that ends by itself.
    fn result<R: DeserializeOwned>(mut self) -> Result<R, Stopped> {
        let mut last = None;
        while let Ok(line) = self.lines.recv() {
            last = Some(line);
        }
        match (self.ended.recv(), last) {
            (Ok(Ended::Code(0)), Some(line)) => serde_json::from_str(&line)
                .map_err(|error| Stopped::failed(format!("{} gave no result: {error}", self.name))),
            (Ok(ended), _) => Err(self.explain(ended)),
            (Err(_), _) => Err(Stopped::failed(format!(
                "the end of {} was lost",
                self.name
            ))),
        }
    }

    fn why_ended(&mut self) -> Stopped {
        match self.ended.recv() {
            Ok(ended) => self.explain(ended),
            Err(_) => Stopped::failed(format!("the end of {} was lost", self.name)),
        }
    }

    fn explain(&mut self, ended: Ended) -> Stopped {
        let mut reason = String::new();
        if let Some(mut errors) = self.process.stderr.take() {
            // What is not UTF-8 is no reason of ours.
            let _ = errors.read_to_string(&mut reason);
        }
        let name = self.name;
        match ended {
            Ended::Code(_) => Stopped::failed(format!("{name}: {}", reason.trim_end())),
            Ended::Signal(libc::SIGKILL) => Stopped::failed(format!(
                "{name} was killed by signal 9, as the kernel does when memory runs out"
            )),
            Ended::Signal(signal) => Stopped::failed(format!("{name} died of signal {signal}")),
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.children.signal_group(self.pid(), libc::SIGKILL);
    }
}
