//! Scheduling classes and CPUs of threads.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Makes the calling thread SCHED_FIFO with a priority from 1 to 99. What it
/// forks is not.
///
/// # Errors
/// Without the privilege, or for another priority.
pub fn fifo(priority: u32) -> std::io::Result<()> {
    let param = libc::sched_param {
        sched_priority: i32::try_from(priority).unwrap_or(0),
    };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `param` outlives the call; 0 means the calling thread.
    if unsafe { libc::sched_setscheduler(0, policy, &raw const param) } == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

/// Keeps the calling thread on these CPUs.
///
/// # Errors
/// When none of them may be used.
pub fn pin(cpus: &BTreeSet<usize>) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    Ok(sched_setaffinity(None, &set)?)
}

/// CPUs the calling thread may use.
///
/// # Errors
/// On machines with more CPUs than the set holds.
pub fn allowed() -> std::io::Result<BTreeSet<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// Keeps the calling thread off these CPUs, where others are left.
pub fn avoid(cpus: &BTreeSet<usize>) {
    let Ok(allowed) = allowed() else {
        return;
    };
    let rest: BTreeSet<usize> = allowed.difference(cpus).copied().collect();
    if !rest.is_empty() {
        // The set is part of what was allowed a moment ago.
        let _ = pin(&rest);
    }
}

/// Works until the thread has had its CPU for `work`, or until `stop` says so.
/// Two looks at the clock further apart than `GAP` were not made in one go:
/// somebody else had the CPU, and that time does not count.
pub fn spin(work: Duration, stop: impl Fn() -> bool) {
    const GAP: Duration = Duration::from_micros(100);
    let mut spun = Duration::ZERO;
    let mut last = Instant::now();
    while spun < work && !stop() {
        let now = Instant::now();
        if now - last < GAP {
            spun += now - last;
        }
        last = now;
        std::hint::spin_loop();
    }
}

/// A duration of `us` microseconds; nothing for what is no duration.
pub fn microseconds(us: f64) -> Duration {
    Duration::try_from_secs_f64(us / 1e6).unwrap_or(Duration::ZERO)
}
