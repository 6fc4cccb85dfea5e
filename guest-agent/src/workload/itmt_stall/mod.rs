//! Workload `itmt-stall`: workers that are woken again and again on ranked
//! CPUs, and where their wakeups land.

mod play;
mod stacking;

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use topolab_protocol::message::ExitStatus;
use topolab_protocol::sample::{Better, MetricKind};
use topolab_protocol::workload::ItmtStall;

use super::{Session, Stopped, own_child, plain};
use crate::cpulist;
use crate::realtime;
use crate::trace::{Instance, TraceError, text};
use play::{Cast, Handoffs};
use stacking::{Setup, Stacking};

pub use play::play;

/// Name of the child's part.
pub const PART: &str = "itmt-stall";

/// The fair class's choice of a CPU for a woken task (`kernel/sched/fair.c`).
const SELECTION: &str = "select_task_rq_fair";

/// The balancer finds places for everybody before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);

/// Runs the workers and counts where their wakeups land.
pub fn run(session: &Session, parameters: &ItmtStall) -> Result<ExitStatus, Stopped> {
    let cast = cast(session, parameters).map_err(Stopped::Failed)?;
    session.phase("warm-up");
    let mut part = own_child::start(session, PART, &cast, None)?;
    session.control.attach(&session.children, part.pid());
    let ids: BTreeSet<i32> =
        serde_json::from_str(&part.line(Duration::from_secs(60))?).map_err(Stopped::failed)?;
    let instance = record(&cast, &ids, parameters.seconds)
        .map_err(|error| Stopped::NotTestable(error.to_string()))?;
    std::thread::sleep(WARM_UP);
    session.phase("measure");
    instance.recording(true).map_err(Stopped::failed)?;
    std::thread::sleep(realtime::microseconds(parameters.seconds * 1e6));
    instance.recording(false).map_err(Stopped::failed)?;
    session.phase("stop");
    let handoffs: Handoffs = part.stop()?;
    session.control.detach();
    let lost = instance.lost();
    let records: Vec<_> = instance
        .text()
        .map_err(Stopped::failed)?
        .lines()
        .filter_map(text::record)
        .collect();
    drop(instance);
    let setup = Setup {
        workers: ids,
        allowed: cast.cpus.clone(),
        selection: SELECTION.into(),
    };
    let stacking = stacking::analyse(&setup, &records);
    if stacking.wakeups == 0 {
        return Err(Stopped::failed("no worker was woken while recording"));
    }
    sample(session, &cast, &stacking, &handoffs, lost);
    Ok(ExitStatus::Exited { code: 0 })
}

fn cast(session: &Session, parameters: &ItmtStall) -> Result<Cast, String> {
    let waker_cpu = parameters.waker_cpu as usize;
    let listed = parameters
        .cpus
        .as_ref()
        .or_else(|| session.sets.get("preferred"));
    let cpus = match listed {
        Some(list) => {
            cpulist::parse(list).ok_or_else(|| format!("cpus {list:?} is no CPU list"))?
        }
        None => {
            let mut all = realtime::allowed().map_err(|error| error.to_string())?;
            all.remove(&waker_cpu);
            all
        }
    };
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = cpulist::parse(&online).unwrap_or_default();
    for cpu in cpus.iter().chain([&waker_cpu]) {
        if !online.contains(cpu) {
            return Err(format!("there is no CPU {cpu}"));
        }
    }
    if cpus.is_empty() || cpus.contains(&waker_cpu) {
        return Err(format!(
            "the workers' CPUs must not be empty nor hold the waker's CPU {waker_cpu}"
        ));
    }
    if parameters.workers == 0 || !(parameters.seconds > 0.0 && parameters.seconds.is_finite()) {
        return Err("workers and seconds must be more than 0".into());
    }
    Ok(Cast {
        workers: parameters.workers,
        cpus,
        waker_cpu,
        burst_us: parameters.burst_us,
        gap_us: parameters.gap_us,
        disturbers: parameters.disturbers,
        disturb_us: parameters.disturb_us,
        disturb_every_us: parameters.disturb_every_us,
    })
}

/// Sets up the recording of what the analysis needs and no more, and leaves it
/// switched off.
fn record(cast: &Cast, ids: &BTreeSet<i32>, seconds: f64) -> Result<Instance, TraceError> {
    let mut instance = Instance::new(Path::new("/"), "topolab-itmt")?;
    instance.recording(false)?;
    let bursts = seconds * 1e6 / (cast.burst_us + cast.gap_us).max(10.0) * f64::from(cast.workers);
    // Events of one burst take up to half a KiB together, all on one CPU at worst.
    let kb = (bursts / 2.0).clamp(512.0, 32_768.0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped above"
    )]
    instance.buffer_kb(kb as u32)?;
    let pids = any_of("pid", ids.iter());
    let probe = instance.probe(SELECTION)?;
    for (event, filter) in [
        (
            instance.event("sched:sched_switch")?,
            any_of("CPU", cast.cpus.iter()),
        ),
        (instance.event("sched:sched_waking")?, pids.clone()),
        (instance.event("sched:sched_wakeup")?, pids.clone()),
        (instance.event("sched:sched_migrate_task")?, pids),
        (probe, format!("CPU == {}", cast.waker_cpu)),
    ] {
        instance.record(&event, Some(&filter))?;
    }
    Ok(instance)
}

fn any_of<T: std::fmt::Display>(field: &str, values: impl Iterator<Item = T>) -> String {
    let terms: Vec<String> = values.map(|value| format!("{field} == {value}")).collect();
    terms.join(" || ")
}

fn sample(session: &Session, cast: &Cast, stacking: &Stacking, handoffs: &Handoffs, lost: u64) {
    let ranked = ranked(&cast.cpus);
    let bursts: u64 = stacking.bursts.values().sum();
    let top: u64 = ranked
        .iter()
        .take(cast.workers as usize)
        .filter_map(|cpu| stacking.bursts.get(cpu))
        .sum();
    let onto_best = ranked
        .first()
        .and_then(|cpu| stacking.active_moves.get(cpu))
        .copied()
        .unwrap_or(0);
    let count = MetricKind::Count;
    for (metric, value, better) in [
        ("wakeups", stacking.wakeups, Better::Neither),
        ("stacked_wakeups", stacking.stacked, Better::Lower),
        ("requeued_wakeups", stacking.requeued, Better::Lower),
        (
            "active_moves",
            stacking.active_moves.values().sum(),
            Better::Neither,
        ),
        ("active_moves_to_best", onto_best, Better::Neither),
        ("trace_events_lost", lost, Better::Neither),
        ("handoffs", handoffs.total, Better::Neither),
    ] {
        session.sample(plain(metric, value as f64, count, "count", better));
    }
    let share = top as f64 / bursts.max(1) as f64;
    session.sample(plain(
        "bursts_on_best",
        share,
        MetricKind::Ratio,
        "share",
        Better::Neither,
    ));
    for cpu in &cast.cpus {
        let value = stacking.bursts.get(cpu).copied().unwrap_or(0) as f64;
        let mut sample = plain("bursts", value, count, "count", Better::Neither);
        sample.labels = [("cpu", cpu.to_string())].into();
        session.sample(sample);
    }
    let time = MetricKind::Duration;
    // A count of long waits is a statement about time.
    session.sample(plain(
        "stalls",
        handoffs.stalls as f64,
        time,
        "stalls",
        Better::Lower,
    ));
    session.sample(plain(
        "handoff_median",
        handoffs.median_ns as f64,
        time,
        "ns",
        Better::Lower,
    ));
    if !stacking.examples.is_empty() {
        session.evidence(
            "stacked-wakeups.txt",
            &(stacking.examples.join("\n") + "\n"),
        );
    }
}

/// The CPUs by their preferred-core ranking, best first; by number where the
/// kernel shows none.
fn ranked(cpus: &BTreeSet<usize>) -> Vec<usize> {
    let ranking = |cpu: usize| -> u32 {
        let file = format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/amd_pstate_prefcore_ranking");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let mut ranked: Vec<usize> = cpus.iter().copied().collect();
    ranked.sort_by_key(|cpu| std::cmp::Reverse(ranking(*cpu)));
    ranked
}
