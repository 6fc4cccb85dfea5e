//! Which CPUs the agent itself runs on: it keeps away from those that are
//! measured, while its children get what the agent began with.

use std::collections::BTreeSet;
use std::fs;
use std::sync::OnceLock;

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

static FIRST: OnceLock<CpuSet> = OnceLock::new();

/// Remembers the CPUs the agent was started on. Called before any is given up.
pub fn remember() {
    if let Ok(cpus) = sched_getaffinity(None) {
        FIRST.get_or_init(|| cpus);
    }
}

/// The CPUs the agent was started on.
pub fn first() -> Option<CpuSet> {
    FIRST.get().copied()
}

/// Moves all threads of the agent to `cpus`; threads started later follow
/// their parents.
///
/// # Errors
/// When the kernel refuses, as for CPUs that are not there.
pub fn keep_to(cpus: &BTreeSet<usize>) -> std::io::Result<()> {
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU) {
        set.set(*cpu);
    }
    for task in fs::read_dir("/proc/self/task")?.flatten() {
        let thread = task.file_name().to_str().and_then(|id| id.parse().ok());
        let Some(thread) = thread.and_then(Pid::from_raw) else {
            continue;
        };
        match sched_setaffinity(Some(thread), &set) {
            // The thread ended meanwhile.
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
