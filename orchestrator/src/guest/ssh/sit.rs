//! Somebody sits at a machine: a shell or a command over SSH, with a terminal when
//! theirs is one.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, TryRecvError, channel},
    },
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    pipe::PipeFlags,
};
use ssh2::{BlockDirections, Channel};

use super::{CarryError, connect::Connection};

/// What somebody does at their end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Typed {
    /// Typed, or read from their standard input.
    Bytes(Vec<u8>),
    /// No more of it.
    End,
    /// Their terminal has another size.
    Size {
        /// Rows.
        rows: u16,
        /// Columns.
        cols: u16,
    },
    /// They leave.
    Leave,
}

/// Where it comes from.
#[derive(Debug)]
pub struct Seat {
    typed: Receiver<Typed>,
    /// Becomes readable, by a byte, for each of it.
    bell: OwnedFd,
    terminal: Option<TerminalKind>,
}

/// A terminal at the time somebody sits down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TerminalKind {
    /// Its name, as in `TERM`.
    pub name: String,
    /// Rows.
    pub rows: u16,
    /// Columns.
    pub cols: u16,
}

/// What gives a seat what its owner does.
#[derive(Debug, Clone)]
pub struct Hand {
    typed: Sender<Typed>,
    ring: Arc<OwnedFd>,
}

impl Seat {
    /// A seat, with a terminal when theirs is one.
    ///
    /// # Errors
    /// No more files may be opened.
    pub fn new(terminal: Option<TerminalKind>) -> io::Result<(Self, Hand)> {
        let (bell, ring) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // A bell that has rung often enough need not ring again.
        rustix::io::ioctl_fionbio(&ring, true)?;
        let (sender, typed) = channel();
        let seat = Self {
            typed,
            bell,
            terminal,
        };
        let hand = Hand {
            typed: sender,
            ring: Arc::new(ring),
        };
        Ok((seat, hand))
    }
}

impl Hand {
    /// Hands it over. A seat that is empty takes nothing.
    pub fn give(&self, typed: Typed) {
        if self.typed.send(typed).is_ok() {
            let _ = rustix::io::write(&*self.ring, b"!");
        }
    }
}

/// How it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code; of a signal 128 and its number, as shells count.
    Code(i32),
    /// They left before.
    Left,
}

/// Which of two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or the terminal.
    Output,
    /// Standard error.
    Errors,
}

/// Bytes moved at once.
const PIECE: usize = 16 * 1024;

/// Runs `command`, or a shell, on a machine until it ends or they leave. Blocks.
///
/// # Errors
/// The session breaks, or the machine refuses.
pub fn sit(
    connection: &Connection,
    command: Option<&str>,
    seat: &Seat,
    show: &mut dyn FnMut(Stream, &[u8]),
) -> Result<Ended, CarryError> {
    let session = &connection.session;
    let mut channel = session.channel_session().map_err(broken)?;
    if let Some(TerminalKind { name, rows, cols }) = &seat.terminal {
        let size = (u32::from(*cols), u32::from(*rows), 0, 0);
        channel
            .request_pty(name, None, Some(size))
            .map_err(broken)?;
    }
    match command {
        Some(command) => channel.exec(command),
        None => channel.shell(),
    }
    .map_err(broken)?;
    session.set_keepalive(true, 10);
    session.set_blocking(false);
    let ended = talk(connection, &mut channel, seat, show);
    session.set_blocking(true);
    session.set_timeout(2000);
    let ended = ended?;
    if ended == Ended::Left {
        return Ok(ended);
    }
    // The code comes with the end of the channel.
    let _ = channel.close();
    let _ = channel.wait_close();
    let signal = channel.exit_signal().ok().and_then(|s| s.exit_signal);
    Ok(Ended::Code(match signal {
        Some(name) => 128 + number(&name),
        None => channel.exit_status().map_err(broken)?,
    }))
}

/// The numbers of the signals that RFC 4254 (6.10) names, as Linux counts them.
fn number(name: &str) -> i32 {
    match name {
        "HUP" => 1,
        "INT" => 2,
        "QUIT" => 3,
        "ILL" => 4,
        "ABRT" => 6,
        "FPE" => 8,
        "KILL" => 9,
        "USR1" => 10,
        "SEGV" => 11,
        "USR2" => 12,
        "PIPE" => 13,
        "ALRM" => 14,
        "TERM" => 15,
        _ => 0,
    }
}

fn talk(
    connection: &Connection,
    channel: &mut Channel,
    seat: &Seat,
    show: &mut dyn FnMut(Stream, &[u8]),
) -> Result<Ended, CarryError> {
    let mut waiting: Vec<u8> = Vec::new();
    let mut no_more = false;
    let mut told_end = false;
    loop {
        let mut moved = pass(channel, Stream::Output, show)?;
        let mut errors = channel.stderr();
        moved |= pass(&mut errors, Stream::Errors, show)?;
        if channel.eof() {
            return Ok(Ended::Code(0));
        }
        // What was typed waits here while the machine does not take it.
        while waiting.is_empty() && !no_more {
            match seat.typed.try_recv() {
                Ok(Typed::Bytes(bytes)) => waiting = bytes,
                Ok(Typed::Size { rows, cols }) => {
                    // A size that did not get through is followed by the next.
                    let _ = channel.request_pty_size(u32::from(cols), u32::from(rows), None, None);
                }
                Ok(Typed::Leave) => return Ok(Ended::Left),
                Ok(Typed::End) | Err(TryRecvError::Disconnected) => no_more = true,
                Err(TryRecvError::Empty) => break,
            }
        }
        if !waiting.is_empty() {
            match channel.write(&waiting) {
                Ok(count) => {
                    waiting.drain(..count);
                    moved |= count > 0;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(lost(&error)),
            }
        }
        if no_more && waiting.is_empty() && !told_end {
            told_end = channel.send_eof().is_ok();
        }
        if !moved {
            let _ = connection.session.keepalive_send();
            wait(connection, seat, no_more || !waiting.is_empty());
        }
    }
}

fn pass(
    from: &mut impl Read,
    stream: Stream,
    show: &mut dyn FnMut(Stream, &[u8]),
) -> Result<bool, CarryError> {
    let mut buffer = [0; PIECE];
    match from.read(&mut buffer) {
        Ok(0) => Ok(false),
        Ok(count) => {
            show(stream, &buffer[..count]);
            Ok(true)
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
        Err(error) => Err(lost(&error)),
    }
}

/// Waits until either side may have something, at most a second.
fn wait(connection: &Connection, seat: &Seat, deaf: bool) {
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let mut server = PollFlags::IN;
    let blocked = connection.session.block_directions();
    if matches!(blocked, BlockDirections::Outbound | BlockDirections::Both) {
        server |= PollFlags::OUT;
    }
    let mut files = vec![PollFd::from_borrowed_fd(connection.stream.as_fd(), server)];
    if !deaf {
        files.push(PollFd::from_borrowed_fd(seat.bell.as_fd(), PollFlags::IN));
    }
    // Interrupted or not, the loop looks at both sides again.
    let _ = poll(&mut files, Some(&second));
    if files.get(1).is_some_and(|bell| !bell.revents().is_empty()) {
        let mut rung = [0; 64];
        let _ = rustix::io::read(&seat.bell, &mut rung);
    }
}

#[expect(clippy::needless_pass_by_value, reason = "it is what `map_err` passes")]
fn broken(error: ssh2::Error) -> CarryError {
    CarryError::Broken {
        reason: error.message().to_string(),
    }
}

fn lost(error: &io::Error) -> CarryError {
    CarryError::Broken {
        reason: error.to_string(),
    }
}
