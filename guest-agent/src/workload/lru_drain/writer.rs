//! Who waits in `lru-drain`: the thread that writes `cpuset.mems`, and one that
//! forks into another group meanwhile. Both are watched from outside.

use std::fs::{self, File};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use topolab_protocol::workload::WriteMode;

/// A thread that does one thing which may take long.
pub struct Waiter {
    thread: i32,
    done: Receiver<(Duration, std::io::Result<()>)>,
    begin: Instant,
    /// How long it took, once it is over.
    took: Option<Duration>,
    /// Time it was seen in uninterruptible sleep.
    pub blocked: Duration,
    looked: Instant,
    /// Its kernel stack, from when it had been blocked for a second.
    pub stack: Option<String>,
}

impl Waiter {
    /// Starts a thread that does `work`.
    fn start(
        name: &str,
        work: impl FnOnce() -> std::io::Result<()> + Send + 'static,
    ) -> std::io::Result<Self> {
        let (done, receiver) = channel();
        let (tell, thread) = channel();
        std::thread::Builder::new()
            .name(name.into())
            .spawn(move || {
                let _ = tell.send(rustix::thread::gettid().as_raw_nonzero().get());
                let begin = Instant::now();
                let result = work();
                // Nobody waits any more when the run was given up.
                let _ = done.send((begin.elapsed(), result));
            })?;
        let now = Instant::now();
        Ok(Self {
            thread: thread.recv().map_err(std::io::Error::other)?,
            done: receiver,
            begin: now,
            took: None,
            blocked: Duration::ZERO,
            looked: now,
            stack: None,
        })
    }

    /// Looks once: has it finished, or is it blocked now?
    ///
    /// # Errors
    /// What the thread's work failed with.
    pub fn look(&mut self) -> std::io::Result<()> {
        if self.took.is_some() {
            return Ok(());
        }
        match self.done.try_recv() {
            Ok((took, result)) => {
                self.took = Some(took);
                return result;
            }
            Err(TryRecvError::Disconnected) => {
                return Err(std::io::Error::other("the waiting thread is gone"));
            }
            Err(TryRecvError::Empty) => {}
        }
        let now = Instant::now();
        let folder = PathBuf::from(format!("/proc/self/task/{}", self.thread));
        if state(&folder) == Some('D') {
            self.blocked += now - self.looked;
            if self.stack.is_none() && self.begin.elapsed() > Duration::from_secs(1) {
                self.stack = fs::read_to_string(folder.join("stack")).ok();
            }
        }
        self.looked = now;
        Ok(())
    }

    /// How long it took, or has taken so far.
    pub fn took(&self) -> Duration {
        self.took.unwrap_or_else(|| self.begin.elapsed())
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.took.is_some()
    }
}

/// State letter of a task's folder in `/proc`.
fn state(folder: &Path) -> Option<char> {
    let stat = fs::read_to_string(folder.join("stat")).ok()?;
    let (_, rest) = stat.rsplit_once(')')?;
    rest.trim_start().chars().next()
}

/// Writes a node list to `cpuset.mems`.
pub fn write_mems(file: PathBuf, nodes: String, mode: WriteMode) -> std::io::Result<Waiter> {
    Waiter::start("topolab-writer", move || {
        let flags = match mode {
            WriteMode::Blocking => 0,
            WriteMode::NonBlocking => libc::O_NONBLOCK,
        };
        File::options()
            .write(true)
            .custom_flags(flags)
            .open(file)?
            .write_all(nodes.as_bytes())
    })
}

/// Forks a task straight into another group (`CLONE_INTO_CGROUP`), where it
/// ends at once.
pub fn fork_into(group: &Path) -> std::io::Result<Waiter> {
    let group = File::open(group)?;
    Waiter::start("topolab-forker", move || {
        /// `struct clone_args` of include/uapi/linux/sched.h, version 2.
        #[repr(C)]
        #[derive(Default)]
        struct CloneArgs {
            flags: u64,
            pidfd: u64,
            child_tid: u64,
            parent_tid: u64,
            exit_signal: u64,
            stack: u64,
            stack_size: u64,
            tls: u64,
            set_tid: u64,
            set_tid_size: u64,
            cgroup: u64,
        }
        const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;
        let arguments = CloneArgs {
            flags: CLONE_INTO_CGROUP,
            exit_signal: u64::from(libc::SIGCHLD.unsigned_abs()),
            cgroup: u64::from(group.as_raw_fd().unsigned_abs()),
            ..CloneArgs::default()
        };
        // SAFETY: without CLONE_VM the child has its own copy of memory; it does
        // nothing but end, and only by a system call. `arguments` outlives the call.
        unsafe {
            match libc::syscall(
                libc::SYS_clone3,
                &raw const arguments,
                size_of::<CloneArgs>(),
            ) {
                0 => {
                    libc::syscall(libc::SYS_exit_group, 0);
                    unreachable!("the process has ended")
                }
                -1 => Err(std::io::Error::last_os_error()),
                _ => Ok(()),
            }
        }
    })
}

/// Stacks of everything in uninterruptible sleep, and of the kernel worker that
/// moves pages whatever it does.
pub fn blocked_stacks() -> String {
    let mut text = String::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let folder = entry.path();
        let is_process = entry
            .file_name()
            .to_str()
            .is_some_and(|name| name.bytes().all(|byte| byte.is_ascii_digit()));
        let Some(state) = state(&folder).filter(|_| is_process) else {
            continue;
        };
        let stack = fs::read_to_string(folder.join("stack")).unwrap_or_default();
        if state == 'D' || stack.contains("cpuset_migrate_mm_workfn") {
            let comm = fs::read_to_string(folder.join("comm")).unwrap_or_default();
            let comm = comm.trim_end();
            text.extend([
                comm,
                " (state ",
                state.encode_utf8(&mut [0; 4]),
                ")\n",
                &stack,
                "\n",
            ]);
        }
    }
    text
}
