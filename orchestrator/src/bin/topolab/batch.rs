//! Campaigns on Slurm: submitting, watching, cancelling, and what the jobs call.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use topolab::{
    batch::{
        check::Unfit,
        desk::Desk,
        execute::{self, ExecuteError, Place},
        plan::Wish,
        slurm::{Slurm, SlurmError},
        submit::{self, Order, SubmitError},
        tally::Tally,
        unit::Unit,
        watch::{self, Ended, Pace, WatchError},
    },
    campaign::{CampaignError, Prepared},
    event::Event,
    plan::Accel,
    qemu::accel,
};

use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    interrupt, lab,
    progress::Progress,
    run::{self, RunArgs},
    terminal::Terminal,
};

/// "Try again" of sysexits.h: Slurm may start the task anew.
const TRY_AGAIN: u8 = 75;

/// Where a campaign runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// On this machine
    Local,
    /// As jobs of Slurm
    Slurm,
}

/// Arguments about the batch system.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "On Slurm")]
pub struct BatchArgs {
    /// Where runs are done; local unless a folder to go on with was submitted
    #[arg(long, value_enum)]
    pub on: Option<Engine>,
    /// Partition; Slurm's default one without it
    #[arg(long, value_name = "NAME")]
    pub partition: Option<String>,
    /// Account that is charged
    #[arg(long, value_name = "NAME")]
    pub account: Option<String>,
    /// Features a node must have, as sbatch takes them
    #[arg(long, value_name = "FEATURES")]
    pub constraint: Option<String>,
    /// A node does nothing else while a task runs; the rule with --accel kvm
    #[arg(long)]
    pub exclusive: bool,
    /// Share nodes with other jobs even with --accel kvm
    #[arg(long, conflicts_with = "exclusive")]
    pub share_nodes: bool,
    /// Let nodes that differ (CPU, microcode, kernel, QEMU) take part in one comparison
    #[arg(long)]
    pub mix_nodes: bool,
    /// Rounds of a comparison that one task does
    #[arg(long, value_name = "N")]
    pub rounds_per_task: Option<u32>,
    /// Host CPUs a task asks for beside its guest's
    #[arg(long, value_name = "N", default_value = "1")]
    pub housekeeping: u32,
    /// CPUs of the build job
    #[arg(long, value_name = "N", default_value = "0", hide_default_value = true)]
    pub build_cpus: u32,
    /// Cache on the nodes' own disks, filled from the shared one
    #[arg(long, value_name = "DIR")]
    pub node_cache: Option<PathBuf>,
    /// Further argument of sbatch (can be repeated)
    #[arg(long, value_name = "ARG", allow_hyphen_values = true)]
    pub sbatch_arg: Vec<String>,
    /// Submit and return; --attach DIR shows progress later
    #[arg(long)]
    pub detach: bool,
    /// Show the progress of a submitted campaign and mend it
    #[arg(long, value_name = "DIR", conflicts_with_all = ["resume", "output", "dry_run"])]
    pub attach: Option<PathBuf>,
}

/// Arguments of `topolab cancel`.
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// Results folder of the campaign
    pub folder: PathBuf,
}

/// Arguments of `topolab run-cell`.
#[derive(Debug, Args)]
pub struct RunCellArgs {
    /// Unit file of a submitted campaign
    pub unit: PathBuf,
    /// Results folder, when the unit does not lie in one
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
}

/// Arguments of `topolab batch-build`.
#[derive(Debug, Args)]
pub struct BatchBuildArgs {
    /// Results folder of the campaign
    pub folder: PathBuf,
}

fn slurm() -> Result<Slurm, Failure> {
    Slurm::find(&env::var_os("PATH").unwrap_or_default()).map_err(|error| refused(&error))
}

/// Submits a campaign, or what it lacks, and watches it.
pub fn run(prepared: &Prepared, args: &RunArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let slurm = slurm()?;
    let cluster = slurm.cluster().map_err(|error| refused(&error))?;
    let folders = Folders::from_environment()?;
    let results = absolute(&run::results_folder(prepared, args, &folders))?;
    let order = order(prepared, args, &folders)?;
    if args.resume.is_none() {
        let plan = submit::plan(prepared, &results, &order, &cluster)
            .map_err(|error| not_submitted(&error, &results))?;
        submit::rehearse(&slurm, &cluster, &plan, &results)
            .map_err(|error| not_submitted(&error, &results))?;
        let folder = submit::lay_out(prepared, &results, env!("CARGO_PKG_VERSION"), &plan)
            .map_err(|error| Failure::of(Kind::Lab, &error))?;
        let tasks: usize = plan.arrays.iter().map(|array| array.blocks.len()).sum();
        let rest = submit::submit_all(&slurm, &plan, &results)
            .map_err(|error| not_submitted(&error, &results))?;
        drop(folder);
        terminal.say(format_args!(
            "submitted: {} runs in {tasks} tasks of {} arrays, after a build with {} CPUs",
            prepared.order.len(),
            plan.arrays.len(),
            plan.wish.build_cpus
        ));
        if let Some(error) = rest {
            terminal.say(format_args!("the rest is submitted later: {error}"));
        }
    } else {
        // Failures of the past are no reason not to try again.
        Desk::of(&results)
            .begin_anew()
            .map_err(|error| Failure::of(Kind::Lab, &error))?;
    }
    if args.batch.detach {
        terminal.say(format_args!("results: {}", results.display()));
        terminal.say(format_args!(
            "next: topolab run --attach {}",
            results.display()
        ));
        return Ok(ExitCode::SUCCESS);
    }
    attach(&results, args.json, terminal)
}

fn order(prepared: &Prepared, args: &RunArgs, folders: &Folders) -> Result<Order, Failure> {
    let batch = &args.batch;
    let accel = match args.bench.accel {
        Some(accel::Wish::Auto) => Some(Accel::Auto),
        Some(accel::Wish::Kvm) => Some(Accel::Kvm),
        Some(accel::Wish::Tcg) => Some(Accel::Tcg),
        None => prepared.experiment.bench.accel,
    };
    let kvm = accel == Some(Accel::Kvm);
    Ok(Order {
        wish: Wish {
            partition: batch.partition.clone(),
            account: batch.account.clone(),
            sbatch_args: batch.sbatch_arg.clone(),
            constraint: batch.constraint.clone(),
            // With KVM durations may be judged, and a neighbour would be in them.
            exclusive: batch.exclusive || (kvm && !batch.share_nodes),
            mix_nodes: batch.mix_nodes,
            accel,
            build_cpus: batch.build_cpus,
            node_cache: batch.node_cache.clone(),
        },
        rounds_per_task: batch.rounds_per_task,
        housekeeping: batch.housekeeping,
        topolab: env::current_exe().map_err(Failure::lab)?,
        cache: absolute(&folders.cache)?,
        library: lab::library_roots()
            .iter()
            .map(|root| absolute(root))
            .collect::<Result<_, _>>()?,
    })
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(Failure::lab)
}

/// Shows a submitted campaign until it ends, then compares it.
pub fn attach(results: &Path, json: bool, terminal: Terminal) -> Result<ExitCode, Failure> {
    let desk = Desk::of(results);
    if !desk.exists() {
        return Err(Failure::request(format_args!(
            "{}: not a campaign that was submitted",
            results.display()
        ))
        .hint(format_args!("topolab run --resume {}", results.display())));
    }
    let slurm = slurm()?;
    let results = absolute(results)?;
    let tell_store = |error: &topolab::store::StoreError| Failure::of(Kind::Lab, error);
    let plan = desk.plan().map_err(|error| tell_store(&error))?;
    let tally = Tally::of(&results).map_err(|error| tell_store(&error))?;
    let mut progress = Progress::new(terminal, json);
    progress.on(&Event::CampaignStarted {
        name: tally.meta().experiment.name.value.clone(),
        folder: results.clone(),
        cells: tally.meta().cells.len(),
        runs: tally.planned(),
        seed: tally.meta().seed,
    });
    terminal.say(format_args!(
        "the jobs go on without this process; `topolab cancel {}` ends them",
        results.display()
    ));
    let pace = Pace::for_tasks(plan.blocks.len());
    let ended = watch::watch(&slurm, &results, pace, &mut |event| progress.on(&event))
        .map_err(|error| not_watched(&error, &results))?;
    progress.on(&Event::CampaignEnded {
        folder: results.clone(),
        completed: ended.completed,
        other: ended.planned - ended.completed - ended.left,
        missing: ended.left,
    });
    finish(&ended, &results, json, terminal)
}

fn finish(
    ended: &Ended,
    results: &Path,
    json: bool,
    terminal: Terminal,
) -> Result<ExitCode, Failure> {
    if ended.left > 0 {
        terminal.say(format_args!(
            "{} runs were cancelled; topolab run --resume {} submits them",
            ended.left,
            results.display()
        ));
    }
    if ended.completed == 0 {
        return Err(Failure::lab("no run completed")
            .hint(format_args!("ls {}/batch/log", results.display())));
    }
    crate::compare::after_run(results, json, terminal)
}

/// Cancels the jobs of a campaign.
pub fn cancel(args: &CancelArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    if !Desk::of(&args.folder).exists() {
        return Err(Failure::request(format_args!(
            "{}: not a campaign that was submitted",
            args.folder.display()
        )));
    }
    let slurm = slurm()?;
    let count =
        watch::cancel(&slurm, &args.folder).map_err(|error| not_watched(&error, &args.folder))?;
    terminal.say(format_args!(
        "{count} tasks cancelled; runs that ended are kept"
    ));
    Ok(ExitCode::SUCCESS)
}

/// Carries out a unit, inside a job or by hand.
pub fn run_cell(args: &RunCellArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let unit = Unit::read(&args.unit).map_err(|error| Failure::of(Kind::Request, &error))?;
    let path = absolute(&args.unit)?;
    let results = match (&args.results, Desk::of_unit(&path)) {
        (Some(results), _) => absolute(results)?,
        (None, Some((_, results))) => results,
        (None, None) => {
            return Err(Failure::request(format_args!(
                "{}: it does not lie in a results folder",
                path.display()
            ))
            .hint(format_args!(
                "topolab run-cell {} --results DIR",
                args.unit.display()
            )));
        }
    };
    let runs = results.join("runs");
    fs::create_dir_all(&runs).map_err(Failure::lab)?;
    let folders = Folders::from_environment()?;
    let node = env::var("SLURMD_NODENAME").ok();
    let runtime = lab::runtime()?;
    runtime.block_on(async {
        let cancel = interrupt::watch(terminal)?;
        let bench = lab::BenchArgs {
            accel: unit.accel.map(Into::into),
            pin: None,
        };
        let lab = lab::open(&folders, &bench).await?;
        let node = node.unwrap_or_else(|| lab.identity().host.clone());
        let place = Place {
            cache: &folders.cache,
            lab: &lab,
            node: &node,
            cancel,
        };
        let mut tell =
            |run: topolab::plan::PlannedRun, attempt: u32, outcome: &topolab::outcome::Outcome| {
                terminal.say(format_args!(
                    "run {} on {node}, try {}: {} {}",
                    run.index,
                    attempt + 1,
                    outcome.class(),
                    outcome.detail()
                ));
            };
        match execute::carry_out(&unit, &results, place, &mut tell).await {
            Ok(done) => {
                terminal.say(format_args!(
                    "{} runs done, {} were there, {} done elsewhere, {} of cells that no try helps",
                    done.done, done.found, done.superfluous, done.given_up
                ));
                Ok(ExitCode::SUCCESS)
            }
            Err(error @ ExecuteError::Interrupted { .. }) => {
                terminal.say(&error);
                Ok(ExitCode::from(TRY_AGAIN))
            }
            Err(error) => Err(Failure::of(Kind::Lab, &error)),
        }
    })
}

/// Builds what a submitted campaign needs, inside a job.
pub fn build(args: &BatchBuildArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let desk = Desk::of(&args.folder);
    let plan = desk
        .plan()
        .map_err(|error| Failure::of(Kind::Request, &error))?;
    let library = topolab::campaign::Library::new(plan.library);
    let prepared = run::prepare_again(&args.folder, &library)?;
    let folders = Folders::from_environment()?;
    let mut progress = Progress::new(terminal, false);
    let tell = std::cell::RefCell::new(|event: Event| progress.on(&event));
    let runtime = lab::runtime()?;
    runtime
        .block_on(topolab::batch::build::build(
            &prepared,
            &lab::builder(&folders),
            &args.folder,
            &|event| (tell.borrow_mut())(event),
        ))
        .map_err(|error| match &error {
            CampaignError::Build { source, .. } => crate::kernel::failure(source),
            _ => Failure::of(Kind::Lab, &error),
        })?;
    Ok(ExitCode::SUCCESS)
}

fn refused(error: &SlurmError) -> Failure {
    let failure = Failure::of(Kind::Lab, error);
    match error {
        SlurmError::NotInstalled { .. } => Failure::of(Kind::Request, error)
            .hint("apt-get install slurm-client (with slurmctld, slurmd and munge on a machine that is to be a cluster)")
            .hint("topolab run EXPERIMENT --on local"),
        SlurmError::Unreachable { .. } => failure.hint("scontrol ping"),
        SlurmError::Full { .. } => failure.hint("squeue --me"),
        SlurmError::Refused { said, .. } if said.contains("ccount") => {
            Failure::of(Kind::Request, error)
                .hint("sacctmgr show associations user=$USER format=account,partition")
                .hint("topolab run EXPERIMENT --on slurm --account NAME")
        }
        SlurmError::Refused { .. } => Failure::of(Kind::Request, error).hint("sinfo -N -l"),
        SlurmError::Start { .. } => failure,
    }
}

fn not_submitted(error: &SubmitError, results: &Path) -> Failure {
    match error {
        SubmitError::Slurm(error) if Desk::of(results).exists() => {
            refused(error).hint(format_args!("topolab run --resume {}", results.display()))
        }
        SubmitError::Slurm(error) => refused(error),
        SubmitError::Unfit(unfit) => {
            let failure = Failure::of(Kind::Request, error);
            let all_down = unfit.iter().any(|one| matches!(one, Unfit::AllDown { .. }));
            failure.hint(if all_down { "sinfo -R" } else { "sinfo -N -l" })
        }
        SubmitError::Store(_) | SubmitError::Script { .. } => Failure::of(Kind::Lab, error),
    }
}

fn not_watched(error: &WatchError, results: &Path) -> Failure {
    let resume = format!("topolab run --resume {}", results.display());
    let log = format!("less {}/batch/log/build.log", results.display());
    match error {
        WatchError::Submit(error) => not_submitted(error, results),
        WatchError::Store(_) => Failure::of(Kind::Lab, error).hint(resume),
        WatchError::Build { .. } => Failure::of(Kind::Build, error).hint(log).hint(resume),
        WatchError::BuildLost { .. } => Failure::of(Kind::Lab, error).hint(log).hint(resume),
    }
}
