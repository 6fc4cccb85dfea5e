//! `run --until decided`: rounds are added after each look at the data.

use std::path::Path;

use clap::ValueEnum;
use topolab::{
    campaign::Prepared,
    compare::{Comparison, GateStatus},
    plan::Boot,
    stats::{
        sequential::{Next, next},
        verdict::Verdict,
    },
    store::{self, ResultsFolder},
};

use crate::{
    compare,
    failure::{Failure, Kind},
    run::RunArgs,
    terminal::Terminal,
};

/// Rounds at most, when nobody says: more than the usual noise asks for.
const MOST: u32 = 100;

/// When a campaign has enough rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Until {
    /// When everything that is judged is decided
    Decided,
}

/// Most rounds, when rounds are to be added: as typed, or as a folder that is gone
/// on with has it.
///
/// # Errors
/// The campaign is a warm one.
pub fn limit(prepared: &Prepared, args: &RunArgs) -> Result<Option<u32>, Failure> {
    let kept = match &args.resume {
        Some(folder) => {
            let results = store::load(folder).map_err(|e| Failure::of(Kind::Request, &e))?;
            results.meta.until_decided
        }
        None => None,
    };
    let typed = args.until.map(|_| args.max_rounds.unwrap_or(MOST));
    let limit = typed.or(kept);
    if limit.is_some() && prepared.experiment.boot == Boot::Warm {
        return Err(Failure::request(
            "--until decided adds runs, and `boot: warm` decides by its boots",
        )
        .hint("write more `boots:`, or `boot: fresh`"));
    }
    Ok(limit)
}

/// Looks at the data and says how many rounds the campaign is to have. The look is
/// kept in the folder together with that number.
///
/// # Errors
/// The folder cannot be read or written, or nothing in it can be compared.
pub fn look(results: &Path, most: u32, terminal: Terminal) -> Result<u32, Failure> {
    let store = |error| Failure::of(Kind::Lab, &error);
    let (folder, mut results) = ResultsFolder::open(results).map_err(store)?;
    let rounds = results.meta.rounds;
    // Going on with a campaign that had ended is no further look.
    if results.meta.looks.last() != Some(&rounds) {
        results.meta.looks.push(rounds);
    }
    let spec = &results.meta.experiment.compare;
    let metrics: Vec<String> = spec.metrics.keys().cloned().collect();
    let comparison = compare::compared(None, &results, spec, &metrics)?;
    let open = open(&comparison);
    let after = match next(&comparison.open_questions(), rounds, most) {
        Next::Stop => {
            terminal.say(format_args!("decided after {rounds} rounds"));
            rounds
        }
        Next::Hopeless => {
            let open = open.join("; ");
            terminal.say(format_args!("undecided after {rounds} rounds: {open}"));
            rounds
        }
        Next::Rounds(more) => {
            terminal.say(format_args!(
                "undecided after {rounds} rounds, {more} are added: {}",
                open.join("; ")
            ));
            rounds + more
        }
    };
    results.meta.rounds = after;
    results.meta.until_decided = Some(most);
    folder.save_meta(&results.meta).map_err(store)?;
    Ok(after)
}

/// What is not decided yet, as [`Comparison::open_questions`] counts it.
fn open(comparison: &Comparison) -> Vec<String> {
    let gates = comparison.gates.iter();
    let undecided = |gate: &&topolab::compare::GateResult| gate.status == GateStatus::Undecided;
    if !comparison.gates.is_empty() {
        let name = |gate: &topolab::compare::GateResult| {
            let cell = gate.cell.as_ref().map(ToString::to_string);
            format!("{} in {}", gate.metric, cell.unwrap_or_default())
        };
        return gates.filter(undecided).map(name).collect();
    }
    let tables = comparison.tables.iter();
    tables
        .flat_map(|table| {
            let rows = table.rows.iter();
            let rows = rows.filter(|row| matches!(row.verdict, Some(Verdict::Undecided { .. })));
            rows.map(|row| format!("{} in {}", table.metric, row.cell))
        })
        .collect()
}
