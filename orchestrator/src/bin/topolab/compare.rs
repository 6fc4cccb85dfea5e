//! `topolab compare`: the table people paste into a mail.

use std::{
    error::Error,
    fs::File,
    io::BufReader,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, ValueEnum};
use topolab::{
    compare::{
        self, Answer, Comparison, Request, Source,
        pivot::{Each, Key, PivotError, PivotRequest, pivot},
    },
    document::At,
    plan::{Cell, glob},
    report::{self, pivot::Shape},
    stats::judge::CompareSpec,
    store::{self, Results, StoreError},
};

use crate::{
    failure::{Failure, Kind},
    terminal::Terminal,
};

/// Arguments of `topolab compare`.
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// Results folder, or a file written by `report --jsonl`
    results: PathBuf,
    /// A second results folder: each of its cells is compared with the same cell of the first
    newer: Option<PathBuf>,
    /// Results folder to compare with (the same as writing it before RESULTS)
    #[arg(long, value_name = "DIR", conflicts_with_all = ["newer", "base"])]
    baseline: Option<PathBuf>,
    /// Baseline within the campaign, instead of the experiment's own (can be repeated)
    #[arg(long, value_name = "AXIS=VALUE", value_parser = axis_value, conflicts_with = "newer")]
    base: Vec<(String, String)>,
    /// Only these metrics (can be repeated; `all` for every metric the runs yielded)
    #[arg(short, long, value_name = "NAME")]
    metric: Vec<String>,
    /// Only cells that fit these patterns, such as settings=pinned* (can be repeated)
    #[arg(long, value_name = "AXIS=PATTERN", value_parser = axis_value)]
    only: Vec<(String, String)>,
    #[command(flatten)]
    shape: ShapeArgs,
    /// What compared runs may differ in without refusing the gates (can be repeated)
    #[arg(long, value_name = "FIELD")]
    allow_difference: Vec<String>,
    /// Shape of the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Widest table, columns (40 to 100; default: the terminal's width)
    #[arg(long, value_parser = clap::value_parser!(u16).range(40..=100))]
    width: Option<u16>,
}

/// A table of one's own shape, without verdicts.
#[derive(Debug, Args)]
#[command(next_help_heading = "A table of your own shape (one metric, no verdicts)")]
struct ShapeArgs {
    /// What tells rows apart: axes and labels of the samples, such as kernel
    #[arg(long, value_name = "KEYS", value_delimiter = ',', conflicts_with_all = ["newer", "baseline"], requires = "metric")]
    rows: Vec<Key>,
    /// What tells columns apart, such as settings,cpu
    #[arg(long, value_name = "KEYS", value_delimiter = ',', requires = "rows")]
    columns: Vec<Key>,
    /// What stands in a cell: mean±cov, median [ci], or per-run total
    #[arg(long, value_name = "SHAPE", value_parser = shape, requires = "rows", default_value = "mean±cov")]
    cell: Shape,
    /// What counts as one value
    #[arg(long, value_enum, requires = "rows", default_value_t = EachArg::Run)]
    each: EachArg,
    /// A metric that counts what the metric is a part of: its total stands beside
    #[arg(long, value_name = "METRIC", requires = "rows")]
    of: Option<String>,
}

/// What counts as one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum EachArg {
    /// A run: its samples are combined
    Run,
    /// A sample, such as one interval of many in a run
    Sample,
}

fn shape(text: &str) -> Result<Shape, String> {
    let plain: String = text
        .to_lowercase()
        .replace([' ', '-', '_'], "")
        .replace("+-", "±");
    match plain.as_str() {
        "mean±cov" | "meancov" => Ok(Shape::MeanCov),
        "median[ci]" | "medianci" | "median" => Ok(Shape::MedianInterval),
        "perruntotal" => Ok(Shape::PerRunTotal),
        _ => Err("write mean±cov, 'median [ci]' or 'per-run total'".into()),
    }
}

/// Shape of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Markdown,
    Json,
    Csv,
}

/// Reads `AXIS=VALUE`.
pub fn axis_value(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(axis, value)| (axis.to_string(), value.to_string()))
        .ok_or_else(|| "write AXIS=VALUE, such as kernels=linux-6.12@base".to_string())
}

/// Compares and answers; the exit code tells gates and regressions.
///
/// # Errors
/// A folder cannot be read, or nothing in it can be compared.
pub fn run(args: &CompareArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let older = args
        .baseline
        .as_deref()
        .or(args.newer.is_some().then_some(&args.results));
    let newer = args.newer.as_deref().unwrap_or(&args.results);
    let older = older.map(load).transpose()?;
    let newer = load(newer)?;
    let older = older.map(|results| only(results, &args.only)).transpose()?;
    let newer = only(newer, &args.only)?;
    known_metrics(&args.metric, &newer)?;
    let mut spec = newer.meta.experiment.compare.clone();
    if !args.shape.rows.is_empty() {
        return own_shape(args, &newer, &spec, terminal);
    }
    if !args.base.is_empty() {
        let base = args.base.iter().cloned();
        spec.baseline = base
            .map(|(axis, value)| (axis, At::nowhere(value)))
            .collect();
    }
    spec.allow_differences
        .extend(args.allow_difference.iter().cloned().map(At::nowhere));
    let comparison = compared(older.as_ref(), &newer, &spec, &args.metric)?;
    match if args.json { Format::Json } else { args.format } {
        Format::Text => terminal.answer(report::text::render(&comparison, width(args.width))),
        Format::Markdown => terminal.answer(report::markdown::render(&comparison)),
        Format::Json => terminal.json(&report::json::document(&comparison)),
        Format::Csv => {
            let text = report::csv::render(&comparison).map_err(Failure::lab)?;
            terminal.answer(text.trim_end());
        }
    }
    Ok(exit_code(comparison.answer))
}

/// Compares a campaign that just ended. With `json` the answer is one more line.
///
/// # Errors
/// Its folder cannot be read, or nothing in it can be compared.
pub fn after_run(folder: &Path, json: bool, terminal: Terminal) -> Result<ExitCode, Failure> {
    let results = load(folder)?;
    let spec = &results.meta.experiment.compare;
    let metrics: Vec<String> = spec.metrics.keys().cloned().collect();
    let comparison = compared(None, &results, spec, &metrics)?;
    if json {
        terminal.line(&report::json::document(&comparison));
    } else {
        terminal.answer(report::text::render(&comparison, width(None)));
    }
    Ok(exit_code(comparison.answer))
}

/// Drops what fits no pattern. Baseline cells are cells like others: a pattern that
/// drops them is told as a missing baseline.
pub fn only(mut results: Results, patterns: &[(String, String)]) -> Result<Results, Failure> {
    for (axis, pattern) in patterns {
        if !Cell::AXES.contains(&axis.as_str()) {
            let axes = Cell::AXES.join(", ");
            return Err(Failure::request(format!(
                "`{axis}` is no axis; axes: {axes}"
            )));
        }
        let fits = |cell: &Cell| cell.axis(axis).is_some_and(|value| glob(pattern, value));
        results.meta.cells.retain(fits);
        results.records.retain(|record| fits(&record.cell));
    }
    if results.records.is_empty() && !patterns.is_empty() {
        return Err(Failure::request("no run fits --only"));
    }
    Ok(results)
}

/// A metric asked for by name that neither a run nor the experiment knows is
/// misspelt.
fn known_metrics(asked: &[String], results: &Results) -> Result<(), Failure> {
    let mut known = compare::metric_names(&results.records);
    known.extend(results.meta.experiment.compare.metrics.keys().cloned());
    known.sort_unstable();
    known.dedup();
    let is_unknown = |name: &&String| *name != "all" && !known.contains(name);
    let Some(name) = asked.iter().find(is_unknown) else {
        return Ok(());
    };
    let failure = Failure::request(format_args!("no run has a metric `{name}`"));
    let nearest = known
        .iter()
        .min_by_key(|one| strsim::damerau_levenshtein(one, name))
        .filter(|one| strsim::damerau_levenshtein(one, name) <= name.len() / 3);
    Err(match nearest {
        Some(nearest) => failure.hint(format_args!("did you mean `{nearest}`?")),
        None => failure.hint(format_args!("there are: {}", known.join(", "))),
    })
}

/// Answers with a table of the reader's own shape.
fn own_shape(
    args: &CompareArgs,
    results: &Results,
    spec: &CompareSpec,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
    let [metric] = &args.metric[..] else {
        return Err(Failure::request(
            "--rows shows one metric; write one --metric",
        ));
    };
    let request = PivotRequest {
        metric: metric.clone(),
        of: args.shape.of.clone(),
        rows: args.shape.rows.clone(),
        columns: args.shape.columns.clone(),
        each: match args.shape.each {
            EachArg::Run => Each::Run,
            EachArg::Sample => Each::Sample,
        },
    };
    let name = folder_name(&results.path);
    let pivot = pivot(source(results, &name), &request, spec).map_err(|error| {
        let failure = Failure::request(&error);
        match error {
            PivotError::Mixed { axis, values } => failure.hint(format!(
                "add --rows or --columns {axis}, or keep one: --only {axis}={}",
                values[0]
            )),
            _ => failure,
        }
    })?;
    let grid = report::pivot::grid(&pivot, args.shape.cell);
    match if args.json { Format::Json } else { args.format } {
        Format::Text => terminal.answer(report::text::table(&grid, width(args.width))),
        Format::Markdown => terminal.answer(report::markdown::table(&grid)),
        Format::Json => terminal.json(&pivot),
        Format::Csv => {
            let text = report::csv::table(&grid).map_err(Failure::lab)?;
            terminal.answer(text.trim_end());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Compares one campaign with its baseline, or two campaigns.
pub fn compared(
    older: Option<&Results>,
    newer: &Results,
    spec: &CompareSpec,
    metrics: &[String],
) -> Result<Comparison, Failure> {
    let all;
    let metrics = if metrics.iter().any(|name| name == "all") {
        all = compare::metric_names(&newer.records);
        &all[..]
    } else {
        metrics
    };
    let request = Request {
        experiment: &newer.meta.experiment.name,
        spec,
        metrics,
        looks: u32::try_from(newer.meta.looks.len()).unwrap_or(u32::MAX),
    };
    let newer_name = folder_name(&newer.path);
    let comparison = match older {
        Some(older) => {
            let (mut older_name, mut newer_name) = (folder_name(&older.path), newer_name);
            if older_name == newer_name {
                older_name = older.path.display().to_string();
                newer_name = newer.path.display().to_string();
            }
            compare::between(
                source(older, &older_name),
                source(newer, &newer_name),
                request,
            )
        }
        None => compare::within(source(newer, &newer_name), request),
    };
    comparison.map_err(Failure::request)
}

fn source<'a>(results: &'a Results, name: &'a str) -> Source<'a> {
    Source {
        name,
        records: &results.records,
        cells: &results.meta.cells,
        warmup: results.meta.experiment.warmup,
    }
}

/// The folder's own name.
pub fn folder_name(path: &Path) -> String {
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Reads a results folder, or the lines `report --jsonl` wrote.
pub fn load(path: &Path) -> Result<Results, Failure> {
    if path.is_file() {
        let about = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let file = File::open(path).map_err(|error| Failure::request(about(&error)))?;
        let (meta, records) = report::jsonl::read(BufReader::new(file)).map_err(|error| {
            let mut failure = Failure::request(about(&error));
            failure
                .causes
                .extend(error.source().map(ToString::to_string));
            failure
        })?;
        let path = path.with_extension("");
        return Ok(Results {
            path,
            meta,
            records,
        });
    }
    store::load(path).map_err(|error| {
        let kind = match error {
            StoreError::NotResults(_) | StoreError::Version { .. } => Kind::Request,
            _ => Kind::Lab,
        };
        Failure::of(kind, &error)
    })
}

/// Columns to fill.
pub fn width(wanted: Option<u16>) -> u16 {
    wanted
        .or_else(crate::terminal::columns)
        .unwrap_or(report::text::WIDEST)
}

/// Exit code of the contract.
pub fn exit_code(answer: Answer) -> ExitCode {
    match answer {
        Answer::Good => ExitCode::SUCCESS,
        Answer::Failed => ExitCode::from(1),
        Answer::Undecided => ExitCode::from(6),
    }
}
