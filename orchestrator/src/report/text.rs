//! Tables for the terminal and for mails: at most 100 columns, no colour, no
//! lines that a quoted mail would break.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use topolab_protocol::sample::MetricKind;

use super::{
    names::{axis_heading, short_kernels},
    number::{NBSP, Unit, mean_and_cov},
    words,
};
use crate::{
    compare::{Comparison, Loss, MetricTable, Side},
    plan::Cell,
    stats::verdict::{Unfit, Verdict},
};

/// Widest table, columns.
pub const WIDEST: u16 = 100;

/// The whole comparison as text, without a final newline.
pub fn render(comparison: &Comparison, width: u16) -> String {
    let width = width.clamp(40, WIDEST);
    let mut parts = vec![wrap(&head(comparison), width)];
    if !comparison.differences.is_empty() {
        parts.push(differences(comparison, width));
    }
    for table in &comparison.tables {
        parts.push(metric(comparison, table, width));
    }
    if !comparison.gates.is_empty() {
        let grid = gate_grid(comparison);
        let table = draw(&grid.headings, &grid.rows, &grid.numeric, width);
        parts.push(format!("{}\n{table}", grid.title).replace(NBSP, " "));
    }
    if !comparison.notices.is_empty() {
        let mut lines = vec!["worth knowing:".to_string()];
        for notice in &comparison.notices {
            lines.push(wrap(&format!("  {}", words::notice(notice)), width));
        }
        parts.push(lines.join("\n"));
    }
    if !comparison.losses.is_empty() {
        parts.push(losses(&comparison.losses, width));
    }
    parts.join("\n\n")
}

/// What the tables have in common.
pub(super) fn head(comparison: &Comparison) -> String {
    let mut fixed: Vec<String> = comparison
        .constants
        .iter()
        .filter(|(axis, value)| !(axis.as_str() == "cmdlines" && value.as_str() == "default"))
        .filter(|(axis, value)| !(axis.as_str() == "settings" && value.as_str() == "default"))
        .map(|(axis, value)| format!("{} {value}", axis_heading(axis)))
        .collect();
    if let [older, newer] = &comparison.sources[..] {
        fixed.insert(0, format!("{newer} against {older}"));
    } else if !comparison.baseline.is_empty() {
        let base: Vec<&str> = comparison.baseline.values().map(String::as_str).collect();
        fixed.push(format!("baseline {}", base.join(", ")));
    }
    format!("{}: {}", comparison.experiment, fixed.join(", "))
}

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

/// Lays a metric's table out.
pub fn grid(comparison: &Comparison, table: &MetricTable) -> Grid {
    let largest = table
        .rows
        .iter()
        .flat_map(|row| row.base.iter().chain([&row.new]))
        .filter_map(|side| side.summary.as_ref())
        .fold(0.0f64, |largest, summary| largest.max(summary.mean.abs()));
    let unit = Unit::of(&table.unit, table.kind, largest);
    let kernels = KernelNames::of(comparison, table);
    let has_base = table.rows.iter().any(|row| row.base.is_some());
    let axes: Vec<&String> = table
        .axes
        .iter()
        .filter(|axis| !(axis.as_str() == "kernels" && kernels.column.is_some()))
        .collect();

    let mut headings: Vec<String> = axes
        .iter()
        .map(|axis| axis_heading(axis).to_string())
        .collect();
    let mut numeric = vec![false; headings.len()];
    if has_base {
        headings.push(kernels.base.clone());
        numeric.push(true);
    }
    headings.push(
        kernels
            .column
            .clone()
            .unwrap_or_else(|| kernels.new.clone()),
    );
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
                    "kernels" => kernels.short(&row.cell.kernel),
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
    let cells: Vec<&Cell> = comparison
        .gates
        .iter()
        .filter_map(|gate| gate.cell.as_ref())
        .collect();
    let mut kernels: Vec<&str> = comparison
        .baseline
        .get("kernels")
        .map(String::as_str)
        .into_iter()
        .collect();
    kernels.extend(cells.iter().map(|cell| cell.kernel.as_str()));
    let short = short_kernels(&kernels);
    let varies = |axis: &&str| {
        cells
            .iter()
            .any(|cell| cell.axis(axis) != cells[0].axis(axis))
    };
    let axes: Vec<&str> = Cell::AXES
        .into_iter()
        .filter(|axis| *axis == "kernels" || varies(axis))
        .collect();
    let rows = comparison
        .gates
        .iter()
        .map(|gate| {
            let place = gate.cell.as_ref().map_or("no cell".to_string(), |cell| {
                let names: Vec<&str> = axes
                    .iter()
                    .filter_map(|axis| match *axis {
                        "kernels" => kernels
                            .iter()
                            .position(|kernel| *kernel == cell.kernel)
                            .map(|index| short[index].as_str()),
                        axis => cell.axis(axis),
                    })
                    .collect();
                names.join(" · ")
            });
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
                if !untrusted.contains(&reason.as_str()) {
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
            "{} both sides ran the same kernel image: the change is noise",
            words::NOISE_FLOOR
        ));
    }
    notes
}

/// How kernels are called in a table.
struct KernelNames {
    /// Heading of the baseline's column.
    base: String,
    /// Heading of the other column when it holds more than one kernel.
    new: String,
    /// Heading of the other column when it holds one kernel.
    column: Option<String>,
    names: Vec<(String, String)>,
}

impl KernelNames {
    fn of(comparison: &Comparison, table: &MetricTable) -> Self {
        let mut kernels: Vec<&str> = Vec::new();
        let mut add = |kernel| {
            if !kernels.contains(&kernel) {
                kernels.push(kernel);
            }
        };
        for row in &table.rows {
            if let Some(base) = &row.base_cell {
                add(base.kernel.as_str());
            }
        }
        for row in &table.rows {
            add(&row.cell.kernel);
        }
        let names: Vec<(String, String)> = kernels
            .iter()
            .map(|kernel| (*kernel).to_string())
            .zip(short_kernels(&kernels))
            .collect();
        if let [older, newer] = &comparison.sources[..] {
            return Self {
                base: older.clone(),
                new: newer.clone(),
                column: None,
                names,
            };
        }
        let by_kernel =
            comparison.baseline.len() == 1 && comparison.baseline.contains_key("kernels");
        let base = if by_kernel {
            names[0].1.clone()
        } else {
            "baseline".into()
        };
        let column = (by_kernel && names.len() == 2).then(|| names[1].1.clone());
        let new = if comparison.baseline.is_empty() {
            "value"
        } else {
            "this"
        };
        Self {
            base,
            new: new.into(),
            column,
            names,
        }
    }

    fn short(&self, kernel: &str) -> String {
        self.names
            .iter()
            .find(|(name, _)| name == kernel)
            .map_or_else(|| kernel.to_string(), |(_, short)| short.clone())
    }
}

fn metric(comparison: &Comparison, table: &MetricTable, width: u16) -> String {
    let grid = grid(comparison, table);
    let mut text = grid.title.clone();
    text.push('\n');
    text.push_str(&draw(&grid.headings, &grid.rows, &grid.numeric, width));
    for note in &grid.notes {
        text.push('\n');
        text.push_str(&wrap(note, width));
    }
    text.replace(NBSP, " ")
}

/// A table without lines; columns two blanks apart, long cells wrapped.
pub(super) fn draw(
    headings: &[String],
    rows: &[Vec<String>],
    numeric: &[bool],
    width: u16,
) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width + 2)
        .force_no_tty();
    table.set_header(headings);
    table.add_rows(rows);
    for (index, is_number) in numeric.iter().enumerate() {
        if let Some(column) = table.column_mut(index) {
            column.set_padding((0, 2));
            if *is_number {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
    }
    let lines: Vec<String> = table
        .lines()
        .map(|line| line.trim_end().to_string())
        .collect();
    lines.join("\n")
}

/// Breaks a note at blanks, but not within its indentation; further lines are
/// indented by two more.
pub(super) fn wrap(text: &str, width: u16) -> String {
    let rest = text.trim_start_matches(' ');
    let indent = " ".repeat(text.len() - rest.len());
    let mut lines = vec![indent.clone()];
    for word in rest.split(' ') {
        let line = lines.last_mut().expect("never empty");
        if line.trim().is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= usize::from(width) {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(format!("{indent}  {word}"));
        }
    }
    lines.join("\n").replace(NBSP, " ")
}

fn differences(comparison: &Comparison, width: u16) -> String {
    let mut lines = vec![wrap(
        "compared runs differ in more than the experiment varies:",
        width,
    )];
    for difference in &comparison.differences {
        let show = |values: &[String]| {
            let values: Vec<&str> = values
                .iter()
                .map(|value| {
                    if value.is_empty() {
                        "unknown"
                    } else {
                        short_hash(value)
                    }
                })
                .collect();
            values.join(" and ")
        };
        let allowed = if difference.allowed { " (allowed)" } else { "" };
        lines.push(wrap(
            &format!(
                "  {}: {} → {}, {} {}{allowed}",
                difference.field,
                show(&difference.base),
                show(&difference.new),
                difference.rows.len(),
                words::plural(difference.rows.len(), "comparison"),
            ),
            width,
        ));
    }
    lines.join("\n")
}

/// The first 12 digits of a SHA-256, other values whole.
pub(super) fn short_hash(value: &str) -> &str {
    let is_hash = value.len() == 64 && value.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hash { &value[..12] } else { value }
}

fn losses(losses: &[Loss], width: u16) -> String {
    let mut lines = vec!["runs that did not complete:".to_string()];
    for loss in losses {
        let others: Vec<String> = loss
            .others
            .iter()
            .map(|(class, count)| format!("{count} × {class}"))
            .collect();
        let all = loss.completed + loss.others.values().sum::<usize>();
        lines.push(wrap(
            &format!(
                "  {}: {} of {all} ({})",
                loss.cell,
                others.join(", "),
                loss.detail
            ),
            width,
        ));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{compared, demo, demo_spec};

    #[test]
    fn the_demo_table() {
        insta::assert_snapshot!(render(&compared(&demo(5), &demo_spec()), 100), @"
        numa-scan: kernel linux-6.12+numa-scan-skip@all, topology dual-node-4, workload scan, baseline
          linux-6.12@base

        numa_pte_updates per run (count, lower is better), 5 runs, interleaved
        settings               base            all  verdict
        pinned-node0  49 914 ±1.9 %       0 ±0.0 %  better [-100 %, -100 %]
        unpinned      49 987 ±0.5 %  50 272 ±1.5 %  same [-1.2 %, +2.1 %] within ±5 %
        mean ±CoV; [interval of the change at 95 %]; changes below 5 % do not matter, Benjamini-Hochberg
          over 2 rows

        passes mean per run (rate, passes/s, higher is better), 5 runs, interleaved
        settings                base             all  verdict
        pinned-node0  11.96 ±3.9 % ~  12.05 ±1.6 % ~  not judged ~
        unpinned      11.99 ±1.0 % ~  12.14 ±3.0 % ~  not judged ~
        ~ the bench cannot carry timing (accelerator tcg): shown, never judged
        ");
    }

    #[test]
    fn gates_stand_below_the_tables() {
        let mut spec = demo_spec();
        spec.metrics.shift_remove("passes");
        let gate = r#"{"must_be": 0, "max_regression": "5%"}"#;
        spec.metrics[0].gate = Some(serde_json::from_str(gate).unwrap());
        let text = render(&compared(&demo(3), &spec), 100);
        insta::assert_snapshot!(text, @"
        numa-scan: kernel linux-6.12+numa-scan-skip@all, topology dual-node-4, workload scan, baseline
          linux-6.12@base

        numa_pte_updates per run (count, lower is better), 3 runs, interleaved
        settings               base            all  verdict
        pinned-node0  49 870 ±1.7 %       0 ±0.0 %  undecided [-100 %, -100 %]: 3 runs, at least 4 needed
        unpinned      50 103 ±0.4 %  50 598 ±1.2 %  undecided [-0.8 %, +2.2 %]: 3 runs, at least 4 needed
        mean ±CoV; [interval of the change at 95 %]; changes below 5 % do not matter, Benjamini-Hochberg
          over 2 rows

        gates
        result     metric            rule                cell                because
        pass       numa_pte_updates  must_be: 0          all · pinned-node0  it holds in all 3 runs
        undecided  numa_pte_updates  max_regression: 5%  all · pinned-node0  3 runs, at least 4 needed
        FAIL       numa_pte_updates  must_be: 0          all · unpinned      run 3 yielded 49920
        undecided  numa_pte_updates  max_regression: 5%  all · unpinned      3 runs, at least 4 needed
        ");
    }

    #[test]
    fn the_demo_table_in_a_narrow_terminal() {
        let text = render(&compared(&demo(5), &demo_spec()), 80);
        assert!(
            text.lines().all(|line| line.chars().count() <= 80),
            "{text}"
        );
        insta::assert_snapshot!(text, @"
        numa-scan: kernel linux-6.12+numa-scan-skip@all, topology dual-node-4, workload
          scan, baseline linux-6.12@base

        numa_pte_updates per run (count, lower is better), 5 runs, interleaved
        settings               base            all  verdict
        pinned-node0  49 914 ±1.9 %       0 ±0.0 %  better [-100 %, -100 %]
        unpinned      49 987 ±0.5 %  50 272 ±1.5 %  same [-1.2 %, +2.1 %] within ±5 %
        mean ±CoV; [interval of the change at 95 %]; changes below 5 % do not matter,
          Benjamini-Hochberg over 2 rows

        passes mean per run (rate, passes/s, higher is better), 5 runs, interleaved
        settings                base             all  verdict
        pinned-node0  11.96 ±3.9 % ~  12.05 ±1.6 % ~  not judged ~
        unpinned      11.99 ±1.0 % ~  12.14 ±3.0 % ~  not judged ~
        ~ the bench cannot carry timing (accelerator tcg): shown, never judged
        ");
    }
}
