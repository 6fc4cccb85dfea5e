//! The user's terminal and standard input, as a guest's command gets them.

use std::{io::Read, thread};

use rustix::{
    stdio::{stdin, stdout},
    termios::{OptionalActions, Termios, isatty, tcgetattr, tcgetpgrp, tcgetwinsize, tcsetattr},
};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};
use topolab::{guest::ssh::TerminalKind, run::Typed};

use crate::{failure::Failure, terminal::Terminal};

/// Chunks of input that may wait.
const WAITING: usize = 16;
/// Bytes read at once.
const CHUNK: usize = 16 * 1024;
/// Ctrl-A, as QEMU's own terminal has it.
const ESCAPE: u8 = 0x01;

/// Whether both ends of a terminal are ours and we are in its foreground: a
/// background job that reads from its terminal is stopped by the system.
pub fn is_ours() -> bool {
    isatty(stdin())
        && isatty(stdout())
        && tcgetpgrp(stdin()).is_ok_and(|group| group == rustix::process::getpgrp())
}

/// Puts the terminal back when it is dropped.
#[derive(Debug)]
pub struct Raw(Termios);

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing.
        let _ = tcsetattr(stdin(), OptionalActions::Flush, &self.0);
    }
}

/// Name and size of our terminal.
pub fn description() -> TerminalKind {
    let size = tcgetwinsize(stdin());
    let (rows, cols) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
    let name = std::env::var("TERM").unwrap_or_else(|_| "linux".into());
    TerminalKind { name, rows, cols }
}

/// Makes the terminal raw: every key goes to the guest, except that Ctrl-A x
/// does what `way_out` says. Must be called within a tokio runtime.
pub fn raw(
    terminal: Terminal,
    way_out: &str,
) -> Result<(Option<Raw>, mpsc::Receiver<Typed>), Failure> {
    let before = tcgetattr(stdin()).map_err(Failure::lab)?;
    terminal.say(format_args!("({way_out})"));
    let mut now = before.clone();
    now.make_raw();
    tcsetattr(stdin(), OptionalActions::Now, &now).map_err(Failure::lab)?;
    let guard = Raw(before);
    let (sender, typed) = mpsc::channel(WAITING);
    let sizes = sender.clone();
    let mut changed = signal(SignalKind::window_change()).map_err(Failure::lab)?;
    tokio::spawn(async move {
        loop {
            if let Ok(size) = tcgetwinsize(stdin()) {
                let size = Typed::Size {
                    rows: size.ws_row,
                    cols: size.ws_col,
                };
                if sizes.send(size).await.is_err() {
                    return;
                }
            }
            changed.recv().await;
        }
    });
    thread::spawn(move || forward(&sender, Keys::Raw { escaped: false }));
    Ok((Some(guard), typed))
}

/// Standard input as it is.
pub fn plain() -> mpsc::Receiver<Typed> {
    let (sender, typed) = mpsc::channel(WAITING);
    thread::spawn(move || forward(&sender, Keys::Plain));
    typed
}

enum Keys {
    Plain,
    Raw { escaped: bool },
}

/// Body of the reading thread. It is left blocked in a read at the end of the
/// program; nothing waits for it.
fn forward(sender: &mpsc::Sender<Typed>, mut keys: Keys) {
    let mut buffer = vec![0; CHUNK];
    let mut input = std::io::stdin().lock();
    loop {
        let count = match input.read(&mut buffer) {
            Ok(count @ 1..) => count,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            _ => break,
        };
        let mut bytes = buffer[..count].to_vec();
        if let Keys::Raw { escaped } = &mut keys
            && unescape(&mut bytes, escaped)
        {
            // As if Ctrl-C had been typed on an ordinary terminal.
            let _ = rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::INT,
            );
            return;
        }
        if !bytes.is_empty() && sender.blocking_send(Typed::Bytes(bytes)).is_err() {
            return;
        }
    }
    let _ = sender.blocking_send(Typed::End);
}

/// Takes Ctrl-A out of what was typed; true for Ctrl-A x. Ctrl-A twice is one.
fn unescape(bytes: &mut Vec<u8>, escaped: &mut bool) -> bool {
    let mut quit = false;
    let mut out = Vec::with_capacity(bytes.len());
    for &byte in &*bytes {
        if std::mem::take(escaped) {
            match byte {
                b'x' | b'X' => quit = true,
                ESCAPE => out.push(ESCAPE),
                other => out.extend([ESCAPE, other]),
            }
        } else if byte == ESCAPE {
            *escaped = true;
        } else {
            out.push(byte);
        }
    }
    *bytes = out;
    quit
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_a_is_an_escape_even_across_reads() {
        let mut escaped = false;
        let mut typed = |text: &[u8]| {
            let mut bytes = text.to_vec();
            let quit = unescape(&mut bytes, &mut escaped);
            (bytes, quit)
        };
        assert_eq!(typed(b"ls\x01"), (b"ls".to_vec(), false));
        assert_eq!(typed(b"\x01b"), (b"\x01b".to_vec(), false));
        assert_eq!(typed(b"\x01e"), (b"\x01e".to_vec(), false));
        assert_eq!(typed(b"\x01"), (Vec::new(), false));
        assert_eq!(typed(b"x"), (Vec::new(), true));
    }
}
