//! One metric: its table and its plots.

use std::collections::{HashMap, HashSet};

use maud::{Markup, html};

use super::{
    plot::{Scale, order, strip},
    table,
};
use crate::{
    compare::{Comparison, MetricTable, Row, Side},
    plan::Cell,
    report::{
        campaign::Campaign,
        grid::{Grid, grid},
        names::Names,
        number::Unit,
        words,
    },
    stats::verdict::Verdict,
};

/// More rows than this are plotted only where something changed or is open.
const MOST_STRIPS: usize = 40;

/// Raw samples by run, of runs that yielded more than one of a metric.
pub(super) type Samples<'a> = HashMap<(&'a str, usize), Vec<f64>>;

/// Collects raw samples; runs with one sample are left out, the run's value says it.
pub(super) fn samples<'a>(campaign: &Campaign<'a>) -> Samples<'a> {
    let mut samples: Samples<'a> = HashMap::new();
    let wanted: HashSet<&str> = campaign
        .comparison
        .tables
        .iter()
        .map(|table| table.metric.as_str())
        .collect();
    for run in campaign.runs() {
        let mut metric = "";
        let mut into: &mut Vec<f64> = &mut Vec::new();
        for sample in run
            .samples
            .iter()
            .filter(|s| wanted.contains(s.metric.as_str()))
        {
            // Samples of a metric mostly come in a row: look up once for all of them.
            if sample.metric != metric {
                metric = &sample.metric;
                into = samples.entry((metric, run.index)).or_default();
            }
            into.push(sample.value);
        }
    }
    samples.retain(|_, values| values.len() > 1);
    samples
}

/// Anchor of a metric.
pub(super) fn anchor(metric: &str) -> String {
    format!(
        "metric-{}",
        metric.replace(|c: char| !c.is_ascii_alphanumeric(), "-")
    )
}

/// The whole section.
pub(super) fn section(
    campaign: &Campaign<'_>,
    metric: &MetricTable,
    samples: &Samples<'_>,
) -> Markup {
    let comparison = campaign.comparison;
    let grid = grid(comparison, metric);
    let about = grid
        .title
        .trim_start_matches(&metric.metric)
        .trim()
        .to_string();
    let marks: Vec<Option<&Verdict>> = metric.rows.iter().map(|row| row.verdict.as_ref()).collect();
    html! {
        section {
            h2 id=(anchor(&metric.metric)) { (metric.metric) }
            p.dim { (about) }
            (verdicts(&grid, &marks))
            @for note in &grid.notes { p.dim { (note) } }
            (strips(comparison, metric, samples))
            (over_time(comparison, metric))
        }
    }
}

fn verdicts(grid: &Grid, verdicts: &[Option<&Verdict>]) -> Markup {
    table(
        &grid.headings,
        &grid.numeric,
        grid.rows.iter().zip(verdicts).map(|(row, verdict)| {
            let mut cells: Vec<Markup> = row.iter().map(|cell| html! { (cell) }).collect();
            if let (Some(verdict), Some(last)) = (verdict, row.last()) {
                let (class, mark) = badge(verdict);
                let (word, rest) = last.split_once(' ').unwrap_or((last, ""));
                let at = cells.len() - 1;
                cells[at] = html! { span.badge.(class) { (mark) " " (word) } " " (rest) };
            }
            cells
        }),
    )
}

/// Class and mark of a verdict: the words and marks say it without colour.
fn badge(verdict: &Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Better => ("good", "✓"),
        Verdict::Worse => ("bad", "✗"),
        Verdict::Same { .. } => ("dim", "="),
        Verdict::Undecided { .. } => ("warn", "?"),
        Verdict::Invalid { .. } => ("dim", "–"),
    }
}

fn strips(comparison: &Comparison, metric: &MetricTable, samples: &Samples<'_>) -> Markup {
    let is_told = |row: &&Row| match row.verdict {
        None => true,
        Some(Verdict::Same { .. } | Verdict::Invalid { .. }) => metric.rows.len() <= MOST_STRIPS,
        Some(_) => true,
    };
    let rows: Vec<&Row> = metric
        .rows
        .iter()
        .filter(is_told)
        .take(MOST_STRIPS)
        .collect();
    // A baseline stands once above all that is compared with it.
    let mut sides: Vec<(&Cell, &Side, bool)> = Vec::new();
    let mut drawn: HashSet<&Cell> = HashSet::new();
    for row in &rows {
        if let Some(base) = row.base_cell.as_ref()
            && !drawn.insert(base)
        {
            continue;
        }
        sides.extend(
            row.base_cell
                .as_ref()
                .zip(row.base.as_ref())
                .map(|(cell, side)| (cell, side, true)),
        );
        let alike = rows
            .iter()
            .filter(|other| row.base_cell.is_some() && other.base_cell == row.base_cell);
        sides.extend(alike.map(|other| (&other.cell, &other.new, false)));
        if row.base_cell.is_none() {
            sides.push((&row.cell, &row.new, false));
        }
    }
    if sides.iter().all(|(_, side, _)| side.runs.is_empty()) {
        return html! {};
    }
    let raw = |side: &Side| -> Vec<f64> {
        // Between two folders runs of the older one are not in this campaign.
        if comparison.sources.len() > 1 {
            return Vec::new();
        }
        side.runs
            .iter()
            .filter_map(|run| samples.get(&(metric.metric.as_str(), run.index)))
            .flatten()
            .copied()
            .collect()
    };
    let raws: Vec<Vec<f64>> = sides.iter().map(|(_, side, _)| raw(side)).collect();
    let all = sides.iter().zip(&raws).flat_map(|((_, side, _), raw)| {
        side.runs
            .iter()
            .map(|run| run.value)
            .filter(|_| raw.is_empty())
            .chain(raw.iter().copied())
    });
    let largest = all
        .clone()
        .fold(0.0f64, |largest, value| largest.max(value.abs()));
    let scale = Scale::of(all);
    let unit = Unit::of(&metric.unit, metric.kind, largest);
    let has_raw = raws.iter().any(|raw| !raw.is_empty());
    let names = Names::of(comparison);
    let two_folders = comparison.sources.len() > 1;
    html! {
        figure {
            figcaption {
                @if has_raw { "all samples: box from the first to the third quartile, line from the 1st to the 99th percentile; dots: the samples where there are few, else the runs" }
                @else { "every run: a dot; box from the first to the third quartile, bar at the median" }
                @if rows.len() < metric.rows.len() {
                    "; " (rows.len()) " of " (metric.rows.len()) " comparisons: those that changed or are undecided first"
                }
                @if sides.iter().any(|(_, _, is_base)| *is_base) {
                    span.key {
                        " "
                        span { i style="background:var(--base)" {} (if two_folders { &names.base } else { "baseline" }) }
                        span { i style="background:var(--new)" {} (if two_folders { &names.new } else { "compared with it" }) }
                    }
                }
            }
            @for ((cell, side, is_base), raw) in sides.iter().zip(&raws) {
                @let runs: Vec<f64> = side.runs.iter().map(|run| run.value).collect();
                @let folder = if *is_base { &names.base } else { &names.new };
                @let label = if two_folders { format!("{} · {folder}", names.cell(cell)) } else { names.cell(cell) };
                (strip(&scale, if *is_base { "b" } else { "n" }, &label, &runs, raw, *is_base))
            }
            (scale.axis(unit.divisor, &unit.name))
        }
    }
}

/// Every run as a share of its cell's mean, in the order they ran.
fn over_time(comparison: &Comparison, metric: &MetricTable) -> Markup {
    let mut seen: HashSet<&Cell> = HashSet::new();
    let mut values: Vec<(usize, f64)> = Vec::new();
    for row in &metric.rows {
        let base = row.base_cell.as_ref().zip(row.base.as_ref());
        // Two folders have an order each; the newer one's is shown.
        let base = base.filter(|_| comparison.sources.len() == 1);
        for (cell, side) in base.into_iter().chain([(&row.cell, &row.new)]) {
            // Shares of a mean that is mostly noise would drown all others.
            let Some(summary) = side
                .summary
                .filter(|summary| summary.mean != 0.0 && summary.cov.is_some_and(|cov| cov < 1.0))
            else {
                continue;
            };
            if seen.insert(cell) {
                values.extend(
                    side.runs
                        .iter()
                        .map(|run| (run.index, run.value / summary.mean - 1.0)),
                );
            }
        }
    }
    if values.len() < 6 {
        return html! {};
    }
    values.sort_unstable_by_key(|(run, _)| *run);
    order(
        &values,
        "in the order the runs ran, each against the mean of its cell; dashed: medians of the three thirds (steps show drift)",
    )
}

/// Words for the answer at the top of the page.
pub(super) fn count(comparison: &Comparison) -> String {
    let mut counts = [
        ("better", 0),
        ("worse", 0),
        ("same", 0),
        ("undecided", 0),
        ("invalid", 0),
    ];
    for verdict in comparison
        .tables
        .iter()
        .flat_map(|t| &t.rows)
        .filter_map(|r| r.verdict.as_ref())
    {
        for (word, count) in &mut counts {
            *count += usize::from(*word == words::word(verdict));
        }
    }
    let told: Vec<String> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(word, count)| {
            format!(
                "{count} {}",
                if *word == "invalid" {
                    "not judged"
                } else {
                    word
                }
            )
        })
        .collect();
    told.join(", ")
}
