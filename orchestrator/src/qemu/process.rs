//! One QEMU process: started in its own process group, never outliving us,
//! waited for by a thread of its own.

use std::{
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd, RawFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{net::unix::pipe, sync::oneshot};

/// What is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The QEMU program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its working folder; relative names in `args` lie here.
    pub folder: PathBuf,
}

/// A pair of connected sockets: ours, and QEMU's end that is passed to it as an
/// open file (`-chardev socket,fd=N`).
///
/// Nothing lies in the file system: no path is too long, nobody else can
/// connect, QEMU cannot be late to listen, and nothing is left behind when we
/// are killed.
#[derive(Debug)]
pub struct Channel {
    /// Our end.
    pub ours: tokio::net::UnixStream,
    /// QEMU's end. Its number is what `fd=` names.
    pub theirs: OwnedFd,
}

impl Channel {
    /// Opens a pair whose other end has at least the number `number`; fixed
    /// numbers make arguments of different runs comparable. Must be called
    /// within a tokio runtime.
    ///
    /// # Errors
    /// When no more files may be opened.
    pub fn open(number: i32) -> io::Result<Self> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok(Self {
            ours: tokio::net::UnixStream::from_std(ours)?,
            theirs: rustix::io::fcntl_dupfd_cloexec(&theirs, number)?,
        })
    }

    /// The number of QEMU's end.
    pub fn number(&self) -> i32 {
        self.theirs.as_raw_fd()
    }
}

/// Why QEMU did not start.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program is not there.
    #[error("there is no program `{}`", program.display())]
    Missing {
        /// The program.
        program: PathBuf,
    },
    /// The system refused.
    #[error("cannot start `{}`", program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

/// How QEMU ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QemuExit {
    /// It returned this code.
    Code(i32),
    /// This signal killed it.
    Signal(i32),
}

impl From<ExitStatus> for QemuExit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Code(code),
            (None, signal) => Self::Signal(signal.unwrap_or_default()),
        }
    }
}

impl std::fmt::Display for QemuExit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
        }
    }
}

/// A running QEMU. Dropping it kills the process.
#[derive(Debug)]
pub struct Qemu {
    pid: u32,
    /// Names exactly this process, even after its number was given to another.
    handle: OwnedFd,
    exit: Option<oneshot::Receiver<QemuExit>>,
    ended: Option<QemuExit>,
}

impl Qemu {
    /// Starts QEMU, which inherits `files` under the numbers they have here. Its
    /// standard output and error arrive on the returned pipe. Must be called
    /// within a tokio runtime.
    ///
    /// The process gets a group of its own, so that Ctrl-C reaches only us, and
    /// dies with us: `PR_SET_PDEATHSIG` (prctl(2)) sends SIGKILL when the
    /// *thread* that started it ends. That thread is the one that waits for it.
    ///
    /// # Errors
    /// When the program is missing or the system refuses.
    pub async fn start(
        launch: &Launch,
        files: Vec<OwnedFd>,
    ) -> Result<(Self, pipe::Receiver), LaunchError> {
        let failed = |source: io::Error| LaunchError::Start {
            program: launch.program.clone(),
            source,
        };
        let (ours, theirs) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)
            .map_err(|e| failed(e.into()))?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(|e| failed(e.into()))?;
        let output = pipe::Receiver::from_owned_fd(ours).map_err(failed)?;
        let command = command(launch, theirs, &files).map_err(failed)?;
        let (started, start) = oneshot::channel();
        let (ended, exit) = oneshot::channel();
        std::thread::Builder::new()
            .name("qemu".into())
            .spawn(move || keep(command, files, started, ended))
            .map_err(failed)?;
        let (pid, handle) = start
            .await
            .expect("the thread answers before it ends")
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound => LaunchError::Missing {
                    program: launch.program.clone(),
                },
                _ => failed(source),
            })?;
        let qemu = Self {
            pid,
            handle,
            exit: Some(exit),
            ended: None,
        };
        Ok((qemu, output))
    }

    /// Its process number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Waits until it ended. May be called again and may be dropped half way.
    pub async fn wait(&mut self) -> QemuExit {
        if let Some(exit) = &mut self.exit {
            // The sender goes only after sending, except when our own process
            // is being torn down.
            self.ended = Some(
                exit.await
                    .unwrap_or(QemuExit::Signal(Signal::KILL.as_raw())),
            );
            self.exit = None;
        }
        self.ended.expect("set when the receiver was taken")
    }

    /// How it ended, when it has and [`Qemu::wait`] saw it.
    pub fn ended(&self) -> Option<QemuExit> {
        self.ended
    }

    /// Kills it at once. Does nothing to a process that has ended.
    pub fn kill(&self) {
        self.signal(Signal::KILL);
    }

    /// Sends a signal; nothing happens when the process has ended.
    pub fn signal(&self, signal: Signal) {
        // The only failure left is ESRCH: it is gone already.
        let _ = pidfd_send_signal(&self.handle, signal);
    }

    /// Waits for its end at most so long.
    pub async fn wait_for(&mut self, limit: Duration) -> Option<QemuExit> {
        tokio::time::timeout(limit, self.wait()).await.ok()
    }
}

impl Drop for Qemu {
    fn drop(&mut self) {
        if self.ended.is_none() {
            self.kill();
        }
    }
}

fn command(launch: &Launch, output: OwnedFd, files: &[OwnedFd]) -> io::Result<Command> {
    let inherited: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    let mut command = Command::new(&launch.program);
    command
        .args(&launch.args)
        .current_dir(&launch.folder)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0);
    let parent = rustix::process::getpid().as_raw_nonzero().get();
    // SAFETY: between fork and exec only async-signal-safe system calls are
    // made and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
                return Err(io::Error::last_os_error());
            }
            // We may have died before the line above.
            if libc::getppid() != parent {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
            for &file in &inherited {
                if libc::fcntl(file, libc::F_SETFD, 0) != 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            Ok(())
        });
    }
    Ok(command)
}

/// Body of the thread: starts the process, tells its number, waits for it.
fn keep(
    mut command: Command,
    files: Vec<OwnedFd>,
    started: oneshot::Sender<io::Result<(u32, OwnedFd)>>,
    ended: oneshot::Sender<QemuExit>,
) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let _ = started.send(Err(error));
            return;
        }
    };
    // Our copies go, so that the pipe and the sockets end when QEMU does.
    drop(command);
    drop(files);
    let pid = child.id();
    let number = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let handle = number
        .ok_or(rustix::io::Errno::SRCH)
        .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()));
    let handle = match handle {
        Ok(handle) => handle,
        Err(errno) => {
            let _ = child.kill();
            let _ = child.wait();
            let _ = started.send(Err(errno.into()));
            return;
        }
    };
    if started.send(Ok((pid, handle))).is_err() {
        // Nobody waits any more.
        let _ = child.kill();
    }
    if let Ok(status) = child.wait() {
        let _ = ended.send(status.into());
    }
}

/// Finds a program by name in the folders of `path` (as `PATH` has them), or
/// takes it as a path when it holds a slash.
pub fn find_program(name: &str, path: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name));
    }
    path.split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| Path::new(folder).join(name))
        .find(|file| is_executable(file))
}

fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    fs::metadata(file).is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    fn shell(script: &str) -> Launch {
        Launch {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            folder: "/".into(),
        }
    }

    #[tokio::test]
    async fn output_and_exit_code_arrive() {
        let (mut qemu, mut output) =
            Qemu::start(&shell("echo out; echo err >&2; exit 3"), Vec::new())
                .await
                .unwrap();
        let mut text = String::new();
        output.read_to_string(&mut text).await.unwrap();
        assert_eq!(text, "out\nerr\n");
        assert_eq!(qemu.wait().await, QemuExit::Code(3));
        assert_eq!(qemu.wait().await, QemuExit::Code(3));
    }

    #[tokio::test]
    async fn a_process_of_its_own_group_can_be_killed() {
        let (mut qemu, _output) = Qemu::start(&shell("exec sleep 1000"), Vec::new())
            .await
            .unwrap();
        let stat = fs::read_to_string(format!("/proc/{}/stat", qemu.pid())).unwrap();
        let fields: Vec<&str> = stat
            .rsplit(')')
            .next()
            .unwrap()
            .split_whitespace()
            .collect();
        assert_eq!(fields[2], qemu.pid().to_string(), "process group");
        assert_eq!(qemu.wait_for(Duration::from_millis(50)).await, None);
        qemu.kill();
        assert_eq!(qemu.wait().await, QemuExit::Signal(9));
        qemu.kill();
    }

    #[tokio::test]
    async fn a_dropped_one_is_killed() {
        let (qemu, mut output) = Qemu::start(&shell("exec sleep 1000"), Vec::new())
            .await
            .unwrap();
        drop(qemu);
        let mut rest = Vec::new();
        output.read_to_end(&mut rest).await.unwrap();
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let mut launch = shell("");
        launch.program = "/nowhere/qemu-system-x86_64".into();
        let error = Qemu::start(&launch, Vec::new()).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no program `/nowhere/qemu-system-x86_64`"
        );
    }

    #[test]
    fn programs_are_found_like_the_shell_does() {
        assert_eq!(
            find_program("sh", "/nowhere::/usr/bin:/bin"),
            Some("/usr/bin/sh".into())
        );
        assert_eq!(find_program("no-such-program", "/bin"), None);
        assert_eq!(find_program("./sh", ""), Some("./sh".into()));
    }
}
