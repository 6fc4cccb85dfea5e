//! Workload `numa-scan`: threads touch memory while NUMA balancing looks at
//! it. Counts what the balancing did.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use topolab_protocol::message::ExitStatus;
use topolab_protocol::sample::{Better, MetricKind};
use topolab_protocol::workload::NumaScan;

use super::{Session, Stopped, own_child, plain};
use crate::monitor::vmstat::Vmstat;

/// Name of the child's part.
pub const PART: &str = "numa-scan";

/// What NUMA balancing counts in `/proc/vmstat` (`mm/vmstat.c`, under
/// CONFIG_NUMA_BALANCING): entries made inaccessible, faults taken on them, pages moved.
const COUNTERS: [&str; 3] = [
    "numa_pte_updates",
    "numa_hint_faults",
    "numa_pages_migrated",
];

const PAGE: usize = 4096;

/// Between two looks at how far the scanner is.
const LOOK: Duration = Duration::from_millis(5);

/// What the touching process found.
#[derive(Debug, Serialize, Deserialize)]
pub struct Touched {
    /// Times the whole memory was gone over, all threads together.
    passes: f64,
    /// Seconds it took.
    seconds: f64,
    /// Times the scanner went over the memory.
    scans: u64,
}

/// Runs the touching process in its group and samples the counters around it.
pub fn run(session: &Session, parameters: &NumaScan) -> Result<ExitStatus, Stopped> {
    check(parameters).map_err(Stopped::Failed)?;
    let root = Path::new("/");
    let before = Vmstat::read(root).map_err(Stopped::failed)?;
    let mut start = Vec::new();
    for counter in COUNTERS {
        let value = before.get(counter).ok_or_else(|| {
            Stopped::NotTestable(format!(
                "/proc/vmstat has no {counter}: the kernel lacks CONFIG_NUMA_BALANCING"
            ))
        })?;
        start.push((counter, value));
    }
    session.phase("measure");
    let touched: Touched = own_child::run(session, PART, parameters, parameters.cgroup.as_deref())?;
    let after = Vmstat::read(root).map_err(Stopped::failed)?;
    for (counter, before) in start {
        let after = after.get(counter).unwrap_or(before);
        session.sample(plain(
            counter,
            after.saturating_sub(before) as f64,
            MetricKind::Count,
            "count",
            Better::Lower,
        ));
    }
    session.sample(plain(
        "numa_scans",
        touched.scans as f64,
        MetricKind::Count,
        "count",
        Better::Neither,
    ));
    session.sample(plain(
        "passes",
        touched.passes / touched.seconds,
        MetricKind::Rate,
        "passes/s",
        Better::Higher,
    ));
    Ok(ExitStatus::Exited { code: 0 })
}

fn check(parameters: &NumaScan) -> Result<usize, String> {
    let bytes = parameters
        .memory_bytes()
        .and_then(|bytes| usize::try_from(bytes).ok())
        .filter(|bytes| *bytes >= PAGE)
        .ok_or_else(|| format!("memory {:?} is no size of at least 4K", parameters.memory))?;
    let seconds = parameters.seconds;
    if !(seconds > 0.0 && seconds.is_finite()) {
        return Err(format!("seconds must be more than 0, not {seconds}"));
    }
    if parameters.threads == 0 {
        return Err("threads must be at least 1".into());
    }
    Ok(bytes / PAGE * PAGE)
}

/// The part of the child: fills the memory, then goes over it with all threads
/// until the time is over.
pub fn touch(parameters: &NumaScan) -> Result<Touched, String> {
    let bytes = check(parameters)?;
    let memory =
        Memory::new(bytes).map_err(|error| format!("cannot map {bytes} bytes: {error}"))?;
    memory.touch_range(0, memory.pages);
    let cpus = allowed_cpus().map_err(|error| format!("cannot read the CPUs allowed: {error}"))?;
    let threads = parameters.threads as usize;
    let duration = Duration::from_secs_f64(parameters.seconds);
    let touched = AtomicU64::new(0);
    let ready = Barrier::new(threads);
    let enough = AtomicBool::new(false);
    // The first thread past the barrier starts the clock for all.
    let started = OnceLock::new();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (memory, touched, ready, started) = (&memory, &touched, &ready, &started);
            let enough = &enough;
            let cpu = cpus[spread(thread, threads, cpus.len())];
            let first = thread * memory.pages / threads;
            scope.spawn(move || {
                pin(cpu);
                ready.wait();
                let started = *started.get_or_init(Instant::now);
                let pages = memory.touch_until(started + duration, first, enough);
                touched.fetch_add(pages, Ordering::AcqRel);
            });
        }
        let begin = Instant::now();
        while parameters.scans > 0 && begin.elapsed() < duration {
            if scans() >= u64::from(parameters.scans) {
                enough.store(true, Ordering::Release);
                break;
            }
            std::thread::sleep(LOOK);
        }
    });
    let seconds = started
        .get()
        .map_or(0.0, |started: &Instant| started.elapsed().as_secs_f64());
    Ok(Touched {
        passes: touched.into_inner() as f64 / memory.pages as f64,
        seconds,
        scans: scans(),
    })
}

/// How often the scanner has come to the end of this process's memory; 0 where
/// the kernel does not say (`sched_show_numa()` in `kernel/sched/debug.c`, under
/// CONFIG_SCHED_DEBUG).
fn scans() -> u64 {
    let text = std::fs::read_to_string("/proc/self/sched").unwrap_or_default();
    scan_sequence(&text).unwrap_or(0)
}

fn scan_sequence(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find(|line| line.starts_with("mm->numa_scan_seq"))?;
    line.split_once(':')?.1.trim().parse().ok()
}

/// CPUs this process may use, ascending; threads are spread over them evenly,
/// so that with several nodes each node has some.
fn allowed_cpus() -> rustix::io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// Which of `places` places thread number `thread` of `threads` gets: evenly
/// spread when there are fewer threads than places, else in turn.
fn spread(thread: usize, threads: usize, places: usize) -> usize {
    if threads < places {
        thread * places / threads
    } else {
        thread % places
    }
}

/// A CPU that went away leaves the thread where the kernel put it.
fn pin(cpu: usize) {
    let mut set = CpuSet::new();
    set.set(cpu);
    let _ = sched_setaffinity(None, &set);
}

struct Memory {
    start: *mut u8,
    pages: usize,
}

// SAFETY: the mapping lives until the process ends, and threads reach it only
// through atomic operations.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> rustix::io::Result<Self> {
        // SAFETY: a new private mapping at an address of the kernel's choice
        // aliases nothing.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        }?;
        // Counts are per small page on every kernel configuration; a kernel
        // without huge pages refuses the advice and needs none.
        // SAFETY: the range was mapped above.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxNoHugepage) };
        Ok(Self {
            start: start.cast(),
            pages: bytes / PAGE,
        })
    }

    /// Reads and writes one word of each page.
    fn touch_range(&self, first: usize, count: usize) {
        for page in first..first + count {
            // SAFETY: `page` is below `pages`, so the word lies in the mapping
            // and is aligned; all accesses to it are atomic.
            let word = unsafe { AtomicU64::from_ptr(self.start.add(page * PAGE).cast()) };
            black_box(word.fetch_add(1, Ordering::Relaxed));
        }
    }

    /// Goes round from page `first` until `end`, or until it is `enough`. Returns
    /// how many pages it touched.
    fn touch_until(&self, end: Instant, first: usize, enough: &AtomicBool) -> u64 {
        // Between two looks at the clock.
        const STRIDE: usize = 256;
        let mut page = first;
        let mut touched = 0;
        while Instant::now() < end && !enough.load(Ordering::Acquire) {
            let count = STRIDE.min(self.pages - page);
            self.touch_range(page, count);
            touched += count as u64;
            page = (page + count) % self.pages;
        }
        if enough.load(Ordering::Acquire) {
            // What the last scan marked is met once more.
            self.touch_range(0, self.pages);
            touched += self.pages as u64;
        }
        touched
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameters() -> NumaScan {
        NumaScan {
            memory: "1M".into(),
            seconds: 0.05,
            scans: 0,
            threads: 3,
            cgroup: None,
        }
    }

    #[test]
    fn memory_is_gone_over_for_the_time_asked() {
        let touched = touch(&parameters()).unwrap();
        assert!(touched.passes > 1.0, "{touched:?}");
        assert!(touched.seconds >= 0.05, "{touched:?}");
    }

    #[test]
    fn the_scanners_progress_is_read() {
        let text = "numa-scan (7, #threads: 4)\n---\nmm->numa_scan_seq      :     12\nnuma_pages_migrated : 0\n";
        assert_eq!(scan_sequence(text), Some(12));
        assert_eq!(scan_sequence("numa_pages_migrated : 0\n"), None);
    }

    #[test]
    fn threads_reach_the_cpus_of_all_nodes() {
        let places = |threads| {
            (0..threads)
                .map(|t| spread(t, threads, 8))
                .collect::<Vec<_>>()
        };
        assert_eq!(places(1), [0]);
        assert_eq!(places(2), [0, 4]);
        assert_eq!(places(3), [0, 2, 5]);
        assert_eq!(places(9), [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    }

    #[test]
    fn parameters_that_measure_nothing_are_refused() {
        for (change, part) in [
            (
                NumaScan {
                    memory: "12Q".into(),
                    ..parameters()
                },
                "12Q",
            ),
            (
                NumaScan {
                    memory: "1K".into(),
                    ..parameters()
                },
                "4K",
            ),
            (
                NumaScan {
                    seconds: 0.0,
                    ..parameters()
                },
                "seconds",
            ),
            (
                NumaScan {
                    seconds: f64::NAN,
                    ..parameters()
                },
                "seconds",
            ),
            (
                NumaScan {
                    threads: 0,
                    ..parameters()
                },
                "threads",
            ),
        ] {
            let error = touch(&change).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
