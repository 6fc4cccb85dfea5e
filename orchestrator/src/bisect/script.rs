//! The user's command at a commit, in a checkout of our own.

use std::cell::Cell;
use std::fs::{self, File};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use super::drive::{Run, Tree};
use super::git::{OwnRepository, short};
use super::judge::{Measurement, ScriptEnd};

/// Runs a command the way `git bisect run` does: in the checkout, which keeps
/// what earlier steps left there. Its output goes to `output.log` of the run.
#[derive(Debug)]
pub struct ScriptLab {
    /// The checkout.
    pub repository: OwnRepository,
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Where runs keep their files.
    pub runs: PathBuf,
    /// Number of the next run's folder.
    pub count: Cell<usize>,
}

impl ScriptLab {
    /// Checks a commit out and runs the command there.
    pub async fn run(&self, tree: &Tree, number: u32) -> Run {
        let index = self.count.get();
        self.count.set(index + 1);
        let name = format!("{index:05}-{}-{number}", short(&tree.name));
        let failed = |reason: String| Run {
            measurement: Measurement::LabFailed { reason },
            folder: None,
        };
        if let Err(error) = self.repository.checkout(&tree.name).await {
            return failed(format!(
                "{} was not checked out: {}",
                short(&tree.name),
                chain(&error)
            ));
        }
        match self.execute(&self.runs.join(&name)).await {
            Ok(end) => Run {
                measurement: Measurement::Script(end),
                folder: Some(name),
            },
            Err(error) => failed(format!("'{}' was not run: {error}", self.command.join(" "))),
        }
    }

    async fn execute(&self, folder: &Path) -> io::Result<ScriptEnd> {
        fs::create_dir_all(folder)?;
        let log = File::create(folder.join("output.log"))?;
        let [program, arguments @ ..] = self.command.as_slice() else {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no command"));
        };
        let mut child = Command::new(program)
            .args(arguments)
            .current_dir(self.repository.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let mut group = Group(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
        let status = child.wait().await?;
        group.0 = None;
        Ok(match (status.code(), status.signal()) {
            (Some(code), _) => ScriptEnd::Code(code),
            (None, signal) => ScriptEnd::Signal(signal.unwrap_or_default()),
        })
    }
}

/// Ends the command with everything it started, when it is abandoned.
struct Group(Option<Pid>);

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // It may be gone already.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.extend([": ", &cause.to_string()]);
        source = cause.source();
    }
    text
}
