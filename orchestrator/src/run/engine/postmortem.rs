//! What a guest that panicked or hangs can still tell, within a bounded time:
//! registers, backtraces, blocked tasks, its memory.

use std::{
    fs,
    time::{Duration, Instant},
};

use tokio::io::AsyncWriteExt;

use super::{Engine, inbox::Turn};
use crate::{
    qemu::qmp::{Qmp, QmpError},
    run::event::RunEvent,
};

/// Name of the gdb stub's socket in the run's folder.
pub const GDB_SOCKET: &str = "gdb.sock";
/// Name of the guest's memory in the run's folder.
const MEMORY: &str = "memory.elf";
/// A guest asked for something over its console answers within this.
const ANSWER: Duration = Duration::from_secs(3);
/// A console that is silent for so long has said what it wanted to.
const PAUSE: Duration = Duration::from_millis(500);
/// Writing the memory may take so long.
const DUMP: Duration = Duration::from_secs(300);

/// Magic SysRq keys, and what they make the kernel print
/// (Documentation/admin-guide/sysrq.rst).
const KEYS: [(u8, &str); 2] = [(b'l', "backtraces of all CPUs"), (b'w', "blocked tasks")];

impl Engine<'_> {
    /// The guest hangs: it may still answer.
    pub(super) async fn look_at_hung(&mut self) {
        let Some(qmp) = self.qmp.take() else {
            return;
        };
        self.enter("post-mortem".into());
        self.registers(&qmp).await;
        let mut told = Vec::new();
        for (key, what) in KEYS {
            let lines = self.sysrq(&qmp, key).await;
            if !lines.is_empty() {
                told.push(format!("== {what}"));
                told.extend(lines);
            }
        }
        if told.is_empty() && self.exit.is_none() {
            // Interrupts may be off on every CPU; this one is not asked for.
            if qmp.inject_nmi().await.is_ok() {
                let lines = self.listen().await;
                if !lines.is_empty() {
                    told.push("== after a non-maskable interrupt".into());
                    told.extend(lines);
                }
            }
        }
        if told.is_empty() {
            self.note("the guest answers neither SysRq over its console nor an NMI".into());
        } else {
            self.keep_evidence("backtraces.txt", &told.join("\n"));
        }
        self.memory(&qmp).await;
        self.stand(&qmp).await;
        self.qmp = Some(qmp);
    }

    /// The guest panicked. One that was not told to stop at that is gone.
    pub(super) async fn look_at_dead(&mut self) {
        if !self.inspect.stops_at_panic() || self.exit.is_some() {
            return;
        }
        let Some(qmp) = self.qmp.take() else {
            return;
        };
        self.enter("post-mortem".into());
        self.registers(&qmp).await;
        self.memory(&qmp).await;
        self.stand(&qmp).await;
        self.qmp = Some(qmp);
    }

    async fn registers(&mut self, qmp: &Qmp) {
        match qmp.monitor("info registers -a").await {
            Ok(text) => self.keep_evidence("registers.txt", &text.replace('\r', "")),
            Err(error) => self.note(format!("no registers: {error}")),
        }
    }

    /// Presses a magic SysRq key on the serial console and gives what is printed.
    async fn sysrq(&mut self, qmp: &Qmp, key: u8) -> Vec<String> {
        if self.exit.is_some() || qmp.send_break("console").await.is_err() {
            return Vec::new();
        }
        let key = [key];
        let typed = self.console_in.write_all(&key);
        // A guest that reads nothing must not hold us up.
        let typed = tokio::time::timeout(ANSWER, typed).await;
        if !matches!(typed, Ok(Ok(()))) {
            return Vec::new();
        }
        self.listen().await
    }

    /// Console lines from now until it is silent.
    async fn listen(&mut self) -> Vec<String> {
        let before = self.console.lines();
        let limit = Instant::now() + ANSWER;
        let mut last = self.console.lines();
        let mut quiet = limit;
        while self.exit.is_none() {
            match self.turn(quiet.min(limit)).await {
                Turn::Deadline => break,
                turn => self.take(turn),
            }
            if self.console.lines() != last {
                last = self.console.lines();
                quiet = Instant::now() + PAUSE;
            }
        }
        self.console.since(before)
    }

    async fn memory(&mut self, qmp: &Qmp) {
        if !self.inspect.dump || self.exit.is_some() {
            return;
        }
        let file = std::path::absolute(self.folder.join(MEMORY));
        let dumped = match file {
            Ok(file) => qmp.dump_memory(&file, DUMP).await.map_err(told),
            Err(error) => Err(error.to_string()),
        };
        match dumped {
            Ok(()) => self.note(format!("the guest's memory is in {MEMORY}")),
            Err(reason) => self.note(format!("no memory dump: {reason}")),
        }
    }

    /// Leaves the guest standing for a debugger until the run is cancelled.
    async fn stand(&mut self, qmp: &Qmp) {
        if !self.inspect.keep || self.exit.is_some() || self.session.cancel.is_told() {
            return;
        }
        let ready = async {
            qmp.stop().await?;
            if !self.inspect.gdb {
                let stub = format!("gdbserver unix:{GDB_SOCKET},server=on,wait=off");
                qmp.monitor(&stub).await?;
            }
            Ok::<(), QmpError>(())
        };
        if let Err(error) = ready.await {
            return self.note(format!("the guest cannot be kept: {error}"));
        }
        self.tell(RunEvent::Standing {
            pid: self.qemu.pid(),
            gdb: self.folder.join(GDB_SOCKET),
        });
        let mut cancel = self.session.cancel.clone();
        while self.exit.is_none() {
            let far = Instant::now() + Duration::from_secs(3600);
            tokio::select! {
                biased;
                () = cancel.told() => break,
                turn = self.turn(far) => self.take(turn),
            }
        }
        // It was made by QEMU, which is about to go.
        let _ = fs::remove_file(self.folder.join(GDB_SOCKET));
    }

    fn keep_evidence(&mut self, name: &str, text: &str) {
        if let Err(error) = self.evidence(name, text) {
            self.note(format!("{name} was not kept: {error}"));
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape of map_err")]
fn told(error: QmpError) -> String {
    error.to_string()
}
