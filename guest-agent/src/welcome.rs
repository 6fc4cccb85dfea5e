//! What a guest gets from its host's welcome: the time of day and randomness.
//! A guest restored from a snapshot has neither of its own.

use std::fs::File;
use std::os::fd::AsRawFd;

use rustix::time::{ClockId, Timespec, clock_settime};

use crate::kmsg::{self, Level};

/// Sets the wall clock to `now_ns` nanoseconds since the epoch.
pub fn set_clock(now_ns: u64) {
    const BILLION: u64 = 1_000_000_000;
    let time = Timespec {
        tv_sec: i64::try_from(now_ns / BILLION).unwrap_or(i64::MAX),
        tv_nsec: i64::try_from(now_ns % BILLION).expect("below a billion"),
    };
    if let Err(error) = clock_settime(ClockId::Realtime, time) {
        kmsg::say(Level::Notice, &format!("cannot set the clock: {error}"));
    }
}

/// Mixes random bytes, written in hex, into the entropy pool, credits them, and
/// has the generator seeded from the pool at once: guests restored from one
/// snapshot would else draw the same numbers until its next turn.
pub fn add_entropy(hex: &str) {
    // `struct rand_pool_info` of include/uapi/linux/random.h: bits, bytes, data.
    #[repr(C)]
    struct PoolInfo {
        entropy_count: libc::c_int,
        buf_size: libc::c_int,
        buf: [u8; MOST],
    }
    /// The pool holds 256 bits.
    const MOST: usize = 64;
    /// `_IOW('R', 0x03, int[2])` of the same header.
    const RNDADDENTROPY: libc::Ioctl = 0x4008_5203;
    /// `_IO('R', 0x07)` of the same header.
    const RNDRESEEDCRNG: libc::Ioctl = 0x5207;

    let bytes = unhex(hex);
    let count = bytes.len().min(MOST);
    let size = libc::c_int::try_from(count).expect("at most 64");
    let mut info = PoolInfo {
        entropy_count: size * 8,
        buf_size: size,
        buf: [0; MOST],
    };
    info.buf[..count].copy_from_slice(&bytes[..count]);
    let added = File::options()
        .write(true)
        .open("/dev/random")
        .is_ok_and(|pool| {
            // SAFETY: the structure has the layout the ioctl reads, and `buf_size`
            // bytes of `buf` are there; the second takes no argument.
            unsafe {
                libc::ioctl(pool.as_raw_fd(), RNDADDENTROPY, &raw const info) == 0
                    && libc::ioctl(pool.as_raw_fd(), RNDRESEEDCRNG) == 0
            }
        });
    if !added {
        kmsg::say(Level::Notice, "cannot add entropy");
    }
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .chars()
        .filter_map(|c| c.to_digit(16))
        .map(|digit| u8::try_from(digit).expect("one digit"))
        .collect();
    digits
        .chunks_exact(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_is_read_in_pairs() {
        assert_eq!(unhex("00ff1a"), [0, 255, 26]);
        assert_eq!(unhex("xyz0"), [0; 0]);
    }
}
