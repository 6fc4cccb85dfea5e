//! Workloads that run in a process of their own: the agent's program again,
//! with a first argument that says which part to play.

use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Session, Stopped, numa_scan};
use crate::children::{Ended, Started};
use crate::launch::{self, Streams};

/// First argument of a child; then the part's name and its parameters as JSON.
pub const FLAG: &str = "--child";

/// Plays a part and returns the exit code of the process.
pub fn child_main(part: &str, parameters: &str) -> ExitCode {
    let result = match part {
        numa_scan::PART => play(parameters, numa_scan::touch),
        _ => Err(format!("no part {part}")),
    };
    match result {
        Ok(json) => {
            println!("{json}");
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

/// Runs one part in a child inside `cgroup` and returns its result.
pub fn run<P: Serialize, R: DeserializeOwned>(
    session: &Session,
    part: &str,
    parameters: &P,
    cgroup: Option<&str>,
) -> Result<R, Stopped> {
    let json = serde_json::to_string(parameters).map_err(Stopped::failed)?;
    let mut command = Command::new("/proc/self/exe");
    command
        .args([FLAG, part, &json])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    launch::prepare(&mut command, Path::new("/"), cgroup, Streams::Pipes)
        .map_err(Stopped::failed)?;
    let started = session
        .children
        .spawn(&mut command)
        .map_err(|error| Stopped::failed(format!("cannot start {part}: {error}")))?;
    session
        .control
        .attach(&session.children, started.process.id());
    let result = collect(part, started);
    session.control.detach();
    result
}

fn collect<R: DeserializeOwned>(part: &str, started: Started) -> Result<R, Stopped> {
    let Started { process, ended } = started;
    let read = |stream: Option<&mut dyn Read>| {
        let mut text = String::new();
        // What is not UTF-8 is no result of ours, and the exit code tells.
        let _ = stream.map(|stream| stream.read_to_string(&mut text));
        text
    };
    let (mut out, mut err) = (process.stdout, process.stderr);
    let result = read(out.as_mut().map(|s| s as &mut dyn Read));
    let reason = read(err.as_mut().map(|s| s as &mut dyn Read));
    match ended.recv() {
        Ok(Ended::Code(0)) => serde_json::from_str(&result)
            .map_err(|error| Stopped::failed(format!("{part} gave no result: {error}"))),
        Ok(Ended::Code(_)) => Err(Stopped::failed(format!("{part}: {}", reason.trim_end()))),
        Ok(Ended::Signal(libc::SIGKILL)) => Err(Stopped::failed(format!(
            "{part} was killed by signal 9, as the kernel does when memory runs out"
        ))),
        Ok(Ended::Signal(signal)) => {
            Err(Stopped::failed(format!("{part} died of signal {signal}")))
        }
        Err(_) => Err(Stopped::failed(format!("the end of {part} was lost"))),
    }
}
