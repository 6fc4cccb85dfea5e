//! The agent's wire carried over an SSH session: the agent is brought to the
//! machine, started there with `--stdio`, and its standard streams are joined to a
//! socket of ours.

use std::{
    io::{self, ErrorKind, Read, Write},
    os::{fd::AsFd, unix::net::UnixStream},
    time::{Duration, Instant},
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use ssh2::{BlockDirections, Channel};

use super::{
    connect::{Access, ConnectError, Connection, connect},
    files::{self, Place, RemoteError, RootBy},
    patience::Patience,
};

/// Why the agent could not be brought to a machine, or was lost.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// There is no session.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The agent cannot be put there.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The session broke.
    #[error("the SSH session broke: {reason}")]
    Broken {
        /// What the library says.
        reason: String,
    },
    /// The agent ended by itself.
    #[error("the agent ended with exit code {code}{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    Ended {
        /// Its exit code.
        code: i32,
        /// What it wrote to its standard error, the end of it.
        said: String,
    },
}

/// Bytes kept of what the agent writes to its standard error.
const SAID: usize = 2000;
/// The server is asked for a sign of life this often.
const SIGN: u32 = 10;

/// Brings `agent` to a machine and joins it to `wire` until either side closes.
/// Blocks; `patience` limits everything up to the agent's start.
///
/// # Errors
/// It cannot be brought there, or the session or the agent ends while `wire` is open.
pub fn carry(
    access: &Access,
    agent: &[u8],
    wire: UnixStream,
    patience: &Patience,
) -> Result<(), CarryError> {
    let connection = connect(access, patience)?;
    let session = &connection.session;
    let place = files::survey(session, patience)?;
    let program = format!("{}/topolab-agent", place.folder);
    files::upload(session, agent, &program, 0o700, patience)?;
    let broken = |error: ssh2::Error| CarryError::Broken {
        reason: error.message().to_string(),
    };
    let mut channel = session.channel_session().map_err(broken)?;
    channel.exec(&command(&place)).map_err(broken)?;
    session.set_keepalive(true, SIGN);
    join(&connection, channel, wire, patience)
}

/// The shell removes the folder when the agent ends, however it ends. The
/// folder's name comes from mktemp and our own template: it needs no quotes.
fn command(place: &Place) -> String {
    let sudo = match place.root {
        RootBy::Sudo => "sudo -n ",
        RootBy::Login | RootBy::Nothing => "",
    };
    let folder = &place.folder;
    format!("trap 'rm -rf {folder}' EXIT; {sudo}{folder}/topolab-agent --stdio")
}

/// Moves bytes both ways.
fn join(
    connection: &Connection,
    mut channel: Channel,
    mut wire: UnixStream,
    patience: &Patience,
) -> Result<(), CarryError> {
    let session = &connection.session;
    let lost = |error: &io::Error| CarryError::Broken {
        reason: error.to_string(),
    };
    session.set_blocking(false);
    wire.set_nonblocking(true).map_err(|error| lost(&error))?;
    let mut to_agent = Pending::default();
    let mut to_host = Pending::default();
    let mut said = Vec::new();
    let mut closed: Option<Instant> = None;
    loop {
        let mut moved = to_host.read(&mut channel).map_err(|error| lost(&error))?;
        moved |= read_words(&mut channel, &mut said);
        moved |= match to_host.write(&mut wire) {
            Ok(moved) => moved,
            // Our side is gone: the agent is told by the end of its input.
            Err(_) => {
                to_host.bytes.clear();
                closed.get_or_insert_with(Instant::now);
                false
            }
        };
        if closed.is_none() {
            match to_agent.read(&mut wire) {
                Ok(read) => moved |= read,
                Err(_) => closed = Some(Instant::now()),
            }
            if to_agent.ended {
                closed = Some(Instant::now());
            }
        }
        moved |= to_agent.write(&mut channel).map_err(|error| lost(&error))?;
        if channel.eof() && to_host.is_empty() {
            session.set_blocking(true);
            session.set_timeout(2000);
            let _ = channel.close();
            let _ = channel.wait_close();
            if closed.is_some() {
                return Ok(());
            }
            return Err(CarryError::Ended {
                code: channel.exit_status().unwrap_or(-1),
                said: String::from_utf8_lossy(&said).trim().to_string(),
            });
        }
        if let Some(since) = closed {
            let _ = channel.send_eof();
            if since.elapsed() > Duration::from_secs(5) {
                return Ok(());
            }
        }
        if patience.is_stopped() {
            return Ok(());
        }
        if !moved {
            let _ = session.keepalive_send();
            wait(connection, &wire, &to_agent, &to_host, closed.is_none());
        }
    }
}

/// Bytes on their way in one direction.
#[derive(Default)]
struct Pending {
    bytes: Vec<u8>,
    ended: bool,
}

/// Bytes taken at once.
const PIECE: usize = 64 * 1024;

impl Pending {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Takes more when there is room. Whether it got any.
    fn read(&mut self, from: &mut impl Read) -> io::Result<bool> {
        if !self.is_empty() || self.ended {
            return Ok(false);
        }
        self.bytes.resize(PIECE, 0);
        let read = from.read(&mut self.bytes);
        self.bytes.truncate(*read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => self.ended = true,
            Ok(_) => return Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        Ok(false)
    }

    /// Passes on what it can. Whether it did.
    fn write(&mut self, to: &mut impl Write) -> io::Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        match to.write(&self.bytes) {
            Ok(count) => {
                self.bytes.drain(..count);
                Ok(count > 0)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Keeps the end of what the agent writes to its standard error.
fn read_words(channel: &mut Channel, said: &mut Vec<u8>) -> bool {
    let mut buffer = [0; 4096];
    match channel.stderr().read(&mut buffer) {
        Ok(count) if count > 0 => {
            said.extend(&buffer[..count]);
            let from = said.len().saturating_sub(SAID);
            said.drain(..from);
            true
        }
        _ => false,
    }
}

/// Waits until either side may have something, at most a second.
fn wait(
    connection: &Connection,
    wire: &UnixStream,
    to_agent: &Pending,
    to_host: &Pending,
    listening: bool,
) {
    let mut server = PollFlags::IN;
    if matches!(
        connection.session.block_directions(),
        BlockDirections::Outbound | BlockDirections::Both
    ) {
        server |= PollFlags::OUT;
    }
    let mut ours = PollFlags::empty();
    if listening && to_agent.is_empty() {
        ours |= PollFlags::IN;
    }
    if !to_host.is_empty() {
        ours |= PollFlags::OUT;
    }
    let mut files = vec![PollFd::from_borrowed_fd(connection.stream.as_fd(), server)];
    if !ours.is_empty() {
        files.push(PollFd::from_borrowed_fd(wire.as_fd(), ours));
    }
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    // Interrupted or not, the loop looks at both sides again.
    let _ = poll(&mut files, Some(&second));
}
