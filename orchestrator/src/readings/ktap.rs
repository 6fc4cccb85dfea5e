//! Results in KTAP (`Documentation/dev-tools/ktap.rst`) and TAP 13/14: each
//! test of the lowest level is a sub-result.

use topolab_protocol::sample::{Better, MetricKind, Sample};

use super::{Problem, Readings, labelled, sample};

/// Names told of the tests that failed.
const TOLD: usize = 10;

/// How a test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Passed,
    Failed,
    Skipped,
    /// Failed as its author expected (`# TODO`).
    Expected,
}

/// One result line.
struct Result {
    verdict: Verdict,
    /// Its own name, without those of the suites around it.
    name: String,
}

/// A level of nesting that is open: results are indented by two columns for
/// each suite, which ends with its own result on the level above.
#[derive(Default)]
struct Level {
    indent: usize,
    planned: Option<usize>,
    results: Vec<(Result, Vec<Result>)>,
}

/// Reads results.
pub fn read(output: &str) -> Readings {
    let mut levels: Vec<Level> = Vec::new();
    let mut problem = None;
    let mut leaves: Vec<Result> = Vec::new();
    let mut missing = None;
    for line in output.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(reason) = text.strip_prefix("Bail out!") {
            let reason = reason.trim().to_string();
            problem = Some(Problem::BailOut { reason });
            break;
        }
        let result = result(text);
        let plan = plan(text);
        if result.is_none() && plan.is_none() {
            continue;
        }
        let mut closed = Vec::new();
        while levels.last().is_some_and(|level| level.indent > indent) {
            let level = levels.pop().expect("there is a last one");
            missing = missing.or_else(|| level.missing());
            closed = level.close();
        }
        if levels.last().is_none_or(|level| level.indent < indent) {
            levels.push(Level {
                indent,
                ..Level::default()
            });
        }
        let level = levels.last_mut().expect("one was pushed");
        if let Some(planned) = plan {
            level.planned = Some(planned);
        }
        if let Some(result) = result {
            level.results.push((result, closed));
        }
    }
    while let Some(level) = levels.pop() {
        missing = missing.or_else(|| level.missing());
        let closed = level.close();
        match levels.last_mut() {
            // The suite's own result never came: its tests stand for themselves.
            Some(above) => above
                .results
                .extend(closed.into_iter().map(|r| (r, Vec::new()))),
            None => leaves = closed,
        }
    }
    Readings {
        problem: problem.or_else(|| why(&leaves, missing)),
        samples: samples(&leaves),
    }
}

impl Level {
    fn missing(&self) -> Option<Problem> {
        let (planned, seen) = (self.planned?, self.results.len());
        (seen < planned).then_some(Problem::Missing { planned, seen })
    }

    /// The tests of this level and below; a suite's tests get its name.
    fn close(self) -> Vec<Result> {
        let mut tests = Vec::new();
        for (result, inner) in self.results {
            if inner.is_empty() {
                tests.push(result);
                continue;
            }
            let inner_failed = inner.iter().any(|test| test.verdict == Verdict::Failed);
            for mut test in inner {
                test.name = format!("{}.{}", result.name, test.name);
                tests.push(test);
            }
            if result.verdict == Verdict::Failed && !inner_failed {
                tests.push(result);
            }
        }
        tests
    }
}

/// `1..N`, perhaps with a remark.
fn plan(text: &str) -> Option<usize> {
    let rest = text.strip_prefix("1..")?;
    rest.split([' ', '#']).next()?.parse().ok()
}

/// `ok 1 - name # SKIP reason`.
fn result(text: &str) -> Option<Result> {
    let (failed, rest) = match text.strip_prefix("not ok") {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix("ok")?),
    };
    if !rest.is_empty() && !rest.starts_with(' ') {
        return None;
    }
    let (name, remark) = match rest.split_once(" # ") {
        Some((name, remark)) => (name, remark.to_ascii_uppercase()),
        None => (rest, String::new()),
    };
    let name = name.trim();
    let (number, after) = name.split_once(' ').unwrap_or((name, ""));
    let name = match number.parse::<u64>() {
        Ok(_) if after.trim_start_matches(['-', ' ']).is_empty() => number,
        Ok(_) => after.trim_start().trim_start_matches("- "),
        Err(_) => name,
    };
    let verdict = match (failed, remark.as_str()) {
        (_, remark) if remark.starts_with("SKIP") => Verdict::Skipped,
        (true, remark) if remark.starts_with("TODO") || remark.starts_with("XFAIL") => {
            Verdict::Expected
        }
        (true, _) => Verdict::Failed,
        (false, _) => Verdict::Passed,
    };
    Some(Result {
        verdict,
        name: name.trim().into(),
    })
}

fn why(tests: &[Result], missing: Option<Problem>) -> Option<Problem> {
    let failed: Vec<&str> = tests
        .iter()
        .filter(|test| test.verdict == Verdict::Failed)
        .map(|test| test.name.as_str())
        .collect();
    if tests.is_empty() {
        return Some(Problem::NoResults);
    }
    if failed.is_empty() {
        return missing;
    }
    let told = failed[..failed.len().min(TOLD)].join(", ");
    let tests = match failed.len().checked_sub(TOLD) {
        Some(more @ 1..) => format!("{told} and {more} more"),
        _ => told,
    };
    Some(Problem::NotOk { tests })
}

fn samples(tests: &[Result]) -> Vec<Sample> {
    if tests.is_empty() {
        return Vec::new();
    }
    let count = MetricKind::Count;
    let of = |wanted: Verdict| tests.iter().filter(|t| t.verdict == wanted).count() as f64;
    let mut samples = vec![
        sample(
            "tests_passed",
            of(Verdict::Passed),
            count,
            "tests",
            Better::Higher,
        ),
        sample(
            "tests_failed",
            of(Verdict::Failed),
            count,
            "tests",
            Better::Lower,
        ),
        sample(
            "tests_skipped",
            of(Verdict::Skipped),
            count,
            "tests",
            Better::Neither,
        ),
    ];
    for test in tests.iter().filter(|test| test.verdict != Verdict::Skipped) {
        let failed = f64::from(u8::from(test.verdict == Verdict::Failed));
        let one = sample("test_failed", failed, count, "tests", Better::Lower);
        samples.push(labelled(one, "test", &test.name));
    }
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    const NESTED: &str = "\
KTAP version 1
1..2
  KTAP version 1
  # Subtest: list
  1..3
  # a remark
  ok 1 add
  not ok 2 remove # expected 1, got 2
  ok 3 - splice # SKIP no memory
not ok 1 list
ok 2 hash # took 3 ms
";

    fn names(readings: &Readings) -> Vec<(String, f64)> {
        let of_tests = readings
            .samples
            .iter()
            .filter(|s| s.metric == "test_failed");
        of_tests
            .map(|s| (s.labels["test"].to_string(), s.value))
            .collect()
    }

    #[test]
    fn tests_of_a_suite_have_its_name() {
        let readings = read(NESTED);
        assert_eq!(
            names(&readings),
            [
                ("list.add".into(), 0.0),
                ("list.remove".into(), 1.0),
                ("hash".into(), 0.0)
            ]
        );
        let skipped = readings
            .samples
            .iter()
            .find(|s| s.metric == "tests_skipped");
        assert_eq!(skipped.unwrap().value, 1.0);
        assert_eq!(readings.problem.unwrap().to_string(), "not ok: list.remove");
    }

    #[test]
    fn an_early_end_and_an_empty_output_are_no_success() {
        let cut: String = NESTED.lines().take(7).map(|l| format!("{l}\n")).collect();
        assert_eq!(
            read(&cut).problem.unwrap().to_string(),
            "3 tests were planned, 1 have a result"
        );
        assert_eq!(read("hello\nokay\n").problem, Some(Problem::NoResults));
        let bail = read("TAP version 13\n1..2\nok 1 - a\nBail out! no device\n");
        assert_eq!(bail.problem.unwrap().to_string(), "bail out: no device");
    }

    #[test]
    fn the_plan_may_come_last_and_known_failures_count_as_such() {
        let readings = read("TAP version 13\nok 1 - selftests: a\nnot ok 2 b # TODO soon\n1..2\n");
        assert_eq!(readings.problem, None);
        assert_eq!(
            names(&readings),
            [("selftests: a".into(), 0.0), ("b".into(), 0.0)]
        );
    }
}
