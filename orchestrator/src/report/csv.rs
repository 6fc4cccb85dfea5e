//! One line per comparison, with plain numbers in the metric's own unit.

use crate::{
    compare::{Comparison, Side, history::History},
    plan::Cell,
    stats::bootstrap::Scale,
};

use super::{grid::Grid, number::NBSP, words};

/// Headings, in order. New ones are added at the end.
pub const HEADINGS: [&str; 31] = [
    "metric",
    "unit",
    "kind",
    "better",
    "kernel",
    "topology",
    "cmdline",
    "settings",
    "workload",
    "base_kernel",
    "base_topology",
    "base_cmdline",
    "base_settings",
    "base_workload",
    "base_runs",
    "base_mean",
    "base_cov",
    "base_median",
    "base_min",
    "base_max",
    "runs",
    "mean",
    "cov",
    "median",
    "min",
    "max",
    "change",
    "change_low",
    "change_high",
    "scale",
    "verdict",
];

/// The whole comparison as CSV with a heading.
///
/// # Errors
/// None in practice: the writer is memory.
pub fn render(comparison: &Comparison) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(HEADINGS)?;
    for table in &comparison.tables {
        for row in &table.rows {
            let better = serde_json::to_value(table.better).ok();
            let mut fields: Vec<String> = vec![
                table.metric.clone(),
                table.unit.clone(),
                words::kind(table.kind).into(),
                better
                    .as_ref()
                    .and_then(|b| b.as_str())
                    .unwrap_or_default()
                    .into(),
            ];
            fields.extend(cell(Some(&row.cell)));
            fields.extend(cell(row.base_cell.as_ref()));
            fields.extend(side(row.base.as_ref()));
            fields.extend(side(Some(&row.new)));
            fields.extend(match &row.change {
                Some(change) => [
                    change.value.to_string(),
                    change.interval.low.to_string(),
                    change.interval.high.to_string(),
                    match change.scale {
                        Scale::Relative => "relative".into(),
                        Scale::Absolute => "absolute".into(),
                    },
                ],
                None => Default::default(),
            });
            fields.push(
                row.verdict
                    .as_ref()
                    .map_or(String::new(), |v| words::word(v).into()),
            );
            writer.write_record(&fields)?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8(bytes).expect("only strings were written"))
}

/// Histories: a line per cell and night, with plain numbers.
///
/// # Errors
/// None in practice: the writer is memory.
pub fn histories(histories: &[History]) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record([
        "metric",
        "unit",
        "kernel",
        "topology",
        "cmdline",
        "settings",
        "workload",
        "night",
        "results",
        "runs",
        "mean",
        "cov",
        "median",
        "change_of_level",
        "p",
    ])?;
    for history in histories {
        for (place, night) in history.nights.iter().enumerate() {
            let mut fields = vec![history.metric.clone(), history.unit.clone()];
            fields.extend(cell(Some(&history.cell)));
            fields.extend([night.started.clone(), night.name.clone()]);
            let summary = night.summary.as_ref();
            let number =
                |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
            fields.push(summary.map_or("0".into(), |summary| summary.n.to_string()));
            fields.push(number(summary.map(|summary| summary.mean)));
            fields.push(number(summary.and_then(|summary| summary.cov)));
            fields.push(number(summary.map(|summary| summary.median)));
            let change = history.changes.iter().find(|change| change.at == place);
            fields.push(number(change.map(|change| change.after - change.before)));
            fields.push(number(change.map(|change| change.p)));
            writer.write_record(&fields)?;
        }
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8(bytes).expect("only strings were written"))
}

/// A table as it is laid out, with a heading.
///
/// # Errors
/// None in practice: the writer is memory.
pub fn table(grid: &Grid) -> Result<String, csv::Error> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for cells in [&grid.headings].into_iter().chain(&grid.rows) {
        writer.write_record(cells.iter().map(|cell| cell.replace(NBSP, " ")))?;
    }
    let bytes = writer.into_inner().map_err(|error| error.into_error())?;
    Ok(String::from_utf8(bytes).expect("only strings were written"))
}

fn cell(cell: Option<&Cell>) -> [String; 5] {
    Cell::AXES.map(|axis| {
        cell.and_then(|cell| cell.axis(axis))
            .unwrap_or_default()
            .to_string()
    })
}

fn side(side: Option<&Side>) -> [String; 6] {
    match side.and_then(|side| side.summary.as_ref()) {
        Some(summary) => [
            summary.n.to_string(),
            summary.mean.to_string(),
            summary.cov.map_or(String::new(), |cov| cov.to_string()),
            summary.median.to_string(),
            summary.min.to_string(),
            summary.max.to_string(),
        ],
        None => [
            "0".into(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
            String::new(),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{compared, demo, demo_spec};

    #[test]
    fn a_line_per_comparison() {
        let text = render(&compared(&demo(5), &demo_spec())).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        assert_eq!(reader.headers().unwrap().len(), HEADINGS.len());
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), 4);
        assert_eq!(&rows[0][0], "numa_pte_updates");
        assert_eq!(&rows[0][9], "linux-6.12@base");
        assert_eq!((&rows[0][26], &rows[0][30]), ("-1", "better"));
    }
}
