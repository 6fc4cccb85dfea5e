//! Verdicts in words.

use topolab_protocol::sample::{Better, MetricKind};

use super::names::Names;
use super::number::{NBSP, Unit, interval, number, percent, signed_percent};
use crate::{
    compare::{Comparison, MetricTable, Notice, Row},
    stats::{
        bootstrap::{Change, Scale},
        judge::PerRun,
        verdict::{Doubt, Unfit, Verdict},
    },
};

/// Marks values of a bench that cannot carry them.
pub const UNTRUSTED: &str = "~";
/// Marks a comparison of equal images.
pub const NOISE_FLOOR: &str = "=";

/// The verdict alone, one word.
pub fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Same { .. } => "same",
        Verdict::Undecided { .. } => "undecided",
        Verdict::Invalid { .. } => "invalid",
    }
}

/// The verdict with what it rests on, for a table's last column.
pub fn sentence(row: &Row, unit: &Unit) -> String {
    let Some(verdict) = &row.verdict else {
        return String::new();
    };
    let range = row.change.as_ref().map_or(String::new(), |change| {
        format!(" {}", interval(change, unit))
    });
    match verdict {
        Verdict::Better | Verdict::Worse => format!("{}{range}", word(verdict)),
        Verdict::Same { within } => match &row.change {
            Some(change) if change.interval.half_width() > 0.0 => {
                format!("same{range} within{NBSP}±{}", size(*within, change, unit))
            }
            _ => "same".into(),
        },
        Verdict::Undecided { reason, more_runs } => {
            let why = doubt(reason, row.change.as_ref(), unit);
            let more = match (reason, more_runs) {
                (Doubt::TooFewRuns { .. } | Doubt::ZeroBaseline, _) => String::new(),
                (_, Some(runs)) => {
                    let noun = plural(*runs, "run");
                    format!(", ≈{}{NBSP}more{NBSP}{noun}", number(*runs as f64))
                }
                (_, None) => ", more runs will not help".into(),
            };
            format!("undecided{range}: {why}{more}")
        }
        Verdict::Invalid { reason } => match reason {
            Unfit::UntrustedTiming { .. } => format!("not{NBSP}judged{NBSP}{UNTRUSTED}"),
            Unfit::NoResults { side, reason } => {
                format!("invalid: no value on the {side} side ({reason})")
            }
            Unfit::EqualImages => format!("noise{NBSP}{NOISE_FLOOR}{range}"),
            Unfit::NoDirection => format!("changed{range}"),
        },
    }
}

fn size(value: f64, change: &Change, unit: &Unit) -> String {
    match change.scale {
        Scale::Relative => percent(value),
        Scale::Absolute => format!("{}{NBSP}{}", unit.show(value), unit.name),
    }
}

fn doubt(reason: &Doubt, change: Option<&Change>, unit: &Unit) -> String {
    match reason {
        Doubt::TooFewRuns { have, need } => {
            format!("{have} {}, at least {need} needed", plural(*have, "run"))
        }
        Doubt::TooFewBoots { have, need } => {
            format!("{have} {}, at least {need} needed", plural(*have, "boot"))
        }
        Doubt::Noise {
            half_width,
            min_effect,
        } => match change {
            Some(change) => format!(
                "noise{NBSP}±{} hides {}",
                size(*half_width, change, unit),
                size(*min_effect, change, unit)
            ),
            None => "noise".into(),
        },
        Doubt::Comparisons { comparisons: 1, p } => {
            format!("p{NBSP}{}", p_value(*p).replace(' ', "\u{a0}"))
        }
        Doubt::Comparisons { comparisons, p } => {
            format!(
                "p{NBSP}{} corrected over {comparisons} rows",
                p_value(*p).replace(' ', "\u{a0}")
            )
        }
        Doubt::ZeroBaseline => "baseline is 0; give min_effect as a number".into(),
    }
}

/// A p-value as people read it, with its relation.
pub fn p_value(p: f64) -> String {
    if p < 0.001 {
        "< 0.001".into()
    } else {
        format!("= {p:.3}")
    }
}

/// `run` or `runs`.
pub fn plural(count: usize, noun: &str) -> String {
    if count == 1 {
        noun.into()
    } else {
        format!("{noun}s")
    }
}

/// Remarks of one kind and metric are told for so many cells; the rest is counted.
const CELLS_TOLD: usize = 3;

/// Remarks in sentences, those of one kind and metric together.
pub fn notices(comparison: &Comparison) -> Vec<String> {
    let names = Names::of(comparison);
    let mut sentences: Vec<(String, Vec<String>)> = Vec::new();
    for notice in &comparison.notices {
        let (about, mut detail) = notice_parts(notice, &names);
        if comparison.sources.len() > 1
            && let Some(source) = notice.source()
        {
            detail = format!("{detail} of {source}");
        }
        match sentences.iter_mut().find(|(known, _)| *known == about) {
            Some((_, details)) => details.push(detail),
            None => sentences.push((about, vec![detail])),
        }
    }
    sentences
        .into_iter()
        .map(|(about, details)| {
            let more = match details.len().saturating_sub(CELLS_TOLD) {
                0 => String::new(),
                more => format!("; and in {more} more {}", plural(more, "cell")),
            };
            let told = details.iter().take(CELLS_TOLD).map(String::as_str);
            format!("{about}{}{more}", told.collect::<Vec<_>>().join("; "))
        })
        .collect()
}

/// What a remark is about, and what it says of one cell.
fn notice_parts(notice: &Notice, names: &Names<'_>) -> (String, String) {
    match notice {
        Notice::Outliers {
            metric, cell, runs, ..
        } => {
            let runs: Vec<String> = runs
                .iter()
                .map(|(run, value)| format!("run {run} ({})", number(*value)))
                .collect();
            (
                format!("{metric}: far from the other runs of their cell, and counted like them: "),
                format!("{} in {}", runs.join(", "), names.cell(cell)),
            )
        }
        Notice::TwoGroups {
            metric,
            cell,
            lower,
            upper,
            ..
        } => (
            format!("{metric}: two groups of runs, neither described by the mean: "),
            format!(
                "{} near {} and {} near {} in {}",
                lower.0,
                number(lower.1),
                upper.0,
                number(upper.1),
                names.cell(cell),
            ),
        ),
        Notice::Drift {
            metric, change, p, ..
        } => (
            format!("{metric}: drift over the order of runs: "),
            format!(
                "{} from the first third to the last (p {})",
                signed_percent(*change),
                p_value(*p)
            ),
        ),
        Notice::Identical {
            cell,
            runs,
            samples,
            ..
        } => {
            let runs: Vec<String> = runs.iter().map(usize::to_string).collect();
            (
                "the very same samples in several runs, was one read twice? ".into(),
                format!(
                    "runs {} ({samples} samples) of {}",
                    runs.join(", "),
                    names.cell(cell)
                ),
            )
        }
        Notice::DominantBoot {
            metric,
            cell,
            boot,
            change,
            ..
        } => (
            format!("{metric}: one boot dominates: "),
            format!(
                "without {boot} the mean of {} would move by {}",
                names.cell(cell),
                signed_percent(*change)
            ),
        ),
        Notice::NoiseFloor { metric, floor } => (
            format!("{metric}: "),
            format!(
                "equal images differ by {}, so no smaller change of this table counts",
                percent(*floor)
            ),
        ),
    }
}

/// Kind of a metric, for a table's title.
pub fn kind(kind: MetricKind) -> &'static str {
    match kind {
        MetricKind::Count => "count",
        MetricKind::Duration => "duration",
        MetricKind::Rate => "rate",
        MetricKind::Size => "size",
        MetricKind::Ratio => "ratio",
    }
}

/// Direction of a metric, for a table's title.
pub fn direction(better: Better) -> &'static str {
    match better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
        Better::Neither => "no direction is better",
    }
}

/// How samples became a run's value, for a table's title.
pub fn per_run(per_run: PerRun) -> &'static str {
    match per_run {
        PerRun::Sum => "per run",
        PerRun::Mean => "mean per run",
        PerRun::Median => "median per run",
        PerRun::P99 => "99th percentile per run",
        PerRun::Min => "least per run",
        PerRun::Max => "greatest per run",
        PerRun::Last => "last of each run",
    }
}

/// `5 rounds`, or `4 to 5 runs` when sides differ.
pub fn runs(table: &MetricTable) -> String {
    match table.runs {
        (low, high) if low == high => format!("{high} {}", plural(high, "run")),
        (low, high) => format!("{low} to {high} runs"),
    }
}
