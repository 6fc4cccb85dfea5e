//! Tables for web pages and merge requests (GitHub-flavoured Markdown).

use super::{
    grid::{Grid, gate_grid, grids},
    number::NBSP,
    text::head,
    words,
};
use crate::compare::Comparison;

/// The whole comparison as Markdown, without a final newline.
pub fn render(comparison: &Comparison) -> String {
    let mut parts = vec![escape(&head(comparison))];
    for difference in &comparison.differences {
        let note = if difference.allowed { " (allowed)" } else { "" };
        parts.push(format!(
            "> compared runs differ in `{}`: {} → {}{note}",
            difference.field,
            escape(&difference.base.join(", ")),
            escape(&difference.new.join(", ")),
        ));
    }
    parts.extend(grids(comparison).iter().map(table));
    if !comparison.gates.is_empty() {
        parts.push(table(&gate_grid(comparison)));
    }
    for notice in words::notices(comparison) {
        parts.push(format!("> {}", escape(&notice).replace(NBSP, " ")));
    }
    for loss in &comparison.losses {
        let others: Vec<String> = loss
            .others
            .iter()
            .map(|(class, count)| format!("{count} × {class}"))
            .collect();
        parts.push(format!(
            "> {}: {} ({})",
            escape(&loss.cell.to_string()),
            others.join(", "),
            escape(&loss.detail)
        ));
    }
    parts.join("\n\n")
}

/// One table with its title and notes.
pub fn table(grid: &Grid) -> String {
    let mut lines = vec![format!("**{}**", escape(&grid.title)), String::new()];
    lines.push(line(&grid.headings));
    let rule: Vec<String> = grid
        .numeric
        .iter()
        .map(|numeric| {
            if *numeric {
                "---:".into()
            } else {
                "---".into()
            }
        })
        .collect();
    lines.push(line_raw(&rule));
    lines.extend(grid.rows.iter().map(|row| line(row)));
    if !grid.notes.is_empty() {
        lines.push(String::new());
        lines.push(escape(&grid.notes.join("; ")));
    }
    lines.join("\n").replace(NBSP, " ")
}

fn line(cells: &[String]) -> String {
    let cells: Vec<String> = cells.iter().map(|cell| escape(cell)).collect();
    line_raw(&cells)
}

fn line_raw(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// Keeps text from being read as markup or as a column's end.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' | '\r' => escaped.push(' '),
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '|' | '*' | '`' | '[' | ']' | '\\' | '~' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::tests::{compared, demo, demo_spec};

    #[test]
    fn the_demo_in_markdown() {
        insta::assert_snapshot!(render(&compared(&demo(5), &demo_spec())), @r"
        numa-scan: kernel linux-6.12+numa-scan-skip@all, topology dual-node-4, workload scan, baseline linux-6.12@base

        **numa_pte_updates per run (count, lower is better), 5 runs, interleaved**

        | settings | base | all | verdict |
        | --- | ---: | ---: | --- |
        | pinned-node0 | 49 914 ±1.9 % | 0 ±0.0 % | better \[-100 %, -100 %\] |
        | unpinned | 49 987 ±0.5 % | 50 272 ±1.5 % | same \[-1.2 %, +2.1 %\] within ±5 % |

        mean ±CoV; \[interval of the change at 95 %\]; changes below 5 % do not matter, Benjamini-Hochberg over 2 rows

        **passes mean per run (rate, passes/s, higher is better), 5 runs, interleaved**

        | settings | base | all | verdict |
        | --- | ---: | ---: | --- |
        | pinned-node0 | 11.96 ±3.9 % \~ | 12.05 ±1.6 % \~ | not judged \~ |
        | unpinned | 11.99 ±1.0 % \~ | 12.14 ±3.0 % \~ | not judged \~ |

        \~ the bench cannot carry timing (accelerator tcg): shown, never judged
        ");
    }

    #[test]
    fn names_cannot_break_a_table() {
        assert_eq!(
            escape("a|b\n<script> *x* `y`"),
            "a\\|b &lt;script> \\*x\\* \\`y\\`"
        );
    }
}
