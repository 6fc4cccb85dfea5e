//! The agent's end of the wire: one thread writes, one reads.
//!
//! Everything said goes through a bounded queue to the writing thread. When
//! the host reads slowly, samples and output wait for room (nothing is lost),
//! while heartbeats are dropped instead of waiting.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use topolab_protocol::frame::{DecodeError, Decoder, Frame};
use topolab_protocol::message::AgentMessage;

/// Frames that may wait to be written. With [`CHUNK`] this bounds the memory
/// that a stalled host costs.
const QUEUE: usize = 256;
/// Longest piece of a stream in one frame, bytes; the virtio-console driver
/// takes at most this much in one write.
pub const CHUNK: usize = 32 * 1024;

/// Where the rest of the agent says things. Clones share one queue.
#[derive(Clone)]
pub struct Link {
    queue: SyncSender<Vec<u8>>,
    /// Frames said and not yet written whole.
    waiting: Arc<AtomicUsize>,
}

/// What the reading thread hands on.
#[derive(Debug, PartialEq, Eq)]
pub enum Received {
    /// A frame.
    Frame(Frame),
    /// What was wrong with the bytes before the next frame.
    Damage(DecodeError),
    /// The port is gone; the last thing handed on.
    Gone,
}

/// The agent's end of a connection.
pub struct Ends {
    /// Read from.
    pub read: OwnedFd,
    /// Written to; may be the same port.
    pub write: OwnedFd,
    /// What an empty read means.
    pub at_end: AtEnd,
}

/// What an empty read means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtEnd {
    /// A virtio port reads as empty while the host's end is closed; it may
    /// open again.
    MayReturn,
    /// A pipe or a socket is over.
    Over,
}

impl Link {
    /// Starts both threads. `deliver` runs on the reading thread and returns
    /// whether anybody still listens.
    pub fn start(ends: Ends, deliver: impl FnMut(Received) -> bool + Send + 'static) -> Self {
        let (queue, frames) = sync_channel(QUEUE);
        let waiting = Arc::new(AtomicUsize::new(0));
        let Ends {
            read: reading,
            write: writing,
            at_end,
        } = ends;
        let left = Arc::clone(&waiting);
        std::thread::Builder::new()
            .name("topolab-write".into())
            .spawn(move || write_all_frames(&writing, &frames, &left))
            .expect("the first threads of a process start");
        std::thread::Builder::new()
            .name("topolab-read".into())
            .spawn(move || read_all_frames(&reading, at_end, deliver))
            .expect("the first threads of a process start");
        Self { queue, waiting }
    }

    /// Says something; waits for room.
    pub fn say(&self, message: &AgentMessage) {
        match topolab_protocol::frame::encode_message(message) {
            Ok(bytes) => self.enqueue(bytes),
            Err(error) => {
                let too_long = AgentMessage::Failed {
                    request: "an answer".into(),
                    reason: error.to_string(),
                };
                let bytes = topolab_protocol::frame::encode_message(&too_long)
                    .expect("a short message always encodes");
                self.enqueue(bytes);
            }
        }
    }

    /// Says something only when nothing else waits. For what will be said
    /// again anyway.
    pub fn say_if_idle(&self, message: &AgentMessage) {
        if self.waiting.load(Ordering::Acquire) > 0 {
            return;
        }
        if let Ok(bytes) = topolab_protocol::frame::encode_message(message) {
            self.waiting.fetch_add(1, Ordering::AcqRel);
            if self.queue.try_send(bytes).is_err() {
                self.waiting.fetch_sub(1, Ordering::AcqRel);
            }
        }
    }

    /// Sends bytes of a stream; waits for room.
    pub fn data(&self, stream: u16, bytes: &[u8]) {
        for piece in bytes.chunks(CHUNK) {
            let frame = Frame::Data {
                stream,
                bytes: piece.to_vec(),
            };
            self.enqueue(frame.encode().expect("a piece is shorter than the bound"));
        }
    }

    /// Waits until everything said was written, at most `limit`.
    pub fn flush(&self, limit: Duration) {
        let begin = Instant::now();
        while self.waiting.load(Ordering::Acquire) > 0 && begin.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn enqueue(&self, bytes: Vec<u8>) {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        // The writing thread ends only with its port; then nobody hears us.
        if self.queue.send(bytes).is_err() {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn write_all_frames(port: &OwnedFd, frames: &Receiver<Vec<u8>>, waiting: &AtomicUsize) {
    for frame in frames {
        let written = write_all(port, &frame);
        waiting.fetch_sub(1, Ordering::AcqRel);
        if written.is_err() {
            return;
        }
    }
}

fn write_all(port: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(port, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(port, PollFlags::OUT),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn read_all_frames(port: &OwnedFd, at_end: AtEnd, mut deliver: impl FnMut(Received) -> bool) {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; 2 * CHUNK];
    loop {
        match rustix::io::read(port, &mut buffer) {
            Ok(0) if at_end == AtEnd::MayReturn => std::thread::sleep(Duration::from_millis(20)),
            Ok(n) if n > 0 => {
                decoder.push(&buffer[..n]);
                while let Some(received) = decoder.next_frame() {
                    let received = received.map_or_else(Received::Damage, Received::Frame);
                    if !deliver(received) {
                        return;
                    }
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => wait(port, PollFlags::IN),
            Ok(_) | Err(_) => {
                deliver(Received::Gone);
                return;
            }
        }
    }
}

/// Waits until the port may be used again. A host that closed its end raises
/// `HUP` at once, so that case sleeps instead of spinning.
fn wait(port: &OwnedFd, flags: PollFlags) {
    let mut fds = [PollFd::from_borrowed_fd(port.as_fd(), flags)];
    let second = Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    let ready = poll(&mut fds, Some(&second));
    if ready.is_err() || !fds[0].revents().intersects(flags) {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::channel;

    use super::*;

    fn pair() -> (Link, UnixStream, Receiver<Received>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let (sender, inbox) = channel();
        let ends = Ends {
            read: ours.try_clone().unwrap().into(),
            write: ours.into(),
            at_end: AtEnd::MayReturn,
        };
        let link = Link::start(ends, move |received| sender.send(received).is_ok());
        (link, theirs, inbox)
    }

    fn beat(seq: u64) -> AgentMessage {
        AgentMessage::Heartbeat { seq, uptime_ms: 0 }
    }

    #[test]
    fn a_stalled_host_delays_data_and_drops_only_heartbeats() {
        let (link, mut host, _inbox) = pair();
        let sent = 4 * 1024 * 1024;
        let writer = {
            let link = link.clone();
            std::thread::spawn(move || link.data(1, &vec![7; sent]))
        };
        // The queue fills while nobody reads; a heartbeat must return at once.
        while link.waiting.load(Ordering::Acquire) < 50 {
            std::thread::yield_now();
        }
        for seq in 0..1000 {
            link.say_if_idle(&beat(seq));
        }
        let mut decoder = Decoder::new();
        let mut buffer = vec![0; 65536];
        let mut got = 0;
        while got < sent {
            let n = host.read(&mut buffer).unwrap();
            decoder.push(&buffer[..n]);
            while let Some(frame) = decoder.next_frame() {
                match frame.unwrap() {
                    Frame::Data { stream: 1, bytes } => got += bytes.len(),
                    other => panic!("a heartbeat waited in the queue: {other:?}"),
                }
            }
        }
        writer.join().unwrap();
        link.flush(Duration::from_secs(10));
        link.say_if_idle(&beat(1));
        let n = host.read(&mut buffer).unwrap();
        decoder.push(&buffer[..n]);
        assert!(matches!(decoder.next_frame(), Some(Ok(Frame::Message(_)))));
    }

    #[test]
    fn received_frames_and_damage_are_handed_on() {
        let (_link, mut host, inbox) = pair();
        let frame = Frame::Data {
            stream: 0,
            bytes: b"x".to_vec(),
        };
        host.write_all(b"noise").unwrap();
        host.write_all(&frame.encode().unwrap()).unwrap();
        let mut noise = 0;
        loop {
            match inbox.recv_timeout(Duration::from_secs(20)).unwrap() {
                Received::Damage(DecodeError::Garbage { bytes }) => noise += bytes,
                other => {
                    assert_eq!(other, Received::Frame(frame));
                    break;
                }
            }
        }
        assert_eq!(noise, 5);
    }
}
