//! The wire: length-prefixed, checksummed, versioned frames.
//!
//! A frame is a header of [`HEADER_LEN`] bytes and a payload, integers little-endian:
//!
//! | bytes | what |
//! |---|---|
//! | 0–3 | [`MAGIC`] |
//! | 4 | [`WIRE_VERSION`] |
//! | 5 | kind: 0 a message (JSON), 1 data |
//! | 6–7 | stream of a data frame, 0 for a message |
//! | 8–11 | length of the payload, at most [`MAX_PAYLOAD`] |
//! | 12–15 | CRC-32 (ISO-HDLC) of the payload |
//! | 16–19 | CRC-32 of bytes 0 to 15 |
//!
//! The header has its own checksum so that a length is believed only after it
//! was proved: garbage can neither make the reader wait for gigabytes nor make
//! it allocate them. [`Decoder`] finds the next frame after garbage, and a
//! damaged payload is searched for whole frames too, because bytes missing from
//! it have pulled the next frame into its range.

use serde::{Serialize, de::DeserializeOwned};

/// Stream of a command's standard input.
pub const STREAM_STDIN: u16 = 0;
/// Stream of a command's standard output.
pub const STREAM_STDOUT: u16 = 1;
/// Stream of a command's standard error.
pub const STREAM_STDERR: u16 = 2;
/// Stream of files both ways.
pub const STREAM_FILE: u16 = 3;

/// First bytes of every frame. Not valid UTF-8, so that no text holds it.
pub const MAGIC: [u8; 4] = [0xd7, b'T', b'L', 0xf0];
/// Version of the frame layout; magic, version and length keep their places in
/// all versions.
pub const WIRE_VERSION: u8 = 1;
/// Bytes before the payload.
pub const HEADER_LEN: usize = 20;
/// Longest payload, bytes.
pub const MAX_PAYLOAD: usize = 1 << 20;

const KIND_MESSAGE: u8 = 0;
const KIND_DATA: u8 = 1;

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A message as JSON; see [`Frame::message`] and [`parse_message`].
    Message(Vec<u8>),
    /// Bytes of a stream.
    Data {
        /// Which one: [`STREAM_STDOUT`] and its neighbours.
        stream: u16,
        /// The bytes; may be none.
        bytes: Vec<u8>,
    },
}

/// A frame that cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The payload is over the bound.
    #[error("a frame holds at most {MAX_PAYLOAD} bytes, this one has {len}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The message has no JSON form.
    #[error("the message cannot be written as JSON")]
    Json(#[source] serde_json::Error),
}

/// What was wrong with received bytes. The decoder goes on after each.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Bytes that belong to no frame were skipped.
    #[error("{bytes} bytes that are no frame")]
    Garbage {
        /// How many.
        bytes: usize,
    },
    /// A frame's payload does not have the checksum its header gives.
    #[error("a frame of {len} bytes is damaged")]
    Damaged {
        /// Length its header gives.
        len: usize,
    },
    /// A whole frame of another wire version was skipped.
    #[error("a frame of wire version {found}, this side speaks {WIRE_VERSION}")]
    Version {
        /// Its version.
        found: u8,
    },
    /// A whole frame of an unknown kind was skipped.
    #[error("a frame of unknown kind {found}")]
    Kind {
        /// Its kind byte.
        found: u8,
    },
    /// A header with a good checksum and a length over the bound.
    #[error("a frame announces {len} bytes, at most {MAX_PAYLOAD} are allowed")]
    TooLong {
        /// Length it announces.
        len: usize,
    },
}

impl Frame {
    /// The frame of a message.
    ///
    /// # Errors
    /// When the message has no JSON form or a longer one than [`MAX_PAYLOAD`].
    pub fn message<T: Serialize>(message: &T) -> Result<Self, EncodeError> {
        let json = serde_json::to_vec(message).map_err(EncodeError::Json)?;
        if json.len() > MAX_PAYLOAD {
            return Err(EncodeError::TooLong { len: json.len() });
        }
        Ok(Self::Message(json))
    }

    /// The bytes to send.
    ///
    /// # Errors
    /// When the payload is over [`MAX_PAYLOAD`].
    pub fn encode(&self) -> Result<Vec<u8>, EncodeError> {
        let (kind, stream, payload) = match self {
            Self::Message(json) => (KIND_MESSAGE, 0, json),
            Self::Data { stream, bytes } => (KIND_DATA, *stream, bytes),
        };
        let len = payload.len();
        if len > MAX_PAYLOAD {
            return Err(EncodeError::TooLong { len });
        }
        let mut out = Vec::with_capacity(HEADER_LEN + len);
        out.extend_from_slice(&MAGIC);
        out.push(WIRE_VERSION);
        out.push(kind);
        out.extend_from_slice(&stream.to_le_bytes());
        let len = u32::try_from(len).expect("a bounded payload's length fits 32 bits");
        out.extend_from_slice(&len.to_le_bytes());
        out.extend_from_slice(&crc32fast::hash(payload).to_le_bytes());
        let header_crc = crc32fast::hash(&out);
        out.extend_from_slice(&header_crc.to_le_bytes());
        out.extend_from_slice(payload);
        Ok(out)
    }
}

/// Encodes a message in one step.
///
/// # Errors
/// As [`Frame::message`].
pub fn encode_message<T: Serialize>(message: &T) -> Result<Vec<u8>, EncodeError> {
    Frame::message(message)?.encode()
}

/// Reads the JSON of a [`Frame::Message`].
///
/// # Errors
/// When it is no `T`; the error names line and column within the payload.
pub fn parse_message<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    serde_json::from_slice(json)
}

/// Turns received bytes back into frames.
///
/// Holds what was pushed since the last call of [`Decoder::next_frame`] that
/// gave nothing, and at most one unfinished frame beside it.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that are done with.
    start: usize,
    received: u64,
    skipped: u64,
    /// Bytes whose checksum was computed for nothing.
    wasted: u64,
}

/// What the header at the read position says.
struct Header {
    version: u8,
    kind: u8,
    stream: u16,
    len: usize,
    payload_crc: u32,
}

impl Decoder {
    /// An empty decoder.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds received bytes. Drain [`Decoder::next_frame`] after each push.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.start);
        self.start = 0;
        self.buffer.extend_from_slice(bytes);
        self.received += bytes.len() as u64;
    }

    /// Bytes that belonged to no good frame so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Bytes held that are not decided yet.
    pub fn pending(&self) -> usize {
        self.buffer.len() - self.start
    }

    /// The next frame, or what was wrong with the bytes before it; `None` when
    /// more bytes are needed.
    pub fn next_frame(&mut self) -> Option<Result<Frame, DecodeError>> {
        let garbage = self.skip_to_header();
        if garbage > 0 {
            self.skipped += garbage as u64;
            return Some(Err(DecodeError::Garbage { bytes: garbage }));
        }
        let header = self.header()?;
        if header.len > MAX_PAYLOAD {
            self.skip(HEADER_LEN);
            return Some(Err(DecodeError::TooLong { len: header.len }));
        }
        let whole = HEADER_LEN + header.len;
        if self.pending() < whole {
            return None;
        }
        let payload = &self.buffer[self.start + HEADER_LEN..self.start + whole];
        if crc32fast::hash(payload) != header.payload_crc {
            // Search the payload for frames, unless a hostile sender has made
            // us compute many overlapping checksums: then give it up whole, so
            // that the work stays linear in the bytes received.
            self.wasted += header.len as u64;
            let patient = self.wasted <= 4 * self.received + 4 * MAX_PAYLOAD as u64;
            self.skip(if patient { HEADER_LEN } else { whole });
            return Some(Err(DecodeError::Damaged { len: header.len }));
        }
        let payload = payload.to_vec();
        let result = match (header.version, header.kind) {
            (WIRE_VERSION, KIND_MESSAGE) => Ok(Frame::Message(payload)),
            (WIRE_VERSION, KIND_DATA) => Ok(Frame::Data {
                stream: header.stream,
                bytes: payload,
            }),
            (WIRE_VERSION, found) => Err(DecodeError::Kind { found }),
            (found, _) => Err(DecodeError::Version { found }),
        };
        match result {
            Ok(_) => self.start += whole,
            Err(_) => self.skip(whole),
        }
        Some(result)
    }

    fn skip(&mut self, bytes: usize) {
        self.start += bytes;
        self.skipped += bytes as u64;
    }

    /// Moves to the next place that is, or may become, a good header. Returns
    /// how many bytes it passed.
    fn skip_to_header(&mut self) -> usize {
        let from = self.start;
        while self.start < self.buffer.len() {
            let rest = &self.buffer[self.start..];
            let known = rest.len().min(MAGIC.len());
            if rest[..known] == MAGIC[..known] && (rest.len() < HEADER_LEN || proved(rest)) {
                break;
            }
            self.start += 1 + rest[1..]
                .iter()
                .position(|&byte| byte == MAGIC[0])
                .unwrap_or(rest.len() - 1);
        }
        self.start - from
    }

    fn header(&self) -> Option<Header> {
        let bytes = self.buffer[self.start..].first_chunk::<HEADER_LEN>()?;
        let word = |at: usize| {
            let word: [u8; 4] = bytes[at..at + 4].try_into().expect("four bytes");
            u32::from_le_bytes(word)
        };
        Some(Header {
            version: bytes[4],
            kind: bytes[5],
            stream: u16::from_le_bytes([bytes[6], bytes[7]]),
            len: usize::try_from(word(8)).unwrap_or(usize::MAX),
            payload_crc: word(12),
        })
    }
}

/// Whether a header's checksum is right.
fn proved(header: &[u8]) -> bool {
    header[16..HEADER_LEN] == crc32fast::hash(&header[..16]).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn data(bytes: &[u8]) -> Frame {
        Frame::Data {
            stream: STREAM_STDOUT,
            bytes: bytes.to_vec(),
        }
    }

    fn drain(decoder: &mut Decoder) -> Vec<Result<Frame, DecodeError>> {
        std::iter::from_fn(|| decoder.next_frame()).collect()
    }

    fn good(results: Vec<Result<Frame, DecodeError>>) -> Vec<Frame> {
        results.into_iter().flatten().collect()
    }

    fn decode(bytes: &[u8]) -> (Vec<Result<Frame, DecodeError>>, Decoder) {
        let mut decoder = Decoder::new();
        decoder.push(bytes);
        (drain(&mut decoder), decoder)
    }

    #[test]
    fn the_layout_is_fixed() {
        let bytes = data(b"hi").encode().unwrap();
        assert_eq!(
            bytes[..12],
            [0xd7, b'T', b'L', 0xf0, 1, 1, 1, 0, 2, 0, 0, 0]
        );
        // CRC-32/ISO-HDLC of "hi", as `python3 -c 'zlib.crc32(b"hi")'` gives it.
        assert_eq!(bytes[12..16], 0xd893_2aac_u32.to_le_bytes());
        assert_eq!(bytes[20..], *b"hi");
    }

    #[test]
    fn a_long_payload_is_refused_on_both_sides() {
        let long = data(&vec![0; MAX_PAYLOAD + 1]);
        assert!(matches!(
            long.encode(),
            Err(EncodeError::TooLong { len }) if len == MAX_PAYLOAD + 1
        ));
        let mut header = data(b"").encode().unwrap();
        header[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
        let crc = crc32fast::hash(&header[..16]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        header.extend(data(b"after").encode().unwrap());
        let (results, _) = decode(&header);
        assert_eq!(
            results,
            [
                Err(DecodeError::TooLong {
                    len: u32::MAX as usize
                }),
                Ok(data(b"after"))
            ]
        );
    }

    #[test]
    fn a_cut_frame_does_not_take_the_next_one_with_it() {
        let mut bytes = data(&[7; 100]).encode().unwrap();
        bytes.truncate(60);
        bytes.extend(data(b"whole").encode().unwrap());
        bytes.extend(data(&[9; 100]).encode().unwrap());
        assert_eq!(good(decode(&bytes).0), [data(b"whole"), data(&[9; 100])]);
    }

    #[test]
    fn other_versions_and_kinds_are_named_and_passed() {
        for (at, value, expected) in [
            (4, 9, DecodeError::Version { found: 9 }),
            (5, 7, DecodeError::Kind { found: 7 }),
        ] {
            let mut bytes = data(b"new").encode().unwrap();
            bytes[at] = value;
            let crc = crc32fast::hash(&bytes[..16]);
            bytes[16..20].copy_from_slice(&crc.to_le_bytes());
            bytes.extend(data(b"old").encode().unwrap());
            assert_eq!(decode(&bytes).0, [Err(expected), Ok(data(b"old"))]);
        }
    }

    /// Headers that each claim a long payload, one after the other: searching
    /// every payload would cost the square of the input.
    #[test]
    fn hostile_overlapping_frames_cost_linear_work() {
        let mut header = data(b"").encode().unwrap();
        header[8..12].copy_from_slice(&(MAX_PAYLOAD as u32).to_le_bytes());
        let crc = crc32fast::hash(&header[..16]);
        header[16..20].copy_from_slice(&crc.to_le_bytes());
        let hostile = header.repeat(4 * MAX_PAYLOAD / HEADER_LEN);
        let (_, decoder) = decode(&hostile);
        assert!(decoder.wasted <= 4 * decoder.received + 16 * MAX_PAYLOAD as u64);
    }

    fn frame() -> impl Strategy<Value = Frame> {
        let bytes = proptest::collection::vec(any::<u8>(), 0..300);
        prop_oneof![
            bytes.clone().prop_map(Frame::Message),
            (any::<u16>(), bytes).prop_map(|(stream, bytes)| Frame::Data { stream, bytes }),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_chunking(
            frames in proptest::collection::vec(frame(), 0..20),
            chunks in proptest::collection::vec(1usize..64, 1..40),
        ) {
            let bytes: Vec<u8> = frames.iter().flat_map(|f| f.encode().unwrap()).collect();
            let mut decoder = Decoder::new();
            let mut got = Vec::new();
            let mut rest = bytes.as_slice();
            for size in chunks.iter().cycle() {
                if rest.is_empty() {
                    break;
                }
                let (chunk, tail) = rest.split_at((*size).min(rest.len()));
                decoder.push(chunk);
                got.extend(drain(&mut decoder));
                rest = tail;
            }
            let got: Result<Vec<Frame>, _> = got.into_iter().collect();
            prop_assert_eq!(got.unwrap(), frames);
            prop_assert_eq!(decoder.pending(), 0);
            prop_assert_eq!(decoder.skipped(), 0);
        }

        /// Garbage without the first byte of the magic costs no frame at all.
        #[test]
        fn garbage_between_frames_loses_none(
            parts in proptest::collection::vec(
                (proptest::collection::vec(0u8..0xd7, 0..80), frame()), 1..12),
        ) {
            let mut bytes = Vec::new();
            let mut garbage = 0;
            for (noise, frame) in &parts {
                bytes.extend(noise);
                garbage += noise.len() as u64;
                bytes.extend(frame.encode().unwrap());
            }
            let (results, decoder) = decode(&bytes);
            let frames: Vec<Frame> = parts.into_iter().map(|(_, frame)| frame).collect();
            prop_assert_eq!(good(results), frames);
            prop_assert_eq!(decoder.skipped(), garbage);
        }

        /// One flipped bit damages the frame it is in and no other.
        #[test]
        fn damage_stays_where_it_is(
            frames in proptest::collection::vec(frame(), 1..10),
            victim in any::<prop::sample::Index>(),
            at in any::<prop::sample::Index>(),
            bit in 0u8..8,
        ) {
            let victim = victim.index(frames.len());
            let mut bytes = Vec::new();
            for (index, frame) in frames.iter().enumerate() {
                let mut encoded = frame.encode().unwrap();
                if index == victim {
                    let at = at.index(encoded.len());
                    encoded[at] ^= 1 << bit;
                }
                bytes.extend(encoded);
            }
            let mut expected = frames;
            expected.remove(victim);
            prop_assert_eq!(good(decode(&bytes).0), expected);
        }

        #[test]
        fn arbitrary_bytes_never_panic_and_are_bounded(
            chunks in proptest::collection::vec(
                proptest::collection::vec(
                    prop_oneof![any::<u8>(), prop::sample::select(MAGIC.to_vec())], 0..200),
                0..30),
        ) {
            let mut decoder = Decoder::new();
            for chunk in &chunks {
                decoder.push(chunk);
                drain(&mut decoder);
                prop_assert!(decoder.pending() <= HEADER_LEN + MAX_PAYLOAD);
            }
        }
    }
}
