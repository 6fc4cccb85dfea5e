//! KTAP, version 1 (`Documentation/dev-tools/ktap.rst` of the kernel): a test per
//! cell with a subtest per run, then a test per gate.

use super::campaign::{Campaign, CellRuns, Class, class, outcome};
use crate::compare::GateStatus;

/// Writes the report, with a final newline.
pub fn render(campaign: &Campaign<'_>) -> String {
    let gates = &campaign.comparison.gates;
    let mut lines = vec!["KTAP version 1".to_string()];
    lines.push(format!("1..{}", campaign.cells.len() + gates.len()));
    for (number, cell) in campaign.cells.iter().enumerate() {
        cell_lines(number + 1, cell, &mut lines);
    }
    for (number, gate) in gates.iter().enumerate() {
        let cell = gate
            .cell
            .as_ref()
            .map_or("no cell".into(), ToString::to_string);
        let name = clean(&format!("gate {} {} in {cell}", gate.metric, gate.rule));
        lines.push(diagnostic("", &gate.reason));
        let number = campaign.cells.len() + number + 1;
        lines.push(match gate.status {
            GateStatus::Pass => format!("ok {number} {name}"),
            GateStatus::Fail => format!("not ok {number} {name}"),
            GateStatus::Undecided => format!("ok {number} {name} # SKIP undecided"),
            GateStatus::Refused => format!("not ok {number} {name}"),
        });
    }
    lines.join("\n") + "\n"
}

fn cell_lines(number: usize, cell: &CellRuns<'_>, lines: &mut Vec<String>) {
    let name = clean(&cell.cell.to_string());
    if cell.runs.is_empty() {
        lines.push(format!("ok {number} {name} # SKIP never run"));
        return;
    }
    lines.push("  KTAP version 1".into());
    lines.push(format!("  # Subtest: {name}"));
    lines.push(format!("  1..{}", cell.runs.len()));
    for (place, run) in cell.runs.iter().enumerate() {
        let class = class(&run.outcome);
        if class != Class::Pass {
            lines.push(diagnostic("  ", &outcome(&run.outcome)));
            lines.extend(run.console_tail.iter().map(|line| diagnostic("  ", line)));
        }
        let name = format!("run {} round {}", run.index, run.round);
        lines.push(format!(
            "  {}",
            result(class, place + 1, &name, &outcome(&run.outcome))
        ));
    }
    lines.push(result(cell.class(), number, &name, &cell.tally()));
}

fn result(class: Class, number: usize, name: &str, why: &str) -> String {
    match class {
        Class::Pass => format!("ok {number} {name}"),
        Class::Skip => format!("ok {number} {name} # SKIP {}", clean(why)),
        Class::Error | Class::Fail => format!("not ok {number} {name}"),
    }
}

/// A diagnostic line; what would be read as a result is no longer one.
fn diagnostic(indent: &str, text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    format!("{indent}# {}", text.trim_end())
}

/// A description may hold no `#` and no line end.
fn clean(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '#' => '%',
            c if c.is_control() => ' ',
            c => c,
        })
        .collect()
}
