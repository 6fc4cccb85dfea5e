//! Tables as data: title, headings, cells, notes. Every format draws the same.

use topolab_protocol::sample::MetricKind;

use super::{
    names::{Names, axis_heading},
    number::{NBSP, Unit, mean_and_cov},
    words,
};
use crate::{
    compare::{Comparison, MetricTable, Side, alike},
    stats::verdict::{Unfit, Verdict},
};

/// Column headings, cells and the notes below of one metric's table, ready
/// for any format.
#[derive(Debug, Clone, PartialEq)]
pub struct Grid {
    /// What is shown, with unit, kind, direction and number of runs.
    pub title: String,
    /// Headings.
    pub headings: Vec<String>,
    /// Columns that hold numbers, for alignment.
    pub numeric: Vec<bool>,
    /// Cells, row by row.
    pub rows: Vec<Vec<String>>,
    /// Explanations of marks.
    pub notes: Vec<String>,
}

/// Lays all tables out. A note that several tables share stands below the last.
pub fn grids(comparison: &Comparison) -> Vec<Grid> {
    let mut grids: Vec<Grid> = comparison
        .tables
        .iter()
        .map(|table| grid(comparison, table))
        .collect();
    for place in 0..grids.len() {
        let (before, after) = grids.split_at_mut(place + 1);
        before[place]
            .notes
            .retain(|note| !after.iter().any(|later| later.notes.contains(note)));
    }
    grids
}

/// Lays a metric's table out.
pub fn grid(comparison: &Comparison, table: &MetricTable) -> Grid {
    let largest = table
        .rows
        .iter()
        .flat_map(|row| row.base.iter().chain([&row.new]))
        .filter_map(|side| side.summary.as_ref())
        .fold(0.0f64, |largest, summary| largest.max(summary.mean.abs()));
    let unit = Unit::of(&table.unit, table.kind, largest);
    let names = Names::of(comparison);
    let has_base = table.rows.iter().any(|row| row.base.is_some());
    let axes: Vec<&String> = comparison
        .axes
        .iter()
        .filter(|axis| !(axis.as_str() == "kernels" && names.column.is_some()))
        .collect();

    let mut headings: Vec<String> = axes
        .iter()
        .map(|axis| axis_heading(axis).to_string())
        .collect();
    let mut numeric = vec![false; headings.len()];
    if has_base {
        headings.push(names.base.clone());
        numeric.push(true);
    }
    headings.push(names.column.clone().unwrap_or_else(|| names.new.clone()));
    numeric.push(true);
    if has_base {
        headings.push("verdict".into());
        numeric.push(false);
    }
    let rows = table
        .rows
        .iter()
        .map(|row| {
            let mut cells: Vec<String> = axes
                .iter()
                .map(|axis| match axis.as_str() {
                    "kernels" => names.kernel(&row.cell.kernel),
                    axis => row.cell.axis(axis).unwrap_or_default().to_string(),
                })
                .collect();
            if let Some(base) = &row.base {
                cells.push(value(base, &unit, table.kind));
            }
            cells.push(value(&row.new, &unit, table.kind));
            if has_base {
                cells.push(words::sentence(row, &unit));
            }
            cells
        })
        .collect();
    Grid {
        title: title(table, &unit, comparison),
        headings,
        numeric,
        rows,
        notes: notes(table, &unit),
    }
}

/// Lays the gates out.
pub fn gate_grid(comparison: &Comparison) -> Grid {
    let names = Names::of(comparison);
    let rows = comparison
        .gates
        .iter()
        .map(|gate| {
            let place = gate
                .cell
                .as_ref()
                .map_or("no cell".to_string(), |cell| names.cell(cell));
            let (status, rule) = (gate.status.word().into(), gate.rule.replace(' ', "\u{a0}"));
            vec![
                status,
                gate.metric.clone(),
                rule,
                place,
                gate.reason.clone(),
            ]
        })
        .collect();
    Grid {
        title: "gates".into(),
        headings: ["result", "metric", "rule", "cell", "because"]
            .map(String::from)
            .to_vec(),
        numeric: vec![false; 5],
        rows,
        notes: Vec::new(),
    }
}

fn title(table: &MetricTable, unit: &Unit, comparison: &Comparison) -> String {
    let mut about = vec![words::kind(table.kind).to_string()];
    if !unit.name.is_empty() && unit.name != about[0] {
        about.push(unit.name.clone());
    }
    about.push(words::direction(table.better).into());
    let order = if comparison.sources.len() > 1 {
        ""
    } else {
        ", interleaved"
    };
    format!(
        "{} {} ({}), {}{order}",
        table.metric,
        words::per_run(table.per_run),
        about.join(", "),
        words::runs(table),
    )
}

fn value(side: &Side, unit: &Unit, kind: MetricKind) -> String {
    let Some(summary) = &side.summary else {
        return "-".into();
    };
    let mut text = mean_and_cov(unit, summary.mean, summary.cov);
    if kind.is_timing() && !side.untrusted.is_empty() {
        text.push(NBSP);
        text.push_str(words::UNTRUSTED);
    }
    text
}

/// Below the table: what the numbers and marks mean.
fn notes(table: &MetricTable, unit: &Unit) -> Vec<String> {
    let mut notes = Vec::new();
    let judged = table.rows.iter().filter(|row| row.p.is_some()).count();
    if judged > 0 {
        let correction = if judged > 1 {
            format!(", {} over {judged} rows", table.correction.name())
        } else {
            String::new()
        };
        notes.push(format!(
            "mean ±CoV; [interval of the change at {}]; changes below {} do not matter{correction}",
            super::number::percent(1.0 - table.alpha),
            if table.min_effect.ends_with('%') {
                table.min_effect.replace('%', &format!("{NBSP}%"))
            } else {
                format!("{} {}", table.min_effect, unit.name)
            },
        ));
    }
    let mut untrusted: Vec<&str> = Vec::new();
    let mut equal = false;
    for row in &table.rows {
        if table.kind.is_timing() {
            for reason in row
                .base
                .iter()
                .chain([&row.new])
                .flat_map(|side| &side.untrusted)
            {
                if !untrusted.iter().any(|known| alike(known, reason)) {
                    untrusted.push(reason);
                }
            }
        }
        equal |= row.verdict
            == Some(Verdict::Invalid {
                reason: Unfit::EqualImages,
            });
    }
    if !untrusted.is_empty() {
        notes.push(format!(
            "{} the bench cannot carry timing ({}): shown, never judged",
            words::UNTRUSTED,
            untrusted.join("; ")
        ));
    }
    if equal {
        notes.push(format!(
            "{} both sides ran the same kernel image: the kernel changed nothing, the rest is noise",
            words::NOISE_FLOOR
        ));
    }
    notes
}
