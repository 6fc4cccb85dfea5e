//! `topolab history`: one metric over many nights.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, ValueEnum};
use topolab::{
    compare::{
        Source,
        history::{NightSource, histories},
        metric_names,
    },
    report,
    store::Results,
};

use crate::{
    compare::{axis_value, folder_name, load, only, width},
    failure::Failure,
    terminal::Terminal,
};

/// Arguments of `topolab history`.
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Results folders, in any order, or files written by `report --jsonl`
    #[arg(required = true)]
    results: Vec<PathBuf>,
    /// The metric (default: the first that the newest experiment compares)
    #[arg(short, long, value_name = "NAME")]
    metric: Option<String>,
    /// Only cells that fit these patterns, such as kernels=*@all (can be repeated)
    #[arg(long, value_name = "AXIS=PATTERN", value_parser = axis_value)]
    only: Vec<(String, String)>,
    /// Shape of the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Also write a page with plots
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Shape of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Text,
    Markdown,
    Json,
    Csv,
}

/// Shows the metric night after night.
///
/// # Errors
/// A folder cannot be read, or none has the metric.
pub fn run(args: &HistoryArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut nights: Vec<Results> = Vec::new();
    for path in &args.results {
        nights.push(only(load(path)?, &args.only)?);
    }
    nights.sort_by(|a, b| a.meta.started.cmp(&b.meta.started));
    let newest = nights.last().expect("clap asks for one at least");
    let spec = &newest.meta.experiment.compare;
    let known = metric_names(&newest.records);
    let metric = args
        .metric
        .as_ref()
        .or(spec.metrics.keys().next())
        .or(known.first())
        .ok_or_else(|| Failure::request("the newest results hold no metric"))?;
    let names: Vec<String> = nights
        .iter()
        .map(|night| folder_name(&night.path))
        .collect();
    let sources: Vec<NightSource<'_>> = nights
        .iter()
        .zip(&names)
        .map(|(night, name)| NightSource {
            source: Source {
                name,
                records: &night.records,
                cells: &night.meta.cells,
                warmup: night.meta.experiment.warmup,
            },
            started: &night.meta.started,
        })
        .collect();
    let histories = histories(&sources, metric, spec);
    if histories.is_empty() {
        let known = known.join(", ");
        return Err(Failure::request(format!(
            "no night yielded `{metric}`; the newest has: {known}"
        )));
    }
    let grids = || histories.iter().map(report::history::grid);
    match if args.json { Format::Json } else { args.format } {
        Format::Text => {
            let tables: Vec<String> = grids()
                .map(|grid| report::text::table(&grid, width(None)))
                .collect();
            terminal.answer(tables.join("\n\n"));
        }
        Format::Markdown => {
            let tables: Vec<String> = grids().map(|grid| report::markdown::table(&grid)).collect();
            terminal.answer(tables.join("\n\n"));
        }
        Format::Json => terminal.json(&histories),
        Format::Csv => {
            let text = report::csv::histories(&histories).map_err(Failure::lab)?;
            terminal.answer(text.trim_end());
        }
    }
    if let Some(path) = &args.html {
        let page = report::html::histories(&histories);
        std::fs::write(path, page)
            .map_err(|error| Failure::request(format!("{}: {error}", path.display())))?;
        terminal.say(format_args!("wrote {}", path.display()));
    }
    Ok(ExitCode::SUCCESS)
}
