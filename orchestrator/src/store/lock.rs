//! The lock of a folder: flock(2) on a file in it, released by the kernel when
//! the holder dies.

use std::{
    fs::File,
    io,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{FlockOperation, flock};

/// A child that is between fork and exec still holds its parent's files: a lock
/// that was just dropped may stay taken for that long. A campaign holds it for minutes.
const PATIENCE: Duration = Duration::from_millis(500);

/// Takes the lock, or says with `None` that another process has it.
///
/// # Errors
/// The file cannot be made or locked.
pub fn hold(file: &Path) -> io::Result<Option<File>> {
    let handle = File::create(file)?;
    let asked = Instant::now();
    loop {
        match flock(&handle, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(Some(handle)),
            Err(rustix::io::Errno::WOULDBLOCK) if asked.elapsed() < PATIENCE => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
    }
}
