//! A metric over many nights: a table with a plot in its last column.

use super::{
    grid::Grid,
    number::{NBSP, Unit, mean_and_cov, signed_percent},
    words,
};
use crate::compare::history::{History, LevelChange};

/// Columns of the plot.
const PLOT: usize = 24;

/// Lays a cell's history out, a row per night.
pub fn grid(history: &History) -> Grid {
    let means: Vec<f64> = history
        .nights
        .iter()
        .filter_map(|night| night.summary)
        .map(|summary| summary.mean)
        .collect();
    let low = means.iter().copied().fold(f64::INFINITY, f64::min);
    let high = means.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let unit = Unit::of(&history.unit, history.kind, high.abs().max(low.abs()));
    let rows = history
        .nights
        .iter()
        .enumerate()
        .map(|(place, night)| {
            let day = night
                .started
                .get(..10)
                .unwrap_or(&night.started)
                .to_string();
            let change = history.changes.iter().find(|change| change.at == place);
            let (value, runs, plot) = match &night.summary {
                Some(summary) => {
                    let mark = if night.untrusted {
                        format!("{NBSP}{}", words::UNTRUSTED)
                    } else {
                        String::new()
                    };
                    (
                        mean_and_cov(&unit, summary.mean, summary.cov) + &mark,
                        summary.n.to_string(),
                        plot(summary.mean, low, high),
                    )
                }
                None => ("-".into(), "0".into(), night.why_empty.clone()),
            };
            let remark = change.map_or(String::new(), level);
            vec![day, night.name.clone(), runs, value, plot, remark]
        })
        .collect();
    let mut about = vec![words::kind(history.kind).to_string()];
    if !unit.name.is_empty() && unit.name != about[0] {
        about.push(unit.name.clone());
    }
    about.push(words::direction(history.better).into());
    let mut notes = vec![format!(
        "mean ±CoV of a night's runs; plot from {} to {}",
        unit.show(low),
        unit.show(high)
    )];
    if history.nights.iter().any(|night| night.untrusted) {
        notes.push(format!(
            "{} the bench cannot carry timing: shown, never judged",
            words::UNTRUSTED
        ));
    }
    Grid {
        title: format!(
            "{} ({}) of {}",
            history.metric,
            about.join(", "),
            history.cell
        ),
        headings: [
            "night",
            "results",
            "runs",
            "value",
            "plot",
            "change of level",
        ]
        .map(String::from)
        .to_vec(),
        numeric: vec![false, false, true, true, false, false],
        rows,
        notes,
    }
}

/// A change of level in words.
pub fn level(change: &LevelChange) -> String {
    let size = if change.before == 0.0 {
        "from 0".into()
    } else {
        signed_percent(change.after / change.before - 1.0)
    };
    let verdict = change
        .verdict
        .map_or(String::new(), |verdict| format!("{verdict}{NBSP}"));
    format!(
        "←{NBSP}{verdict}{size} (p{NBSP}{})",
        words::p_value(change.p).replace(' ', "\u{a0}")
    )
}

/// A dot at the value's place.
fn plot(value: f64, low: f64, high: f64) -> String {
    let share = if high > low {
        (value - low) / (high - low)
    } else {
        0.0
    };
    let place = (share * (PLOT - 1) as f64).round() as usize;
    let mut line = "·".repeat(place);
    line.push('●');
    line.push_str(&"·".repeat(PLOT - 1 - place));
    line
}
