//! `topolab bisect`: which commit or patch changed a number, an outcome or a build.

mod carry;
mod plan;
mod step;
mod words;

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};

use crate::{failure::Failure, lab, terminal::Terminal};

/// Arguments of `topolab bisect`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Over git:       topolab bisect numa-scan --good v6.12 --bad HEAD --repo ~/linux --metric numa_pte_updates\n\
                  Over a series:  topolab bisect numa-scan --series linux-6.12+rt-push --metric passes\n\
                  With a script:  topolab bisect --good v6.12 --bad HEAD -- ./test.sh\n\
                  Go on:          topolab bisect --resume results/bisect-numa-scan-20261130-231500"
)]
pub struct BisectArgs {
    #[command(subcommand)]
    command: Option<BisectVerb>,
    /// Experiment, by name or path; not needed with a script or --resume
    experiment: Option<String>,
    /// A commit that is good
    #[arg(long, value_name = "REF", requires = "bad")]
    good: Option<String>,
    /// A commit that is bad
    #[arg(long, value_name = "REF", requires = "good")]
    bad: Option<String>,
    /// Repository of the commits [default: the kernel's own, else the current folder]
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// Search the prefixes of this series instead: KERNEL+SERIES
    #[arg(long, value_name = "KERNEL+SERIES", conflicts_with_all = ["good", "repo", "first_parent", "path", "skip"])]
    series: Option<String>,
    #[command(flatten)]
    which: CellArgs,
    #[command(flatten)]
    sought: SoughtArgs,
    /// Smallest change of the metric worth finding, such as 5% or 20 [default: the experiment's]
    #[arg(long, value_name = "SIZE")]
    min_effect: Option<String>,
    /// Search a change for the better, too
    #[arg(long)]
    any_direction: bool,
    /// Follow only first parents: the culprit may be a merge as a whole
    #[arg(long)]
    first_parent: bool,
    /// Only commits that touch this path (can be repeated)
    #[arg(long, value_name = "PATH")]
    path: Vec<String>,
    /// Commit or range A..B that is not measured (can be repeated)
    #[arg(long, value_name = "REF|A..B")]
    skip: Vec<String>,
    /// Compare culprit and parent freshly, and the bad end with the culprit taken back
    #[arg(long)]
    confirm: bool,
    /// Confidence in percent that a culprit must reach
    #[arg(long, value_name = "PERCENT", value_parser = plan::percent)]
    confidence: Option<f64>,
    /// Runs at most, ends included
    #[arg(long, value_name = "N")]
    max_runs: Option<u32>,
    /// Runs of one commit at most; then it is left as undecided
    #[arg(long, value_name = "N")]
    max_step_runs: Option<u32>,
    /// Go on with this bisection
    #[arg(long, value_name = "DIR", conflicts_with_all = ["experiment", "good", "series"])]
    resume: Option<PathBuf>,
    /// Folder to make
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    output: Option<PathBuf>,
    #[command(flatten)]
    bench: lab::BenchArgs,
    /// Answer as one JSON document; progress as JSON lines on stderr
    #[arg(long)]
    json: bool,
    /// A command that says how a commit is, with the exit codes of `git bisect run`
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["experiment", "series"])]
    script: Vec<String>,
}

#[derive(Debug, Subcommand)]
enum BisectVerb {
    /// Judge the checked-out commit for a plain `git bisect run`: exits with 0, 1, 125 or 128
    Step(step::StepArgs),
}

/// Which cell of the experiment is measured.
#[derive(Debug, Args)]
struct CellArgs {
    /// The cell to measure: a pattern for one of its axes or the whole; all of several must fit
    #[arg(long, value_name = "PATTERN")]
    cell: Vec<String>,
    /// Kernel whose configuration is built [default: the experiment's only one]
    #[arg(long, value_name = "NAME")]
    kernel: Option<String>,
}

/// What is sought.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct SoughtArgs {
    /// A change of this metric
    #[arg(long, value_name = "NAME")]
    metric: Option<String>,
    /// An outcome, such as guest-panic, or guest-splat='WARNING*push_rt_task*'
    #[arg(long, value_name = "CLASS[=TITLE]")]
    outcome: Option<String>,
    /// A build failure, any or one whose first complaint fits
    #[arg(long, value_name = "COMPLAINT", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    build: Option<String>,
    /// A failing sub-test in the workload's (K)TAP output
    #[arg(long, value_name = "NAME")]
    subtest: Option<String>,
}

/// Searches, or judges one step.
pub fn run(args: &BisectArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    match &args.command {
        Some(BisectVerb::Step(step)) => Ok(step::run(step, terminal)),
        None => carry::run(args, terminal),
    }
}
