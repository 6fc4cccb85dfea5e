//! Carries out an experiment: builds its kernels, runs its cells round by
//! round, and makes every finished run durable.

mod agenda;
mod builds;
pub(crate) mod images;
pub mod library;
mod packing;
mod parameters;
mod prepare;
mod single;
mod warm;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    time::Instant,
};

use futures_util::{StreamExt, stream::FuturesUnordered};

pub use images::{OwnModule, module_tree};
pub use library::{Library, NotFound};
pub use packing::Jobs;
pub use prepare::{Overrides, PrepareError, Prepared, prepare, prepare_document};
pub use single::Single;

use agenda::Agenda;
pub(crate) use builds::{Kernels, build as build_kernels};
use packing::{Need, Room, fits};
use warm::Starter;

use crate::{
    agent_binary,
    event::Event,
    image::{self, Image},
    kernel::Builder,
    outcome::Outcome,
    plan::{BenchSpec, Cell, PlannedRun},
    qemu::args::{Accel, TcgThread},
    run::{Bench, Cancel, Inspect, KernelImage, Lab, RunEvent, RunResult, RunUnit, Session},
    store::{
        CampaignMeta, KernelMeta, ResultsFolder, StoreError,
        record::{FORMAT, RunRecord},
    },
};

/// Where a campaign works.
#[derive(Debug, Clone)]
pub struct Places {
    /// The cache.
    pub cache: PathBuf,
    /// The results folder: new, or one to go on with.
    pub results: PathBuf,
}

/// Why a campaign stopped before its end.
#[derive(Debug, thiserror::Error)]
pub enum CampaignError {
    /// The results folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A kernel could not be built.
    #[error("{kernel} was not built")]
    Build {
        /// Which.
        kernel: String,
        /// Why.
        #[source]
        source: crate::kernel::KernelError,
    },
    /// The guest's image could not be made.
    #[error("the guest image was not made")]
    Image(#[source] image::ImageError),
    /// The image is to bring modules, and the kernel has none.
    #[error("{kernel} has no modules; `image: modules` names {wanted}")]
    NoModules {
        /// The kernel.
        kernel: String,
        /// The names.
        wanted: String,
    },
    /// The accelerator that was insisted on does not work.
    #[error("the bench cannot run these guests")]
    Bench(#[source] crate::qemu::accel::KvmError),
    /// The folder to go on with belongs to another experiment.
    #[error("{folder} holds the experiment `{found}` with other {what}; it cannot be gone on with")]
    OtherExperiment {
        /// The folder.
        folder: PathBuf,
        /// Its experiment.
        found: String,
        /// What differs.
        what: &'static str,
    },
    /// Ctrl-C.
    #[error("interrupted; {done} of {planned} runs are kept in {folder}")]
    Interrupted {
        /// Runs kept.
        done: usize,
        /// Runs planned.
        planned: usize,
        /// Results folder.
        folder: PathBuf,
    },
}

/// What a campaign did.
#[derive(Debug, Clone)]
pub struct Summary {
    /// Results folder.
    pub folder: PathBuf,
    /// Runs that completed.
    pub completed: usize,
    /// Runs that ended otherwise, by class.
    pub other: BTreeMap<&'static str, usize>,
    /// Planned runs that were not tried, because their cell kept failing or has no kernel.
    pub missing: usize,
    /// Seconds of building, image making included.
    pub build_seconds: f64,
    /// Seconds of running.
    pub run_seconds: f64,
    /// Milliseconds from the start of QEMU to hello, of every completed run.
    pub hello_ms: Vec<u64>,
    /// Kernels as built.
    pub kernels: Vec<KernelMeta>,
}

/// The bench of each topology; says once why guests are emulated.
async fn benches(
    prepared: &Prepared,
    lab: &Lab,
    tell: &dyn Fn(Event),
) -> Result<BTreeMap<String, Bench>, CampaignError> {
    let mut benches: BTreeMap<String, Bench> = BTreeMap::new();
    let mut said = BTreeSet::new();
    for (name, (topology, _)) in &prepared.topologies {
        let bench = lab.bench(topology).await.map_err(CampaignError::Bench)?;
        if let Some(reason) = bench
            .fallback
            .clone()
            .filter(|reason| said.insert(reason.clone()))
        {
            tell(Event::Note {
                text: format!("guests are emulated: {reason}"),
            });
        }
        benches.insert(name.clone(), bench);
    }
    Ok(benches)
}

/// An error and its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.extend([": ", &cause.to_string()]);
        source = cause.source();
    }
    text
}

/// How a campaign is carried out.
pub struct Conduct<'a> {
    /// Where it works.
    pub places: Places,
    /// Go on with the results folder instead of making it.
    pub resume: bool,
    /// Builds kernels.
    pub builder: &'a Builder,
    /// Where guests run.
    pub lab: &'a Lab,
    /// Most rounds, when its caller adds rounds until everything is decided: kept
    /// in the folder, so that going on with it goes on with that.
    pub until_decided: Option<u32>,
    /// Guests at once.
    pub jobs: Jobs,
    /// Version of topolab, for the record.
    pub version: &'a str,
    /// Stops the campaign: running guests are ended, finished runs stay.
    pub cancel: Cancel,
}

/// Carries out a campaign.
///
/// # Errors
/// When it had to stop before its end. What finished until then is kept.
pub async fn run(
    prepared: &Prepared,
    conduct: &Conduct<'_>,
    on_event: &mut dyn FnMut(Event),
) -> Result<Summary, CampaignError> {
    let on_event = RefCell::new(on_event);
    let tell = |event: Event| (on_event.borrow_mut())(event);
    let (folder, mut meta, mut records) = open_folder(prepared, conduct)?;
    let planned = prepared.order.len();
    tell(Event::CampaignStarted {
        name: prepared.experiment.name.value.clone(),
        folder: folder.path().to_path_buf(),
        cells: prepared.cells.len(),
        runs: planned - records.iter().filter(|r| r.outcome.has_result()).count(),
        seed: prepared.seed,
    });
    let benches = benches(prepared, conduct.lab, &tell).await?;
    let build_started = Instant::now();
    let building = builds::build(prepared, conduct.builder, &tell);
    let mut cancel = conduct.cancel.clone();
    let kernels = tokio::select! {
        kernels = building => kernels?,
        () = cancel.told() => return Err(interrupted(&records, planned, &folder)),
    };
    meta.kernels.clone_from(&kernels.meta);
    folder.save_meta(&meta)?;
    let mut images = BTreeMap::new();
    for (name, kernel) in &kernels.built {
        let image = images::build(prepared, name, kernel, &conduct.places.cache)?;
        images.insert(name.as_str(), image);
    }
    let build_seconds = build_started.elapsed().as_secs_f64();

    let run_started = Instant::now();
    let without: BTreeSet<usize> = (0..prepared.cells.len())
        .filter(|cell| !kernels.built.contains_key(&prepared.cells[*cell].kernel))
        .collect();
    let mut agenda = Agenda::new(prepared, &records, &without);
    let starter = Starter::new(prepared, folder.path());
    let starter = &starter;
    let needs: BTreeMap<usize, Need> = prepared
        .order
        .iter()
        .filter(|planned| !without.contains(&planned.cell))
        .map(|planned| {
            let cell = &prepared.cells[planned.cell];
            let unit = unit(prepared, &kernels, &images[cell.kernel.as_str()], *planned);
            let bench = bench_of(prepared, &benches[&cell.topology], &unit);
            (planned.cell, Need::of(&unit.topology, &bench))
        })
        .collect();
    let (sender, mut phases) = tokio::sync::mpsc::unbounded_channel();
    let mut running = FuturesUnordered::new();
    let room = Room::of_host(Path::new("/"));
    let mut taken: BTreeMap<usize, Need> = BTreeMap::new();
    if let Some(text) = packing::alone(needs.values().copied(), room, conduct.jobs) {
        tell(Event::Note { text });
    }
    loop {
        while !conduct.cancel.is_told() {
            // In the order of the plan: one that does not fit yet is not overtaken.
            let Some((planned, attempt)) = agenda.first() else {
                break;
            };
            let taking: Vec<Need> = taken.values().copied().collect();
            if !fits(&taking, needs[&planned.cell], room, conduct.jobs) {
                break;
            }
            taken.insert(planned.index, needs[&planned.cell]);
            agenda.take_first();
            let cell = &prepared.cells[planned.cell];
            let path = folder.run_folder(planned.index, planned.round, attempt, cell)?;
            tell(Event::RunStarted {
                index: planned.index,
                cell: cell.clone(),
                round: planned.round,
                attempt,
            });
            let image = &images[cell.kernel.as_str()];
            let unit = unit(prepared, &kernels, image, planned);
            let bench = bench_of(prepared, &benches[&cell.topology], &unit);
            let cancel = conduct.cancel.clone();
            let sender = sender.clone();
            running.push(async move {
                let started = jiff::Timestamp::now().to_string();
                let mut events = move |event| {
                    if let RunEvent::Phase { name } = event {
                        // The receiver lives as long as the campaign.
                        let _ = sender.send((planned.index, name));
                    }
                };
                let session = Session {
                    events: &mut events,
                    cancel,
                    typed: None,
                };
                let ended = starter.execute(&unit, &bench, planned.round, &path, session);
                let (boot, result) = ended.await;
                (planned, attempt, path, started, boot, result)
            });
        }
        if running.is_empty() {
            break;
        }
        tokio::select! {
            biased;
            Some((index, phase)) = phases.recv() => tell(Event::RunPhase { index, phase }),
            Some((planned, attempt, path, started, boot, result)) = running.next() => {
                taken.remove(&planned.index);
                if conduct.cancel.is_told() && !result.outcome.has_result() {
                    // Ended by us: as if it had never begun.
                    continue;
                }
                if matches!(result.outcome, Outcome::LabFailed { .. }) {
                    folder.check_room()?;
                }
                let mut record = record(prepared, planned, attempt, started, result);
                if let Some(boot) = boot {
                    record.boot = boot;
                }
                folder.save(&path, &record)?;
                agenda.ended(prepared, planned, attempt, &record.outcome);
                tell(Event::RunEnded {
                    index: record.index,
                    cell: record.cell.clone(),
                    round: record.round,
                    attempt,
                    outcome: record.outcome.clone(),
                    wall_ms: record.wall_ms,
                    hello_ms: record.hello_ms,
                    samples: record.samples.len(),
                });
                if agenda.has_given_up(planned.cell) && !record.outcome.has_result() {
                    tell(Event::Note { text: format!("not tried any more: {}", record.cell) });
                }
                records.push(record);
            }
        }
    }
    if conduct.cancel.is_told() {
        return Err(interrupted(&records, planned, &folder));
    }
    if let Err(error) = starter.tidy() {
        let text = format!("saved guests were not removed: {error}");
        tell(Event::Note { text });
    }
    let summary = summarise(
        prepared,
        &folder,
        &records,
        kernels,
        build_seconds,
        run_started.elapsed().as_secs_f64(),
    );
    tell(Event::CampaignEnded {
        folder: folder.path().to_path_buf(),
        completed: summary.completed,
        other: summary.other.values().sum(),
        missing: summary.missing,
    });
    Ok(summary)
}

fn open_folder(
    prepared: &Prepared,
    conduct: &Conduct<'_>,
) -> Result<(ResultsFolder, CampaignMeta, Vec<RunRecord>), CampaignError> {
    if conduct.resume {
        let (folder, results) = ResultsFolder::open(&conduct.places.results)?;
        let meta = results.meta;
        let other = |what| CampaignError::OtherExperiment {
            folder: folder.path().to_path_buf(),
            found: meta.experiment.name.value.clone(),
            what,
        };
        if meta.cells != prepared.cells {
            return Err(other("cells"));
        }
        if meta.seed != prepared.seed {
            return Err(other("order of runs"));
        }
        return Ok((folder, meta, results.records));
    }
    let meta = CampaignMeta {
        until_decided: conduct.until_decided,
        ..meta_of(prepared, conduct.version)
    };
    let folder = ResultsFolder::create(&conduct.places.results, &meta)?;
    Ok((folder, meta, Vec::new()))
}

/// What is planned, before anything is built.
pub(crate) fn meta_of(prepared: &Prepared, version: &str) -> CampaignMeta {
    CampaignMeta {
        format: FORMAT,
        topolab: version.to_string(),
        started: jiff::Timestamp::now().to_string(),
        seed: prepared.seed,
        experiment_text: prepared.text.clone(),
        experiment_path: prepared.path.clone(),
        experiment: prepared.experiment.clone(),
        cells: prepared.cells.clone(),
        rounds: prepared.rounds,
        until_decided: None,
        looks: Vec::new(),
        kernels: Vec::new(),
        topologies: prepared
            .topologies
            .iter()
            .map(|(name, (_, text))| (name.clone(), text.clone()))
            .collect(),
    }
}

fn unit(prepared: &Prepared, kernels: &Kernels, image: &Image, planned: PlannedRun) -> RunUnit {
    let cell = &prepared.cells[planned.cell];
    let kernel = &kernels.built[&cell.kernel];
    let filled = "every `{name}` was tried when the campaign was prepared";
    let limits = &prepared.experiment.limits;
    RunUnit {
        name: format!("{}-{}", planned.index, prepared.seed),
        topology: prepared.topology(cell).clone(),
        kernel: KernelImage::from(kernel),
        image: image.clone().into(),
        agent_sha256: agent_binary::sha256().to_string(),
        append: prepared.cmdline(cell).expect(filled),
        settings: prepared.settings(cell).expect(filled),
        workload: Some(prepared.workload(cell).expect(filled)),
        monitors: prepared.experiment.monitors.clone(),
        limits: limits.clocks(),
        seed: prepared.seed.wrapping_add(planned.index as u64),
        allowed_splats: prepared.experiment.allowed_splats.clone(),
        inspect: Inspect::default(),
    }
}

/// The bench as a unit needs it: pinned and crowded as the experiment says.
/// Settings that patch kernel text while several vCPUs run meet a fault of the
/// emulator's threads (`Oops: int3`), which one emulating thread avoids.
pub(crate) fn bench_for(wish: &BenchSpec, bench: &Bench, unit: &RunUnit) -> Bench {
    let mut bench = bench.clone();
    if bench.pins.policy.is_none() {
        bench.pins.policy = wish.pin_policy();
    }
    bench.pins.overcommit = wish.crowds(bench.args.accel);
    if let Accel::Tcg { thread } = &mut bench.args.accel {
        *thread = match wish.tcg_thread {
            Some(wanted) => wanted.into(),
            None if patches_text(unit) => TcgThread::Single,
            None => *thread,
        };
    }
    bench
}

fn bench_of(prepared: &Prepared, bench: &Bench, unit: &RunUnit) -> Bench {
    bench_for(&prepared.experiment.bench, bench, unit)
}

fn patches_text(unit: &RunUnit) -> bool {
    !unit.settings.sched_features.is_empty() || !unit.settings.modules.is_empty()
}

fn record(
    prepared: &Prepared,
    planned: PlannedRun,
    attempt: u32,
    started: String,
    result: RunResult,
) -> RunRecord {
    let cell = &prepared.cells[planned.cell];
    record_of(cell, planned, attempt, started, result)
}

/// The record of a run that ended.
pub(crate) fn record_of(
    cell: &Cell,
    planned: PlannedRun,
    attempt: u32,
    started: String,
    result: RunResult,
) -> RunRecord {
    RunRecord {
        format: FORMAT,
        index: planned.index,
        cell: cell.clone(),
        round: planned.round,
        attempt,
        boot: format!("{}.{attempt}", planned.index),
        outcome: result.outcome,
        started,
        wall_ms: result.wall_ms,
        hello_ms: result.hello_ms,
        phases: result.phases,
        samples: result.samples,
        settings: result.settings,
        environment: result.environment,
        trust: result.trust,
        notes: result.notes,
        console_tail: result.console_tail,
    }
}

fn interrupted(records: &[RunRecord], planned: usize, folder: &ResultsFolder) -> CampaignError {
    CampaignError::Interrupted {
        done: records
            .iter()
            .filter(|record| record.outcome.has_result())
            .count(),
        planned,
        folder: folder.path().to_path_buf(),
    }
}

fn summarise(
    prepared: &Prepared,
    folder: &ResultsFolder,
    records: &[RunRecord],
    kernels: Kernels,
    build_seconds: f64,
    run_seconds: f64,
) -> Summary {
    let mut last: BTreeMap<usize, &RunRecord> = BTreeMap::new();
    for record in records {
        last.insert(record.index, record);
    }
    let mut other = BTreeMap::new();
    for record in last.values().filter(|record| !record.outcome.has_result()) {
        *other.entry(record.outcome.class()).or_default() += 1;
    }
    Summary {
        folder: folder.path().to_path_buf(),
        completed: last
            .values()
            .filter(|record| record.outcome.has_result())
            .count(),
        other,
        missing: prepared.order.len() - last.len(),
        build_seconds,
        run_seconds,
        hello_ms: last.values().filter_map(|record| record.hello_ms).collect(),
        kernels: kernels.meta,
    }
}
