//! Tables of one's own shape: what stands in a cell, and how it is laid out.

use topolab_protocol::sample::MetricKind;

use super::{
    grid::Grid,
    names::{axis_heading, short_kernels},
    number::{NBSP, Unit, mean_and_cov},
    words,
};
use crate::{
    compare::pivot::{Each, Group, Key, Pivot},
    stats::{
        judge::PerRun,
        summary::{Summary, median_interval},
    },
};

/// What stands in a cell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Shape {
    /// `41 474.7 ±0.1 %`.
    #[default]
    MeanCov,
    /// `41 470 [41 400, 41 520]`.
    MedianInterval,
    /// `212 49 48 76 214` and `599 of 294 616`.
    PerRunTotal,
}

/// Lays the table out.
pub fn grid(pivot: &Pivot, shape: Shape) -> Grid {
    let largest = pivot
        .rows
        .iter()
        .flat_map(|row| row.groups.iter().flatten())
        .flat_map(|group| &group.values)
        .fold(0.0f64, |largest, value| largest.max(value.abs()));
    let unit = Unit::of(&pivot.unit, pivot.kind, largest);
    let kernels = |keys: &[Key], tuples: &[&Vec<String>], place: usize| -> Option<Vec<String>> {
        (keys[place] == Key::Axis("kernels".into())).then(|| {
            let names: Vec<&str> = tuples.iter().map(|tuple| tuple[place].as_str()).collect();
            short_kernels(&names)
        })
    };
    let row_tuples: Vec<&Vec<String>> = pivot.rows.iter().map(|row| &row.keys).collect();
    let row_names: Vec<Option<Vec<String>>> = (0..pivot.row_keys.len())
        .map(|place| kernels(&pivot.row_keys, &row_tuples, place))
        .collect();
    let column_tuples: Vec<&Vec<String>> = pivot.columns.iter().collect();
    let mut headings: Vec<String> = pivot
        .row_keys
        .iter()
        .map(|key| match key {
            Key::Axis(axis) => axis_heading(axis).to_string(),
            Key::Label(label) => label.clone(),
        })
        .collect();
    let mut numeric = vec![false; headings.len()];
    for (number, column) in pivot.columns.iter().enumerate() {
        let parts: Vec<String> = pivot
            .column_keys
            .iter()
            .enumerate()
            .map(|(place, key)| match key {
                Key::Axis(_) => kernels(&pivot.column_keys, &column_tuples, place)
                    .map_or_else(|| column[place].clone(), |names| names[number].clone()),
                Key::Label(label) => format!("{label}{NBSP}{}", column[place]),
            })
            .collect();
        let name = if parts.is_empty() {
            pivot.metric.clone()
        } else {
            parts.join(" ")
        };
        match shape {
            Shape::PerRunTotal => {
                headings.extend([format!("{name} {}", each(pivot.each)), "total".into()]);
                numeric.extend([false, true]);
            }
            _ => {
                headings.push(name);
                numeric.push(true);
            }
        }
    }
    let rows = pivot
        .rows
        .iter()
        .enumerate()
        .map(|(number, row)| {
            let mut cells: Vec<String> = row
                .keys
                .iter()
                .enumerate()
                .map(|(place, key)| match &row_names[place] {
                    Some(names) => names[number].clone(),
                    None => key.clone(),
                })
                .collect();
            for group in &row.groups {
                cells.extend(show(group.as_ref(), shape, &unit, pivot.untrusted));
            }
            cells
        })
        .collect();
    Grid {
        title: title(pivot, &unit),
        headings,
        numeric,
        rows,
        notes: notes(pivot, shape),
    }
}

fn each(each: Each) -> &'static str {
    match each {
        Each::Run => "per run",
        Each::Sample => "per sample",
    }
}

fn show(group: Option<&Group>, shape: Shape, unit: &Unit, untrusted: bool) -> Vec<String> {
    let summary = group.and_then(|group| Summary::of(&group.values));
    let (Some(group), Some(summary)) = (group, summary) else {
        let width = if shape == Shape::PerRunTotal { 2 } else { 1 };
        return vec!["-".into(); width];
    };
    let mark = if untrusted {
        format!("{NBSP}{}", words::UNTRUSTED)
    } else {
        String::new()
    };
    match shape {
        Shape::MeanCov if summary.min == 0.0 && summary.max == 0.0 => vec!["0".into()],
        Shape::MeanCov => vec![mean_and_cov(unit, summary.mean, summary.cov) + &mark],
        Shape::MedianInterval => {
            let (low, high) = median_interval(&group.values, 0.95).expect("there are values");
            vec![format!(
                "{}{NBSP}[{},{NBSP}{}]{mark}",
                unit.show(summary.median),
                unit.show(low),
                unit.show(high)
            )]
        }
        Shape::PerRunTotal => {
            let values: Vec<String> = group.values.iter().map(|value| unit.show(*value)).collect();
            let total = unit.show(group.values.iter().sum());
            let of = group.of_total.map_or(String::new(), |of| {
                format!("{NBSP}of{NBSP}{}", unit.show(of))
            });
            vec![values.join(" "), format!("{total}{of}{mark}")]
        }
    }
}

fn title(pivot: &Pivot, unit: &Unit) -> String {
    let mut about = vec![words::kind(pivot.kind).to_string()];
    if !unit.name.is_empty() && unit.name != about[0] {
        about.push(unit.name.clone());
    }
    let of = pivot
        .of
        .as_ref()
        .map_or(String::new(), |of| format!(" of {of}"));
    format!(
        "{}{of} {} ({})",
        pivot.metric,
        each(pivot.each),
        about.join(", ")
    )
}

fn notes(pivot: &Pivot, shape: Shape) -> Vec<String> {
    let sizes = || {
        pivot
            .rows
            .iter()
            .flat_map(|row| row.groups.iter().flatten())
            .map(|group| group.values.len())
    };
    let (low, high) = (sizes().min().unwrap_or(0), sizes().max().unwrap_or(0));
    let noun = match pivot.each {
        Each::Run => "run",
        Each::Sample => "sample",
    };
    let count = if low == high {
        format!("{high} {}", words::plural(high, noun))
    } else {
        format!("{low} to {high} {noun}s")
    };
    let what = match shape {
        Shape::MeanCov => "mean ±CoV",
        Shape::MedianInterval => {
            "median [interval between order statistics, at least 95 % where the number of values allows]"
        }
        Shape::PerRunTotal => "every value, and their total",
    };
    let labels = pivot.combined.join(", ");
    let over = match pivot.each {
        _ if labels.is_empty() => String::new(),
        Each::Run => format!("; {labels} {} within a run", combined(pivot.per_run)),
        Each::Sample => format!("; pooled over {labels}"),
    };
    let note = format!("{what} over {count}{over}");
    let mut notes = vec![note];
    if pivot.untrusted && matches!(pivot.kind, MetricKind::Duration | MetricKind::Rate) {
        notes.push(format!(
            "{} the bench cannot carry timing",
            words::UNTRUSTED
        ));
    }
    notes
}

fn combined(per_run: PerRun) -> &'static str {
    match per_run {
        PerRun::Sum => "added up",
        PerRun::Mean => "averaged",
        PerRun::Median => "reduced to the median",
        PerRun::P99 => "reduced to the 99th percentile",
        PerRun::Min => "reduced to the least",
        PerRun::Max => "reduced to the greatest",
        PerRun::Last => "reduced to the last",
    }
}
