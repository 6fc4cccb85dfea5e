//! One metric in the shape of a table of one's own: rows and columns by axes of
//! the experiment and labels of the samples.

use std::{
    cmp::Ordering,
    collections::{BTreeSet, HashMap},
    fmt,
    str::FromStr,
};

use serde::Serialize;
use topolab_protocol::{labels::Labels, sample::MetricKind};

use super::{Source, values};
use crate::{
    plan::Cell,
    stats::judge::{CompareSpec, PerRun},
    store::record::RunRecord,
};

/// What tells rows or columns apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Key {
    /// An axis, one of [`Cell::AXES`].
    Axis(String),
    /// A label of the samples, such as `cpu`.
    Label(String),
}

impl FromStr for Key {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let axis = match text {
            "kernel" => "kernels",
            "topology" => "topologies",
            "cmdline" => "cmdlines",
            "setting" => "settings",
            "workload" => "workloads",
            other => other,
        };
        Ok(if Cell::AXES.contains(&axis) {
            Self::Axis(axis.into())
        } else {
            Self::Label(text.into())
        })
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Axis(name) | Self::Label(name) => f.write_str(name),
        }
    }
}

/// What counts as one value.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Each {
    /// A run: its samples within a table's cell are combined.
    #[default]
    Run,
    /// A sample, such as one interval of many in a run.
    Sample,
}

/// The table that is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct PivotRequest {
    /// The metric.
    pub metric: String,
    /// A metric that counts what this one is a part of; its total stands beside.
    pub of: Option<String>,
    /// What tells rows apart, outermost first.
    pub rows: Vec<Key>,
    /// What tells columns apart, outermost first.
    pub columns: Vec<Key>,
    /// What counts as one value.
    pub each: Each,
}

/// The table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pivot {
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Its kind.
    pub kind: MetricKind,
    /// The metric it is a part of.
    pub of: Option<String>,
    /// How samples of a run were combined.
    pub per_run: PerRun,
    /// What counts as one value.
    pub each: Each,
    /// What tells rows apart.
    pub row_keys: Vec<Key>,
    /// What tells columns apart.
    pub column_keys: Vec<Key>,
    /// Values of the column keys, column by column.
    pub columns: Vec<Vec<String>>,
    /// The rows.
    pub rows: Vec<PivotRow>,
    /// Labels that vary and were combined or pooled.
    pub combined: Vec<String>,
    /// Some run's timing cannot be trusted, and the metric is one.
    pub untrusted: bool,
}

/// A row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PivotRow {
    /// Values of the row keys.
    pub keys: Vec<String>,
    /// A group of values per column; absent where there is none.
    pub groups: Vec<Option<Group>>,
}

/// The values in one cell of the table, in the order of the runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Group {
    /// The values.
    pub values: Vec<f64>,
    /// Total of the metric it is a part of.
    pub of_total: Option<f64>,
}

/// Why there is no such table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PivotError {
    /// No completed run yielded it.
    #[error("no completed run yielded `{metric}`; there are: {}", known.join(", "))]
    NoMetric {
        /// The metric.
        metric: String,
        /// Metrics there are.
        known: Vec<String>,
    },
    /// A key that is neither an axis nor a label of the metric.
    #[error("`{key}` is neither an axis ({}) nor a label of `{metric}` ({})", Cell::AXES.join(", "), if known.is_empty() { "it has none".into() } else { known.join(", ") })]
    NoKey {
        /// The key.
        key: String,
        /// The metric.
        metric: String,
        /// Labels there are.
        known: Vec<String>,
    },
    /// Different machines, kernels or settings would be thrown together.
    #[error("`{axis}` varies ({}) but tells neither rows nor columns apart", values.join(", "))]
    Mixed {
        /// The axis.
        axis: String,
        /// Its values.
        values: Vec<String>,
    },
}

/// Makes the table from one campaign's completed runs.
///
/// # Errors
/// The metric or a key does not exist, or an axis that varies is not used.
pub fn pivot(
    source: Source<'_>,
    request: &PivotRequest,
    spec: &CompareSpec,
) -> Result<Pivot, PivotError> {
    let runs: Vec<&RunRecord> = values::last_tries(source)
        .into_iter()
        .filter(|record| record.outcome.has_result())
        .collect();
    let find = |metric: &str| {
        runs.iter()
            .flat_map(|run| &run.samples)
            .find(|sample| sample.metric == metric)
            .ok_or_else(|| PivotError::NoMetric {
                metric: metric.into(),
                known: super::metric_names(source.records),
            })
    };
    let first = find(&request.metric)?;
    if let Some(of) = &request.of {
        find(of)?;
    }
    let labels = check_keys(&runs, request)?;
    let per_run = values::per_run(spec.metric(&request.metric).per_run, first.kind);
    let cells = source.all_cells();

    let keys: Vec<&Key> = request.rows.iter().chain(&request.columns).collect();
    let mut groups: HashMap<Vec<String>, Group> = HashMap::new();
    for run in &runs {
        let mut of_run: HashMap<Vec<String>, Vec<f64>> = HashMap::new();
        for sample in run
            .samples
            .iter()
            .filter(|sample| sample.metric == request.metric)
        {
            of_run
                .entry(place(&keys, run, &sample.labels))
                .or_default()
                .push(sample.value);
        }
        for (place, samples) in of_run {
            let group = groups.entry(place).or_default();
            match request.each {
                Each::Sample => group.values.extend(samples),
                Each::Run => group.values.extend(values::combine(&samples, per_run)),
            }
        }
        let Some(of) = &request.of else { continue };
        for sample in run.samples.iter().filter(|sample| sample.metric == *of) {
            if let Some(group) = groups.get_mut(&place(&keys, run, &sample.labels)) {
                *group.of_total.get_or_insert(0.0) += sample.value;
            }
        }
    }
    let order = |keys: &[Key], part: fn(&[String], usize) -> &[String]| {
        let mut places: Vec<Vec<String>> = groups
            .keys()
            .map(|place| part(place, request.rows.len()).to_vec())
            .collect();
        places.sort_by(|a, b| compare(keys, &cells, a, b));
        places.dedup();
        places
    };
    let rows = order(&request.rows, |place, rows| &place[..rows]);
    let columns = order(&request.columns, |place, rows| &place[rows..]);
    let rows = rows
        .into_iter()
        .map(|keys| PivotRow {
            groups: columns
                .iter()
                .map(|column| groups.get(&[&keys[..], column].concat()).cloned())
                .collect(),
            keys,
        })
        .collect();
    Ok(Pivot {
        metric: request.metric.clone(),
        unit: first.unit.clone(),
        kind: first.kind,
        of: request.of.clone(),
        per_run,
        each: request.each,
        row_keys: request.rows.clone(),
        column_keys: request.columns.clone(),
        columns,
        rows,
        combined: labels
            .into_iter()
            .filter(|label| !keys.contains(&&Key::Label(label.clone())))
            .collect(),
        untrusted: first.kind.is_timing() && runs.iter().any(|run| !run.trust.timing),
    })
}

/// Checks keys and axes; gives the labels that vary.
fn check_keys(runs: &[&RunRecord], request: &PivotRequest) -> Result<Vec<String>, PivotError> {
    let mut labels: HashMap<&str, BTreeSet<&str>> = HashMap::new();
    for sample in runs
        .iter()
        .flat_map(|run| &run.samples)
        .filter(|s| s.metric == request.metric)
    {
        for (label, value) in sample.labels.iter() {
            labels.entry(label).or_default().insert(value);
        }
    }
    let mut known: Vec<String> = labels.keys().map(|label| (*label).to_string()).collect();
    known.sort_unstable();
    let keys = request.rows.iter().chain(&request.columns);
    for key in keys.clone() {
        if let Key::Label(label) = key
            && !labels.contains_key(label.as_str())
        {
            let (key, metric) = (label.clone(), request.metric.clone());
            return Err(PivotError::NoKey { key, metric, known });
        }
    }
    for axis in Cell::AXES {
        let mut seen: Vec<String> = Vec::new();
        for value in runs.iter().filter_map(|run| run.cell.axis(axis)) {
            if !seen.iter().any(|s| s == value) {
                seen.push(value.into());
            }
        }
        if seen.len() > 1 && !keys.clone().any(|key| *key == Key::Axis(axis.into())) {
            return Err(PivotError::Mixed {
                axis: axis.into(),
                values: seen,
            });
        }
    }
    known.retain(|label| labels[label.as_str()].len() > 1);
    Ok(known)
}

/// The place of a sample in the table; a label it lacks is empty.
fn place(keys: &[&Key], run: &RunRecord, labels: &Labels) -> Vec<String> {
    keys.iter()
        .map(|key| match key {
            Key::Axis(axis) => run.cell.axis(axis).unwrap_or_default().to_string(),
            Key::Label(label) => labels.get(label).unwrap_or_default().to_string(),
        })
        .collect()
}

/// Axes come in the order of the experiment, labels by number or by text.
fn compare(keys: &[Key], cells: &[Cell], a: &[String], b: &[String]) -> Ordering {
    let in_plan =
        |axis: &str, value: &str| cells.iter().position(|cell| cell.axis(axis) == Some(value));
    for ((key, a), b) in keys.iter().zip(a).zip(b) {
        let order = match key {
            Key::Axis(axis) => in_plan(axis, a).cmp(&in_plan(axis, b)),
            Key::Label(_) => match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => a.total_cmp(&b),
                _ => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use topolab_protocol::sample::{Better, Sample};

    use super::*;
    use crate::compare::tests::{campaign, cell};

    /// IPIs on two CPUs in three intervals of each run.
    fn push_ipis() -> Vec<RunRecord> {
        let cells: Vec<Cell> = ["linux@base", "linux@all"]
            .iter()
            .flat_map(|kernel| ["md-1", "md-0"].map(|settings| cell(kernel, settings)))
            .collect();
        campaign(&cells, 2, |cell, round| {
            let mut samples = Vec::new();
            for interval in 0..3 {
                for cpu in [10, 2] {
                    let storm = cell.kernel == "linux@base" && cell.settings == "md-1" && cpu == 2;
                    let value = if storm {
                        1000.0 + f64::from(interval + round as i32)
                    } else {
                        f64::from(cpu)
                    };
                    let labels = Labels::from([
                        ("cpu", cpu.to_string()),
                        ("interval", interval.to_string()),
                    ]);
                    samples.push(Sample {
                        metric: "push_ipis".into(),
                        value,
                        kind: MetricKind::Count,
                        unit: "count".into(),
                        better: Better::Lower,
                        labels,
                    });
                }
            }
            samples
        })
    }

    fn request(rows: &[&str], columns: &[&str], each: Each) -> PivotRequest {
        let keys = |names: &[&str]| names.iter().map(|name| name.parse().unwrap()).collect();
        PivotRequest {
            metric: "push_ipis".into(),
            of: None,
            rows: keys(rows),
            columns: keys(columns),
            each,
        }
    }

    fn made(request: &PivotRequest) -> Result<Pivot, PivotError> {
        let records = push_ipis();
        let source = Source {
            name: "x",
            records: &records,
            cells: &[],
            warmup: 0,
        };
        pivot(source, request, &CompareSpec::default())
    }

    #[test]
    fn labels_become_columns_in_their_natural_order() {
        let pivot = made(&request(&["kernel"], &["settings", "cpu"], Each::Sample)).unwrap();
        assert_eq!(
            pivot.columns,
            [["md-1", "2"], ["md-1", "10"], ["md-0", "2"], ["md-0", "10"]]
        );
        assert_eq!(pivot.rows.len(), 2);
        let storm = pivot.rows[0].groups[0].as_ref().unwrap();
        assert_eq!(
            storm.values,
            [1000.0, 1001.0, 1002.0, 1001.0, 1002.0, 1003.0]
        );
        assert_eq!(pivot.combined, ["interval"]);
    }

    #[test]
    fn runs_add_up_what_no_key_tells_apart() {
        let pivot = made(&request(&["kernel", "settings"], &[], Each::Run)).unwrap();
        assert_eq!(pivot.columns, [Vec::<String>::new()]);
        assert_eq!(
            pivot.rows[0].groups[0].as_ref().unwrap().values,
            [3033.0, 3036.0]
        );
        assert_eq!(
            pivot.rows[3].groups[0].as_ref().unwrap().values,
            [36.0, 36.0]
        );
        assert_eq!(pivot.combined, ["cpu", "interval"]);
    }

    #[test]
    fn settings_are_not_thrown_together() {
        let error = made(&request(&["kernel"], &["cpu"], Each::Run)).unwrap_err();
        insta::assert_snapshot!(error, @"`settings` varies (md-1, md-0) but tells neither rows nor columns apart");
        let error = made(&request(&["kernel"], &["settings", "node"], Each::Run)).unwrap_err();
        insta::assert_snapshot!(error, @"`node` is neither an axis (kernels, topologies, cmdlines, settings, workloads) nor a label of `push_ipis` (cpu, interval)");
    }
}
