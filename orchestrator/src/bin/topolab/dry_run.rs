//! `run --dry-run`: every run in its order, and how long it is expected to take.

use std::path::{Path, PathBuf};

use serde_json::json;
use topolab::{
    campaign::Prepared,
    plan::estimate::{self, Basis},
    store::{self, Results},
};

use crate::terminal::Terminal;

/// Tells the plan; starts nothing. `results` is where earlier campaigns lie.
pub fn answer(prepared: &Prepared, results: &Path, json: bool, terminal: Terminal) {
    let earlier = latest(results, &prepared.experiment.name.value);
    let records = earlier.as_ref().map_or(&[][..], |results| &results.records);
    let estimates: Vec<Option<(f64, Basis)>> = prepared
        .cells
        .iter()
        .map(|cell| {
            let workload = &prepared.experiment.workloads[&cell.workload];
            estimate::seconds(cell, workload, records)
        })
        .collect();
    let seconds = |cell: usize| estimates[cell].map(|(seconds, _)| seconds);
    let all: Option<f64> = prepared.order.iter().map(|run| seconds(run.cell)).sum();
    if json {
        let runs: Vec<_> = prepared
            .order
            .iter()
            .map(|run| {
                json!({
                    "index": run.index,
                    "round": run.round,
                    "warmup": run.warmup,
                    "cell": prepared.cells[run.cell],
                    "seconds": seconds(run.cell),
                })
            })
            .collect();
        terminal.json(&json!({
            "seed": prepared.seed,
            "rounds": prepared.rounds,
            "cells": prepared.cells,
            "runs": runs,
            "seconds": all,
        }));
        return;
    }
    terminal.answer(format_args!(
        "{}: {} cells × {} rounds = {} runs, seed {}",
        prepared.experiment.name.value,
        prepared.cells.len(),
        prepared.rounds,
        prepared.order.len(),
        prepared.seed
    ));
    for run in &prepared.order {
        let warmup = if run.warmup { " (warm-up)" } else { "" };
        let time = seconds(run.cell).map_or("     ?".into(), |s| format!("{s:4.0} s"));
        terminal.answer(format_args!(
            "{:5}  round {}{warmup}  {time}  {}",
            run.index,
            run.round + 1,
            prepared.cells[run.cell]
        ));
    }
    let worst = estimates.iter().flatten().map(|(_, basis)| *basis).max();
    let from = match (worst, &earlier) {
        (Some(Basis::Cell | Basis::Workload), Some(earlier)) => {
            format!("as the runs in {} took", earlier.path.display())
        }
        _ => "as the workloads say, with a boot for each run".into(),
    };
    match all {
        Some(all) => terminal.answer(format_args!(
            "about {} one after another, {from}; building is not counted",
            minutes(all)
        )),
        None => terminal.answer("? no run like it is known, and its workload does not tell"),
    }
}

/// The latest campaign of an experiment: folders are named after it and the time.
fn latest(results: &Path, experiment: &str) -> Option<Results> {
    let entries = std::fs::read_dir(results).ok()?;
    let is_of = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let stamp = name.strip_prefix(experiment);
        stamp.is_some_and(|stamp| stamp.starts_with("-2"))
    };
    let mut folders: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(is_of)
        .collect();
    folders.sort();
    // One that cannot be read is no reason not to tell the plan.
    let mut campaigns = folders
        .iter()
        .rev()
        .filter_map(|path| store::load(path).ok());
    campaigns.find(|results| results.meta.experiment.name.value == experiment)
}

fn minutes(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{s:.0} s"),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}
