//! Gates: what makes a nightly comparison fail.
//!
//! `must_be`, `at_most` and `at_least` look at every run of a cell; one run
//! beyond the limit fails. `max_regression` looks at the interval of the change:
//! it passes when the whole interval lies within the limit, fails when the
//! change is `worse` and larger than the limit, and is undecided in between.
//! Runs that the kernel lost (panics, hangs, failed workloads) fail every gate
//! of their cell.

use serde::Serialize;
use topolab_protocol::sample::Better;

use super::{Comparison, MetricTable, Row};
use crate::{
    plan::{Cell, glob},
    stats::{
        bootstrap::Scale,
        judge::{CompareSpec, Effect, GateSpec},
        verdict::{Doubt, Unfit, Verdict},
    },
};

/// What came of one gate in one cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateResult {
    /// The metric.
    pub metric: String,
    /// The rule, such as `must_be: 0`.
    pub rule: String,
    /// The cell; absent when no cell fits the gate's `where`.
    pub cell: Option<Cell>,
    /// What came of it.
    pub status: GateStatus,
    /// The numbers that say so.
    pub reason: String,
    /// Further runs of each side that may decide.
    pub more_runs: Option<usize>,
}

/// What came of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateStatus {
    /// The rule holds.
    Pass,
    /// More runs are needed.
    Undecided,
    /// The runs cannot be compared: they differ in what the experiment does not
    /// vary, or the bench cannot carry the metric.
    Refused,
    /// The rule is broken.
    Fail,
}

impl GateStatus {
    /// As in tables.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Undecided => "undecided",
            Self::Refused => "refused",
            Self::Fail => "FAIL",
        }
    }
}

/// What a comparison says as a whole; the command line makes exit codes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// No gate failed, nothing got worse.
    Good,
    /// A gate failed, or without gates something got worse.
    Failed,
    /// A gate is undecided or refused, or without gates some comparison is undecided.
    Undecided,
}

/// All gates of an experiment over its cells.
pub(super) fn gates(comparison: &Comparison, spec: &CompareSpec) -> Vec<GateResult> {
    let mut results = Vec::new();
    for table in &comparison.tables {
        let Some(gate) = spec
            .metrics
            .get(&table.metric)
            .and_then(|metric| metric.gate.as_ref())
        else {
            continue;
        };
        let rules = rules(gate);
        let before = results.len();
        for (place, row) in table.rows.iter().enumerate() {
            if !fits(gate, &row.cell) {
                continue;
            }
            for rule in &rules {
                let (status, reason, more_runs) = rule.hold(comparison, table, place, row);
                results.push(GateResult {
                    metric: table.metric.clone(),
                    rule: rule.name(),
                    cell: Some(row.cell.clone()),
                    status,
                    reason,
                    more_runs,
                });
            }
        }
        if results.len() == before {
            let patterns: Vec<String> = gate
                .cells
                .iter()
                .map(|(axis, pattern)| format!("{axis}: {}", pattern.value))
                .collect();
            results.push(GateResult {
                metric: table.metric.clone(),
                rule: rules.iter().map(Rule::name).collect::<Vec<_>>().join(", "),
                cell: None,
                status: GateStatus::Refused,
                reason: format!("no compared cell fits where {{{}}}", patterns.join(", ")),
                more_runs: None,
            });
        }
    }
    results
}

/// Whether a gate speaks about a cell.
pub(super) fn fits(gate: &GateSpec, cell: &Cell) -> bool {
    gate.cells
        .iter()
        .all(|(axis, pattern)| cell.axis(axis).is_some_and(|value| glob(pattern, value)))
}

enum Rule {
    MustBe(f64),
    AtMost(f64),
    AtLeast(f64),
    MaxRegression(Effect),
}

fn rules(gate: &GateSpec) -> Vec<Rule> {
    [
        gate.must_be.map(Rule::MustBe),
        gate.at_most.map(Rule::AtMost),
        gate.at_least.map(Rule::AtLeast),
        gate.max_regression.map(Rule::MaxRegression),
    ]
    .into_iter()
    .flatten()
    .collect()
}

type Held = (GateStatus, String, Option<usize>);

impl Rule {
    fn name(&self) -> String {
        match self {
            Self::MustBe(value) => format!("must_be: {value}"),
            Self::AtMost(value) => format!("at_most: {value}"),
            Self::AtLeast(value) => format!("at_least: {value}"),
            Self::MaxRegression(limit) => format!("max_regression: {limit}"),
        }
    }

    fn hold(&self, comparison: &Comparison, table: &MetricTable, place: usize, row: &Row) -> Held {
        let side = &row.new;
        let by_kernel: Vec<String> = side
            .lost
            .iter()
            .filter(|(class, _)| speaks_of_the_kernel(class))
            .map(|(class, count)| format!("{count} × {class}"))
            .collect();
        if !by_kernel.is_empty() {
            return (
                GateStatus::Fail,
                format!("runs were lost: {}", by_kernel.join(", ")),
                None,
            );
        }
        if side.runs.is_empty() {
            return (
                GateStatus::Undecided,
                format!("no value: {}", side.why_empty()),
                Some(1),
            );
        }
        if table.kind.is_timing()
            && let Some(reason) = side.untrusted.first()
        {
            return (
                GateStatus::Refused,
                format!("the bench cannot carry timing: {reason}"),
                None,
            );
        }
        let limit = match self {
            Self::MaxRegression(limit) => {
                return regression(*limit, comparison, table, place, row);
            }
            Self::MustBe(limit) | Self::AtMost(limit) | Self::AtLeast(limit) => *limit,
        };
        let broken = side.runs.iter().find(|run| match self {
            Self::MustBe(_) => run.value != limit,
            Self::AtMost(_) => run.value > limit,
            _ => run.value < limit,
        });
        match broken {
            Some(run) => {
                let reason = format!("run {} yielded {}", run.index, run.value);
                (GateStatus::Fail, reason, None)
            }
            None => (
                GateStatus::Pass,
                match side.runs.len() {
                    1 => "it holds in the only run".into(),
                    runs => format!("it holds in all {runs} runs"),
                },
                None,
            ),
        }
    }
}

/// Whether a lost run says something about the kernel rather than the lab.
fn speaks_of_the_kernel(class: &str) -> bool {
    matches!(
        class,
        "workload-failed" | "boot-failed" | "guest-panic" | "guest-splat" | "guest-hang"
    )
}

fn regression(
    limit: Effect,
    comparison: &Comparison,
    table: &MetricTable,
    place: usize,
    row: &Row,
) -> Held {
    let refused = |reason: String| (GateStatus::Refused, reason, None);
    let blocking: Vec<&str> = comparison
        .differences
        .iter()
        .filter(|difference| !difference.allowed && difference.rows.contains(&place))
        .map(|difference| difference.field.as_str())
        .collect();
    if !blocking.is_empty() {
        return refused(format!("compared runs differ in {}", blocking.join(", ")));
    }
    match &row.verdict {
        None => return refused("there is nothing to compare with".into()),
        Some(Verdict::Invalid {
            reason: Unfit::EqualImages,
        }) => {
            return (
                GateStatus::Pass,
                "both sides are the same kernel image".into(),
                None,
            );
        }
        Some(Verdict::Invalid {
            reason: Unfit::UntrustedTiming { reason },
        }) => {
            return refused(format!("the bench cannot carry timing: {reason}"));
        }
        Some(Verdict::Invalid {
            reason: Unfit::NoResults { side, reason },
        }) => {
            let reason = format!("no value on the {side} side: {reason}");
            return (GateStatus::Undecided, reason, Some(1));
        }
        _ => {}
    }
    let more = match &row.verdict {
        Some(Verdict::Undecided { more_runs, .. }) => *more_runs,
        _ => row.base.as_ref().map(|base| base.runs.len().max(1)),
    };
    let Some(change) = row.change else {
        return (
            GateStatus::Undecided,
            "too few runs for an interval".into(),
            more,
        );
    };
    let base_mean = row
        .base
        .as_ref()
        .and_then(|base| base.summary)
        .map_or(0.0, |s| s.mean.abs());
    let limit = match (limit, change.scale) {
        (Effect::Relative(share), Scale::Relative) => share,
        (Effect::Absolute(size), Scale::Absolute) => size,
        (Effect::Relative(share), Scale::Absolute) => share * base_mean,
        (Effect::Absolute(size), Scale::Relative) => size / base_mean,
    };
    let (worst, size) = match table.better {
        Better::Lower => (change.interval.high, change.value),
        Better::Higher => (-change.interval.low, -change.value),
        Better::Neither => return refused("no direction of this metric is better".into()),
    };
    let show = |value: f64| match change.scale {
        Scale::Relative => format!("{:+.1} %", value * 100.0),
        Scale::Absolute => format!("{value:+.3}"),
    };
    if let Some(Verdict::Undecided {
        reason: Doubt::TooFewRuns { have, need },
        ..
    }) = row.verdict
    {
        let reason = format!("{have} runs, at least {need} needed");
        return (GateStatus::Undecided, reason, more);
    }
    if worst <= limit {
        let reason = format!("at worst {} for the worse", show(worst));
        return (GateStatus::Pass, reason, None);
    }
    if row.verdict == Some(Verdict::Worse) && size > limit {
        return (GateStatus::Fail, format!("worse by {}", show(size)), None);
    }
    let reason = format!(
        "{} for the worse, but up to {} cannot be ruled out",
        show(size),
        show(worst)
    );
    (GateStatus::Undecided, reason, more)
}

/// What the comparison says as a whole. Metrics that the experiment does not
/// name never make it fail.
pub(super) fn answer(comparison: &Comparison, spec: &CompareSpec) -> Answer {
    if let Some(worst) = comparison.gates.iter().map(|gate| gate.status).max() {
        return match worst {
            GateStatus::Pass => Answer::Good,
            GateStatus::Undecided | GateStatus::Refused => Answer::Undecided,
            GateStatus::Fail => Answer::Failed,
        };
    }
    let mut answer = Answer::Good;
    for table in comparison
        .tables
        .iter()
        .filter(|table| spec.metrics.contains_key(&table.metric))
    {
        for row in &table.rows {
            match row.verdict {
                Some(Verdict::Worse) => return Answer::Failed,
                Some(Verdict::Undecided { .. }) => answer = Answer::Undecided,
                _ => {}
            }
        }
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compare::tests::{compared, demo, demo_spec},
        outcome::Outcome,
    };

    fn spec(gate: &str) -> CompareSpec {
        let mut spec = demo_spec();
        spec.metrics.shift_remove("passes");
        spec.metrics[0].gate = Some(serde_json::from_str(gate).unwrap());
        spec
    }

    fn statuses(comparison: &Comparison) -> Vec<(GateStatus, &str)> {
        comparison
            .gates
            .iter()
            .map(|gate| (gate.status, gate.reason.as_str()))
            .collect()
    }

    #[test]
    fn zero_means_zero_in_every_run() {
        let spec =
            spec(r#"{"must_be": 0, "where": {"kernels": "*@all", "settings": "pinned-node0"}}"#);
        let mut records = demo(5);
        let comparison = compared(&records, &spec);
        assert_eq!(
            statuses(&comparison),
            [(GateStatus::Pass, "it holds in all 5 runs")]
        );
        assert_eq!(comparison.answer, Answer::Good);
        records[13].samples[0].value = 1.0;
        let comparison = compared(&records, &spec);
        assert_eq!(
            statuses(&comparison),
            [(GateStatus::Fail, "run 13 yielded 1")]
        );
        assert_eq!(comparison.answer, Answer::Failed);
    }

    #[test]
    fn lost_runs_fail_when_the_kernel_lost_them() {
        let spec = spec(r#"{"must_be": 0, "where": {"settings": "pinned-node0"}}"#);
        let mut records = demo(5);
        records[1].outcome = Outcome::LabFailed {
            part: "qemu".into(),
            reason: "left".into(),
        };
        assert_eq!(statuses(&compared(&records, &spec))[0].0, GateStatus::Pass);
        records[1].outcome = Outcome::GuestHang {
            phase: "workload".into(),
            reason: "60 s".into(),
        };
        let comparison = compared(&records, &spec);
        assert_eq!(
            statuses(&comparison),
            [(GateStatus::Fail, "runs were lost: 1 × guest-hang")]
        );
    }

    #[test]
    fn a_regression_needs_its_whole_interval_within_the_limit() {
        let limit = spec(r#"{"max_regression": "5%"}"#);
        let comparison = compared(&demo(5), &limit);
        assert_eq!(comparison.gates[0].status, GateStatus::Pass);
        assert_eq!(comparison.gates[1].status, GateStatus::Pass);
        let strict = spec(r#"{"max_regression": "0.5%"}"#);
        let comparison = compared(&demo(5), &strict);
        assert_eq!(comparison.gates[1].status, GateStatus::Undecided);
        assert_eq!(comparison.answer, Answer::Undecided);
        assert!(comparison.gates[1].more_runs.unwrap() > 0);
        let mut records = demo(5);
        for record in &mut records {
            if record.cell.settings == "unpinned" && record.cell.kernel.ends_with("@all") {
                record.samples[0].value *= 1.2;
            }
        }
        assert_eq!(compared(&records, &limit).gates[1].status, GateStatus::Fail);
    }

    #[test]
    fn runs_that_differ_in_the_host_are_refused() {
        let mut spec = spec(r#"{"max_regression": "5%", "where": {"settings": "unpinned"}}"#);
        let mut records = demo(5);
        for record in records
            .iter_mut()
            .filter(|r| r.cell.kernel.ends_with("@all"))
        {
            record.environment.qemu = "8.0.0".into();
        }
        let comparison = compared(&records, &spec);
        assert_eq!(
            statuses(&comparison),
            [(GateStatus::Refused, "compared runs differ in qemu")]
        );
        assert_eq!(comparison.answer, Answer::Undecided);
        spec.allow_differences
            .push(crate::document::At::nowhere("qemu".into()));
        assert_eq!(compared(&records, &spec).answer, Answer::Good);
    }

    #[test]
    fn a_gate_that_fits_no_cell_does_not_pass() {
        let spec = spec(r#"{"must_be": 0, "where": {"kernels": "*@1"}}"#);
        let comparison = compared(&demo(5), &spec);
        assert_eq!(
            statuses(&comparison),
            [(
                GateStatus::Refused,
                "no compared cell fits where {kernels: *@1}"
            )]
        );
    }

    #[test]
    fn three_runs_pass_no_comparing_gate() {
        let spec = spec(r#"{"max_regression": "5%"}"#);
        assert_eq!(
            compared(&demo(3), &spec).gates[0].status,
            GateStatus::Undecided
        );
    }
}
