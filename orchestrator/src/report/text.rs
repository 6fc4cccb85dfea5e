//! Tables for the terminal and for mails: at most 100 columns, no colour, no
//! lines that a quoted mail would break.

use super::{
    grid::{Grid, gate_grid, grids},
    names::{Names, axis_heading},
    number::NBSP,
    words,
};
use crate::compare::Comparison;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// Widest table, columns.
pub const WIDEST: u16 = 100;

/// The whole comparison as text, without a final newline.
pub fn render(comparison: &Comparison, width: u16) -> String {
    let width = width.clamp(40, WIDEST);
    let mut parts = vec![wrap(&head(comparison), width)];
    if !comparison.differences.is_empty() {
        parts.push(differences(comparison, width));
    }
    parts.extend(grids(comparison).iter().map(|grid| table(grid, width)));
    if !comparison.gates.is_empty() {
        parts.push(table(&gate_grid(comparison), width));
    }
    if !comparison.notices.is_empty() {
        let mut lines = vec!["worth knowing:".to_string()];
        for notice in words::notices(comparison) {
            lines.push(wrap(&format!("  {notice}"), width));
        }
        parts.push(lines.join("\n"));
    }
    if !comparison.losses.is_empty() {
        parts.push(losses(comparison, width));
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

/// One table with its title and notes.
pub fn table(grid: &Grid, width: u16) -> String {
    let mut text = wrap(&grid.title, width);
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

fn losses(comparison: &Comparison, width: u16) -> String {
    let names = Names::of(comparison);
    let mut lines = vec!["runs that did not complete:".to_string()];
    for loss in &comparison.losses {
        let others: Vec<String> = loss
            .others
            .iter()
            .map(|(class, count)| format!("{count} × {class}"))
            .collect();
        let all = loss.completed + loss.others.values().sum::<usize>();
        lines.push(wrap(
            &format!(
                "  {}: {} of {all} ({})",
                names.cell(&loss.cell),
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
