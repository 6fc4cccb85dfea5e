//! `/proc/schedstat`: what the scheduler did on each CPU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use topolab_protocol::sample::MetricKind;

use super::{Monitor, MonitorError, Seen, count, cpu_label};

/// Times in nanoseconds and slices of one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    run: u64,
    delay: u64,
    slices: u64,
}

/// The monitor.
pub struct Schedstat {
    root: PathBuf,
    before: BTreeMap<usize, Times>,
}

/// Reads it for the first time.
pub fn start(root: &Path) -> Result<Schedstat, MonitorError> {
    Ok(Schedstat {
        root: root.to_path_buf(),
        before: parse(&super::read(root, "proc/schedstat")?),
    })
}

impl Monitor for Schedstat {
    fn finish(self: Box<Self>) -> Result<Seen, MonitorError> {
        let after = parse(&super::read(&self.root, "proc/schedstat")?);
        let mut seen = Seen::default();
        for (cpu, before) in &self.before {
            let Some(after) = after.get(cpu) else {
                continue;
            };
            for (metric, kind, unit, before, after) in [
                (
                    "sched_run_time",
                    MetricKind::Duration,
                    "ns",
                    before.run,
                    after.run,
                ),
                (
                    "sched_run_delay",
                    MetricKind::Duration,
                    "ns",
                    before.delay,
                    after.delay,
                ),
                (
                    "sched_slices",
                    MetricKind::Count,
                    "count",
                    before.slices,
                    after.slices,
                ),
            ] {
                let mut sample = count(metric, after.saturating_sub(before) as f64);
                sample.kind = kind;
                sample.unit = unit.into();
                sample.labels = cpu_label(*cpu);
                seen.samples.push(sample);
            }
        }
        Ok(seen)
    }
}

/// Lines `cpuN …` whose last three numbers are the time spent running, the time
/// spent waiting to run, and the slices run
/// (`Documentation/scheduler/sched-stats.rst`, all versions).
fn parse(text: &str) -> BTreeMap<usize, Times> {
    text.lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            let cpu = words.next()?.strip_prefix("cpu")?.parse().ok()?;
            let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
            let [.., run, delay, slices] = numbers[..] else {
                return None;
            };
            Some((cpu, Times { run, delay, slices }))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_three_numbers_count() {
        let text = "version 16\ntimestamp 4294892720\ncpu0 0 0 0 0 0 0 111 22 3\ndomain0 MC f 1 2 3\ncpu1 0 0 0 0 0 0 5 6 7\n";
        let table = parse(text);
        assert_eq!(
            table[&0],
            Times {
                run: 111,
                delay: 22,
                slices: 3
            }
        );
        assert_eq!(table.len(), 2);
    }
}
