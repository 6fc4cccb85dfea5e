//! `topolab demo`: the main job on a real kernel, with the time each part took.

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

use clap::Args;
use topolab::campaign::{Jobs, Summary};

use crate::{failure::Failure, lab, run, terminal::Terminal};

/// What the demo runs.
const EXPERIMENT: &str = "numa-scan";
/// The cells of it that a demo has time for.
const TOPOLOGY: &str = "dual-node-4";

/// Arguments of `topolab demo`.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Rounds in place of the experiment's
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    #[command(flatten)]
    bench: lab::BenchArgs,
}

/// Builds a kernel with and without a patch, boots guests with two nodes, and
/// prints what the patch changed.
pub fn run(args: &DemoArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let started = Instant::now();
    let args = run::RunArgs {
        experiment: Some(EXPERIMENT.into()),
        rounds: args.rounds,
        seed: None,
        only: vec![TOPOLOGY.into()],
        dry_run: false,
        resume: None,
        output: None,
        until: None,
        max_rounds: None,
        jobs: Jobs::default(),
        bench: args.bench.clone(),
        batch: crate::batch::BatchArgs::default(),
        json: false,
    };
    let prepared = run::prepare(&args)?;
    let (_, summary) = run::carry_out(&prepared, &args, terminal)?;
    if summary.completed == 0 {
        return Err(run::nothing_completed(&summary));
    }
    let code = crate::compare::after_run(&summary.folder, false, terminal)?;
    terminal.say("");
    for line in times(&summary, started.elapsed()) {
        terminal.say(line);
    }
    terminal.say("");
    terminal.say(format_args!("results     {}", summary.folder.display()));
    terminal.say("try next    topolab topology show topologies/dual-node-8-isolated.yaml");
    terminal.say("            topolab boot topologies/dual-node-4.yaml --kernel linux-6.12@base -- /bin/true");
    terminal.say(format_args!(
        "            topolab compare {} --metric all",
        summary.folder.display()
    ));
    Ok(code)
}

/// Where the time went.
fn times(summary: &Summary, whole: Duration) -> Vec<String> {
    let mut lines = Vec::new();
    let whole = whole.as_secs_f64();
    let share = |seconds: f64| {
        format!(
            "{seconds:7.1} s  {:3.0} %",
            100.0 * seconds / whole.max(0.001)
        )
    };
    for kernel in &summary.kernels {
        let how = if kernel.cached {
            "from the cache".to_string()
        } else {
            format!("{} objects", kernel.recompiled)
        };
        lines.push(format!(
            "build       {}  {} ({how})",
            share(if kernel.cached { 0.0 } else { kernel.seconds }),
            kernel.name
        ));
    }
    let mut fresh = summary.kernels.iter().filter(|kernel| !kernel.cached);
    if let (Some(full), Some(incremental)) = (fresh.next(), fresh.next()) {
        lines.push(format!(
            "            the second variant was built {:.0} times faster than the first",
            full.seconds / incremental.seconds.max(0.001)
        ));
    }
    lines.push(format!(
        "builds      {}  fetching, unpacking and the guest image included",
        share(summary.build_seconds)
    ));
    let mut hello = summary.hello_ms.clone();
    hello.sort_unstable();
    let median = hello.get(hello.len() / 2).map_or(String::new(), |ms| {
        format!(
            "  {} runs, from QEMU's start to the agent's hello {:.1} s (median)",
            summary.completed,
            *ms as f64 / 1000.0
        )
    });
    lines.push(format!(
        "runs        {}{median}",
        share(summary.run_seconds)
    ));
    lines.push(format!("whole       {}", share(whole)));
    lines
}
