//! From the records of campaigns to tables of comparisons: which cell is
//! compared with which, what each run yielded, and what stands against judging it.
//! Pure: it reads no file and prints nothing.

mod environment;
mod gate;
pub mod history;
mod nodes;
mod notice;
mod pairs;
pub mod pivot;
mod values;

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;
use topolab_protocol::sample::{Better, MetricKind};

pub use environment::{Difference, fields_of};
pub use gate::{Answer, GateResult, GateStatus};
pub use nodes::NodeChange;
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
    /// What each node says, where rounds were done on several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nodes: Vec<NodeChange>,
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
            let mut base = pair.base.as_ref().map(|cell| values[0].side(metric, cell));
            let mut new = values[newest].side(metric, &pair.cell);
            let nodes = match &mut base {
                // Rounds of two campaigns have nothing to do with each other.
                Some(base) if newest == 0 => nodes::align(base, &mut new),
                _ => Vec::new(),
            };
            Row {
                nodes,
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
    // Apart from the kernel, or between two folders, the cells are the same: what
    // equal images differ in is noise, or the lab's doing.
    let only_kernels = pair
        .base
        .as_ref()
        .is_some_and(|base| base.with_axis("kernels", &pair.cell.kernel) == pair.cell);
    if only_kernels && base.image.is_some() && base.image == new.image {
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
        // Aligned, a baseline depends on the other side as well.
        let aligned = (!row.nodes.is_empty()).then(|| rules.bootstrap.means(&base.sample, 0));
        let base_means = match &aligned {
            Some(means) => means,
            None => resampled
                .entry(base_cell.clone())
                .or_insert_with(|| rules.bootstrap.means(&base.sample, 0)),
        };
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
pub(crate) mod tests;
