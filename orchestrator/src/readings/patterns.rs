//! Metrics found by regular expressions.

use std::collections::BTreeMap;

use regex::Regex;
use topolab_protocol::{sample::Sample, workload::Pattern};

use super::{Problem, sample};

/// Whether a pattern can find numbers.
///
/// # Errors
/// What is wrong with it.
pub fn check(pattern: &Pattern) -> Result<(), String> {
    compile(pattern).map(|_| ())
}

/// The expression and the number of the group that holds the value.
fn compile(pattern: &Pattern) -> Result<(Regex, usize), String> {
    let regex = Regex::new(&pattern.regex).map_err(|error| match error {
        // The first lines of its text repeat the expression with a marker below.
        regex::Error::Syntax(text) => text.lines().last().unwrap_or_default().trim().to_string(),
        other => other.to_string(),
    })?;
    let named = regex.capture_names().position(|name| name == Some("value"));
    let first = regex.capture_names().skip(1).position(|n| n.is_none());
    match named.or_else(|| first.map(|at| at + 1)) {
        Some(group) => Ok((regex, group)),
        None => Err("it has no group for the number: write `(?<value>[0-9.]+)`".into()),
    }
}

/// All samples of all patterns.
pub fn read(metrics: &BTreeMap<String, Pattern>, output: &str) -> Result<Vec<Sample>, Problem> {
    let mut samples = Vec::new();
    for (metric, pattern) in metrics {
        let (regex, group) = compile(pattern).map_err(|reason| Problem::BadPattern {
            metric: metric.clone(),
            reason,
        })?;
        let before = samples.len();
        for found in output.lines().flat_map(|line| regex.captures_iter(line)) {
            let text = found.get(group).map_or("", |text| text.as_str());
            let value = text.parse().ok().filter(|value: &f64| value.is_finite());
            let value = value.ok_or_else(|| Problem::NoNumber {
                metric: metric.clone(),
                regex: pattern.regex.clone(),
                text: text.into(),
            })?;
            let mut sample = sample(metric, value, pattern.kind, &pattern.unit, pattern.better);
            let names = regex.capture_names().flatten();
            for name in names.filter(|name| *name != "value") {
                if let Some(text) = found.name(name) {
                    sample.labels.insert(name, text.as_str());
                }
            }
            samples.push(sample);
        }
        if samples.len() == before {
            return Err(Problem::NoMatch {
                metric: metric.clone(),
                regex: pattern.regex.clone(),
            });
        }
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(regex: &str) -> BTreeMap<String, Pattern> {
        let pattern = Pattern {
            regex: regex.into(),
            ..Pattern::default()
        };
        [("faults".to_string(), pattern)].into()
    }

    #[test]
    fn every_match_is_a_sample_and_named_groups_are_labels() {
        let found = read(
            &metrics(r"cpu (?<cpu>\d+): (?<value>\S+) faults"),
            "start\ncpu 0: 12 faults\ncpu 1: 3.5 faults, cpu 2: 1e3 faults\n",
        )
        .unwrap();
        let shown: Vec<_> = found.iter().map(|s| (&s.labels["cpu"], s.value)).collect();
        assert_eq!(shown, [("0", 12.0), ("1", 3.5), ("2", 1000.0)]);
    }

    #[test]
    fn the_first_group_is_the_number_without_a_name() {
        let found = read(&metrics(r"took (\d+)"), "took 7 of 9\n").unwrap();
        assert_eq!(found[0].value, 7.0);
    }

    #[test]
    fn what_is_not_found_is_told() {
        for (regex, output, words) in [
            ("x(1)", "y\n", "no line of its output fits `x(1)`"),
            ("x(.*)", "xy\n", "found `y`, which is no number"),
            ("x", "x\n", "no group for the number"),
            ("(", "x\n", "unclosed group"),
            ("v (.*)", "v inf\n", "found `inf`, which is no number"),
        ] {
            let problem = read(&metrics(regex), output).unwrap_err().to_string();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
