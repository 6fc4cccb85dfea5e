//! Workload `rt-push-ipi`: three real-time tasks, and the IPIs by which CPUs
//! ask another one to push a waiting task away.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::thread::gettid;
use serde::{Deserialize, Serialize};
use topolab_protocol::labels::Labels;
use topolab_protocol::message::ExitStatus;
use topolab_protocol::sample::{Better, MetricKind, Sample};
use topolab_protocol::workload::{RtPushIpi, RtTask};

use super::{Session, Stopped, own_child, plain};
use crate::cpulist;
use crate::realtime::{avoid, fifo, microseconds, pin, spin};
use crate::trace::Instance;

/// Name of the child's part.
pub const PART: &str = "rt-push-ipi";

/// Runs on the CPU that got the IPI (`kernel/sched/rt.c`, HAVE_RT_PUSH_IPI):
/// pushes one task and sends the IPI on to the next overloaded CPU.
const PUSH: &str = "rto_push_irq_work_func";

/// The device of `kernels/modules/mdspin`.
const DEVICE: &str = "/dev/mdspin";
/// Its `_IOW('M', 1, __u64)`: spins so many nanoseconds with migration disabled.
const MDSPIN_SPIN: libc::Ioctl = 0x4008_4d01;

/// The tasks find their places before the first interval.
const WARM_UP: Duration = Duration::from_millis(500);

/// Thread ids of the tasks.
#[derive(Debug, Serialize, Deserialize)]
struct Ids {
    victim: i32,
    sleeper: i32,
}

/// What the tasks did: proof that they ran.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    victim: u64,
    busy: u64,
    sleeper: u64,
    victim_migrations: u64,
}

/// What is counted up to a moment.
struct Counts {
    /// Push IPIs handled, by CPU.
    pushes: BTreeMap<usize, u64>,
    /// Times the sleeper went to sleep, each of which lets its CPU look for
    /// tasks to pull.
    sleeps: u64,
}

/// Runs the tasks and counts the IPIs of each interval on each CPU.
pub fn run(session: &Session, parameters: &RtPushIpi) -> Result<ExitStatus, Stopped> {
    check(parameters).map_err(Stopped::Failed)?;
    if parameters.migrate_disable && !Path::new(DEVICE).exists() {
        return Err(Stopped::NotTestable(format!(
            "no {DEVICE}: put `modules: {{mdspin: \"\"}}` below the experiment's settings"
        )));
    }
    let missing = |error: crate::trace::TraceError| Stopped::NotTestable(error.to_string());
    let mut instance = Instance::new(Path::new("/"), "topolab-rt").map_err(missing)?;
    let push = instance.probe(PUSH).map_err(missing)?;
    instance.count(&push, "common_cpu", None).map_err(missing)?;

    session.phase("warm-up");
    let mut part = own_child::start(session, PART, parameters, None)?;
    session.control.attach(&session.children, part.pid());
    let ids: Ids =
        serde_json::from_str(&part.line(Duration::from_secs(60))?).map_err(Stopped::failed)?;
    let sleeps = format!("/proc/{}/task/{}/status", part.pid(), ids.sleeper);
    let counts = || -> Result<Counts, Stopped> {
        let pushes = instance.counted(&push).map_err(Stopped::failed)?;
        Ok(Counts {
            pushes: pushes.per_cpu("common_cpu"),
            sleeps: voluntary_switches(&fs::read_to_string(&sleeps).unwrap_or_default()),
        })
    };
    std::thread::sleep(WARM_UP);
    session.phase("measure");
    let begin = Instant::now();
    let length = Duration::from_secs_f64(parameters.interval_seconds);
    let mut before = counts()?;
    for interval in 0..parameters.intervals {
        let end = begin + length * (interval + 1);
        std::thread::sleep(end.saturating_duration_since(Instant::now()));
        let now = counts()?;
        sample_interval(session, parameters, interval, &before, &now);
        before = now;
    }
    session.phase("stop");
    let done: Done = part.stop()?;
    session.control.detach();
    for (metric, value) in [
        ("victim_cycles", done.victim),
        ("busy_cycles", done.busy),
        ("sleeper_cycles", done.sleeper),
        ("victim_migrations", done.victim_migrations),
    ] {
        session.sample(plain(
            metric,
            value as f64,
            MetricKind::Count,
            "count",
            Better::Neither,
        ));
    }
    Ok(ExitStatus::Exited { code: 0 })
}

/// How many IPIs each CPU of the busy and the sleeping task got, and all others
/// together; and how many for each time the sleeper slept, which does not depend
/// on how fast the machine is.
fn sample_interval(
    session: &Session,
    parameters: &RtPushIpi,
    interval: u32,
    before: &Counts,
    now: &Counts,
) {
    let named: BTreeSet<usize> = [&parameters.busy, &parameters.sleeper]
        .iter()
        .flat_map(|task| cpulist::parse(&task.cpus).unwrap_or_default())
        .collect();
    let mut places: BTreeMap<String, u64> = named
        .iter()
        .map(|cpu| (cpu.to_string(), 0))
        .chain([("other".to_string(), 0)])
        .collect();
    for (cpu, hits) in &now.pushes {
        let place = if named.contains(cpu) {
            cpu.to_string()
        } else {
            "other".into()
        };
        let earlier = before.pushes.get(cpu).copied().unwrap_or(0);
        *places.entry(place).or_default() += hits.saturating_sub(earlier);
    }
    let sleeps = now.sleeps.saturating_sub(before.sleeps);
    let all: u64 = places.values().sum();
    let md = u8::from(parameters.migrate_disable);
    let labels = Labels::from([("interval", interval.to_string()), ("md", md.to_string())]);
    let say = |mut sample: Sample, cpu: Option<String>| {
        sample.labels = labels.clone();
        if let Some(cpu) = cpu {
            sample.labels.insert("cpu", cpu);
        }
        session.sample(sample);
    };
    let (count, lower) = (MetricKind::Count, Better::Lower);
    for (cpu, hits) in places {
        let sample = plain("push_ipis", hits as f64, count, "count", lower);
        say(sample, Some(cpu));
    }
    let share = all as f64 / sleeps.max(1) as f64;
    let (ratio, unit) = (MetricKind::Ratio, "per sleep");
    say(plain("pushes_per_sleep", share, ratio, unit, lower), None);
    let sleeps = plain("sleeps", sleeps as f64, count, "count", Better::Neither);
    say(sleeps, None);
}

/// From `/proc/…/status`.
fn voluntary_switches(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or(0)
}

fn check(parameters: &RtPushIpi) -> Result<(), String> {
    if parameters.intervals == 0 {
        return Err("intervals must be at least 1".into());
    }
    if !(parameters.interval_seconds > 0.0 && parameters.interval_seconds.is_finite()) {
        return Err("interval_seconds must be more than 0".into());
    }
    for (name, task) in [
        ("victim", &parameters.victim),
        ("busy", &parameters.busy),
        ("sleeper", &parameters.sleeper),
    ] {
        if !(1..=99).contains(&task.priority) {
            return Err(format!("{name}: priority {} is not 1 to 99", task.priority));
        }
        if cpulist::parse(&task.cpus).is_none_or(|cpus| cpus.is_empty()) {
            return Err(format!("{name}: cpus {:?} is no CPU list", task.cpus));
        }
    }
    Ok(())
}

/// The part of the child: the three tasks, until told to stop.
pub fn tasks(parameters: &RtPushIpi) -> Result<Done, String> {
    check(parameters)?;
    let device = if parameters.migrate_disable {
        let open = File::options().read(true).write(true).open(DEVICE);
        Some(open.map_err(|error| format!("cannot open {DEVICE}: {error}"))?)
    } else {
        None
    };
    let tasks = [&parameters.victim, &parameters.busy, &parameters.sleeper];
    let used = tasks
        .iter()
        .flat_map(|task| cpulist::parse(&task.cpus).unwrap_or_default())
        .collect();
    // This thread must hear the agent while the tasks own their CPUs.
    avoid(&used);
    let stop = own_child::stop_flag();
    // The victim begins where the busy task will catch it.
    let mut victim = parameters.victim.clone();
    let victim_cpus = std::mem::replace(&mut victim.cpus, parameters.busy.cpus.clone());
    let victim = Task::start(victim, Some(victim_cpus), device, &stop)?;
    std::thread::sleep(HEAD_START);
    let busy = Task::start(parameters.busy.clone(), None, None, &stop)?;
    let sleeper = Task::start(parameters.sleeper.clone(), None, None, &stop)?;
    let ids = Ids {
        victim: victim.id,
        sleeper: sleeper.id,
    };
    own_child::say(&serde_json::to_string(&ids).map_err(|error| error.to_string())?);
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_millis(5));
    }
    for task in [&victim, &busy, &sleeper] {
        if let Some(reason) = task.failed.lock().ok().and_then(|mut failed| failed.take()) {
            return Err(reason);
        }
    }
    // The victim may be in the middle of its work for long; the end of the
    // process ends it.
    Ok(Done {
        victim: victim.cycles.load(Ordering::Acquire),
        busy: busy.cycles.load(Ordering::Acquire),
        sleeper: sleeper.cycles.load(Ordering::Acquire),
        victim_migrations: migrations(victim.id),
    })
}

/// The victim is at work when the busy task begins.
const HEAD_START: Duration = Duration::from_millis(50);

/// A running task.
struct Task {
    id: i32,
    cycles: Arc<AtomicU64>,
    failed: Arc<Mutex<Option<String>>>,
}

impl Task {
    /// Starts a task on its CPUs; `then` are those it may use afterwards.
    fn start(
        task: RtTask,
        then: Option<String>,
        device: Option<File>,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, String> {
        let (stop, cycles) = (Arc::clone(stop), Arc::<AtomicU64>::default());
        let failed = Arc::<Mutex<Option<String>>>::default();
        let (count, fail) = (Arc::clone(&cycles), Arc::clone(&failed));
        let (told, id) = std::sync::mpsc::channel();
        std::thread::Builder::new()
            .name(format!("rt-{}", task.priority))
            .spawn(move || {
                let ready = prepare(&task, then.as_deref());
                // Whoever started this waits for it.
                let _ = told.send(ready.map(|()| gettid().as_raw_nonzero().get()));
                let stopped = || stop.load(Ordering::Acquire);
                let (work, sleep) = (microseconds(task.work_us), microseconds(task.sleep_us));
                while !stopped() {
                    match &device {
                        Some(device) => {
                            if let Err(reason) = spin_unmovable(device, work) {
                                *fail.lock().expect("no holder of this lock panics") = Some(reason);
                                return;
                            }
                        }
                        None => spin(work, stopped),
                    }
                    count.fetch_add(1, Ordering::AcqRel);
                    std::thread::sleep(sleep);
                }
            })
            .map_err(|error| format!("cannot start a task: {error}"))?;
        let id = id.recv().map_err(|_| "a task panicked")??;
        Ok(Self { id, cycles, failed })
    }
}

/// First the priority, then the place: a task without priority would not run
/// where the others already do.
fn prepare(task: &RtTask, then: Option<&str>) -> Result<(), String> {
    let place = |list: &str| {
        let cpus = cpulist::parse(list).unwrap_or_default();
        pin(&cpus).map_err(|error| format!("cannot use CPUs {list}: {error}"))
    };
    fifo(task.priority).map_err(|error| format!("no SCHED_FIFO: {error}"))?;
    place(&task.cpus)?;
    then.map_or(Ok(()), place)
}

fn spin_unmovable(device: &File, work: Duration) -> Result<(), String> {
    let ns = u64::try_from(work.as_nanos()).unwrap_or(u64::MAX);
    // SAFETY: the ioctl reads one u64, which outlives the call.
    let result = unsafe { libc::ioctl(device.as_raw_fd(), MDSPIN_SPIN, &raw const ns) };
    if result == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    match error.kind() {
        std::io::ErrorKind::Interrupted => Ok(()),
        _ => Err(format!("{DEVICE}: {error}")),
    }
}

/// How often a thread of ours moved to another CPU; 0 where the kernel does not
/// say (`/proc/…/sched` needs CONFIG_SCHED_DEBUG).
fn migrations(thread: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/task/{thread}/sched")).unwrap_or_default();
    text.lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == "se.nr_migrations").then(|| value.trim().parse().ok())?
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_consistent() {
        check(&RtPushIpi::default()).unwrap();
    }

    #[test]
    fn sleeps_are_voluntary_switches() {
        let status = "Name:\trt-15\nvoluntary_ctxt_switches:\t42\nnonvoluntary_ctxt_switches:\t7\n";
        assert_eq!(voluntary_switches(status), 42);
    }

    #[test]
    fn impossible_tasks_are_named() {
        let mut parameters = RtPushIpi::default();
        parameters.busy.priority = 100;
        assert_eq!(
            check(&parameters).unwrap_err(),
            "busy: priority 100 is not 1 to 99"
        );
        parameters = RtPushIpi::default();
        parameters.victim.cpus = String::new();
        assert!(check(&parameters).unwrap_err().starts_with("victim: cpus"));
    }
}
