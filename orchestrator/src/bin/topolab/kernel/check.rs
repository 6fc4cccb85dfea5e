//! `topolab kernel check`: does each patch build, everywhere?

use std::{path::Path, process::ExitCode};

use clap::Args;
use comfy_table::Table;
use topolab::kernel::{
    Ccache, KernelRequest,
    check::{self, Cell, CheckReport, CheckRequest, Finding, PatchReport, Status, TargetSpec},
};

use super::{builder, failure, find, progress::Progress, runtime};
use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    terminal::Terminal,
};

/// Arguments of `topolab kernel check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// KERNEL+SERIES
    #[arg(value_name = "KERNEL")]
    kernel: KernelRequest,
    /// ARCH[:CONFIG[:COMPILER]], where CONFIG is own, a make target or a file (can be
    /// repeated); the kernel's own choice when left out
    #[arg(long = "target", value_name = "TARGET")]
    targets: Vec<TargetSpec>,
    /// Level of warnings: 1, 2, 3 or several of them
    #[arg(short = 'W', long, value_name = "LEVEL")]
    warnings: Option<String>,
    /// Run sparse on what is compiled
    #[arg(long)]
    sparse: bool,
    /// Do not ask checkpatch.pl
    #[arg(long)]
    no_checkpatch: bool,
    /// Stop after the first patch that breaks a build
    #[arg(long)]
    first_bad: bool,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
    /// Processes at once; all CPUs when left out
    #[arg(short, long, value_name = "N")]
    jobs: Option<u32>,
}

/// Checks. Exit code 3 when a patch breaks a build, 5 when none does and a target could
/// not be tested.
pub fn run(
    folder: Option<&Path>,
    args: &CheckArgs,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let builder = builder(&folders, args.jobs, Ccache::Use);
    let kernel = find(folder, &args.kernel.kernel)?;
    let Some(series) = &args.kernel.series else {
        return Err(
            Failure::request("a check needs a series").hint(format_args!(
                "topolab kernel check {}+SERIES; `topolab kernel list {0}` shows them",
                args.kernel.kernel
            )),
        );
    };
    let request = CheckRequest {
        series: series.clone(),
        targets: args.targets.clone(),
        warnings: args.warnings.clone(),
        sparse: args.sparse,
        checkpatch: !args.no_checkpatch,
        first_bad: args.first_bad,
    };
    let progress = Progress::new(*terminal);
    let listen = |event| progress.on(&event);
    let checking = check::check(&builder, &kernel, &request, &listen);
    let report = runtime()?.block_on(async {
        tokio::select! {
            report = checking => report.map_err(|error| failure(&error)),
            _ = tokio::signal::ctrl_c() => Err(Failure::lab("interrupted")
                .hint("the same command goes on from what is compiled")),
        }
    })?;
    if args.json {
        terminal.json(&report);
    } else {
        terminal.table(table(&report));
        for words in details(&report) {
            terminal.answer(format_args!("\n{words}"));
        }
    }
    Ok(if report.broken() {
        ExitCode::from(Kind::Build.exit_code())
    } else if report.targets.iter().any(|one| one.not_tested.is_some()) {
        // What was not tried is not known to be good.
        ExitCode::from(Kind::Lab.exit_code())
    } else {
        ExitCode::SUCCESS
    })
}

fn table(report: &CheckReport) -> Table {
    let mut table = Table::new();
    let mut header = vec!["patch".to_owned(), "subject".to_owned()];
    header.extend(report.targets.iter().map(|target| target.target.clone()));
    header.extend(["checkpatch", "signed off", "bisects"].map(str::to_owned));
    table.set_header(header);
    let mut base = vec!["base".to_owned(), String::new()];
    base.extend(
        report
            .targets
            .iter()
            .map(|target| match &target.not_tested {
                Some(_) => "not tested".to_owned(),
                None => counts(target.base_errors, target.base_warnings),
            }),
    );
    table.add_row(base);
    for patch in &report.patches {
        let mut row = vec![patch.number.to_string(), patch.subject.clone()];
        row.extend(patch.cells.iter().map(word));
        row.push(style(patch));
        row.push(yes(patch.signed_off));
        row.push(yes(patch.bisects()));
        table.add_row(row);
    }
    table
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

fn counts(errors: u32, warnings: u32) -> String {
    match (errors, warnings) {
        (0, 0) => "ok".to_owned(),
        (0, warnings) => format!("ok, {warnings} warnings"),
        (errors, warnings) => format!("{errors} errors, {warnings} warnings"),
    }
}

/// A cell in a few words.
fn word(cell: &Cell) -> String {
    let mut text = match &cell.status {
        Status::Ok => "ok".to_owned(),
        Status::Broken => format!("BROKEN: {} new errors", cell.errors.len()),
        Status::StillBroken { since: 0 } => "broken without the series".to_owned(),
        Status::StillBroken { since } => format!("still broken by {since}"),
        Status::NotApplicable { .. } => "does not apply".to_owned(),
        Status::NotTested { .. } => "not tested".to_owned(),
    };
    if cell.status == Status::Ok && cell.healed > 0 {
        text.push_str(", heals");
    }
    if !cell.warnings.is_empty() {
        text = format!("{text}, {} new warnings", cell.warnings.len());
    }
    text
}

fn style(patch: &PatchReport) -> String {
    match &patch.checkpatch {
        None => "-".to_owned(),
        Some(said) => {
            let (errors, warnings) = (said.count("ERROR"), said.count("WARNING"));
            match (errors, warnings) {
                (0, 0) => "ok".to_owned(),
                (errors, warnings) => format!("{errors} errors, {warnings} warnings"),
            }
        }
    }
}

/// What is wrong, in the words of the compiler.
fn details(report: &CheckReport) -> Vec<String> {
    let mut told = Vec::new();
    for target in &report.targets {
        if let Some(reason) = &target.not_tested {
            told.push(format!("{} is not tested: {reason}", target.target));
        }
    }
    for patch in &report.patches {
        if let Some(said) = &patch.checkpatch {
            let notes: Vec<String> = said
                .notes
                .iter()
                .map(|note| {
                    let place = note.place.as_deref().unwrap_or("commit message");
                    format!("  {place}: {} {}: {}", note.level, note.kind, note.message)
                })
                .collect();
            if !notes.is_empty() {
                told.push(format!(
                    "patch {}, checkpatch:\n{}",
                    patch.number,
                    notes.join("\n")
                ));
            }
        }
        for cell in &patch.cells {
            if let Status::NotApplicable { reason } = &cell.status {
                told.push(reason.clone());
            }
            if cell.errors.is_empty() && cell.warnings.is_empty() {
                continue;
            }
            let mut words = vec![format!(
                "patch {} ({}) on {}:",
                patch.number, patch.subject, cell.target
            )];
            words.extend(cell.errors.iter().chain(&cell.warnings).map(finding));
            if !cell.reproduce.is_empty() {
                words.push("  to see it:".to_owned());
                words.extend(cell.reproduce.iter().map(|line| format!("    {line}")));
            }
            told.push(words.join("\n"));
        }
    }
    // The same patch that does not apply says so on every target.
    told.dedup();
    told
}

fn finding(one: &Finding) -> String {
    let mut lines = Vec::new();
    if let Some(function) = &one.diagnostic.function {
        lines.push(format!("  in function '{function}':"));
    }
    lines.push(format!("  {}", one.diagnostic));
    lines.extend(one.source.iter().map(|line| format!("  {line}")));
    lines.join("\n")
}
