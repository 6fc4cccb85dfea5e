//! A bisection as one HTML page that needs nothing else.

use std::error::Error;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::account::{Account, Mark};
use super::git::short;
use super::observation::Place;
use super::{plot, text};

const STYLE: &str = "body{font:15px/1.45 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222}\
table{border-collapse:collapse;margin:1em 0}td,th{padding:.25em .7em;text-align:left;border-bottom:1px solid #ddd}\
td.n,th.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}pre{background:#f6f6f6;padding:1em;overflow-x:auto}\
.good{color:#1b6eb5}.bad{color:#c0392b}.skip,.unclear{color:#777}svg{max-width:100%;height:auto}code{font-size:.95em}\
@media(prefers-color-scheme:dark){body{background:#fff}}";

/// The whole page.
///
/// # Errors
/// The picture could not be drawn.
pub fn page(account: &Account) -> Result<String, Box<dyn Error>> {
    let picture = plot::samples(account)?;
    let mail = text::mail(account);
    let title = format!("{} in {}", account.sought, account.searched);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { "Bisection: " (title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { "Bisection: " (title) }
                pre { (text::conclusion(account)) }
                @if let Some(ends) = &account.ends { p { "Ends: " (text::ends_line(ends)) } }
                @if let Some(cell) = &account.cell { p { "Cell: " (cell) } }
                @if let Some(caution) = &account.caution { p { b { "Caution: " } (caution) } }
                @for confirmation in &account.confirmation {
                    p { (text::confirmation_line(confirmation)) }
                }
                p { (text::spent_line(account)) }
                @if let Some(svg) = picture {
                    h2 { "Runs of every step" }
                    p { "One point a run, in the order of the search; lines are the means of the ends, bands one standard deviation." }
                    (PreEscaped(svg))
                }
                h2 { "Path" }
                (path(account))
                @if !mail.is_empty() {
                    h2 { "For a mail" }
                    pre { (mail) }
                }
                @if let Some(environment) = &account.environment {
                    h2 { "Environment" }
                    table {
                        @for (name, value) in [
                            ("accelerator", &environment.accel), ("QEMU", &environment.qemu),
                            ("guest CPU", &environment.cpu_model), ("host CPU", &environment.host_cpu),
                            ("host kernel", &environment.host_kernel), ("configuration", &environment.kernel_config),
                            ("command line", &environment.cmdline), ("agent", &environment.agent),
                        ] {
                            tr { th { (name) } td { code { (value) } } }
                        }
                    }
                }
            }
        }
    };
    Ok(page.into_string())
}

fn path(account: &Account) -> Markup {
    let is_rate = account.ends.as_ref().is_none_or(|e| e.interval.is_none());
    html! {
        table {
            tr {
                th { "tree" } th.n { "runs" } th.n { "seen" } th.n { "P(bad)" } th { "mark" }
                th.n { "build" } th.n { "run" } th { "subject" }
            }
            @for step in &account.steps {
                tr {
                    td { code { (short(&step.tree)) }
                        @match step.place { Place::GoodEnd => " good end", Place::BadEnd => " bad end", Place::At(_) => "" } }
                    td.n { (step.runs) }
                    td.n { (text::seen(step, is_rate)) }
                    td.n { @if let Some(bad) = step.bad { (format!("{bad:.3}")) } }
                    td class=(class(step.mark)) { (step.mark.word()) }
                    td.n { (text::duration(step.build_seconds)) }
                    td.n { (text::duration(step.run_seconds)) }
                    td { (step.subject) @if !step.remark.is_empty() { " (" (step.remark) ")" } }
                }
            }
        }
    }
}

fn class(mark: Mark) -> &'static str {
    match mark {
        Mark::Good => "good",
        Mark::Bad => "bad",
        Mark::Skip => "skip",
        Mark::Unclear => "unclear",
    }
}
