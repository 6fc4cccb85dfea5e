//! What each run yielded: one value per metric and run.

use std::collections::{BTreeMap, HashMap};

use indexmap::IndexMap;
use serde::Serialize;
use topolab_protocol::sample::{Better, MetricKind};

use super::{Loss, Source};
use crate::{
    plan::Cell,
    stats::{
        Sample,
        judge::{CompareSpec, PerRun},
        summary::{Summary, quantile, sorted},
    },
    store::record::RunRecord,
};

/// One run's value of a metric.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunValue {
    /// The run's place in the campaign's order.
    pub index: usize,
    /// Its round.
    pub round: u32,
    /// Its boot.
    pub boot: String,
    /// Where it was done.
    #[serde(skip)]
    pub host: String,
    /// The value, in the metric's unit.
    pub value: f64,
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Side {
    /// Summary over runs; absent without runs.
    pub summary: Option<Summary>,
    /// The runs, in the order they ran.
    pub runs: Vec<RunValue>,
    /// Runs that did not complete: class of outcome, and how many.
    pub lost: BTreeMap<String, usize>,
    /// Completed runs without a sample of this metric.
    pub without: usize,
    /// Why durations of this side may not be judged, one of each kind.
    pub untrusted: Vec<String>,
    /// SHA-256 of the kernel image, when all runs agree on it.
    pub image: Option<String>,
    /// The values as statistics take them.
    #[serde(skip)]
    pub sample: Sample,
    #[serde(skip)]
    first_loss: String,
}

impl Side {
    /// Why there is no value.
    pub(super) fn why_empty(&self) -> String {
        let lost: Vec<String> = self
            .lost
            .iter()
            .map(|(class, count)| format!("{count} × {class}"))
            .collect();
        match (lost.is_empty(), self.without) {
            (true, 0) => "it was not run".into(),
            (true, runs) => format!("{runs} runs completed without a sample of this metric"),
            (false, _) if self.first_loss.is_empty() => lost.join(", "),
            (false, _) => format!("{}: {}", lost.join(", "), self.first_loss),
        }
    }
}

/// What is known of a metric from its first sample.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MetricMeta {
    pub kind: MetricKind,
    pub unit: String,
    pub better: Better,
}

impl MetricMeta {
    /// For a metric no run yielded.
    pub fn unknown() -> Self {
        Self {
            kind: MetricKind::Count,
            unit: String::new(),
            better: Better::Neither,
        }
    }
}

/// How the samples of a run become its value, the kind's default included:
/// counts add up over CPUs and intervals, anything else is averaged.
pub(crate) fn per_run(wanted: Option<PerRun>, kind: MetricKind) -> PerRun {
    wanted.unwrap_or(match kind {
        MetricKind::Count => PerRun::Sum,
        _ => PerRun::Mean,
    })
}

/// Whether two reasons say the same but for their numbers: one of them is enough.
pub fn alike(a: &str, b: &str) -> bool {
    let words = |text: &'_ str| -> Vec<String> {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        text.split(is_number)
            .filter(|part| !part.is_empty())
            .map(String::from)
            .collect()
    };
    a == b || words(a) == words(b)
}

/// The last try of every judged run, in order.
pub(super) fn last_tries<'a>(source: Source<'a>) -> Vec<&'a RunRecord> {
    let mut last: BTreeMap<usize, &RunRecord> = BTreeMap::new();
    for record in source
        .records
        .iter()
        .filter(|record| record.round >= source.warmup)
    {
        let kept = last.entry(record.index).or_insert(record);
        if record.attempt >= kept.attempt {
            *kept = record;
        }
    }
    last.into_values().collect()
}

/// Combines the samples of one run; `None` when there are none.
pub fn combine(values: &[f64], how: PerRun) -> Option<f64> {
    let last = *values.last()?;
    let n = values.len() as f64;
    Some(match how {
        PerRun::Sum => values.iter().sum(),
        PerRun::Mean => values.iter().sum::<f64>() / n,
        PerRun::Median => quantile(&sorted(values), 0.5),
        PerRun::P99 => quantile(&sorted(values), 0.99),
        PerRun::Min => values.iter().copied().fold(last, f64::min),
        PerRun::Max => values.iter().copied().fold(last, f64::max),
        PerRun::Last => last,
    })
}

/// The runs of a source, by cell and metric.
pub(super) struct Values<'a> {
    source: Source<'a>,
    metas: IndexMap<String, MetricMeta>,
    /// The last try of each run, by cell, in order.
    runs: HashMap<&'a Cell, Vec<&'a RunRecord>>,
    /// Value by place in `source.records` and metric.
    values: HashMap<(usize, usize), f64>,
}

impl<'a> Values<'a> {
    pub fn of(source: Source<'a>, spec: &CompareSpec) -> Self {
        let mut metas: IndexMap<String, MetricMeta> = IndexMap::new();
        let mut values = HashMap::new();
        let mut runs: HashMap<&Cell, Vec<&RunRecord>> = HashMap::new();
        for record in last_tries(source) {
            runs.entry(&record.cell).or_default().push(record);
            if !record.outcome.has_result() {
                continue;
            }
            let mut collected: Vec<Vec<f64>> = vec![Vec::new(); metas.len()];
            for sample in &record.samples {
                let metric = match metas.get_index_of(&sample.metric) {
                    Some(index) => index,
                    None => {
                        collected.push(Vec::new());
                        metas
                            .insert_full(
                                sample.metric.clone(),
                                MetricMeta {
                                    kind: sample.kind,
                                    unit: sample.unit.clone(),
                                    better: sample.better,
                                },
                            )
                            .0
                    }
                };
                collected[metric].push(sample.value);
            }
            for (metric, samples) in collected.iter().enumerate() {
                let (name, meta) = metas.get_index(metric).expect("made above");
                let how = per_run(spec.metrics.get(name).and_then(|m| m.per_run), meta.kind);
                if let Some(value) = combine(samples, how) {
                    values.insert((record.index, metric), value);
                }
            }
        }
        Self {
            source,
            metas,
            runs,
            values,
        }
    }

    pub fn metrics(&self) -> impl Iterator<Item = &String> {
        self.metas.keys()
    }

    pub fn meta(&self, metric: &str) -> Option<&MetricMeta> {
        self.metas.get(metric)
    }

    /// One cell's values of one metric.
    pub fn side(&self, metric: &str, cell: &Cell) -> Side {
        let metric = self.metas.get_index_of(metric);
        let mut side = Side {
            summary: None,
            runs: Vec::new(),
            lost: BTreeMap::new(),
            without: 0,
            untrusted: Vec::new(),
            image: None,
            sample: Sample::default(),
            first_loss: String::new(),
        };
        let runs = self.runs.get(cell).map_or(&[][..], Vec::as_slice);
        for record in runs {
            if !record.outcome.has_result() {
                *side.lost.entry(record.outcome.class().into()).or_default() += 1;
                if side.first_loss.is_empty() {
                    side.first_loss = record.outcome.detail();
                }
                continue;
            }
            let value = metric.and_then(|metric| self.values.get(&(record.index, metric)));
            let Some(value) = value else {
                side.without += 1;
                continue;
            };
            side.runs.push(RunValue {
                index: record.index,
                round: record.round,
                boot: record.boot.clone(),
                host: record.environment.host.clone(),
                value: *value,
            });
            if !record.trust.timing {
                let unchecked = ["the bench was not checked".to_string()];
                let reasons = match &record.trust.reasons[..] {
                    [] => &unchecked[..],
                    reasons => reasons,
                };
                for reason in reasons {
                    if !side.untrusted.iter().any(|known| alike(known, reason)) {
                        side.untrusted.push(reason.clone());
                    }
                }
            }
        }
        let values: Vec<f64> = side.runs.iter().map(|run| run.value).collect();
        side.summary = Summary::of(&values);
        side.sample = Sample::by_boot(side.runs.iter().map(|run| (run.boot.as_str(), run.value)));
        let mut images = runs.iter().map(|record| &record.environment.kernel_image);
        side.image = images
            .next()
            .filter(|first| !first.is_empty() && images.all(|image| image == *first))
            .cloned();
        side
    }

    /// Cells of which some run did not complete.
    pub fn losses(&self) -> Vec<Loss> {
        self.source
            .all_cells()
            .into_iter()
            .filter_map(|cell| {
                let runs = self.runs.get(&cell)?;
                let mut others: BTreeMap<String, usize> = BTreeMap::new();
                for record in runs.iter().filter(|record| !record.outcome.has_result()) {
                    *others.entry(record.outcome.class().into()).or_default() += 1;
                }
                let first = runs.iter().find(|record| !record.outcome.has_result())?;
                Some(Loss {
                    source: self.source.name.into(),
                    completed: runs.len() - others.values().sum::<usize>(),
                    detail: first.outcome.detail(),
                    others,
                    cell,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_are_alike() {
        let waited = "vCPU 0 waited 1814 ms for a host CPU (76.5 % of the window)";
        assert!(alike(
            waited,
            "vCPU 3 waited 12 ms for a host CPU (4 % of the window)"
        ));
        assert!(!alike(waited, "the guest is emulated"));
    }

    #[test]
    fn samples_of_a_run_become_one_value() {
        let values = [3.0, 1.0, 8.0];
        assert_eq!(combine(&values, PerRun::Sum), Some(12.0));
        assert_eq!(combine(&values, PerRun::Mean), Some(4.0));
        assert_eq!(combine(&values, PerRun::Median), Some(3.0));
        assert_eq!(combine(&values, PerRun::Min), Some(1.0));
        assert_eq!(combine(&values, PerRun::Max), Some(8.0));
        assert_eq!(combine(&values, PerRun::Last), Some(8.0));
        assert_eq!(combine(&[], PerRun::Sum), None);
        assert_eq!(per_run(None, MetricKind::Count), PerRun::Sum);
        assert_eq!(per_run(None, MetricKind::Duration), PerRun::Mean);
    }
}
