//! The part of the child of `itmt-stall`: workers, waker and disturbers.

use std::collections::BTreeSet;
use std::hint::black_box;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};
use serde::{Deserialize, Serialize};

use super::super::own_child;
use crate::realtime::{microseconds, pin};

/// Parameters of the child, resolved from the experiment's.
#[derive(Debug, Serialize, Deserialize)]
pub struct Cast {
    /// Number of workers.
    pub workers: u32,
    /// CPUs of workers and disturbers.
    pub cpus: BTreeSet<usize>,
    /// CPU of the waker.
    pub waker_cpu: usize,
    /// Microseconds of a burst.
    pub burst_us: f64,
    /// Microseconds between a burst's end and the wakeup.
    pub gap_us: f64,
    /// Number of disturbers.
    pub disturbers: u32,
    /// Microseconds of a disturbance.
    pub disturb_us: f64,
    /// Microseconds between two of them.
    pub disturb_every_us: f64,
}

/// What the clock of the guest says about the handoffs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Handoffs {
    /// From the waker's stamp to the worker running.
    pub total: u64,
    /// Those that took half a burst or longer.
    pub stalls: u64,
    /// Their median, nanoseconds.
    pub median_ns: u64,
}

/// One worker as the waker sees it.
struct Stage {
    event: OwnedFd,
    /// Nanoseconds since the start at which the last burst ended; 0 while it
    /// works or waits for a wakeup that was sent.
    done_ns: AtomicU64,
    /// When the last wakeup was sent.
    sent_ns: AtomicU64,
}

/// Runs everybody until told to stop. Says the workers' thread ids first.
pub fn play(cast: &Cast) -> Result<Handoffs, String> {
    let stop = own_child::stop_flag();
    let start = Instant::now();
    let rounds = rounds_for(microseconds(cast.burst_us));
    let stages: Vec<Arc<Stage>> = (0..cast.workers)
        .map(|_| stage().map(Arc::new))
        .collect::<Result<_, String>>()?;
    let (told, ids) = std::sync::mpsc::channel();
    let workers: Vec<JoinHandle<Vec<u64>>> = stages
        .iter()
        .map(|stage| {
            let (stage, stop, told) = (Arc::clone(stage), Arc::clone(&stop), told.clone());
            let cpus = cast.cpus.clone();
            spawn("worker", move || {
                // Checked by the agent before the child starts.
                let _ = pin(&cpus);
                let _ = told.send(rustix::thread::gettid().as_raw_nonzero().get());
                work(&stage, &stop, start, rounds)
            })
        })
        .collect::<Result<_, String>>()?;
    drop(told);
    let ids: Vec<i32> = ids.iter().take(stages.len()).collect();
    let mut others = Vec::new();
    for _ in 0..cast.disturbers {
        let stop = Arc::clone(&stop);
        let cpus = cast.cpus.clone();
        let every = microseconds(cast.disturb_every_us);
        let rounds = rounds_for(microseconds(cast.disturb_us));
        others.push(spawn("disturber", move || {
            let _ = pin(&cpus);
            while !stop.load(Ordering::Acquire) {
                burst(rounds);
                std::thread::sleep(every);
            }
        })?);
    }
    let (waker_stages, waker_stop) = (stages.clone(), Arc::clone(&stop));
    let (cpu, gap) = (cast.waker_cpu, microseconds(cast.gap_us));
    others.push(spawn("waker", move || {
        let _ = pin(&BTreeSet::from([cpu]));
        wake(&waker_stages, &waker_stop, start, gap);
    })?);
    let line = serde_json::to_string(&ids).map_err(|error| error.to_string())?;
    own_child::say(&line);
    for other in others {
        other.join().map_err(|_| "a thread panicked")?;
    }
    // The waker is gone: a last wakeup lets each worker see the stop.
    for stage in &stages {
        let _ = rustix::io::write(&stage.event, &1u64.to_ne_bytes());
    }
    let mut latencies = Vec::new();
    for worker in workers {
        latencies.extend(worker.join().map_err(|_| "a worker panicked")?);
    }
    Ok(judge(latencies, microseconds(cast.burst_us)))
}

fn judge(mut latencies: Vec<u64>, burst: Duration) -> Handoffs {
    latencies.sort_unstable();
    let half = u64::try_from(burst.as_nanos() / 2).unwrap_or(u64::MAX);
    let short = latencies.partition_point(|latency| *latency < half);
    Handoffs {
        total: latencies.len() as u64,
        stalls: (latencies.len() - short) as u64,
        median_ns: latencies.get(latencies.len() / 2).copied().unwrap_or(0),
    }
}

fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, String> {
    std::thread::Builder::new()
        .name(name.into())
        .spawn(body)
        .map_err(|error| format!("cannot start a thread: {error}"))
}

fn stage() -> Result<Stage, String> {
    let event =
        eventfd(0, EventfdFlags::CLOEXEC).map_err(|error| format!("no eventfd: {error}"))?;
    Ok(Stage {
        event,
        // Ready for the first wakeup.
        done_ns: AtomicU64::new(1),
        sent_ns: AtomicU64::new(0),
    })
}

fn now_ns(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos())
        .unwrap_or(u64::MAX)
        .max(1)
}

/// Waits for a wakeup, works a burst, says so, and again. Returns how long each
/// handoff took, nanoseconds.
fn work(stage: &Stage, stop: &AtomicBool, start: Instant, rounds: u64) -> Vec<u64> {
    let mut latencies = Vec::with_capacity(1 << 16);
    loop {
        let mut buffer = [0; 8];
        if rustix::io::read(stage.event.as_fd(), &mut buffer).is_err()
            || stop.load(Ordering::Acquire)
        {
            return latencies;
        }
        let sent = stage.sent_ns.load(Ordering::Acquire);
        latencies.push(now_ns(start).saturating_sub(sent));
        burst(rounds);
        stage.done_ns.store(now_ns(start), Ordering::Release);
    }
}

/// Polls, and wakes each worker `gap` after its burst ended.
fn wake(stages: &[Arc<Stage>], stop: &AtomicBool, start: Instant, gap: Duration) {
    let gap = u64::try_from(gap.as_nanos()).unwrap_or(u64::MAX);
    while !stop.load(Ordering::Acquire) {
        for stage in stages {
            let done = stage.done_ns.load(Ordering::Acquire);
            let now = now_ns(start);
            if done == 0 || now < done.saturating_add(gap) {
                continue;
            }
            stage.done_ns.store(0, Ordering::Release);
            stage.sent_ns.store(now_ns(start), Ordering::Release);
            let _ = rustix::io::write(&stage.event, &1u64.to_ne_bytes());
        }
        std::hint::spin_loop();
    }
}

/// A fixed amount of work: bursts must not become shorter when a task is
/// preempted, as work until a point on the clock would.
fn burst(rounds: u64) {
    let mut value = 1u64;
    for round in 0..rounds {
        value = black_box(
            value
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(round),
        );
    }
    black_box(value);
}

/// Rounds of [`burst`] that take `time` here. The fastest of several tries
/// counts: the others were disturbed.
fn rounds_for(time: Duration) -> u64 {
    const TRY: u64 = 100_000;
    let fastest = (0..10)
        .map(|_| {
            let begin = Instant::now();
            burst(TRY);
            begin.elapsed()
        })
        .min()
        .unwrap_or_default()
        .as_nanos()
        .max(1);
    let rounds = u128::from(TRY) * time.as_nanos() / fastest;
    u64::try_from(rounds).unwrap_or(u64::MAX).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stalls_are_half_a_burst_or_longer() {
        let handoffs = judge(vec![10, 600_000, 20, 500_000, 30], Duration::from_millis(1));
        assert_eq!(
            (handoffs.total, handoffs.stalls, handoffs.median_ns),
            (5, 2, 30)
        );
    }

    #[test]
    fn longer_bursts_take_more_rounds() {
        // Calibrations on a busy machine differ; a factor of a hundred shows.
        let short = rounds_for(Duration::from_micros(10));
        let long = rounds_for(Duration::from_millis(10));
        assert!(long > short * 10, "{short} {long}");
    }
}
