//! `topolab bisect step`: one commit judged for somebody else's `git bisect run`.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use topolab::{
    bisect::{
        Observation, Place, Ready, TRIES, Tree,
        git::{End, Repository},
        guests::{GuestLab, Trees},
        is_broken,
        judge::{Judge, Measurement, Ruling},
        step::{Decision, by_outcome, by_threshold},
    },
    campaign::Single,
    event::Event,
    kernel::BuildEvent,
    stats::judge::Effect,
};

use super::{CellArgs, SoughtArgs, plan, words};
use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    interrupt, lab,
    terminal::Terminal,
};

/// Arguments of `topolab bisect step`.
#[derive(Debug, Args)]
#[command(
    after_help = "git bisect run topolab bisect step numa-scan --cell pinned-node0 --metric numa_pte_updates --bad-above 100"
)]
pub struct StepArgs {
    /// Experiment, by name or path
    experiment: String,
    /// Repository whose checked-out commit is judged
    #[arg(long, value_name = "DIR", default_value = ".")]
    repo: PathBuf,
    #[command(flatten)]
    which: CellArgs,
    #[command(flatten)]
    sought: SoughtArgs,
    /// The metric is bad above this value
    #[arg(
        long,
        value_name = "VALUE",
        requires = "metric",
        conflicts_with = "bad_below"
    )]
    bad_above: Option<f64>,
    /// The metric is bad below this value
    #[arg(long, value_name = "VALUE", requires = "metric")]
    bad_below: Option<f64>,
    /// Runs that decide when they agree; up to four times as many when they do not
    #[arg(long, value_name = "N", default_value = "3")]
    runs: u32,
    #[command(flatten)]
    bench: lab::BenchArgs,
}

/// "Cannot test this one", to git.
const SKIP: u8 = 125;
/// "Stop the bisection", to git.
const STOP: u8 = 128;

/// Judges the checked-out commit. Whatever is not about the commit stops the
/// bisection: exit code 1 would call the commit bad.
pub fn run(args: &StepArgs, terminal: Terminal) -> ExitCode {
    match lab::runtime().and_then(|runtime| runtime.block_on(judge(args, terminal))) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            terminal.explain(&failure);
            ExitCode::from(STOP)
        }
    }
}

async fn judge(args: &StepArgs, terminal: Terminal) -> Result<u8, Failure> {
    let folders = Folders::from_environment()?;
    let cancel = interrupt::watch(terminal)?;
    let (sought, threshold) = sought(args)?;
    let subject = plan::subject(&args.experiment, &args.which).await?;
    let repository = Repository::open(&args.repo, &lab::tools().git)
        .await
        .map_err(|e| words::range(&e))?;
    let commit = repository
        .end(End::Bad, "HEAD")
        .await
        .map_err(|e| words::range(&e))?;
    let copy = repository
        .folder_for_copy(&folders.cache)
        .await
        .map_err(|e| words::range(&e))?;
    let copy = repository
        .copy(&copy)
        .await
        .map_err(|e| Failure::of(Kind::Lab, &e))?;
    let builder = lab::builder(&folders);
    let quiet = |_: BuildEvent| {};
    let runs = tempfile::Builder::new()
        .prefix("topolab-step-")
        .tempdir()
        .map_err(Failure::lab)?;
    let single = if sought.needs_runs() {
        let bench = args.bench.or(&subject.prepared.experiment.bench);
        let lab = lab::open(&folders, &bench).await?;
        let single = Single::open(
            &subject.prepared,
            &subject.cell,
            &lab,
            &folders.cache,
            &|_: Event| {},
        )
        .await;
        Some(single.map_err(|e| Failure::of(Kind::Lab, &e).hint("topolab doctor"))?)
    } else {
        None
    };
    let guests = GuestLab {
        trees: Trees::Commits {
            kernel: subject.kernel,
            repo: copy.path().to_owned(),
        },
        builder: &builder,
        single,
        runs: runs.path().to_owned(),
        cancel: cancel.clone(),
        tell: &quiet,
        built: RefCell::new(HashMap::new()),
        count: Cell::new(0),
        environment: RefCell::new(None),
        untrusted: RefCell::new(BTreeMap::new()),
    };
    let tree = Tree {
        place: Place::BadEnd,
        name: commit,
    };
    let mut stopped = cancel;
    tokio::select! {
        code = measure(args, &sought, threshold, &guests, &tree, terminal) => code,
        () = stopped.told() => Err(Failure::lab("interrupted")),
    }
}

/// What is sought, and from where on a metric is bad: value, and whether it is
/// bad above it.
fn sought(args: &StepArgs) -> Result<(Judge, Option<(f64, bool)>), Failure> {
    if let Some(judge) = plan::without_metric(&args.sought)? {
        return Ok((judge, None));
    }
    let threshold = match (args.bad_above, args.bad_below) {
        (Some(value), _) => (value, true),
        (_, Some(value)) => (value, false),
        _ => {
            return Err(Failure::request("nothing says when a commit is bad")
                .hint("--metric NAME with --bad-above VALUE or --bad-below VALUE, --outcome CLASS, --build or --subtest NAME"));
        }
    };
    let judge = Judge::Metric {
        metric: args.sought.metric.clone().unwrap_or_default(),
        per_run: None,
        min_effect: Effect::Relative(0.0),
        worse: None,
    };
    Ok((judge, Some(threshold)))
}

async fn measure(
    args: &StepArgs,
    sought: &Judge,
    threshold: Option<(f64, bool)>,
    guests: &GuestLab<'_>,
    tree: &Tree,
    terminal: Terminal,
) -> Result<u8, Failure> {
    let mut marks: Vec<bool> = Vec::new();
    let mut failures = 0;
    let mut others: Vec<String> = Vec::new();
    let mut ready = false;
    loop {
        let ruling = if !ready {
            match guests.ready(tree).await {
                Ready::Yes { .. } => {
                    ready = true;
                    if sought.needs_runs() {
                        continue;
                    }
                    sought.rule(&Measurement::Builds)
                }
                Ready::Broken { complaint } => sought.rule(&Measurement::NoBuild { complaint }),
                Ready::LabFailed { reason } => Ruling::Again { reason },
            }
        } else {
            let number = u32::try_from(marks.len())
                .unwrap_or(u32::MAX)
                .saturating_add(1);
            sought.rule(&guests.run(tree, number).await.measurement)
        };
        let observation = match ruling {
            Ruling::Doubtful { reason } => {
                others.push(reason.clone());
                if !is_broken(&others) {
                    terminal.warn(format_args!("tried again: {reason}"));
                    continue;
                }
                Observation::Untestable { reason }
            }
            Ruling::Answer(observation) => observation,
            Ruling::Again { reason } => {
                failures += 1;
                terminal.warn(format_args!("the lab failed (try {failures}): {reason}"));
                if failures >= TRIES {
                    return Err(Failure::lab(format_args!(
                        "the lab failed {TRIES} times: {reason}"
                    )));
                }
                continue;
            }
        };
        let decision = match observation {
            Observation::Value { value } => {
                let (limit, above) = threshold.unwrap_or((0.0, true));
                terminal.say(format_args!("run {}: {value}", marks.len() + 1));
                marks.push((value > limit) == above && value != limit);
                by_threshold(&marks, args.runs.max(1), args.runs.max(1).saturating_mul(4))
            }
            Observation::Event { seen } => {
                terminal.say(format_args!(
                    "run {}: {}",
                    marks.len() + 1,
                    if seen { "seen" } else { "not seen" }
                ));
                marks.push(seen);
                by_outcome(&marks, args.runs.max(1))
            }
            Observation::Good => Decision::Good,
            Observation::Bad => Decision::Bad,
            Observation::Untestable { reason } => {
                terminal.answer(format_args!("skip: {reason}"));
                return Ok(SKIP);
            }
            Observation::SameAs { .. } | Observation::Abort { .. } => Decision::Unclear,
        };
        match decision {
            Decision::More => {}
            Decision::Good => {
                terminal.answer("good");
                return Ok(0);
            }
            Decision::Bad => {
                terminal.answer("bad");
                return Ok(1);
            }
            Decision::Unclear => {
                terminal.answer("skip: the runs do not agree");
                return Ok(SKIP);
            }
        }
    }
}
