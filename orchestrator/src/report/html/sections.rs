//! The parts of the page around the metrics.

use std::collections::{BTreeMap, BTreeSet};

use maud::{Markup, PreEscaped, html};

use super::{metric, printable, table};
use crate::{
    compare::{Answer, GateStatus, alike, fields_of},
    report::{
        campaign::{Campaign, Class, outcome},
        grid::gate_grid,
        number::{number, percent},
        text::short_hash,
        words,
    },
    stats::summary::median,
    topology::{Topology, draw},
};

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_string()).collect()
}

/// Title, answer and contents.
pub(super) fn head(campaign: &Campaign<'_>) -> Markup {
    let meta = campaign.meta;
    let comparison = campaign.comparison;
    let (class, answer) = match comparison.answer {
        Answer::Good => ("good", "✓ good"),
        Answer::Failed => ("bad", "✗ failed"),
        Answer::Undecided => ("warn", "? undecided"),
    };
    let runs = campaign.runs().count();
    let completed = campaign
        .runs()
        .filter(|run| run.outcome.has_result())
        .count();
    html! {
        header {
            h1 { (meta.experiment.name.value) }
            @if !meta.experiment.about.is_empty() { p { (meta.experiment.about.trim()) } }
            p.dim {
                (campaign.folder) " · started " (meta.started) " · "
                (number(completed as f64)) " of " (number(runs as f64)) " runs completed in "
                (meta.cells.len()) " " (words::plural(meta.cells.len(), "cell")) " · seed " (meta.seed)
                " · topolab " (meta.topolab)
            }
            @if let [older, newer] = &comparison.sources[..] {
                p { "Each cell of " strong { (newer) } " against the same cell of " strong { (older) } "." }
            } @else if !comparison.baseline.is_empty() {
                p { "Baseline: " strong { (comparison.baseline.values().cloned().collect::<Vec<_>>().join(", ")) } "." }
            }
            div.answer.(class) { (answer) }
            @let counts = metric::count(comparison);
            @if !counts.is_empty() { p { (counts) "." } }
            nav {
                @for table in &comparison.tables {
                    a href=(format!("#{}", metric::anchor(&table.metric))) { (table.metric) }
                }
                a href="#runs" { "runs" } a href="#builds" { "builds" } a href="#topologies" { "topologies" }
                a href="#environment" { "environment" } a href="#reproduce" { "how to reproduce" }
            }
        }
    }
}

/// Gates, where the experiment has some.
pub(super) fn gates(campaign: &Campaign<'_>) -> Markup {
    let gates = &campaign.comparison.gates;
    if gates.is_empty() {
        return html! {};
    }
    let grid = gate_grid(campaign.comparison);
    let rows = grid.rows.iter().zip(gates).map(|(row, gate)| {
        let (class, mark) = match gate.status {
            GateStatus::Pass => ("good", "✓"),
            GateStatus::Fail => ("bad", "✗"),
            GateStatus::Undecided => ("warn", "?"),
            GateStatus::Refused => ("warn", "–"),
        };
        let mut cells: Vec<Markup> = row.iter().map(|cell| html! { (cell) }).collect();
        cells[0] = html! { span.badge.(class) { (mark) " " (row[0]) } };
        cells
    });
    html! { section { h2 id="gates" { "Gates" } (table(&grid.headings, &grid.numeric, rows)) } }
}

/// What compared runs differ in.
pub(super) fn differences(campaign: &Campaign<'_>) -> Markup {
    let differences = &campaign.comparison.differences;
    if differences.is_empty() {
        return html! {};
    }
    let show = |values: &[String]| {
        let values: Vec<&str> = values
            .iter()
            .map(|v| {
                if v.is_empty() {
                    "unknown"
                } else {
                    short_hash(v)
                }
            })
            .collect();
        values.join(" and ")
    };
    html! {
        div.box {
            strong { "Compared runs differ in more than the experiment varies." }
            ul {
                @for difference in differences {
                    li {
                        (difference.field) ": " (show(&difference.base)) " → " (show(&difference.new))
                        " (" (difference.rows.len()) " " (words::plural(difference.rows.len(), "comparison")) ")"
                        @if difference.allowed { ", allowed" } @else { ", refuses comparing gates" }
                    }
                }
            }
        }
    }
}

/// What a reader should know.
pub(super) fn notices(campaign: &Campaign<'_>) -> Markup {
    let notices = &campaign.comparison.notices;
    if notices.is_empty() {
        return html! {};
    }
    html! {
        div.box {
            strong { "Worth knowing." }
            ul { @for notice in words::notices(campaign.comparison) { li { (notice) } } }
        }
    }
}

/// Every cell with what became of its runs and how long they took.
pub(super) fn runs(campaign: &Campaign<'_>) -> Markup {
    let headings = strings(&[
        "kernel",
        "topology",
        "cmdline",
        "settings",
        "workload",
        "to hello, ms",
        "run, ms",
        "outcomes",
    ]);
    let numeric = [false, false, false, false, false, true, true, false];
    let rows = campaign.cells.iter().map(|cell| {
        let hello: Vec<f64> = cell
            .runs
            .iter()
            .filter_map(|run| run.hello_ms)
            .map(|ms| ms as f64)
            .collect();
        let wall: Vec<f64> = cell.runs.iter().map(|run| run.wall_ms as f64).collect();
        let shown = |values: &[f64]| median(values).map_or("-".into(), |ms| number(ms.round()));
        let (class, mark) = match cell.class() {
            Class::Pass => ("good", "✓"),
            Class::Skip => ("dim", "–"),
            Class::Error => ("warn", "!"),
            Class::Fail => ("bad", "✗"),
        };
        let at = cell.cell;
        vec![
            html! { (at.kernel) },
            html! { (at.topology) },
            html! { (at.cmdline) },
            html! { (at.settings) },
            html! { (at.workload) },
            html! { (shown(&hello)) },
            html! { (shown(&wall)) },
            html! { span.badge.(class) { (mark) } " " (cell.tally()) },
        ]
    });
    html! {
        section {
            h2 id="runs" { "Runs" }
            p.dim { "Times are medians over the runs of a cell." }
            (table(&headings, &numeric, rows))
        }
    }
}

/// Runs that did not complete, with the console's last lines.
pub(super) fn failures(campaign: &Campaign<'_>) -> Markup {
    const MOST: usize = 50;
    let lost: Vec<_> = campaign
        .runs()
        .filter(|run| !run.outcome.has_result())
        .collect();
    if lost.is_empty() {
        return html! {};
    }
    html! {
        section {
            h2 id="failures" { "Runs that did not complete" }
            @if lost.len() > MOST { p { "The first " (MOST) " of " (lost.len()) "." } }
            @for (place, run) in lost.iter().take(MOST).enumerate() {
                details open[place < 3] {
                    summary {
                        strong { "run " (run.index) ": " (printable(&outcome(&run.outcome))) } " " span.dim { (run.cell) }
                    }
                    @if run.console_tail.is_empty() { p.dim { "The console was empty." } }
                    @else { pre { (printable(&run.console_tail.join("\n"))) } }
                }
            }
        }
    }
}

/// What was built.
pub(super) fn builds(campaign: &Campaign<'_>) -> Markup {
    let headings = strings(&[
        "kernel", "release", "image", "objects", "seconds", "remarks",
    ]);
    let numeric = [false, false, false, true, true, false];
    let rows = campaign.meta.kernels.iter().map(|kernel| {
        let mut remarks: Vec<String> = Vec::new();
        if let Some(why) = &kernel.unavailable {
            remarks.push(format!("not available: {why}"));
        }
        if let Some(other) = &kernel.equal_to {
            remarks.push(format!("the same image as {other}"));
        }
        if kernel.cached {
            remarks.push("from the cache".into());
        }
        vec![
            html! { (kernel.name) },
            html! { (kernel.release) },
            html! { code { (short_hash(&kernel.image)) } },
            html! { (number(f64::from(kernel.recompiled))) },
            html! { (format!("{:.1}", kernel.seconds)) },
            html! { (remarks.join("; ")) },
        ]
    });
    html! {
        section {
            h2 id="builds" { "Builds" }
            @if campaign.meta.kernels.is_empty() { p.dim { "None recorded." } }
            @else { (table(&headings, &numeric, rows)) }
        }
    }
}

/// The machines the guests saw.
pub(super) fn topologies(campaign: &Campaign<'_>) -> Markup {
    html! {
        section {
            h2 id="topologies" { "Topologies" }
            @if campaign.meta.topologies.is_empty() { p.dim { "None recorded." } }
            @for (name, text) in &campaign.meta.topologies {
                @match Topology::from_text(name, text) {
                    Ok(topology) => figure.drawing { (PreEscaped(draw::svg(&topology))) },
                    Err(_) => {
                        h3 { (name) }
                        pre { (text) }
                    },
                }
            }
        }
    }
}

/// What the runs ran on.
pub(super) fn environment(campaign: &Campaign<'_>) -> Markup {
    let mut fields: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for run in campaign.runs() {
        for (name, value) in fields_of(&run.environment) {
            let values = fields.entry(name).or_insert_with(|| {
                order.push(name);
                Vec::new()
            });
            if !value.is_empty() && !values.contains(&value) {
                values.push(value);
            }
        }
    }
    let mut untrusted: Vec<&str> = Vec::new();
    for reason in campaign
        .runs()
        .filter(|run| !run.trust.timing)
        .flat_map(|run| &run.trust.reasons)
    {
        if !untrusted.iter().any(|known| alike(known, reason)) {
            untrusted.push(reason);
        }
    }
    let trusted = campaign.runs().all(|run| run.trust.timing);
    let headings = strings(&["what", "value"]);
    let rows = order
        .iter()
        .filter(|name| !fields[*name].is_empty())
        .map(|name| {
            let values: Vec<&str> = fields[name]
                .iter()
                .take(12)
                .map(|value| short_hash(value))
                .collect();
            let more = fields[name].len().saturating_sub(12);
            vec![
                html! { (name) },
                html! {
                    @for (place, value) in values.iter().enumerate() {
                        @if place > 0 { br; }
                        code { (printable(value)) }
                    }
                    @if more > 0 { br; span.dim { "and " (more) " more" } }
                },
            ]
        });
    html! {
        section {
            h2 id="environment" { "Environment" }
            @if trusted { p { "Timing could be trusted in every run." } }
            @else {
                p { "Timing cannot be trusted: durations and rates are shown with ~ and never judged. Of each kind of reason, one:" }
                ul { @for reason in &untrusted { li { (reason) } } }
            }
            (bench(campaign))
            (table(&headings, &[false, false], rows))
        }
    }
}

/// What was measured of the bench while the runs went on.
fn bench(campaign: &Campaign<'_>) -> Markup {
    let delays: Vec<f64> = campaign
        .runs()
        .filter_map(|run| run.trust.run_delay_ms.iter().copied().reduce(f64::max))
        .collect();
    let pressures: Vec<f64> = campaign
        .runs()
        .filter_map(|run| run.trust.cpu_pressure)
        .collect();
    let pins: BTreeSet<String> = campaign
        .runs()
        .flat_map(|run| &run.trust.pins)
        .map(|(thread, cpus)| format!("{thread} → {cpus}"))
        .collect();
    let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    html! {
        ul {
            @if let Some(middle) = median(&delays) {
                li {
                    "Waiting for a host CPU, the vCPU that waited most in a run: "
                    (number(middle)) " ms (median), " (number(largest(&delays))) " ms at most."
                }
            }
            @if let Some(middle) = median(&pressures) {
                li {
                    "Share of the measured window in which some task of the host waited for a CPU: "
                    (percent(middle)) " (median), " (percent(largest(&pressures))) " at most."
                }
            }
            @if pins.is_empty() { li { "No thread was bound to a host CPU." } }
            @else { li { "Bound and verified: " (pins.into_iter().collect::<Vec<_>>().join(", ")) "." } }
        }
    }
}

/// The experiment, and how to run it again.
pub(super) fn reproduce(campaign: &Campaign<'_>) -> Markup {
    let meta = campaign.meta;
    let name = &meta.experiment.name.value;
    html! {
        section {
            h2 id="reproduce" { "How to reproduce" }
            p { "Save the experiment below as " code { (name) ".yaml" } "; with " code { "seed: " (meta.seed) } " the runs come in the same order." }
            pre { "topolab run " (name) ".yaml --rounds " (meta.rounds) "\ntopolab compare results/" (campaign.folder) }
            pre { (meta.experiment_text) }
            @for (topology, text) in &meta.topologies {
                details { summary { "topology " (topology) } pre { (text) } }
            }
        }
    }
}
