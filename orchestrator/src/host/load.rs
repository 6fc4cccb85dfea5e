//! How much the host kept a guest waiting while it was measured.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

/// An open window of measurement.
#[derive(Debug)]
pub struct Window {
    root: PathBuf,
    pid: u32,
    threads: Vec<u32>,
    opened: Instant,
    delays: Vec<Option<u64>>,
    stalled: Option<u64>,
}

/// What a window saw.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowEnd {
    /// How long it was open, seconds.
    pub seconds: f64,
    /// Milliseconds each thread was runnable and did not run; `None` where the
    /// host's kernel does not say.
    pub run_delay_ms: Vec<Option<f64>>,
    /// Share of the window (0 to 1) in which some task of the host waited for a
    /// CPU; `None` without pressure accounting.
    pub cpu_pressure: Option<f64>,
}

impl Window {
    /// Opens a window on threads of a process. `root` holds `proc`.
    pub fn open(root: &Path, pid: u32, threads: Vec<u32>) -> Self {
        Self {
            delays: threads
                .iter()
                .map(|&tid| run_delay_ns(root, pid, tid))
                .collect(),
            stalled: cpu_stalled_us(root),
            root: root.into(),
            pid,
            threads,
            opened: Instant::now(),
        }
    }

    /// Closes it.
    pub fn close(self) -> WindowEnd {
        let seconds = self.opened.elapsed().as_secs_f64();
        let delays = self.threads.iter().zip(&self.delays);
        let run_delay_ms = delays.map(|(&tid, before)| {
            let after = run_delay_ns(&self.root, self.pid, tid)?;
            let spent = after.saturating_sub((*before)?);
            Some(std::time::Duration::from_nanos(spent).as_secs_f64() * 1e3)
        });
        let cpu_pressure = cpu_stalled_us(&self.root)
            .zip(self.stalled)
            .map(|(after, before)| {
                let stalled = std::time::Duration::from_micros(after.saturating_sub(before));
                (stalled.as_secs_f64() / seconds.max(1e-6)).min(1.0)
            });
        WindowEnd {
            seconds,
            run_delay_ms: run_delay_ms.collect(),
            cpu_pressure,
        }
    }
}

/// Second field of `/proc/PID/task/TID/schedstat`: nanoseconds spent waiting on
/// a run queue (Documentation/scheduler/sched-stats.rst).
fn run_delay_ns(root: &Path, pid: u32, tid: u32) -> Option<u64> {
    let path = root.join(format!("proc/{pid}/task/{tid}/schedstat"));
    let text = fs::read_to_string(path).ok()?;
    text.split_whitespace().nth(1)?.parse().ok()
}

/// `total` of the `some` line of `/proc/pressure/cpu`, microseconds
/// (Documentation/accounting/psi.rst).
fn cpu_stalled_us(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/pressure/cpu")).ok()?;
    let some = text.lines().find(|line| line.starts_with("some "))?;
    some.rsplit_once("total=")?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_and_pressure_are_differences() {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("proc/7/task/8");
        fs::create_dir_all(&task).unwrap();
        fs::create_dir_all(root.path().join("proc/pressure")).unwrap();
        let write = |delay: u64, total: u64| {
            fs::write(task.join("schedstat"), format!("500 {delay} 3\n")).unwrap();
            let text =
                format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull total=9\n");
            fs::write(root.path().join("proc/pressure/cpu"), text).unwrap();
        };
        write(1_000_000, 10);
        let window = Window::open(root.path(), 7, vec![8, 9]);
        write(3_500_000, 60_000_000);
        let end = window.close();
        assert_eq!(end.run_delay_ms, [Some(2.5), None]);
        assert_eq!(end.cpu_pressure, Some(1.0));
    }

    #[test]
    fn a_host_that_tells_nothing_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        let end = Window::open(root.path(), 1, vec![1]).close();
        assert_eq!(end.run_delay_ms, [None]);
        assert_eq!(end.cpu_pressure, None);
    }
}
