//! Frames to and from the agent over one socket, read and written by a task each.
//!
//! The agent is not trusted: lengths are bounded by the decoder, what waits to
//! be read stays in the guest (the reader waits for room in the inbox), and what
//! waits to be written is bounded here.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    task::JoinHandle,
};
use topolab_protocol::{
    frame::{DecodeError, Decoder, EncodeError, Frame, encode_message, parse_message},
    message::{AgentMessage, HostMessage},
};

/// Frames that may wait to be written. Standard input is bounded by the
/// agent's window, everything else is short.
const WAITING: usize = 256;
/// Bytes read at once.
const READ: usize = 64 * 1024;

/// What arrives from the agent.
#[derive(Debug)]
pub enum FromAgent {
    /// Something it says.
    Message(Box<AgentMessage>),
    /// Bytes of a stream.
    Data {
        /// Which one; see [`topolab_protocol::frame`].
        stream: u16,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// Bytes that are no frame, or a damaged one. Reading goes on.
    Damaged(DecodeError),
    /// A sound frame whose message this version does not know.
    Unknown {
        /// What the JSON reader says.
        reason: String,
    },
    /// The other end is gone.
    Closed,
}

/// Why something could not be sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The agent has not read what was sent before.
    #[error("the agent reads nothing: {WAITING} frames wait")]
    Full,
    /// The other end is gone.
    #[error("the agent's port is closed")]
    Closed,
    /// The message has no frame.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

/// The connection to one agent.
#[derive(Debug)]
pub struct AgentLink {
    out: mpsc::Sender<Vec<u8>>,
    reading: JoinHandle<()>,
    writing: JoinHandle<()>,
}

impl AgentLink {
    /// Reads from `stream` into `inbox`, [`FromAgent::Closed`] last. Must be
    /// called within a tokio runtime.
    pub fn attach<T: Send + 'static>(
        stream: UnixStream,
        inbox: mpsc::Sender<T>,
        wrap: fn(FromAgent) -> T,
    ) -> Self {
        let (read, write) = stream.into_split();
        let (out, frames) = mpsc::channel(WAITING);
        Self {
            out,
            reading: tokio::spawn(read_frames(read, inbox, wrap)),
            writing: tokio::spawn(write_frames(write, frames)),
        }
    }

    /// Says something, without waiting.
    ///
    /// # Errors
    /// When the agent does not read, is gone, or the message is too long.
    pub fn say(&self, message: &HostMessage) -> Result<(), SendError> {
        self.queue(encode_message(message)?)
    }

    /// Sends bytes of a stream, without waiting.
    ///
    /// # Errors
    /// As [`AgentLink::say`].
    pub fn data(&self, stream: u16, bytes: Vec<u8>) -> Result<(), SendError> {
        self.queue(Frame::Data { stream, bytes }.encode()?)
    }

    fn queue(&self, frame: Vec<u8>) -> Result<(), SendError> {
        self.out.try_send(frame).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => SendError::Full,
            mpsc::error::TrySendError::Closed(_) => SendError::Closed,
        })
    }
}

impl Drop for AgentLink {
    fn drop(&mut self) {
        self.reading.abort();
        self.writing.abort();
    }
}

async fn read_frames<T>(mut read: OwnedReadHalf, inbox: mpsc::Sender<T>, wrap: fn(FromAgent) -> T) {
    let mut decoder = Decoder::new();
    let mut buffer = vec![0; READ];
    loop {
        let count = match read.read(&mut buffer).await {
            Ok(count) if count > 0 => count,
            _ => break,
        };
        decoder.push(&buffer[..count]);
        while let Some(result) = decoder.next_frame() {
            let item = match result {
                Ok(Frame::Message(json)) => match parse_message(&json) {
                    Ok(message) => FromAgent::Message(Box::new(message)),
                    Err(error) => FromAgent::Unknown {
                        reason: error.to_string(),
                    },
                },
                Ok(Frame::Data { stream, bytes }) => FromAgent::Data { stream, bytes },
                Err(error) => FromAgent::Damaged(error),
            };
            if inbox.send(wrap(item)).await.is_err() {
                return;
            }
        }
    }
    let _ = inbox.send(wrap(FromAgent::Closed)).await;
}

async fn write_frames(mut write: OwnedWriteHalf, mut frames: mpsc::Receiver<Vec<u8>>) {
    while let Some(frame) = frames.recv().await {
        if write.write_all(&frame).await.is_err() {
            // The reader tells that the other end is gone.
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use topolab_protocol::frame::STREAM_STDOUT;

    use super::*;

    #[tokio::test]
    async fn messages_data_and_damage_arrive_in_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (sender, mut inbox) = mpsc::channel(8);
        let link = AgentLink::attach(ours, sender, |item| item);
        let mut bytes = b"noise".to_vec();
        bytes.extend(encode_message(&AgentMessage::Bye).unwrap());
        let data = Frame::Data {
            stream: STREAM_STDOUT,
            bytes: b"hi".to_vec(),
        };
        bytes.extend(data.encode().unwrap());
        bytes.extend(
            Frame::Message(b"{\"say\":\"later\"}".to_vec())
                .encode()
                .unwrap(),
        );
        theirs.write_all(&bytes).await.unwrap();
        assert!(matches!(
            inbox.recv().await,
            Some(FromAgent::Damaged(DecodeError::Garbage { bytes: 5 }))
        ));
        let Some(FromAgent::Message(message)) = inbox.recv().await else {
            panic!("a message");
        };
        assert_eq!(*message, AgentMessage::Bye);
        assert!(matches!(
            inbox.recv().await,
            Some(FromAgent::Data { stream: STREAM_STDOUT, bytes }) if bytes == b"hi"
        ));
        assert!(matches!(
            inbox.recv().await,
            Some(FromAgent::Unknown { reason }) if reason.contains("later")
        ));
        link.say(&HostMessage::PowerOff).unwrap();
        let mut decoder = Decoder::new();
        let mut got = [0; 256];
        let count = theirs.read(&mut got).await.unwrap();
        decoder.push(&got[..count]);
        let Some(Ok(Frame::Message(json))) = decoder.next_frame() else {
            panic!("a frame");
        };
        assert_eq!(
            parse_message::<HostMessage>(&json).unwrap(),
            HostMessage::PowerOff
        );
        drop(theirs);
        assert!(matches!(inbox.recv().await, Some(FromAgent::Closed)));
    }

    #[tokio::test]
    async fn an_agent_that_does_not_read_is_noticed_and_costs_little_memory() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let (sender, _inbox) = mpsc::channel::<FromAgent>(8);
        let link = AgentLink::attach(ours, sender, |item| item);
        let mut sent = 0;
        let error = loop {
            match link.data(0, vec![0; 32 * 1024]) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
            tokio::task::yield_now().await;
        };
        assert!(matches!(error, SendError::Full), "{error}");
        assert!(sent < WAITING + 64, "{sent}");
    }
}
