//! From the records of campaigns to tables of comparisons: which cell is
//! compared with which, what each run yielded, and what stands against judging it.
//! Pure: it reads no file and prints nothing.

mod environment;
mod gate;
pub mod history;
mod notice;
mod pairs;
pub mod pivot;
mod values;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use topolab_protocol::sample::{Better, MetricKind};

pub use environment::{Difference, fields_of};
pub use gate::{Answer, GateResult, GateStatus};
pub use notice::Notice;
pub use values::{RunValue, Side, alike};
pub(crate) use values::{combine, per_run};

use crate::{
    parallel::in_parallel,
    plan::Cell,
    stats::{
        bootstrap::Change,
        correction::Correction,
        judge::{CompareSpec, Effect, PerRun},
        verdict::{Rules, Unfit, Verdict, judge, measure},
    },
    store::record::RunRecord,
};
use pairs::Pair;
use values::{MetricMeta, Values};

/// The runs of one results folder.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Name to show, such as the folder's.
    pub name: &'a str,
    /// Every finished run.
    pub records: &'a [RunRecord],
    /// The cells that were planned, in order; cells only found in records follow.
    pub cells: &'a [Cell],
    /// Rounds before this one are warm-up and not judged.
    pub warmup: u32,
}

/// What was compared, and what came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the experiment.
    pub experiment: String,
    /// The folders: one, or the older and the newer one.
    pub sources: Vec<String>,
    /// Axes of the baseline and their values; empty between two folders.
    pub baseline: BTreeMap<String, String>,
    /// Axes with one value only.
    pub constants: BTreeMap<String, String>,
    /// Axes that vary and tell rows apart, [`Cell::AXES`] names.
    pub axes: Vec<String>,
    /// One table per metric.
    pub tables: Vec<MetricTable>,
    /// What became of the runs of each cell, where not all completed.
    pub losses: Vec<Loss>,
    /// What compared runs differ in beside the experiment's axes.
    pub differences: Vec<Difference>,
    /// What a reader should know before believing the tables.
    pub notices: Vec<Notice>,
    /// The experiment's gates.
    pub gates: Vec<GateResult>,
    /// What all of this says as a whole.
    pub answer: Answer,
}

/// All comparisons of one metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MetricTable {
    /// Its name.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// What kind of quantity.
    pub kind: MetricKind,
    /// Which direction is good news.
    pub better: Better,
    /// How the samples of a run became its value.
    pub per_run: PerRun,
    /// Changes below this are of no interest.
    pub min_effect: String,
    /// Chance of a false verdict.
    pub alpha: f64,
    /// Correction over the rows.
    pub correction: Correction,
    /// Fewest and most runs of a side.
    pub runs: (usize, usize),
    /// The comparisons.
    pub rows: Vec<Row>,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The cell.
    pub cell: Cell,
    /// The cell it is compared with; absent: values only.
    pub base_cell: Option<Cell>,
    /// Values of the baseline.
    pub base: Option<Side>,
    /// Values of the cell.
    pub new: Side,
    /// The change, where both sides have enough runs.
    pub change: Option<Change>,
    /// p-value corrected over the table; absent where nothing is judged.
    pub p: Option<f64>,
    /// The verdict; absent: values only.
    pub verdict: Option<Verdict>,
}

/// Runs of a cell that did not complete.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Loss {
    /// The folder.
    pub source: String,
    /// The cell.
    pub cell: Cell,
    /// Runs that completed.
    pub completed: usize,
    /// Class of outcome, and how many.
    pub others: BTreeMap<String, usize>,
    /// Detail of the first one.
    pub detail: String,
}

/// Why nothing can be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompareError {
    /// The baseline is none of the experiment's cells.
    #[error("no cell has {axis} = `{value}`, the baseline; there are: {}", known.join(", "))]
    NoBaseline {
        /// Axis.
        axis: String,
        /// Value asked for.
        value: String,
        /// Values there are.
        known: Vec<String>,
    },
    /// A name that is no axis.
    #[error("`{axis}` is no axis; axes: {}", Cell::AXES.join(", "))]
    NoAxis {
        /// The name.
        axis: String,
    },
    /// No run at all.
    #[error("{source_name}: no run has ended yet")]
    NoRuns {
        /// The folder.
        source_name: String,
    },
}

/// What to look at.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// Name of the experiment.
    pub experiment: &'a str,
    /// How to judge.
    pub spec: &'a CompareSpec,
    /// Metrics to show; empty: those of the spec, or all when it names none.
    pub metrics: &'a [String],
    /// Looks taken at the growing data, this one included, when rounds were added
    /// until something was decided; 0 when the number of rounds was fixed.
    pub looks: u32,
}

impl Comparison {
    /// What the undecided gates (or without gates, the undecided rows) ask for:
    /// further runs a side, `None` where no number of runs decides. Empty when
    /// everything is decided.
    pub fn open_questions(&self) -> Vec<Option<usize>> {
        if !self.gates.is_empty() {
            let open = self
                .gates
                .iter()
                .filter(|gate| gate.status == GateStatus::Undecided);
            return open.map(|gate| gate.more_runs).collect();
        }
        self.tables
            .iter()
            .flat_map(|table| &table.rows)
            .filter_map(|row| match row.verdict {
                Some(Verdict::Undecided { more_runs, .. }) => Some(more_runs),
                _ => None,
            })
            .collect()
    }
}

/// Names of all metrics the runs yielded, in the order they came first.
pub fn metric_names(records: &[RunRecord]) -> Vec<String> {
    let mut names: indexmap::IndexSet<&str> = indexmap::IndexSet::new();
    for sample in records.iter().flat_map(|record| &record.samples) {
        if !names.contains(sample.metric.as_str()) {
            names.insert(&sample.metric);
        }
    }
    names.into_iter().map(String::from).collect()
}

/// Compares the cells of one campaign with its baseline cells.
///
/// # Errors
/// There is no run, or the baseline is no cell.
pub fn within(source: Source<'_>, request: Request<'_>) -> Result<Comparison, CompareError> {
    let pairs = pairs::within(source, request.spec)?;
    Ok(build(&[source], &pairs.pairs, pairs.baseline, request))
}

/// Compares each cell of the newer campaign with the same cell of the older one.
///
/// # Errors
/// One of them has no run.
pub fn between(
    older: Source<'_>,
    newer: Source<'_>,
    request: Request<'_>,
) -> Result<Comparison, CompareError> {
    let pairs = pairs::between(older, newer)?;
    Ok(build(&[older, newer], &pairs, BTreeMap::new(), request))
}

fn build(
    sources: &[Source<'_>],
    pairs: &[Pair],
    baseline: BTreeMap<String, String>,
    request: Request<'_>,
) -> Comparison {
    let values: Vec<Values> = sources
        .iter()
        .map(|source| Values::of(*source, request.spec))
        .collect();
    let wanted: Vec<String> = if !request.metrics.is_empty() {
        request.metrics.to_vec()
    } else if !request.spec.metrics.is_empty() {
        request.spec.metrics.keys().cloned().collect()
    } else {
        let mut names: Vec<String> = Vec::new();
        for name in values.iter().flat_map(Values::metrics) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    };
    let cells: Vec<&Cell> = pairs.iter().map(|pair| &pair.cell).collect();
    let (constants, axes) = axes_of(&cells);
    let tables = in_parallel(&wanted, |metric| table(metric, &values, pairs, request));
    let mut comparison = Comparison {
        experiment: request.experiment.into(),
        sources: sources.iter().map(|source| source.name.into()).collect(),
        baseline,
        constants,
        axes,
        notices: notice::notices(sources, &tables),
        tables,
        losses: values.iter().flat_map(Values::losses).collect(),
        differences: environment::differences(sources, pairs, request.spec),
        gates: Vec::new(),
        answer: Answer::Good,
    };
    comparison.gates = gate::gates(&comparison, request.spec);
    comparison.answer = gate::answer(&comparison, request.spec);
    comparison
}

/// Axes with one value, and the names of those with several.
fn axes_of(cells: &[&Cell]) -> (BTreeMap<String, String>, Vec<String>) {
    let mut constants = BTreeMap::new();
    let mut varying = Vec::new();
    for axis in Cell::AXES {
        let mut values = cells.iter().filter_map(|cell| cell.axis(axis));
        let Some(first) = values.next() else { continue };
        if values.all(|value| value == first) {
            constants.insert(axis.to_string(), first.to_string());
        } else {
            varying.push(axis.to_string());
        }
    }
    (constants, varying)
}

fn table(metric: &str, values: &[Values], pairs: &[Pair], request: Request<'_>) -> MetricTable {
    let wanted = request.spec.metric(metric);
    let meta = values
        .iter()
        .find_map(|values| values.meta(metric))
        .cloned()
        .unwrap_or_else(MetricMeta::unknown);
    let better = wanted.better.unwrap_or(meta.better);
    let rules = Rules::of(request.spec, metric, better).at_look(request.looks);
    let newest = values.len() - 1;
    let mut rows: Vec<Row> = pairs
        .iter()
        .map(|pair| {
            let base = pair.base.as_ref().map(|cell| values[0].side(metric, cell));
            let new = values[newest].side(metric, &pair.cell);
            Row {
                verdict: base
                    .as_ref()
                    .and_then(|base| unfit(base, &new, &meta, pair)),
                cell: pair.cell.clone(),
                base_cell: pair.base.clone(),
                base,
                new,
                change: None,
                p: None,
            }
        })
        .collect();
    judge_rows(&mut rows, &rules);
    let counts = rows
        .iter()
        .flat_map(|row| row.base.iter().chain([&row.new]))
        .map(|side| side.runs.len());
    MetricTable {
        metric: metric.into(),
        unit: meta.unit.clone(),
        kind: meta.kind,
        better,
        per_run: per_run(wanted.per_run, meta.kind),
        min_effect: rules.min_effect.to_string(),
        alpha: rules.alpha,
        correction: rules.correction,
        runs: (counts.clone().min().unwrap_or(0), counts.max().unwrap_or(0)),
        rows,
    }
}

/// What forbids a verdict before any number is looked at.
fn unfit(base: &Side, new: &Side, meta: &MetricMeta, pair: &Pair) -> Option<Verdict> {
    let invalid = |reason| Some(Verdict::Invalid { reason });
    for (name, side) in [("baseline", base), ("new", new)] {
        if side.runs.is_empty() {
            let (side, reason) = (name.to_string(), side.why_empty());
            return invalid(Unfit::NoResults { side, reason });
        }
    }
    if meta.kind.is_timing()
        && let Some(reason) = base.untrusted.first().or(new.untrusted.first())
    {
        return invalid(Unfit::UntrustedTiming {
            reason: reason.clone(),
        });
    }
    let kernels_differ = pair
        .base
        .as_ref()
        .is_some_and(|base| base.kernel != pair.cell.kernel);
    if kernels_differ && base.image.is_some() && base.image == new.image {
        return invalid(Unfit::EqualImages);
    }
    None
}

/// Measures every row and judges together those that may be judged. Pairs of
/// equal images show how large a change noise alone makes: no smaller change of
/// the table is of interest.
fn judge_rows(rows: &mut [Row], rules: &Rules) {
    let mut resampled: HashMap<Cell, Vec<f64>> = HashMap::new();
    let mut judged = Vec::new();
    let mut measured = Vec::new();
    let mut floor = 0.0f64;
    for (index, row) in rows.iter_mut().enumerate() {
        let (Some(base), Some(base_cell)) = (&row.base, &row.base_cell) else {
            continue;
        };
        let base_means = resampled
            .entry(base_cell.clone())
            .or_insert_with(|| rules.bootstrap.means(&base.sample, 0));
        let result = measure(&base.sample, base_means, &row.new.sample, &rules.bootstrap);
        row.change = result.change;
        match &row.verdict {
            None => {
                judged.push(index);
                measured.push(result);
            }
            Some(Verdict::Invalid {
                reason: Unfit::EqualImages,
            }) => {
                if let Some(change) = result.change {
                    floor = floor.max(change.value.abs());
                }
            }
            Some(_) => {}
        }
    }
    let mut rules = *rules;
    if let Effect::Relative(share) = rules.min_effect {
        rules.min_effect = Effect::Relative(share.max(floor));
    }
    for (index, (p, verdict)) in judged.into_iter().zip(judge(&measured, &rules)) {
        rows[index].p = Some(p);
        rows[index].verdict = Some(verdict);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use topolab_protocol::sample::Sample as Measurement;

    use super::*;
    use crate::{document::At, outcome::Outcome, store::record::*};

    /// A campaign made of a closure: the value of `metric` by cell and round.
    pub(crate) fn campaign(
        cells: &[Cell],
        rounds: u32,
        mut samples: impl FnMut(&Cell, u32) -> Vec<Measurement>,
    ) -> Vec<RunRecord> {
        let mut records = Vec::new();
        for round in 0..rounds {
            for cell in cells {
                let index = records.len();
                records.push(RunRecord {
                    format: FORMAT,
                    index,
                    cell: cell.clone(),
                    round,
                    attempt: 0,
                    boot: format!("boot-{index}"),
                    outcome: Outcome::Completed,
                    started: "2026-11-30T23:15:00Z".into(),
                    wall_ms: 8000,
                    hello_ms: Some(3000),
                    phases: vec![("boot".into(), 3000), ("workload".into(), 5000)],
                    samples: samples(cell, round),
                    settings: Vec::new(),
                    environment: Environment {
                        host_kernel: "6.12.1".into(),
                        qemu: "7.2.0".into(),
                        accel: "tcg,thread=multi".into(),
                        kernel_image: format!("image of {}", cell.kernel),
                        ..Environment::default()
                    },
                    trust: Trust {
                        timing: false,
                        reasons: vec!["accelerator tcg".into()],
                        ..Trust::default()
                    },
                    notes: Vec::new(),
                    console_tail: Vec::new(),
                });
            }
        }
        records
    }

    pub(crate) fn measurement(
        metric: &str,
        kind: MetricKind,
        unit: &str,
        value: f64,
    ) -> Measurement {
        let better = if kind == MetricKind::Rate {
            Better::Higher
        } else {
            Better::Lower
        };
        Measurement {
            metric: metric.into(),
            value,
            kind,
            unit: unit.into(),
            better,
            labels: topolab_protocol::labels::Labels::new(),
        }
    }

    pub(crate) fn cell(kernel: &str, settings: &str) -> Cell {
        Cell {
            kernel: kernel.into(),
            topology: "dual-node-4".into(),
            cmdline: "default".into(),
            settings: settings.into(),
            workload: "scan".into(),
        }
    }

    pub(crate) fn demo_cells() -> Vec<Cell> {
        ["pinned-node0", "unpinned"]
            .iter()
            .flat_map(|settings| {
                ["linux-6.12@base", "linux-6.12+numa-scan-skip@all"]
                    .map(|kernel| cell(kernel, settings))
            })
            .collect()
    }

    /// Scatter of a few percent that depends on nothing but its arguments.
    pub(crate) fn scatter(cell: &Cell, round: u32) -> f64 {
        let mut hash = u64::from(round) + 1;
        for byte in cell.slug().bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        (hash >> 40) as f64 / f64::from(1 << 24) - 0.5
    }

    pub(crate) fn demo(rounds: u32) -> Vec<RunRecord> {
        campaign(&demo_cells(), rounds, |cell, round| {
            let gone = cell.kernel.ends_with("@all") && cell.settings == "pinned-node0";
            let updates = if gone {
                0.0
            } else {
                (50_000.0 * (1.0 + 0.04 * scatter(cell, round))).round()
            };
            vec![
                measurement("numa_pte_updates", MetricKind::Count, "count", updates),
                measurement(
                    "passes",
                    MetricKind::Rate,
                    "passes/s",
                    12.0 + scatter(cell, round),
                ),
            ]
        })
    }

    pub(crate) fn demo_spec() -> CompareSpec {
        serde_json::from_str(
            r#"{"baseline": {"kernels": "linux-6.12@base"},
                "metrics": {"numa_pte_updates": {"better": "lower", "min_effect": "5%"}, "passes": {}}}"#,
        )
        .unwrap()
    }

    pub(crate) fn compared(records: &[RunRecord], spec: &CompareSpec) -> Comparison {
        let source = Source {
            name: "numa-scan-20261130",
            records,
            cells: &[],
            warmup: 0,
        };
        within(
            source,
            Request {
                experiment: "numa-scan",
                spec,
                metrics: &[],
                looks: 0,
            },
        )
        .unwrap()
    }

    fn verdicts(table: &MetricTable) -> Vec<&Verdict> {
        table
            .rows
            .iter()
            .map(|row| row.verdict.as_ref().unwrap())
            .collect()
    }

    #[test]
    fn the_demo_is_judged() {
        let comparison = compared(&demo(5), &demo_spec());
        let [updates, passes] = &comparison.tables[..] else {
            panic!()
        };
        assert_eq!(comparison.axes, ["settings"]);
        assert_eq!(comparison.constants["topologies"], "dual-node-4");
        assert_eq!(updates.runs, (5, 5));
        assert_eq!(
            verdicts(updates),
            [&Verdict::Better, &Verdict::Same { within: 0.05 }]
        );
        assert_eq!(updates.rows[0].change.unwrap().value, -1.0);
        for verdict in verdicts(passes) {
            let reason = "accelerator tcg".to_string();
            assert_eq!(
                *verdict,
                Verdict::Invalid {
                    reason: Unfit::UntrustedTiming { reason }
                }
            );
        }
        assert!(comparison.losses.is_empty() && comparison.differences.is_empty());
    }

    #[test]
    fn a_baseline_that_is_no_cell_is_named() {
        let mut spec = demo_spec();
        spec.baseline
            .insert("kernels".into(), At::nowhere("linux-6.13@base".into()));
        let records = demo(2);
        let source = Source {
            name: "x",
            records: &records,
            cells: &[],
            warmup: 0,
        };
        let error = within(
            source,
            Request {
                experiment: "x",
                spec: &spec,
                metrics: &[],
                looks: 0,
            },
        )
        .unwrap_err();
        insta::assert_snapshot!(error, @"no cell has kernels = `linux-6.13@base`, the baseline; there are: linux-6.12@base, linux-6.12+numa-scan-skip@all");
    }

    #[test]
    fn equal_images_are_the_noise_floor() {
        let mut records = demo(6);
        for record in &mut records {
            record.environment.kernel_image = "same".into();
            record.samples.truncate(1);
        }
        let comparison = compared(&records, &demo_spec());
        for verdict in verdicts(&comparison.tables[0]) {
            assert_eq!(
                *verdict,
                Verdict::Invalid {
                    reason: Unfit::EqualImages
                }
            );
        }
    }

    #[test]
    fn lost_runs_are_counted_and_an_empty_side_says_why() {
        let mut records = demo(5);
        for record in &mut records {
            if record.cell.kernel.ends_with("@all") && record.cell.settings == "unpinned" {
                record.outcome = Outcome::GuestPanic {
                    title: "BUG: kernel NULL pointer dereference".into(),
                };
                record.samples.clear();
            }
        }
        let comparison = compared(&records, &demo_spec());
        let reason = "5 × guest-panic: BUG: kernel NULL pointer dereference".to_string();
        let side = "new".to_string();
        assert_eq!(
            comparison.tables[0].rows[1].verdict,
            Some(Verdict::Invalid {
                reason: Unfit::NoResults { side, reason }
            })
        );
        assert_eq!(comparison.losses.len(), 1);
        assert_eq!(comparison.losses[0].others["guest-panic"], 5);
    }

    #[test]
    fn warm_up_rounds_and_failed_tries_do_not_count() {
        let mut records = demo(6);
        let mut again = records[23].clone();
        records[23].outcome = Outcome::LabFailed {
            part: "qemu".into(),
            reason: "it left".into(),
        };
        again.attempt = 1;
        records.push(again);
        let spec = demo_spec();
        let source = Source {
            name: "x",
            records: &records,
            cells: &[],
            warmup: 1,
        };
        let comparison = within(
            source,
            Request {
                experiment: "x",
                spec: &spec,
                metrics: &[],
                looks: 0,
            },
        )
        .unwrap();
        assert_eq!(comparison.tables[0].runs, (5, 5));
        assert!(comparison.losses.is_empty());
    }

    #[test]
    fn two_folders_are_compared_cell_by_cell() {
        let (last, tonight) = (demo(5), demo(7));
        let spec = demo_spec();
        let older = Source {
            name: "last",
            records: &last,
            cells: &[],
            warmup: 0,
        };
        let mut cells = demo_cells();
        cells.push(cell("linux-6.12@1", "unpinned"));
        let newer = Source {
            name: "tonight",
            records: &tonight,
            cells: &cells,
            warmup: 0,
        };
        let comparison = between(
            older,
            newer,
            Request {
                experiment: "x",
                spec: &spec,
                metrics: &[],
                looks: 0,
            },
        )
        .unwrap();
        let rows = &comparison.tables[0].rows;
        assert_eq!(rows.len(), 5);
        assert_eq!(rows[0].verdict, Some(Verdict::Same { within: 0.05 }));
        assert_eq!(comparison.axes, ["kernels", "settings"]);
        let Some(Verdict::Invalid {
            reason: Unfit::NoResults { side, reason },
        }) = &rows[4].verdict
        else {
            panic!("{:?}", rows[4].verdict);
        };
        assert_eq!(
            (side.as_str(), reason.as_str()),
            ("baseline", "it was not run")
        );
    }

    #[test]
    fn one_kernel_alone_has_values_and_no_verdict() {
        let mut records = demo(5);
        records.retain(|record| record.cell.kernel.ends_with("@base"));
        let comparison = compared(&records, &demo_spec());
        assert_eq!(comparison.tables[0].rows.len(), 2);
        assert!(
            comparison.tables[0]
                .rows
                .iter()
                .all(|row| row.verdict.is_none() && row.base.is_none())
        );
    }
}
