//! Wakeups that land on a CPU busy with another worker while a CPU the woken
//! one may use is idle: counted from recorded scheduler events, so that the
//! number does not depend on how fast the machine is.

use std::collections::{BTreeMap, BTreeSet};

use crate::trace::text::Record;

/// Who works and where.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Thread ids of the workers.
    pub workers: BTreeSet<i32>,
    /// CPUs they may use.
    pub allowed: BTreeSet<usize>,
    /// Name of the event at the entry of the scheduler's CPU selection.
    pub selection: String,
}

/// What the events show.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Stacking {
    /// Wakeups of workers.
    pub wakeups: u64,
    /// Those that landed on a CPU running another worker while an allowed CPU
    /// was idle.
    pub stacked: u64,
    /// Of those, the ones for which no CPU was selected: the task was still
    /// queued there (a delayed dequeue) and was queued again in place.
    pub requeued: u64,
    /// Moves of a worker by the stopper thread (active balance), by destination.
    pub active_moves: BTreeMap<usize, u64>,
    /// Bursts by the CPU they began on.
    pub bursts: BTreeMap<usize, u64>,
    /// The first stacked wakeups, for a person to read.
    pub examples: Vec<String>,
}

/// Examples kept.
const EXAMPLES: usize = 20;

/// The idle task of every CPU.
const IDLE: i32 = 0;

/// A wakeup that began and has not landed.
struct Waking {
    waker_cpu: usize,
    selected: bool,
}

/// Goes through events in the order they happened: `sched_switch` on the allowed
/// CPUs, `sched_waking`, `sched_wakeup` and `sched_migrate_task` of the workers,
/// and the selection event on the wakers' CPUs. A CPU without any switch was
/// idle all the time.
pub fn analyse(setup: &Setup, records: &[Record]) -> Stacking {
    let mut running = first_tasks(records);
    let mut waking: BTreeMap<i32, Waking> = BTreeMap::new();
    let mut woken: BTreeSet<i32> = BTreeSet::new();
    let mut result = Stacking::default();
    for record in records {
        match record.event.as_str() {
            "sched_switch" => {
                let Some(next) = record.number("next_pid") else {
                    continue;
                };
                running.insert(record.cpu, next);
                if woken.remove(&next) {
                    *result.bursts.entry(record.cpu).or_default() += 1;
                }
            }
            "sched_waking" => {
                if let Some(pid) = worker(setup, record) {
                    let begun = Waking {
                        waker_cpu: record.cpu,
                        selected: false,
                    };
                    waking.insert(pid, begun);
                }
            }
            "sched_wakeup" => {
                let (Some(pid), Some(target)) =
                    (worker(setup, record), record.number("target_cpu"))
                else {
                    continue;
                };
                result.wakeups += 1;
                woken.insert(pid);
                let selected = waking.remove(&pid).is_none_or(|waking| waking.selected);
                if let Some(other) = stacked_behind(setup, &running, pid, target) {
                    result.stacked += 1;
                    result.requeued += u64::from(!selected);
                    if result.examples.len() < EXAMPLES {
                        result.examples.push(describe(
                            record.time,
                            pid,
                            target,
                            other,
                            selected,
                            &running,
                        ));
                    }
                }
            }
            "sched_migrate_task" => {
                if worker(setup, record).is_some()
                    && record.comm.starts_with("migration/")
                    && let Some(to) = record.number("dest_cpu")
                {
                    *result.active_moves.entry(to).or_default() += 1;
                }
            }
            // The selection runs on the waker's CPU, after its `sched_waking`.
            event if event == setup.selection => {
                for begun in waking.values_mut() {
                    if begun.waker_cpu == record.cpu {
                        begun.selected = true;
                    }
                }
            }
            _ => {}
        }
    }
    result
}

fn worker(setup: &Setup, record: &Record) -> Option<i32> {
    let pid = record.number("pid")?;
    setup.workers.contains(&pid).then_some(pid)
}

/// What ran on each CPU before its first switch.
fn first_tasks(records: &[Record]) -> BTreeMap<usize, i32> {
    let mut running = BTreeMap::new();
    for record in records.iter().filter(|r| r.event == "sched_switch") {
        if let Some(previous) = record.number("prev_pid") {
            running.entry(record.cpu).or_insert(previous);
        }
    }
    running
}

/// The worker that `pid` waits behind on `target`, when an allowed CPU is idle.
fn stacked_behind(
    setup: &Setup,
    running: &BTreeMap<usize, i32>,
    pid: i32,
    target: usize,
) -> Option<i32> {
    let task = |cpu: &usize| running.get(cpu).copied().unwrap_or(IDLE);
    let other = task(&target);
    let behind = other != pid && setup.workers.contains(&other);
    let idle = setup
        .allowed
        .iter()
        .any(|cpu| *cpu != target && task(cpu) == IDLE);
    (behind && idle).then_some(other)
}

fn describe(
    time: f64,
    pid: i32,
    target: usize,
    other: i32,
    selected: bool,
    running: &BTreeMap<usize, i32>,
) -> String {
    let how = if selected {
        "after a CPU was selected"
    } else {
        "queued again without a selection"
    };
    let tasks: Vec<String> = running
        .iter()
        .map(|(cpu, task)| format!("{cpu}:{task}"))
        .collect();
    format!(
        "{time:.6} worker {pid} woken onto CPU {target} behind worker {other}, {how}; running {}",
        tasks.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::text;

    /// A recording in which each kind of wakeup happens once, in the format of
    /// a 6.12 kernel's `trace` file. Workers 101 and 102 may use CPUs 4 to 7.
    const RECORDING: &str = include_str!("recording.txt");

    fn setup() -> Setup {
        Setup {
            workers: BTreeSet::from([101, 102]),
            allowed: BTreeSet::from([4, 5, 6, 7]),
            selection: "select_task_rq_fair".into(),
        }
    }

    fn records(text: &str) -> Vec<Record> {
        text.lines().filter_map(text::record).collect()
    }

    #[test]
    fn each_kind_of_wakeup_is_told_apart() {
        let stacking = analyse(&setup(), &records(RECORDING));
        assert_eq!(stacking.wakeups, 6);
        // Behind 102 on CPU 6 with others idle: once queued in place, once
        // after a selection.
        assert_eq!((stacking.stacked, stacking.requeued), (2, 1));
        assert_eq!(stacking.active_moves, BTreeMap::from([(6, 1)]));
        assert_eq!(stacking.bursts, BTreeMap::from([(5, 1), (6, 4), (7, 1)]));
        assert_eq!(stacking.examples.len(), 2);
        assert!(
            stacking.examples[0].contains("queued again without a selection"),
            "{:?}",
            stacking.examples
        );
    }

    #[test]
    fn without_an_idle_cpu_nothing_is_stacked() {
        let mut setup = setup();
        setup.allowed = BTreeSet::from([6]);
        let stacking = analyse(&setup, &records(RECORDING));
        assert_eq!((stacking.wakeups, stacking.stacked), (6, 0));
    }

    #[test]
    fn no_events_show_nothing() {
        assert_eq!(analyse(&setup(), &[]), Stacking::default());
    }
}
