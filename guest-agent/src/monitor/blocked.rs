//! Tasks in uninterruptible sleep, seen by looking at them again and again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use topolab_protocol::sample::{Better, MetricKind, Sample};
use topolab_protocol::workload::Blocked;

use super::{Monitor, MonitorError, Seen, cpu_time_ns};

/// The monitor.
pub struct Watcher {
    stop: Arc<AtomicBool>,
    cost_ns: Arc<AtomicU64>,
    thread: JoinHandle<BTreeMap<String, Time>>,
    names: Vec<String>,
}

/// How long the tasks of one name were seen blocked.
#[derive(Debug, Default, Clone)]
struct Time {
    total: Duration,
    longest: Duration,
    stack: Option<String>,
}

/// Begins to look.
pub fn start(root: &Path, wanted: &Blocked) -> Result<Watcher, MonitorError> {
    let every = Duration::try_from_secs_f64(wanted.every_ms / 1000.0)
        .unwrap_or(Duration::from_millis(20))
        .max(Duration::from_millis(1));
    let stack_after = Duration::try_from_secs_f64(wanted.stack_after_ms / 1000.0)
        .unwrap_or(Duration::from_secs(1));
    let (stop, cost_ns) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
    let (stopped, cost) = (Arc::clone(&stop), Arc::clone(&cost_ns));
    let (root, names) = (root.to_path_buf(), wanted.tasks.clone());
    let thread = std::thread::Builder::new()
        .name("topolab-blocked".into())
        .spawn(move || {
            let mut looking = Looking::new(&root, names, stack_after);
            while !stopped.load(Ordering::Acquire) {
                looking.look(Instant::now());
                cost.store(cpu_time_ns(), Ordering::Release);
                std::thread::sleep(every);
            }
            looking.seen
        })
        .map_err(|source| MonitorError::Read {
            path: "a thread".into(),
            source,
        })?;
    Ok(Watcher {
        stop,
        cost_ns,
        thread,
        names: wanted.tasks.clone(),
    })
}

impl Monitor for Watcher {
    fn finish(self: Box<Self>) -> Result<Seen, MonitorError> {
        self.stop.store(true, Ordering::Release);
        let times = self.thread.join().unwrap_or_default();
        let mut seen = Seen::default();
        for name in &self.names {
            let time = times.get(name).cloned().unwrap_or_default();
            for (metric, value) in [
                ("blocked_time", time.total),
                ("blocked_longest", time.longest),
            ] {
                seen.samples.push(Sample {
                    metric: metric.into(),
                    value: value.as_nanos() as f64,
                    kind: MetricKind::Duration,
                    unit: "ns".into(),
                    better: Better::Lower,
                    labels: [("task", name.clone())].into(),
                });
            }
            if let Some(stack) = time.stack {
                let file: String = name
                    .chars()
                    .filter(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
                    .collect();
                seen.evidence.push((format!("blocked-{file}.txt"), stack));
            }
        }
        Ok(seen)
    }

    fn own_cost_ns(&self) -> u64 {
        self.cost_ns.load(Ordering::Acquire)
    }
}

struct Looking {
    proc: PathBuf,
    names: Vec<String>,
    stack_after: Duration,
    /// Since when each blocked task has been seen so, by thread id.
    since: BTreeMap<u32, (Instant, Instant)>,
    seen: BTreeMap<String, Time>,
}

impl Looking {
    fn new(root: &Path, names: Vec<String>, stack_after: Duration) -> Self {
        Self {
            proc: root.join("proc"),
            names,
            stack_after,
            since: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    fn look(&mut self, now: Instant) {
        let mut blocked = BTreeMap::new();
        for (id, folder) in tasks(&self.proc) {
            let Some((comm, state)) = fs::read_to_string(folder.join("stat"))
                .ok()
                .and_then(|stat| name_and_state(&stat))
            else {
                continue;
            };
            let Some(name) = self.names.iter().find(|name| matches(name, &comm)) else {
                continue;
            };
            if state != 'D' {
                continue;
            }
            let (first, last) = self.since.get(&id).copied().unwrap_or((now, now));
            let time = self.seen.entry(name.clone()).or_default();
            time.total += now - last;
            time.longest = time.longest.max(now - first);
            if now - first >= self.stack_after && time.stack.is_none() {
                let stack = fs::read_to_string(folder.join("stack")).unwrap_or_default();
                time.stack = Some(format!("{comm} ({id})\n{stack}"));
            }
            blocked.insert(id, (first, now));
        }
        self.since = blocked;
    }
}

/// All threads: their ids and folders.
fn tasks(proc: &Path) -> Vec<(u32, PathBuf)> {
    let numbered = |folder: &Path| -> Vec<(u32, PathBuf)> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries
            .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
            .collect()
    };
    numbered(proc)
        .iter()
        .flat_map(|(_, process)| numbered(&process.join("task")))
        .collect()
}

/// From `/proc/…/stat`: `id (name) state …`.
fn name_and_state(stat: &str) -> Option<(String, char)> {
    let (head, rest) = stat.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    Some((name.to_string(), rest.trim_start().chars().next()?))
}

fn matches(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_state_d_is_added_up() {
        let root = tempfile::tempdir().unwrap();
        let task = root.path().join("proc/7/task/7");
        fs::create_dir_all(&task).unwrap();
        fs::write(task.join("stack"), "[<0>] __flush_workqueue+0x1\n").unwrap();
        let set =
            |state: &str| fs::write(task.join("stat"), format!("7 (a) b) {state} 1")).unwrap();
        let second = Duration::from_secs(1);
        let mut looking = Looking::new(root.path(), vec!["a) *".into()], second);
        let start = Instant::now();
        for (at, state) in [(0, "D"), (1, "D"), (2, "D"), (3, "S"), (4, "D"), (5, "D")] {
            set(state);
            looking.look(start + second * at);
        }
        let time = &looking.seen["a) *"];
        assert_eq!((time.total, time.longest), (second * 3, second * 2));
        assert!(time.stack.as_ref().unwrap().contains("__flush_workqueue"));
    }
}
