//! Ctrl-C and its kin: the first asks the engine to tidy up, the second leaves
//! at once. QEMU is told by the kernel when we die, so nothing stays behind.

use tokio::signal::unix::{SignalKind, signal};
use topolab::run::{Cancel, Stop};

use crate::{failure::Failure, terminal::Terminal};

/// Exit status after a signal, as shells count (128 + SIGINT).
const LEFT: i32 = 130;

/// Watches them for somebody who merely leaves. Needs a running tokio runtime.
///
/// # Errors
/// The handlers cannot be installed.
pub fn leave() -> Result<Cancel, Failure> {
    let (stop, cancel) = Stop::new();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::lab)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::lab)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(Failure::lab)?;
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
        stop.stop();
    });
    Ok(cancel)
}

/// Watches SIGINT, SIGTERM and SIGHUP from now on. Needs a running tokio runtime.
///
/// # Errors
/// The handlers cannot be installed.
pub fn watch(terminal: Terminal) -> Result<Cancel, Failure> {
    let (stop, cancel) = Stop::new();
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::lab)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::lab)?;
    let mut hangup = signal(SignalKind::hangup()).map_err(Failure::lab)?;
    tokio::spawn(async move {
        let mut asked = false;
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hangup.recv() => {}
            }
            if asked {
                std::process::exit(LEFT);
            }
            asked = true;
            terminal.say(
                "stopping: guests are ended, finished runs are kept (once more: leave at once)",
            );
            stop.stop();
        }
    });
    Ok(cancel)
}
