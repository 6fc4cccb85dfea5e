//! The report as one page that needs nothing else: no network, no script. It
//! reads in light and dark, from a telephone's width up, and says with words and
//! marks what colours say too.

mod metric;
mod nights;
mod plot;
mod sections;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::campaign::Campaign;
use crate::compare::history::History;

/// Nothing may be fetched, nothing may run: the page holds what it shows.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// Writes the page.
pub fn render(campaign: &Campaign<'_>) -> String {
    let comparison = campaign.comparison;
    let samples = metric::samples(campaign);
    page(
        &campaign.meta.experiment.name.value,
        &html! {
            (sections::head(campaign))
            (sections::gates(campaign))
            (sections::differences(campaign))
            (sections::notices(campaign))
            @for table in &comparison.tables {
                (metric::section(campaign, table, &samples))
            }
            (sections::runs(campaign))
            (sections::failures(campaign))
            (sections::builds(campaign))
            (sections::topologies(campaign))
            (sections::environment(campaign))
            (sections::reproduce(campaign))
        },
    )
}

/// Writes a page of one metric over many nights.
pub fn histories(histories: &[History]) -> String {
    let name = histories
        .first()
        .map_or("history", |history| &history.metric);
    page(
        name,
        &html! {
            header { h1 { (name) " over the nights" } }
            @for history in histories { (nights::section(history)) }
        },
    )
}

fn page(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (title) " · topolab" }
                // A favicon of nothing keeps browsers from asking a server for one.
                link rel="icon" href="data:,";
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body { (body) }
        }
    };
    page.into_string()
}

/// A table; where the page is narrow each row becomes a card of headings and values.
fn table(headings: &[String], numeric: &[bool], rows: impl Iterator<Item = Vec<Markup>>) -> Markup {
    let class = |at: usize, last: usize| match (numeric[at], at == last) {
        (true, _) => "num",
        (false, true) => "say",
        (false, false) => "name",
    };
    let last = headings.len() - 1;
    html! {
        div.wide {
            table {
                thead { tr { @for (at, heading) in headings.iter().enumerate() { th.num[numeric[at]] { (heading) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (at, cell) in row.iter().enumerate() { td class=(class(at, last)) data-h=(headings[at]) { span { (cell) } } } }
                    }
                }
            }
        }
    }
}

/// Text from guests without control characters that no page may hold.
fn printable(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect()
}
