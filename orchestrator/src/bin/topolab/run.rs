//! `topolab run`: an experiment from its file to its results folder.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::SystemTime,
};

use clap::Args;
use topolab::{
    batch::desk::Desk,
    campaign::{
        self, CampaignError, Conduct, Jobs, Library, Overrides, Places, PrepareError, Prepared,
        Summary,
    },
    document::Document,
    plan::Boot,
    store,
};

use crate::{
    batch, dry_run,
    failure::{Failure, Kind},
    folders::Folders,
    interrupt, lab,
    progress::Progress,
    terminal::Terminal,
    until::{self, Until},
};

/// Arguments of `topolab run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Experiment, by name or path; not needed with --resume
    #[arg(required_unless_present_any = ["resume", "attach"])]
    pub experiment: Option<String>,
    /// Rounds in place of the file's
    #[arg(long, value_name = "N")]
    pub rounds: Option<u32>,
    /// Seed of the order in place of the file's
    #[arg(long)]
    pub seed: Option<u64>,
    /// Only cells that fit this pattern, whole or by one axis (can be repeated)
    #[arg(long, value_name = "PATTERN")]
    pub only: Vec<String>,
    /// Print every run in its order with its estimated time, and start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Go on with the runs that this results folder lacks
    #[arg(long, value_name = "DIR", conflicts_with_all = ["rounds", "seed", "only"])]
    pub resume: Option<PathBuf>,
    /// Go on adding rounds until every gated comparison (without gates: every
    /// comparison) is decided, or no number of rounds in reach would decide it
    #[arg(long, value_enum, value_name = "WHEN")]
    pub until: Option<Until>,
    /// With --until: most rounds
    #[arg(long, value_name = "N", requires = "until")]
    pub max_rounds: Option<u32>,
    /// Results folder to make
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub output: Option<PathBuf>,
    /// Guests at once, as far as CPUs and memory last: a number, or auto
    #[arg(long, default_value = "1", value_name = "N|auto")]
    pub jobs: Jobs,
    #[command(flatten)]
    pub bench: lab::BenchArgs,
    #[command(flatten)]
    pub batch: batch::BatchArgs,
    /// Write events to stdout, one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Runs an experiment and compares it.
pub fn run(args: &RunArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    if let Some(folder) = &args.batch.attach {
        return batch::attach(folder, args.json, terminal);
    }
    let prepared = prepare(args)?;
    if args.dry_run {
        let folders = Folders::from_environment()?;
        dry_run::answer(&prepared, &folders.results, args.json, terminal);
        return Ok(ExitCode::SUCCESS);
    }
    if is_for_slurm(args) {
        if args.until.is_some() {
            return Err(Failure::request(
                "--until decided needs the runs here, one after another; Slurm does all of a plan",
            )
            .hint("topolab run EXPERIMENT --rounds N --on slurm"));
        }
        if prepared.experiment.boot == Boot::Warm {
            return Err(Failure::request(
                "`boot: warm` keeps its guests on this machine; tasks of Slurm boot each run",
            )
            .hint("write `boot: fresh`, or leave out --on slurm"));
        }
        return batch::run(&prepared, args, terminal);
    }
    let (_, summary) = carry_out(&prepared, args, terminal)?;
    let code = crate::compare::after_run(&summary.folder, args.json, terminal)?;
    if !args.json {
        terminal.say(format_args!("results: {}", summary.folder.display()));
        terminal.say(format_args!(
            "next: topolab report {} --html report.html",
            summary.folder.display()
        ));
    }
    if summary.completed == 0 {
        return Err(nothing_completed(&summary));
    }
    Ok(code)
}

/// A campaign that was submitted is gone on with where it ran, unless asked otherwise.
fn is_for_slurm(args: &RunArgs) -> bool {
    let submitted = |folder: &PathBuf| Desk::of(folder).exists();
    match args.batch.on {
        Some(engine) => engine == batch::Engine::Slurm,
        None => args.resume.as_ref().is_some_and(submitted),
    }
}

/// The results folder that is meant.
pub fn results_folder(prepared: &Prepared, args: &RunArgs, folders: &Folders) -> PathBuf {
    let asked = args.resume.clone().or_else(|| args.output.clone());
    asked.unwrap_or_else(|| {
        let stamp = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S");
        folders
            .results
            .join(format!("{}-{stamp}", prepared.experiment.name.value))
    })
}

/// Reads everything the arguments name.
pub fn prepare(args: &RunArgs) -> Result<Prepared, Failure> {
    let library = lab::library();
    if let Some(folder) = &args.resume {
        return prepare_again(folder, &library);
    }
    let tools = lab::tools();
    let runtime = lab::runtime()?;
    let overrides = Overrides {
        rounds: args.rounds,
        seed: args.seed,
        only: args.only.clone(),
    };
    let experiment = args.experiment.as_deref().unwrap_or_default();
    let preparing = campaign::prepare(experiment, &library, &tools, &overrides, clock_seed());
    runtime.block_on(preparing).map_err(|error| told(&error))
}

/// Reads everything that a results folder names.
pub fn prepare_again(folder: &Path, library: &Library) -> Result<Prepared, Failure> {
    let tools = lab::tools();
    let runtime = lab::runtime()?;
    let results = store::load(folder).map_err(|error| Failure::of(Kind::Request, &error))?;
    let document = Document::from_text(
        &folder.join("campaign.json").display().to_string(),
        &results.meta.experiment_text,
    )?;
    let only = results.meta.cells.iter().map(ToString::to_string).collect();
    let overrides = Overrides {
        rounds: Some(results.meta.rounds),
        seed: Some(results.meta.seed),
        only,
    };
    let path = results.meta.experiment_path.clone();
    let preparing = campaign::prepare_document(
        &document,
        &path,
        library,
        &tools,
        &overrides,
        results.meta.seed,
    );
    runtime.block_on(preparing).map_err(|error| told(&error))
}

/// Runs a prepared campaign while its progress is shown.
pub fn carry_out(
    prepared: &Prepared,
    args: &RunArgs,
    terminal: Terminal,
) -> Result<(Folders, Summary), Failure> {
    let folders = Folders::from_environment()?;
    let results = results_folder(prepared, args, &folders);
    let until = until::limit(prepared, args)?;
    let runtime = lab::runtime()?;
    let outcome = runtime.block_on(async {
        let cancel = interrupt::watch(terminal)?;
        let builder = lab::builder(&folders);
        let bench = args.bench.or(&prepared.experiment.bench);
        let lab = lab::open(&folders, &bench).await?;
        let mut conduct = Conduct {
            places: Places {
                cache: folders.cache.clone(),
                results,
            },
            resume: args.resume.is_some(),
            until_decided: until,
            builder: &builder,
            lab: &lab,
            jobs: args.jobs,
            version: env!("CARGO_PKG_VERSION"),
            cancel,
        };
        let mut progress = Progress::new(terminal, args.json);
        let mut prepared = prepared.clone();
        loop {
            let summary = campaign::run(&prepared, &conduct, &mut |event| progress.on(&event))
                .await
                .map_err(|error| explain(&error, &conduct.places.results))?;
            let Some(most) = until else {
                return Ok(summary);
            };
            let rounds = until::look(&conduct.places.results, most, terminal)?;
            if rounds <= prepared.rounds {
                return Ok(summary);
            }
            prepared.set_rounds(rounds);
            conduct.resume = true;
        }
    });
    outcome.map(|summary| (folders, summary))
}

/// A campaign without a single result has nothing to say.
pub fn nothing_completed(summary: &Summary) -> Failure {
    let classes: Vec<String> = summary
        .other
        .iter()
        .map(|(class, n)| format!("{n} {class}"))
        .collect();
    let only_lab = summary.other.keys().all(|class| *class == "lab-failed");
    let kind = if only_lab { Kind::Lab } else { Kind::Guest };
    Failure::new(
        kind,
        format_args!("no run completed ({})", classes.join(", ")),
    )
    .hint(format_args!(
        "ls {}/runs/*/console.log",
        summary.folder.display()
    ))
}

fn told(error: &PrepareError) -> Failure {
    let failure = Failure::request(error);
    match error {
        PrepareError::NotFound(_) => failure.hint("ls experiments/"),
        PrepareError::NothingLeft { .. } => {
            failure.hint("topolab run EXPERIMENT --dry-run shows every cell")
        }
        PrepareError::Problems(_) => failure,
    }
}

fn explain(error: &CampaignError, results: &Path) -> Failure {
    match error {
        // What is there is whole: the runs that ended are kept.
        CampaignError::Store(_) if results.join("runs").is_dir() => Failure::of(Kind::Lab, error)
            .hint(format_args!("topolab run --resume {}", results.display())),
        CampaignError::Store(_) => Failure::of(Kind::Lab, error),
        CampaignError::Build { source, .. } => crate::kernel::failure(source),
        CampaignError::Bench(_) => Failure::of(Kind::Lab, error).hint("topolab doctor"),
        CampaignError::Image(_)
        | CampaignError::NoModules { .. }
        | CampaignError::OtherExperiment { .. } => Failure::of(Kind::Request, error),
        CampaignError::Interrupted { folder, .. } => Failure::of(Kind::Lab, error)
            .hint(format_args!("topolab run --resume {}", folder.display())),
    }
}

/// A seed nobody chose: printed, so that the order can be had again.
fn clock_seed() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    // Six digits are enough to tell campaigns apart and short enough to type.
    now.as_secs() % 1_000_000
}
