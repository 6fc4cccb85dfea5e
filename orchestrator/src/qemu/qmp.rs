//! QEMU's control socket: commands with a time limit and the events that a run
//! cares about. QEMU connects to us; the `qapi` crate speaks.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use futures_util::StreamExt;
use qapi::{
    Command, ExecuteError,
    futures::{QapiService, QmpStreamTokio},
    qmp::{self, Event, GuestPanicAction, QmpCommand, ShutdownCause},
};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{ReadHalf, WriteHalf, split},
    net::UnixStream,
    sync::mpsc,
    task::JoinHandle,
};

/// Longest wait for an answer. QEMU answers from its main loop, which a dump
/// or a busy host can hold up.
const ANSWER: Duration = Duration::from_secs(10);

/// Why a command was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// No proper greeting came.
    #[error("QEMU's control socket does not speak QMP")]
    Greeting(#[source] io::Error),
    /// QEMU refused the command.
    #[error("QEMU refuses `{command}`: {reason}")]
    Refused {
        /// The command.
        command: &'static str,
        /// QEMU's words.
        reason: String,
    },
    /// The socket broke.
    #[error("QEMU's control socket broke during `{command}`")]
    Broken {
        /// The command.
        command: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No answer came in time.
    #[error("QEMU did not answer `{command}` within {} s", limit.as_secs_f64())]
    Silent {
        /// The command.
        command: &'static str,
        /// How long was waited.
        limit: Duration,
    },
}

/// What QEMU reports by itself, as far as a run cares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QmpEvent {
    /// The guest told of a panic through the pvpanic device.
    Panicked,
    /// QEMU is about to end.
    Shutdown(End),
    /// The guest was reset; comes only without `-no-reboot`.
    Reset(End),
    /// The virtual CPUs stand still.
    Stopped,
    /// The virtual CPUs run again.
    Resumed,
    /// A guest's watchdog device ran out.
    Watchdog,
    /// A memory error of the host hit the guest.
    MemoryFailure,
    /// A virtio-serial port is open in the guest.
    PortOpened,
    /// A virtio-serial port was closed in the guest.
    PortClosed,
    /// The socket is gone; nothing more will come.
    Closed,
}

/// Who ended or reset the guest, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// It powered itself off.
    PowerOff,
    /// It rebooted, by request or by a triple fault.
    Reboot,
    /// It panicked.
    Panic,
    /// We, a signal or a fault of QEMU did it.
    Host,
}

impl From<ShutdownCause> for End {
    fn from(cause: ShutdownCause) -> Self {
        match cause {
            ShutdownCause::guest_shutdown => Self::PowerOff,
            ShutdownCause::guest_reset => Self::Reboot,
            ShutdownCause::guest_panic => Self::Panic,
            _ => Self::Host,
        }
    }
}

fn interesting(event: &Event) -> Option<QmpEvent> {
    Some(match event {
        Event::GUEST_PANICKED { data, .. } => match data.action {
            GuestPanicAction::pause | GuestPanicAction::poweroff | GuestPanicAction::run => {
                QmpEvent::Panicked
            }
        },
        Event::SHUTDOWN { data, .. } => QmpEvent::Shutdown(data.reason.into()),
        Event::RESET { data, .. } => QmpEvent::Reset(data.reason.into()),
        Event::VSERPORT_CHANGE { data, .. } if data.open => QmpEvent::PortOpened,
        Event::VSERPORT_CHANGE { .. } => QmpEvent::PortClosed,
        Event::STOP { .. } => QmpEvent::Stopped,
        Event::RESUME { .. } => QmpEvent::Resumed,
        Event::WATCHDOG { .. } => QmpEvent::Watchdog,
        Event::MEMORY_FAILURE { .. } => QmpEvent::MemoryFailure,
        _ => return None,
    })
}

type Writer = QmpStreamTokio<WriteHalf<UnixStream>>;
type Reader = QmpStreamTokio<ReadHalf<UnixStream>>;

/// The control socket of one QEMU.
pub struct Qmp {
    service: QapiService<Writer>,
    version: String,
    /// Once QEMU has not answered in time, nothing more is asked: the crate
    /// cannot tell a late answer from that to the next command.
    silent: AtomicBool,
    reading: JoinHandle<()>,
}

impl std::fmt::Debug for Qmp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qmp")
            .field("version", &self.version)
            .finish()
    }
}

/// One virtual CPU and the host thread that runs it (`query-cpus-fast`).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct VcpuThread {
    /// Number of the virtual CPU, from 0.
    pub cpu_index: u32,
    /// Thread on the host.
    pub thread_id: u32,
}

#[derive(Debug, Clone, Serialize)]
struct QueryCpusFast {}

impl Command for QueryCpusFast {
    const NAME: &'static str = "query-cpus-fast";
    const ALLOW_OOB: bool = false;
    type Ok = Vec<VcpuThread>;
}
impl QmpCommand for QueryCpusFast {}

impl Qmp {
    /// Greets QEMU on a socket it has connected. Events go to `events` until it
    /// closes, [`QmpEvent::Closed`] last.
    ///
    /// # Errors
    /// When no greeting comes in time or the negotiation fails.
    pub async fn greet(
        stream: UnixStream,
        events: mpsc::UnboundedSender<QmpEvent>,
    ) -> Result<Self, QmpError> {
        let (read, write) = split(stream);
        let greeting = async {
            let greeted = QmpStreamTokio::open_split(read, write).await?;
            let version = greeted.capabilities.QMP.version.clone();
            let stream = greeted.negotiate().await?;
            Ok::<_, io::Error>((version, stream))
        };
        let (version, stream) = tokio::time::timeout(ANSWER, greeting)
            .await
            .map_err(|_| QmpError::Silent {
                command: "qmp_capabilities",
                limit: ANSWER,
            })?
            .map_err(QmpError::Greeting)?;
        let (service, mut incoming) = stream.into_parts();
        let reading = tokio::spawn(async move {
            // Polling this also delivers the answers to commands.
            let incoming: &mut qapi::futures::QapiEvents<Reader> = &mut incoming;
            while let Some(Ok(event)) = incoming.next().await {
                if let Some(event) = interesting(&event) {
                    let _ = events.send(event);
                }
            }
            let _ = events.send(QmpEvent::Closed);
        });
        let triple = &version.qemu;
        Ok(Self {
            service,
            version: format!("{}.{}.{}", triple.major, triple.minor, triple.micro),
            silent: AtomicBool::new(false),
            reading,
        })
    }

    /// QEMU's version, such as `7.2.22`.
    pub fn version(&self) -> &str {
        &self.version
    }

    async fn execute<C: QmpCommand>(&self, command: C, limit: Duration) -> Result<C::Ok, QmpError> {
        let silent = QmpError::Silent {
            command: C::NAME,
            limit,
        };
        if self.silent.load(Ordering::Relaxed) {
            return Err(silent);
        }
        let answer = tokio::time::timeout(limit, self.service.execute(command)).await;
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(ExecuteError::Qapi(error))) => Err(QmpError::Refused {
                command: C::NAME,
                reason: error.desc,
            }),
            Ok(Err(ExecuteError::Io(source))) => Err(QmpError::Broken {
                command: C::NAME,
                source,
            }),
            Err(_) => {
                self.silent.store(true, Ordering::Relaxed);
                Err(silent)
            }
        }
    }

    /// Asks something that is answered at once.
    ///
    /// # Errors
    /// When QEMU refuses or does not answer.
    pub(super) async fn ask<C: QmpCommand>(&self, question: C) -> Result<C::Ok, QmpError> {
        self.execute(question, ANSWER).await
    }

    /// Asks QEMU to end.
    ///
    /// # Errors
    /// When it cannot be asked.
    pub async fn quit(&self) -> Result<(), QmpError> {
        self.execute(qmp::quit {}, Duration::from_secs(1)).await?;
        Ok(())
    }

    /// Lets the virtual CPUs run.
    ///
    /// # Errors
    /// When QEMU refuses or does not answer.
    pub async fn resume(&self) -> Result<(), QmpError> {
        self.execute(qmp::cont {}, ANSWER).await?;
        Ok(())
    }

    /// Stops the virtual CPUs.
    ///
    /// # Errors
    /// When QEMU refuses or does not answer.
    pub async fn stop(&self) -> Result<(), QmpError> {
        self.execute(qmp::stop {}, ANSWER).await?;
        Ok(())
    }

    /// The host threads of the virtual CPUs, in the order of their numbers.
    ///
    /// # Errors
    /// When QEMU refuses or does not answer.
    pub async fn vcpu_threads(&self) -> Result<Vec<VcpuThread>, QmpError> {
        let mut threads = self.execute(QueryCpusFast {}, ANSWER).await?;
        threads.sort_by_key(|thread| thread.cpu_index);
        Ok(threads)
    }

    /// Raises a non-maskable interrupt on every virtual CPU.
    ///
    /// # Errors
    /// When QEMU refuses or does not answer.
    pub async fn inject_nmi(&self) -> Result<(), QmpError> {
        self.execute(qmp::inject_nmi {}, ANSWER).await?;
        Ok(())
    }

    /// Sends a BREAK over a character device; on a serial console it announces a
    /// magic SysRq key (Documentation/admin-guide/sysrq.rst).
    ///
    /// # Errors
    /// When QEMU refuses or does not answer.
    pub async fn send_break(&self, chardev: &str) -> Result<(), QmpError> {
        let id = chardev.into();
        self.execute(qmp::chardev_send_break { id }, ANSWER).await?;
        Ok(())
    }

    /// A command of the human monitor and its text, such as `info registers -a`.
    ///
    /// # Errors
    /// When QEMU refuses or does not answer.
    pub async fn monitor(&self, line: &str) -> Result<String, QmpError> {
        let command = qmp::human_monitor_command {
            cpu_index: None,
            command_line: line.into(),
        };
        self.execute(command, ANSWER).await
    }

    /// Writes the guest's memory as an ELF core file that `crash` and drgn
    /// open. The file must lie where QEMU may write.
    ///
    /// # Errors
    /// When QEMU refuses or is not done within `limit`.
    pub async fn dump_memory(&self, file: &Path, limit: Duration) -> Result<(), QmpError> {
        let command = qmp::dump_guest_memory {
            paging: false,
            protocol: format!("file:{}", file.display()),
            detach: None,
            begin: None,
            length: None,
            format: None,
        };
        self.execute(command, limit).await?;
        Ok(())
    }
}

impl Qmp {
    /// Waits until a guest that QEMU was told to restore (`-incoming`) is there.
    /// Resuming it before has no effect: it was saved standing still.
    ///
    /// # Errors
    /// When it is not there within `limit`. A QEMU that cannot restore it ends.
    pub async fn restored(&self, limit: Duration) -> Result<(), QmpError> {
        let started = Instant::now();
        loop {
            let status = self.ask(QueryStatus {}).await?.status;
            if status != "inmigrate" {
                return Ok(());
            }
            if started.elapsed() > limit {
                return Err(QmpError::Silent {
                    command: QueryStatus::NAME,
                    limit,
                });
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Writes a stopped guest to `uri`, such as `unix:save.sock`.
    ///
    /// # Errors
    /// When QEMU refuses, fails, or is not done within `limit`.
    pub async fn save(&self, uri: &str, limit: Duration) -> Result<(), QmpError> {
        let started = Instant::now();
        // The guest stands still, so there is no reason to go slowly.
        let fast = SetMigration {
            max_bandwidth: 1 << 40,
        };
        self.ask(fast).await?;
        self.ask(Migrate { uri: uri.into() }).await?;
        loop {
            let state = self.ask(QueryMigrate {}).await?;
            match state.status.as_deref() {
                Some("completed") => return Ok(()),
                Some("failed" | "cancelled") => {
                    return Err(QmpError::Refused {
                        command: Migrate::NAME,
                        reason: state.error_desc.unwrap_or_else(|| "it failed".into()),
                    });
                }
                _ if started.elapsed() > limit => {
                    return Err(QmpError::Silent {
                        command: Migrate::NAME,
                        limit,
                    });
                }
                _ => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
struct SetMigration {
    max_bandwidth: u64,
}

impl Command for SetMigration {
    const NAME: &'static str = "migrate-set-parameters";
    const ALLOW_OOB: bool = false;
    type Ok = qapi::Empty;
}
impl QmpCommand for SetMigration {}

#[derive(Debug, Serialize)]
struct Migrate {
    uri: String,
}

impl Command for Migrate {
    const NAME: &'static str = "migrate";
    const ALLOW_OOB: bool = false;
    type Ok = qapi::Empty;
}
impl QmpCommand for Migrate {}

#[derive(Debug, Serialize)]
struct QueryStatus {}

#[derive(Debug, Deserialize)]
struct RunStatus {
    status: String,
}

impl Command for QueryStatus {
    const NAME: &'static str = "query-status";
    const ALLOW_OOB: bool = false;
    type Ok = RunStatus;
}
impl QmpCommand for QueryStatus {}

#[derive(Debug, Serialize)]
struct QueryMigrate {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct MigrationState {
    status: Option<String>,
    error_desc: Option<String>,
}

impl Command for QueryMigrate {
    const NAME: &'static str = "query-migrate";
    const ALLOW_OOB: bool = false;
    type Ok = MigrationState;
}
impl QmpCommand for QueryMigrate {}

impl Drop for Qmp {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::process::{Channel, Launch, Qemu, QemuExit, find_program};

    /// A real QEMU without a machine.
    async fn idle() -> (Qemu, Qmp, mpsc::UnboundedReceiver<QmpEvent>) {
        let path = std::env::var("PATH").unwrap();
        let channel = Channel::open(100).unwrap();
        let chardev = format!("socket,id=control,fd={}", channel.number());
        let args = [
            "-M",
            "none",
            "-nodefaults",
            "-display",
            "none",
            "-S",
            "-chardev",
            &chardev,
            "-mon",
            "chardev=control,mode=control",
        ];
        let launch = Launch {
            program: find_program("qemu-system-x86_64", &path).expect("QEMU is installed"),
            args: args.map(String::from).to_vec(),
            folder: "/".into(),
        };
        let (qemu, _output) = Qemu::start(&launch, vec![channel.theirs]).await.unwrap();
        let (sender, events) = mpsc::unbounded_channel();
        let qmp = Qmp::greet(channel.ours, sender).await.unwrap();
        (qemu, qmp, events)
    }

    #[tokio::test]
    async fn a_real_qemu_answers_and_quits() {
        let (mut qemu, qmp, mut events) = idle().await;
        assert!(qmp.version().contains('.'), "{}", qmp.version());
        assert_eq!(qmp.vcpu_threads().await.unwrap(), []);
        assert!(
            qmp.monitor("info status")
                .await
                .unwrap()
                .contains("VM status")
        );
        let refused = qmp.dump_memory(Path::new("/nowhere/core"), ANSWER).await;
        assert!(
            matches!(refused, Err(QmpError::Refused { .. })),
            "{refused:?}"
        );
        qmp.quit().await.unwrap();
        assert_eq!(events.recv().await, Some(QmpEvent::Shutdown(End::Host)));
        assert_eq!(events.recv().await, Some(QmpEvent::Closed));
        assert_eq!(qemu.wait().await, QemuExit::Code(0));
    }

    #[tokio::test]
    async fn a_qemu_that_stopped_answering_is_asked_no_more() {
        let (mut qemu, qmp, _events) = idle().await;
        qemu.signal(rustix::process::Signal::STOP);
        for limit in [50, 5_000_000] {
            let limit = Duration::from_millis(limit);
            let asked = qmp.execute(qmp::query_status {}, limit).await;
            assert!(matches!(asked, Err(QmpError::Silent { .. })), "{asked:?}");
        }
        qemu.kill();
        qemu.wait().await;
    }

    #[tokio::test]
    async fn a_socket_that_says_something_else_is_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (sender, _events) = mpsc::unbounded_channel();
        let mut theirs = theirs;
        tokio::io::AsyncWriteExt::write_all(&mut theirs, b"{\"hello\": 1}\n")
            .await
            .unwrap();
        let error = Qmp::greet(ours, sender).await.unwrap_err();
        assert!(matches!(error, QmpError::Greeting(_)), "{error}");
    }
}
