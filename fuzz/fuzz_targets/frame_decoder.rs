//! The frame decoder on whatever a guest may send.
//!
//! The input is read as a script: raw bytes are pushed as they are, and some
//! bytes ask for a whole frame with good checksums, so that the fuzzer reaches
//! what lies behind them. The decoder must neither panic nor hold more than its
//! bound, must count every byte once, and must find a good frame that follows.

#![no_main]

use libfuzzer_sys::fuzz_target;
use topolab_protocol::frame::{Decoder, Frame, HEADER_LEN, MAX_PAYLOAD, parse_message};
use topolab_protocol::message::AgentMessage;

fuzz_target!(|input: &[u8]| {
    let mut decoder = Decoder::new();
    let mut sent = 0u64;
    let mut good = 0u64;
    for piece in input.split(|byte| *byte == b'\n') {
        let bytes = match piece {
            [b'F', stream, payload @ ..] => frame(*stream, payload),
            [b'C', cut, payload @ ..] => {
                let mut bytes = frame(0, payload);
                bytes.truncate(usize::from(*cut));
                bytes
            }
            [b'X', at, payload @ ..] => {
                let mut bytes = frame(1, payload);
                let at = usize::from(*at) % bytes.len();
                bytes[at] ^= 0x10;
                bytes
            }
            raw => raw.to_vec(),
        };
        sent += bytes.len() as u64;
        decoder.push(&bytes);
        good += drain(&mut decoder);
        assert!(decoder.pending() <= HEADER_LEN + MAX_PAYLOAD);
        assert_eq!(sent, good + decoder.skipped() + decoder.pending() as u64);
    }
    // A damaged header may claim up to a whole payload more; after that much a
    // good frame is always found.
    let last = Frame::Message(b"last".to_vec());
    if decoder.pending() > 0 {
        decoder.push(&vec![0; HEADER_LEN + MAX_PAYLOAD]);
    }
    decoder.push(&last.encode().expect("short"));
    let mut found = false;
    while let Some(result) = decoder.next_frame() {
        found = result == Ok(last.clone());
    }
    assert!(found, "the frame after the damage is lost");
});

fn frame(stream: u8, payload: &[u8]) -> Vec<u8> {
    let frame = match stream {
        0 => Frame::Message(payload.to_vec()),
        stream => Frame::Data {
            stream: u16::from(stream),
            bytes: payload.to_vec(),
        },
    };
    frame.encode().expect("fuzz inputs are shorter than the bound")
}

/// Bytes of the good frames found.
fn drain(decoder: &mut Decoder) -> u64 {
    let mut good = 0;
    while let Some(result) = decoder.next_frame() {
        match result {
            Ok(Frame::Message(json)) => {
                good += (HEADER_LEN + json.len()) as u64;
                // Whatever it holds, reading it must not panic.
                let _ = parse_message::<AgentMessage>(&json);
            }
            Ok(Frame::Data { bytes, .. }) => good += (HEADER_LEN + bytes.len()) as u64,
            Err(_) => {}
        }
    }
    good
}
