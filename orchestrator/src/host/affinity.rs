//! Moving threads to CPUs, and reading back where they are.

use std::{
    fs,
    path::{Path, PathBuf},
};

use rustix::{
    io::Errno,
    process::Pid,
    thread::{CpuSet, sched_getaffinity, sched_setaffinity},
};

use crate::topology::CpuList;

/// Why threads are not where they belong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AffinityError {
    /// The system refused.
    #[error("cannot bind {what} to host CPUs {cpus}: {errno}")]
    Refused {
        /// Which thread.
        what: String,
        /// Where it belongs.
        cpus: CpuList,
        /// What the system said.
        errno: Errno,
    },
    /// The thread is somewhere else.
    #[error("{what} is bound to host CPUs {found}, planned was {cpus}")]
    Elsewhere {
        /// Which thread.
        what: String,
        /// Where it belongs.
        cpus: CpuList,
        /// Where it is.
        found: CpuList,
    },
    /// The threads of the process cannot be listed.
    #[error("cannot list `{}`", path.display())]
    List {
        /// `/proc/PID/task`.
        path: PathBuf,
    },
}

/// Binds a thread and reads back where it is bound. `what` names it in errors.
///
/// # Errors
/// When the system refuses, or the thread is not where it was put.
pub fn bind(thread: u32, cpus: &CpuList, what: &str) -> Result<(), AffinityError> {
    let refused = |errno| AffinityError::Refused {
        what: what.into(),
        cpus: cpus.clone(),
        errno,
    };
    let mut set = CpuSet::new();
    for cpu in cpus.iter() {
        let cpu = cpu as usize;
        if cpu >= CpuSet::MAX_CPU {
            return Err(refused(Errno::RANGE));
        }
        set.set(cpu);
    }
    sched_setaffinity(Some(pid(thread)?), &set).map_err(refused)?;
    let found = read_back(thread).map_err(refused)?;
    if found == *cpus {
        return Ok(());
    }
    Err(AffinityError::Elsewhere {
        what: what.into(),
        cpus: cpus.clone(),
        found,
    })
}

/// Where a thread is bound.
///
/// # Errors
/// When the thread is gone.
pub fn read_back(thread: u32) -> Result<CpuList, Errno> {
    let pid = pid(thread).map_err(|_| Errno::SRCH)?;
    let set = sched_getaffinity(Some(pid))?;
    let cpus = (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
    Ok(cpus.filter_map(|cpu| u32::try_from(cpu).ok()).collect())
}

fn pid(thread: u32) -> Result<Pid, AffinityError> {
    let number = i32::try_from(thread).ok().and_then(Pid::from_raw);
    number.ok_or_else(|| AffinityError::List {
        path: format!("/proc/{thread}").into(),
    })
}

/// All threads of a process; `root` holds `proc`.
///
/// # Errors
/// When the process is gone.
pub fn threads(root: &Path, process: u32) -> Result<Vec<u32>, AffinityError> {
    let path = root.join(format!("proc/{process}/task"));
    let entries = fs::read_dir(&path).map_err(|_| AffinityError::List { path })?;
    let mut threads: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    threads.sort_unstable();
    Ok(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_goes_where_it_is_put_and_an_impossible_place_is_refused() {
        let handle = std::thread::spawn(|| {
            let this = u32::try_from(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            let all = read_back(this).unwrap();
            let last = CpuList::from_iter(all.iter().next_back());
            bind(this, &last, "this thread").unwrap();
            assert_eq!(read_back(this).unwrap(), last);
            assert!(
                threads(Path::new("/"), std::process::id())
                    .unwrap()
                    .contains(&this)
            );
            let nowhere = CpuList::from_iter([1000]);
            let error = bind(this, &nowhere, "vCPU 0").unwrap_err().to_string();
            assert!(
                error.starts_with("cannot bind vCPU 0 to host CPUs 1000: "),
                "{error}"
            );
        });
        handle.join().unwrap();
    }
}
