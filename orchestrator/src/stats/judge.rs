//! The `compare:` section of an experiment: what is compared with what, and
//! how strictly.

use std::{borrow::Cow, collections::BTreeMap, fmt};

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use topolab_protocol::sample::Better;

use super::correction::Correction;
use crate::{
    document::{At, Problems},
    plan::Cell,
};

/// What is compared with what, and how strictly.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct CompareSpec {
    /// The cell to compare with, by axis: every other value of these axes is
    /// compared with the one named, all else being equal. Absent: the first
    /// kernel of the experiment.
    pub baseline: BTreeMap<String, At<String>>,
    /// The metrics to judge, in the order of their tables. Absent: all that the
    /// runs yield, without gates.
    pub metrics: IndexMap<String, MetricSpec>,
    /// Changes below this are of no interest, unless a metric says otherwise.
    pub min_effect: Effect,
    /// Chance of a false verdict that is accepted, for each table.
    pub alpha: At<f64>,
    /// Chance of finding a change of `min_effect` that further runs are asked for.
    pub power: At<f64>,
    /// Fewer runs than this on either side decide nothing.
    pub min_runs: At<u32>,
    /// Correction for the comparisons of one table.
    pub correction: Correction,
    /// Resamples of the bootstrap.
    pub resamples: At<u32>,
    /// Seed of the bootstrap and of permutations.
    pub seed: u64,
    /// What compared cells may differ in beside the experiment's axes without
    /// refusing the gates: names of fields of the environment, such as `host_kernel`.
    pub allow_differences: Vec<At<String>>,
}

impl Default for CompareSpec {
    fn default() -> Self {
        Self {
            baseline: BTreeMap::new(),
            metrics: IndexMap::new(),
            min_effect: Effect::Relative(0.05),
            alpha: At::nowhere(0.05),
            power: At::nowhere(0.95),
            min_runs: At::nowhere(4),
            correction: Correction::default(),
            resamples: At::nowhere(10_000),
            seed: 1,
            allow_differences: Vec::new(),
        }
    }
}

/// One metric to judge.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct MetricSpec {
    /// Which direction is good news; absent: what the workload says.
    pub better: Option<Better>,
    /// Changes below this are of no interest: `5%`, or a number in the
    /// metric's unit.
    pub min_effect: Option<Effect>,
    /// How the samples of one run become its value; absent: counts are added
    /// up, everything else is averaged.
    pub per_run: Option<PerRun>,
    /// What makes a command fail.
    pub gate: Option<At<GateSpec>>,
}

/// How several samples of a metric in one run become the run's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum PerRun {
    /// Added up.
    Sum,
    /// Averaged.
    Mean,
    /// The middle one.
    Median,
    /// The 99th percentile.
    P99,
    /// The least.
    Min,
    /// The greatest.
    Max,
    /// The one that came last.
    Last,
}

/// When a metric makes a command fail.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct GateSpec {
    /// Every run must yield exactly this value.
    pub must_be: Option<f64>,
    /// Every run must yield at most this value.
    pub at_most: Option<f64>,
    /// Every run must yield at least this value.
    pub at_least: Option<f64>,
    /// The change for the worse must be shown to be smaller than this.
    pub max_regression: Option<Effect>,
    /// Only cells whose axes fit these patterns (`*` and `?`).
    #[serde(rename = "where")]
    pub cells: BTreeMap<String, At<String>>,
}

/// The size of a change.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Effect {
    /// A share of the baseline; 0.05 is written `5%`.
    Relative(f64),
    /// In the unit of the metric.
    Absolute(f64),
}

impl Effect {
    /// Reads `5%`, `5 %`, `0.5` or `20`.
    ///
    /// # Errors
    /// What is wrong with the text.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!("`{text}` is no size of a change: write `5%`, or a number in the metric's unit")
        };
        let trimmed = text.trim();
        let (number, is_share) = match trimmed.strip_suffix('%') {
            Some(number) => (number.trim_end(), true),
            None => (trimmed, false),
        };
        let number: f64 = number.parse().map_err(|_| bad())?;
        if !number.is_finite() || number < 0.0 {
            return Err(bad());
        }
        Ok(if is_share {
            Self::Relative(number / 100.0)
        } else {
            Self::Absolute(number)
        })
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // A share of 0.07 is 7.000000000000001 %.
            Self::Relative(share) => write!(f, "{}%", (share * 1e10).round() / 1e8),
            Self::Absolute(size) => write!(f, "{size}"),
        }
    }
}

impl Serialize for Effect {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Relative(_) => serializer.collect_str(self),
            Self::Absolute(size) => serializer.serialize_f64(*size),
        }
    }
}

impl<'de> Deserialize<'de> for Effect {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Effect;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share such as `5%`, or a number in the metric's unit")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Effect, E> {
                Effect::parse(text).map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, number: f64) -> Result<Effect, E> {
                Effect::parse(&number.to_string()).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Effect, E> {
                self.visit_f64(number as f64)
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Effect, E> {
                self.visit_f64(number as f64)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Effect {
    fn schema_name() -> Cow<'static, str> {
        "Effect".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A share of the baseline (`5%`), or a number in the metric's unit.",
            "type": ["string", "number"],
        })
    }
}

impl CompareSpec {
    /// What is asked of a metric; the default for one that is not named.
    pub fn metric(&self, name: &str) -> MetricSpec {
        self.metrics.get(name).cloned().unwrap_or_default()
    }

    /// The least change of interest of a metric.
    pub fn min_effect(&self, name: &str) -> Effect {
        self.metrics
            .get(name)
            .and_then(|metric| metric.min_effect)
            .unwrap_or(self.min_effect)
    }

    /// Adds what contradicts itself.
    pub fn check(&self, problems: &mut Problems) {
        let axes = |names: &BTreeMap<String, At<String>>, problems: &mut Problems| {
            for (axis, value) in names {
                if !Cell::AXES.contains(&axis.as_str()) {
                    problems.at(
                        value,
                        format!("`{axis}` is no axis"),
                        format!("axes: {}", Cell::AXES.join(", ")),
                    );
                }
            }
        };
        axes(&self.baseline, problems);
        let share = |what: &str, value: &At<f64>, low: f64, high: f64, problems: &mut Problems| {
            if !(low..=high).contains(&value.value) {
                problems.at(
                    value,
                    format!(
                        "`{what}` is {}; it must lie between {low} and {high}",
                        value.value
                    ),
                    None,
                );
            }
        };
        share("alpha", &self.alpha, 0.0001, 0.5, problems);
        share("power", &self.power, 0.5, 0.999, problems);
        if self.min_runs.value < 2 {
            problems.at(
                &self.min_runs,
                format!(
                    "`min_runs` is {}: one run has no spread",
                    self.min_runs.value
                ),
                "write at least 2; with the usual `alpha` fewer than 4 never decide".to_string(),
            );
        }
        if !(100..=1_000_000).contains(&self.resamples.value) {
            problems.at(
                &self.resamples,
                format!(
                    "`resamples` is {}; it must lie between 100 and 1000000",
                    self.resamples.value
                ),
                None,
            );
        }
        for metric in self.metrics.values() {
            let Some(gate) = &metric.gate else { continue };
            axes(&gate.cells, problems);
        }
        for (name, metric) in &self.metrics {
            let Some(gate) = &metric.gate else { continue };
            if gate.must_be.is_none()
                && gate.at_most.is_none()
                && gate.at_least.is_none()
                && gate.max_regression.is_none()
            {
                problems.at(
                    gate,
                    format!("the gate of `{name}` asks for nothing"),
                    "write `must_be: 0`, `at_most:`, `at_least:` or `max_regression: 5%`"
                        .to_string(),
                );
            }
            if gate.max_regression.is_some() && metric.better == Some(Better::Neither) {
                problems.at(
                    gate,
                    format!("`{name}` has `better: neither`, so it cannot have a `max_regression`"),
                    "write `better: lower` or `better: higher`".to_string(),
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::Document;

    fn read(text: &str) -> Result<CompareSpec, Problems> {
        let parsed = Document::from_text("e.yaml", text)?.parse::<CompareSpec>()?;
        let mut problems = parsed.problems;
        parsed.value.check(&mut problems);
        problems.into_result(parsed.value)
    }

    #[test]
    fn the_shape_of_the_contract_is_read() {
        let spec = read(
            "baseline: {kernels: linux-6.12@base}
metrics:
  numa_pte_updates: {better: lower, min_effect: 5%, gate: {must_be: 0, where: {kernels: '*@all', settings: pinned-node0}}}
  faults: {min_effect: 20, per_run: p99, gate: {max_regression: 2.5 %}}
alpha: 0.01
",
        )
        .unwrap();
        assert_eq!(spec.baseline["kernels"].value, "linux-6.12@base");
        let (first, metric) = spec.metrics.first().unwrap();
        assert_eq!(first, "numa_pte_updates");
        assert_eq!(metric.better, Some(Better::Lower));
        assert_eq!(metric.min_effect, Some(Effect::Relative(0.05)));
        let gate = metric.gate.as_ref().unwrap();
        assert_eq!(gate.must_be, Some(0.0));
        assert_eq!(gate.cells["kernels"].value, "*@all");
        assert_eq!(spec.min_effect("faults"), Effect::Absolute(20.0));
        assert_eq!(
            spec.metrics["faults"].gate.as_ref().unwrap().max_regression,
            Some(Effect::Relative(0.025))
        );
        assert_eq!(spec.min_effect("other"), Effect::Relative(0.05));
        let json = serde_json::to_string(&spec).unwrap();
        let back: CompareSpec = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::to_string(&back).unwrap(), json);
    }

    #[test]
    fn contradictions_are_told_together() {
        let error = read(
            "baseline: {kernel: x}
metrics:
  a: {gate: {where: {kernels: '*'}}}
  b: {better: neither, gate: {max_regression: 5%, where: {cell: '*'}}}
alpha: 2
min_runs: 1
",
        )
        .unwrap_err();
        insta::assert_snapshot!(error, @"
        error: `kernel` is no axis
         --> e.yaml:1:20
          |
        1 | baseline: {kernel: x}
          |                    ^
          |
          = help: axes: kernels, topologies, cmdlines, settings, workloads
        error: the gate of `a` asks for nothing
         --> e.yaml:3:13
          |
        3 |   a: {gate: {where: {kernels: '*'}}}
          |             ^^^^^^^
          |
          = help: write `must_be: 0`, `at_most:`, `at_least:` or `max_regression: 5%`
        error: `b` has `better: neither`, so it cannot have a `max_regression`
         --> e.yaml:4:30
          |
        4 |   b: {better: neither, gate: {max_regression: 5%, where: {cell: '*'}}}
          |                              ^^^^^^^^^^^^^^^^
          |
          = help: write `better: lower` or `better: higher`
        error: `cell` is no axis
         --> e.yaml:4:65
          |
        4 |   b: {better: neither, gate: {max_regression: 5%, where: {cell: '*'}}}
          |                                                                 ^^^
          |
          = help: axes: kernels, topologies, cmdlines, settings, workloads
        error: `alpha` is 2; it must lie between 0.0001 and 0.5
         --> e.yaml:5:8
          |
        5 | alpha: 2
          |        ^
        error: `min_runs` is 1: one run has no spread
         --> e.yaml:6:11
          |
        6 | min_runs: 1
          |           ^
          |
          = help: write at least 2; with the usual `alpha` fewer than 4 never decide
        ");
    }

    #[test]
    fn sizes_that_are_none_are_refused_with_their_line() {
        let error = read("min_effect: some\n").unwrap_err();
        assert_eq!(error.list[0].line, 1, "{error}");
        assert!(error.to_string().contains("write `5%`"), "{error}");
        assert!(Effect::parse("-5%").is_err());
        assert_eq!(Effect::parse("7%").unwrap().to_string(), "7%");
    }
}
