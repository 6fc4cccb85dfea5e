//! A cell's history: plot and table.

use maud::{Markup, html};

use super::{plot::levels, table};
use crate::{
    compare::history::History,
    report::{history, number::Unit},
};

/// Plot and table of one cell.
pub(super) fn section(history: &History) -> Markup {
    let grid = history::grid(history);
    let means: Vec<(usize, f64)> = history
        .nights
        .iter()
        .enumerate()
        .filter_map(|(place, night)| Some((place, night.summary?.mean)))
        .collect();
    let largest = means
        .iter()
        .fold(0.0f64, |largest, (_, mean)| largest.max(mean.abs()));
    let unit = Unit::of(&history.unit, history.kind, largest);
    let mut steps: Vec<(usize, usize, f64)> = Vec::new();
    let mut start = 0;
    for change in &history.changes {
        steps.push((start, change.at - 1, change.before));
        start = change.at;
    }
    if let Some(last) = history.changes.last() {
        steps.push((start, history.nights.len() - 1, last.after));
    }
    let day = |place: usize| history.nights[place].started.get(..10).unwrap_or_default();
    let ends = (day(0), day(history.nights.len() - 1));
    // The plot column is for terminals; the page has a plot of its own.
    let plot_at = grid.headings.iter().position(|heading| heading == "plot");
    let without = |row: &[String]| -> Vec<String> {
        let cells = row
            .iter()
            .enumerate()
            .filter(|(at, _)| Some(*at) != plot_at);
        cells.map(|(_, cell)| cell.clone()).collect()
    };
    let numeric: Vec<bool> = grid
        .numeric
        .iter()
        .enumerate()
        .filter(|(at, _)| Some(*at) != plot_at)
        .map(|(_, n)| *n)
        .collect();
    html! {
        section {
            h2 { (history.cell) }
            p.dim { (grid.title) }
            (levels(&means, &steps, &unit, ends))
            (table(
                &without(&grid.headings),
                &numeric,
                grid.rows.iter().map(|row| without(row).into_iter().map(|cell| html! { (cell) }).collect()),
            ))
            @for note in &grid.notes { p.dim { (note) } }
        }
    }
}
