//! The end of a run: the guest, then QEMU, then what is left in the pipes, then
//! the verdict.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd,
    path::Path,
    time::{Duration, Instant},
};

use tokio::net::UnixListener;
use topolab_protocol::message::HostMessage;

use super::{
    DRAIN, Engine, KERNEL_LOG, LAST_WORDS, POWER_OFF, QUIT, SAVE, Static, inbox::Turn, job::Left,
};
use crate::{
    outcome::Outcome,
    qemu::qmp::{Qmp, QmpError},
    run::{
        console::clean,
        judge::{Facts, Why, judge},
        splat::{Splat, SplatKind},
    },
};

impl Engine<'_> {
    /// Ends the guest, then QEMU, then reads what is left in the pipes.
    pub(super) async fn tidy(&mut self) {
        self.stop_measuring();
        match &self.why {
            Some(Why::Said(_)) if self.observed.is_some() => {
                self.ask_for_kernel_log().await;
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
            Some(Why::Proved) => self.save().await,
            // Its last words are still on their way.
            Some(Why::Panicked) => {
                self.until_exit(LAST_WORDS).await;
                self.look_at_dead().await;
            }
            Some(Why::Clock { .. }) => self.look_at_hung().await,
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

    /// Complaints on the console may be text of programs; the kernel's own log
    /// tells. Always asked: a complaint may still be on its way here.
    async fn ask_for_kernel_log(&mut self) {
        self.say(&HostMessage::KernelLog);
        let deadline = Instant::now() + KERNEL_LOG;
        while self.kernel_log.is_none() && self.exit.is_none() {
            match self.turn(deadline).await {
                Turn::Deadline => break,
                turn => self.take(turn),
            }
        }
    }

    /// Complaints that the kernel made, without those that only look so.
    fn proved_splats(&mut self) -> Vec<Splat> {
        let mut proved = self.console.splats().to_vec();
        if self.panic_forged && !self.panicked {
            proved.retain(|splat| splat.kind != SplatKind::Panic);
        }
        // A log that lost records proves nothing against anybody.
        if let Some((0, lines)) = &self.kernel_log {
            let (kernels, others) = proved.into_iter().partition(|splat: &Splat| {
                let said = splat.lines.first();
                said.is_none_or(|said| lines.iter().any(|line| line.contains(said.as_str())))
            });
            proved = kernels;
            let others: Vec<Splat> = others;
            for splat in others {
                self.note(format!(
                    "text on the console that the kernel did not write: {}",
                    splat.title
                ));
            }
        }
        proved
    }

    /// Stops the guest and writes it to its file.
    async fn save(&mut self) {
        self.enter("save".into());
        let (Some(qmp), Some(file)) = (self.qmp.take(), self.save.take()) else {
            return;
        };
        let saved = save_to(&qmp, &self.folder, file).await;
        self.qmp = Some(qmp);
        if let Err((part, reason)) = saved {
            let reason = format!("the guest was not saved: {reason}");
            self.why = Some(Why::Lab { part, reason });
        }
    }

    pub(super) async fn until_exit(&mut self, limit: Duration) {
        let deadline = Instant::now() + limit;
        while self.exit.is_none() {
            match self.turn(deadline).await {
                Turn::Deadline => break,
                turn => self.take(turn),
            }
        }
    }

    pub(super) fn leave(mut self, fixed: &Static<'_>) -> Left {
        let now = Instant::now();
        if self.damaged > 1 {
            self.note(format!("{} damages on the agent's port", self.damaged));
        }
        if self.console.is_cut() {
            self.note("the console log was cut".into());
        }
        if self.output.is_cut() {
            self.note("the output log was cut".into());
        }
        let stderr = clean_lines(&self.words);
        let splats = self.proved_splats();
        let facts = Facts {
            why: self.why.take().expect("the loop ends with a reason"),
            greeted: self.observed.is_some(),
            emulated: fixed.emulated,
            splats: &splats,
            allowed: fixed.allowed,
            panicked: self.panicked,
            end: self.end,
            exit: self.exit,
            stderr: &stderr,
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
            console_tail: last(self.console.tail(), TAIL),
            notes: self.notes,
            qemu_version: self.qmp.as_ref().map(|qmp| qmp.version().into()),
        }
    }
}

/// Name of the socket in the run's folder through which a guest is saved.
const SAVE_SOCKET: &str = "save.sock";

/// QEMU's sandbox lets it start no program and its `fd:` wants a descriptor by
/// name, so it writes to a socket of ours and we to the file.
async fn save_to(qmp: &Qmp, folder: &Path, file: File) -> Result<(), (&'static str, String)> {
    let disk = |error: io::Error| ("disk", error.to_string());
    let qemu = |error: QmpError| ("qemu", error.to_string());
    // QEMU works in this folder and takes the bare name; ours goes through a
    // descriptor, so that the length of the folder's name does not matter.
    let handle = File::open(folder).map_err(disk)?;
    let path = format!("/proc/self/fd/{}/{SAVE_SOCKET}", handle.as_raw_fd());
    let listener = UnixListener::bind(path).map_err(disk)?;
    let receiving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let mut file = tokio::fs::File::from_std(file);
        tokio::io::copy(&mut stream, &mut file).await?;
        file.sync_all().await
    });
    let sent = async {
        qmp.stop().await?;
        qmp.save(&format!("unix:{SAVE_SOCKET}"), SAVE).await
    };
    let sent = sent.await;
    // Whatever happened, the socket is of no more use.
    let _ = std::fs::remove_file(folder.join(SAVE_SOCKET));
    if let Err(error) = sent {
        receiving.abort();
        return Err(qemu(error));
    }
    let received = receiving.await.expect("copying does not panic");
    received.map_err(disk)
}

/// Console lines that go into the record of a run.
const TAIL: usize = 80;

fn last(mut lines: Vec<String>, count: usize) -> Vec<String> {
    lines.drain(..lines.len().saturating_sub(count));
    lines
}

/// Several lines, cleaned each.
fn clean_lines(bytes: &[u8]) -> String {
    let lines = bytes.split(|&byte| byte == b'\n').map(clean);
    lines.collect::<Vec<_>>().join("\n")
}
