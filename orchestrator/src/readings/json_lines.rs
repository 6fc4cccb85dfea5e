//! Samples as lines of JSON.

use serde::Deserialize;
use serde_json::Value;
use topolab_protocol::{
    labels::Labels,
    sample::{Better, MetricKind, Sample},
};

use super::{Problem, sample};

/// A sample as a program writes it; what is left out is a count of no direction.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    metric: String,
    value: f64,
    #[serde(default = "count")]
    kind: MetricKind,
    #[serde(default)]
    unit: Option<String>,
    #[serde(default = "neither")]
    better: Better,
    #[serde(default)]
    labels: Labels,
}

fn count() -> MetricKind {
    MetricKind::Count
}

fn neither() -> Better {
    Better::Neither
}

/// Reads every line that begins with `{`; others are for people.
pub fn read(output: &str) -> Result<Vec<Sample>, Problem> {
    let mut samples = Vec::new();
    for (index, line) in output.lines().enumerate() {
        let line = line.trim();
        if !line.starts_with('{') {
            continue;
        }
        let bad = |reason: String| Problem::BadLine {
            line: index + 1,
            reason,
        };
        let value: Value = serde_json::from_str(line).map_err(|error| bad(error.to_string()))?;
        if value.get("metric").is_some() {
            let line: Line =
                serde_json::from_value(value).map_err(|error| bad(error.to_string()))?;
            let unit = line.unit.as_deref().unwrap_or("count");
            let mut one = sample(&line.metric, line.value, line.kind, unit, line.better);
            one.labels = line.labels;
            samples.push(one);
        } else {
            samples.extend(numbers(&value));
        }
    }
    if samples.is_empty() {
        return Err(Problem::OtherProgram {
            program: "one that writes lines of JSON",
            lacks: "no line is a JSON object with numbers",
        });
    }
    Ok(samples)
}

/// `{"faults": 3, "moved": 4}`.
fn numbers(object: &Value) -> Vec<Sample> {
    let fields = object.as_object().into_iter().flatten();
    fields
        .filter_map(|(name, value)| {
            let value = value.as_f64()?;
            Some(sample(name, value, count(), "count", neither()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_and_plain_numbers_are_read() {
        let found = read(concat!(
            "begin\n",
            r#"{"metric": "wait", "value": 5, "kind": "duration", "unit": "ns", "better": "lower", "labels": {"cpu": "1"}}"#,
            "\n",
            r#"{"faults": 3, "who": "me"}"#,
            "\n"
        ))
        .unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(
            (found[0].kind, &found[0].labels["cpu"]),
            (MetricKind::Duration, "1")
        );
        assert_eq!((found[1].metric.as_str(), found[1].value), ("faults", 3.0));
    }

    #[test]
    fn a_broken_line_is_named() {
        let problem = read("x\n{\"metric\": \"a\", \"value\": \"b\"}\n").unwrap_err();
        assert!(
            problem.to_string().starts_with("line 2 of its output"),
            "{problem}"
        );
        assert!(read("nothing\n").is_err());
    }
}
