//! What a run says while it goes on, and how it is stopped.

use std::path::PathBuf;

use tokio::sync::watch;
use topolab_protocol::{observed::Observed, sample::Sample};

/// One thing that happened in a run.
///
/// Order: [`RunEvent::Started`], phases with anything between them, and
/// [`RunEvent::Hello`] at the end of the first phase. The end of a run is its
/// result, not an event.
#[derive(Debug, Clone, PartialEq)]
pub enum RunEvent {
    /// QEMU runs.
    Started {
        /// Its process number.
        pid: u32,
    },
    /// A phase begins.
    Phase {
        /// `boot` or `restore`, `prepare`, one of the workload's, `power-off` or
        /// `save`.
        name: String,
    },
    /// The agent said hello.
    Hello {
        /// Milliseconds since the start of QEMU.
        after_ms: u64,
        /// What the guest sees.
        observed: Box<Observed>,
    },
    /// A value was measured.
    Sample(Sample),
    /// The workload wrote something.
    Output {
        /// [`topolab_protocol::frame::STREAM_STDOUT`] or `STREAM_STDERR`.
        stream: u16,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A whole line of the console, cleaned.
    Console(String),
    /// A remark.
    Note(String),
    /// The guest stands still and waits for a debugger, until the run is
    /// cancelled or the guest ends.
    Standing {
        /// QEMU's process number.
        pid: u32,
        /// Socket of the gdb stub (`target remote PATH`).
        gdb: PathBuf,
    },
}

/// Something typed for the workload, or its terminal changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typed {
    /// Bytes of standard input, at most [`topolab_protocol::STDIN_WINDOW`] at once.
    Bytes(Vec<u8>),
    /// No more standard input.
    End,
    /// The terminal has another size.
    Size {
        /// Rows.
        rows: u16,
        /// Columns.
        cols: u16,
    },
    /// A signal for the command.
    Signal(i32),
}

/// The hand that stops runs. Dropping it stops nothing.
#[derive(Debug)]
pub struct Stop(watch::Sender<bool>);

/// What a run watches.
#[derive(Debug, Clone)]
pub struct Cancel(watch::Receiver<bool>);

impl Stop {
    /// A hand and what it stops.
    pub fn new() -> (Self, Cancel) {
        let (sender, receiver) = watch::channel(false);
        (Self(sender), Cancel(receiver))
    }

    /// Tells every run to tidy up and end.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }
}

impl Cancel {
    /// Never cancelled.
    pub fn never() -> Self {
        Stop::new().1
    }

    /// Whether it was told already.
    pub fn is_told(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until told.
    pub async fn told(&mut self) {
        if self.0.wait_for(|told| *told).await.is_err() {
            // The hand is gone: nobody will ever tell.
            std::future::pending::<()>().await;
        }
    }
}
