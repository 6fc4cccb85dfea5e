//! What is watched around a workload.

mod blocked;
mod counters;
mod kernel_log;
mod pressure;
mod record;
mod schedstat;
mod table;
pub mod vmstat;

use std::path::{Path, PathBuf};

use rustix::time::{ClockId, clock_gettime};
use topolab_protocol::labels::Labels;
use topolab_protocol::sample::{Better, MetricKind, Sample};
use topolab_protocol::workload::Monitors;

use crate::trace::TraceError;

/// Why a monitor cannot watch. It says that the guest lacks what the monitor
/// needs, or that the experiment asks for something no kernel has.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// A file it reads is not there.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file has no row or counter of this name.
    #[error("{file} has no {name}")]
    NoRow {
        /// The file.
        file: &'static str,
        /// What was looked for.
        name: String,
    },
    /// A counter names neither or both of event and function.
    #[error("counter {name}: give either `event` or `function`")]
    Counter {
        /// The metric's name.
        name: String,
    },
    /// Tracing does not work.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// What a monitor saw.
#[derive(Debug, Default)]
pub struct Seen {
    /// Samples.
    pub samples: Vec<Sample>,
    /// Texts kept beside them, by file name.
    pub evidence: Vec<(String, String)>,
    /// Files left in the guest for the host to fetch.
    pub artefacts: Vec<PathBuf>,
}

/// A monitor that is watching.
trait Monitor {
    /// Stops and returns what was seen.
    fn finish(self: Box<Self>) -> Result<Seen, MonitorError>;

    /// CPU time it spent on threads of its own, nanoseconds.
    fn own_cost_ns(&self) -> u64 {
        0
    }
}

/// All monitors of a run.
pub struct Watch {
    watching: Vec<(&'static str, Box<dyn Monitor>, u64)>,
}

impl Watch {
    /// Starts the monitors an experiment asks for. Those that cost the most
    /// start last and stop first.
    ///
    /// # Errors
    /// When the kernel lacks what one of them needs.
    pub fn start(root: &Path, monitors: &Monitors) -> Result<Self, MonitorError> {
        let mut watch = Self {
            watching: Vec::new(),
        };
        let wanted = monitors;
        if let Some(log) = &wanted.kernel_log {
            watch.add("kernel-log", || kernel_log::start(root, log))?;
        }
        if !wanted.pressure.is_empty() {
            watch.add("pressure", || pressure::start(root, &wanted.pressure))?;
        }
        if wanted.schedstat {
            watch.add("schedstat", || schedstat::start(root))?;
        }
        if !wanted.interrupts.is_empty() {
            watch.add("interrupts", || {
                table::start(root, &table::INTERRUPTS, &wanted.interrupts)
            })?;
        }
        if !wanted.softirqs.is_empty() {
            watch.add("softirqs", || {
                table::start(root, &table::SOFTIRQS, &wanted.softirqs)
            })?;
        }
        if !wanted.vmstat.is_empty() {
            watch.add("vmstat", || vmstat::start(root, &wanted.vmstat))?;
        }
        if let Some(blocked) = &wanted.blocked {
            watch.add("blocked", || blocked::start(root, blocked))?;
        }
        if !wanted.counters.is_empty() {
            watch.add("counters", || counters::start(root, &wanted.counters))?;
        }
        if let Some(trace) = &wanted.trace {
            watch.add("trace", || record::start(root, trace))?;
        }
        Ok(watch)
    }

    fn add<M: Monitor + 'static>(
        &mut self,
        name: &'static str,
        start: impl FnOnce() -> Result<M, MonitorError>,
    ) -> Result<(), MonitorError> {
        let before = cpu_time_ns();
        let monitor = start()?;
        self.watching
            .push((name, Box::new(monitor), cpu_time_ns() - before));
        Ok(())
    }

    /// Stops all monitors and returns what they saw and what each cost.
    ///
    /// # Errors
    /// When one of them lost what it saw.
    pub fn finish(self) -> Result<Seen, MonitorError> {
        let mut all = Seen::default();
        for (name, monitor, started_ns) in self.watching.into_iter().rev() {
            let before = cpu_time_ns();
            let own = monitor.own_cost_ns();
            let seen = monitor.finish()?;
            let cost = started_ns + own + (cpu_time_ns() - before);
            all.samples.extend(seen.samples);
            all.evidence.extend(seen.evidence);
            all.artefacts.extend(seen.artefacts);
            all.samples.push(Sample {
                metric: "monitor_cost".into(),
                value: cost as f64,
                kind: MetricKind::Duration,
                unit: "ns".into(),
                better: Better::Neither,
                labels: [("monitor", name)].into(),
            });
        }
        Ok(all)
    }
}

/// CPU time of the calling thread, nanoseconds.
fn cpu_time_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let ns = time.tv_sec * 1_000_000_000 + time.tv_nsec;
    u64::try_from(ns).unwrap_or(0)
}

/// A count without a good direction.
fn count(metric: impl Into<String>, value: f64) -> Sample {
    Sample {
        metric: metric.into(),
        value,
        kind: MetricKind::Count,
        unit: "count".into(),
        better: Better::Neither,
        labels: Labels::new(),
    }
}

fn cpu_label(cpu: usize) -> Labels {
    [("cpu", cpu.to_string())].into()
}

fn read(root: &Path, file: &str) -> Result<String, MonitorError> {
    let path = root.join(file);
    std::fs::read_to_string(&path).map_err(|source| MonitorError::Read { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_monitor_states_its_cost() {
        let monitors = Monitors {
            vmstat: vec!["pgfault".into()],
            softirqs: vec!["TIMER".into()],
            ..Monitors::default()
        };
        let watch = Watch::start(Path::new("/"), &monitors).unwrap();
        let seen = watch.finish().unwrap();
        let costs: Vec<_> = seen
            .samples
            .iter()
            .filter(|sample| sample.metric == "monitor_cost")
            .map(|sample| &sample.labels["monitor"])
            .collect();
        assert_eq!(costs, ["vmstat", "softirqs"]);
        assert!(seen.samples.iter().any(|sample| sample.metric == "pgfault"));
    }

    #[test]
    fn what_does_not_exist_is_named() {
        let monitors = Monitors {
            vmstat: vec!["no_such_counter".into()],
            ..Monitors::default()
        };
        let error = Watch::start(Path::new("/"), &monitors).err().unwrap();
        assert_eq!(error.to_string(), "/proc/vmstat has no no_such_counter");
    }
}
