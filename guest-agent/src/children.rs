//! Child processes. PID 1 inherits every orphan, so one thread waits for all
//! children and hands each exit to whoever started that child.

use std::collections::HashMap;
use std::io;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use rustix::io::Errno;
use rustix::process::{WaitId, WaitIdOptions, WaitOptions, WaitStatus};

/// Starts children and hands out their exits. Clones share one table.
#[derive(Clone)]
pub struct Children {
    shared: Arc<Shared>,
}

struct Shared {
    table: Mutex<Table>,
    started: Condvar,
}

#[derive(Default)]
struct Table {
    waiting: HashMap<i32, Sender<Ended>>,
    /// Children started so far.
    count: u64,
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an exit code.
    Code(i32),
    /// By a signal.
    Signal(i32),
}

/// A started child. Its pipes are those of `process`; its exit arrives at
/// `ended`, never through `process.wait()`.
pub struct Started {
    /// The process, for its pipes and its id.
    pub process: Child,
    /// Yields once.
    pub ended: Receiver<Ended>,
}

impl Children {
    /// Starts the waiting thread. Once per process.
    pub fn start() -> Self {
        let shared = Arc::new(Shared {
            table: Mutex::default(),
            started: Condvar::new(),
        });
        let reaper = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("topolab-reap".into())
            .spawn(move || {
                loop {
                    reaper.wait_for_one();
                }
            })
            .expect("the first threads of a process start");
        Self { shared }
    }

    /// Starts a child.
    ///
    /// # Errors
    /// As [`Command::spawn`].
    pub fn spawn(&self, command: &mut Command) -> io::Result<Started> {
        // Held over the start, so that the exit of a short child finds its
        // entry, and so that nobody but `spawn` itself waits for a child whose
        // program could not be started.
        let mut table = self.shared.lock();
        let process = command.spawn()?;
        let (sender, ended) = channel();
        table.waiting.insert(process.id().cast_signed(), sender);
        table.count += 1;
        drop(table);
        self.shared.started.notify_all();
        Ok(Started { process, ended })
    }

    /// Sends a signal to the process group that `leader` leads, unless the
    /// leader was already waited for and its number may be somebody else's.
    pub fn signal_group(&self, leader: u32, signal: i32) {
        let leader = leader.cast_signed();
        let table = self.shared.lock();
        if table.waiting.contains_key(&leader) {
            // SAFETY: kill() touches no memory; a wrong signal number is an error.
            unsafe { libc::kill(-leader, signal) };
        }
    }

    /// Kills what a child that led `session` left running when it ended. PID 1
    /// kills everything but itself: a daemon leaves its session on purpose.
    pub fn kill_leftovers(&self, session: u32) {
        if std::process::id() == 1 {
            // SAFETY: kill() touches no memory. -1 means every process but
            // PID 1 and kernel threads (kill(2)).
            unsafe { libc::kill(-1, libc::SIGKILL) };
            return;
        }
        for pid in members(session) {
            // SAFETY: kill() touches no memory.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
    }
}

/// Processes whose session is `session`, from `/proc/PID/stat` (proc(5)): the
/// fourth field after the name in parentheses.
fn members(session: u32) -> Vec<i32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let (_, fields) = stat.rsplit_once(')')?;
            let its: u32 = fields.split_whitespace().nth(3)?.parse().ok()?;
            (its == session).then_some(pid)
        })
        .collect()
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().expect("no holder of this lock panics")
    }

    /// Waits until some child has ended, or one was started when there is none.
    fn wait_for_one(&self) {
        let seen = self.lock().count;
        let ready =
            rustix::process::waitid(WaitId::All, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        let mut table = self.lock();
        match ready {
            Ok(_) => table.reap(),
            Err(Errno::CHILD) => {
                while table.count == seen {
                    table = self
                        .started
                        .wait(table)
                        .expect("no holder of this lock panics");
                }
            }
            Err(_) => {}
        }
    }
}

impl Table {
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let Some(ended) = Ended::from(status) else {
                continue;
            };
            if let Some(waiting) = self.waiting.remove(&pid.as_raw_nonzero().get()) {
                // Whoever started it may have stopped caring.
                let _ = waiting.send(ended);
            }
        }
    }
}

impl Ended {
    fn from(status: WaitStatus) -> Option<Self> {
        let code = status.exit_status().map(Self::Code);
        code.or_else(|| status.terminating_signal().map(Self::Signal))
    }
}
