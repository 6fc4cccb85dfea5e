//! Samples read from what a program prints: by regular expressions, as lines
//! of JSON, as KTAP, or by knowing the program.

mod json_lines;
mod ktap;
mod patterns;
mod programs;

use topolab_protocol::{
    labels::Labels,
    sample::{Better, MetricKind, Sample},
    workload::{Parser, Workload},
};

pub use patterns::check;

/// What a program's output says.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings {
    /// Samples, in the order of the output.
    pub samples: Vec<Sample>,
    /// Why the workload has not done what it was asked, when the output says so
    /// or does not hold what it should.
    pub problem: Option<Problem>,
}

/// Why a workload has not done what it was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Nothing in the output fits a pattern.
    #[error("no line of its output fits `{regex}` of the metric `{metric}`")]
    NoMatch {
        /// The metric.
        metric: String,
        /// Its pattern.
        regex: String,
    },
    /// A pattern found something that is no number.
    #[error("`{regex}` of the metric `{metric}` found `{text}`, which is no number")]
    NoNumber {
        /// The metric.
        metric: String,
        /// Its pattern.
        regex: String,
        /// What was found.
        text: String,
    },
    /// A pattern that is none.
    #[error("the pattern of the metric `{metric}`: {reason}")]
    BadPattern {
        /// The metric.
        metric: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The output is not that of the program named.
    #[error("its output is not that of {program}: {lacks}")]
    OtherProgram {
        /// The program.
        program: &'static str,
        /// What is missing.
        lacks: &'static str,
    },
    /// A line of JSON that holds no sample.
    #[error("line {line} of its output is no sample: {reason}")]
    BadLine {
        /// Counted from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Tests failed.
    #[error("not ok: {tests}")]
    NotOk {
        /// Their names.
        tests: String,
    },
    /// The output ended early, or tests are missing.
    #[error("{planned} tests were planned, {seen} have a result")]
    Missing {
        /// By the plan.
        planned: usize,
        /// In the output.
        seen: usize,
    },
    /// No results at all.
    #[error("its output holds no KTAP or TAP results")]
    NoResults,
    /// The program gave up.
    #[error("bail out: {reason}")]
    BailOut {
        /// Its words.
        reason: String,
    },
}

/// Whether a workload's output is read at all.
pub fn wanted(workload: &Workload) -> bool {
    match workload {
        Workload::Ktap(_) => true,
        Workload::Command(command) => command.parser.is_some() || !command.metrics.is_empty(),
        Workload::Script(script) => script.parser.is_some() || !script.metrics.is_empty(),
        Workload::NumaScan(_)
        | Workload::LruDrain(_)
        | Workload::RtPushIpi(_)
        | Workload::ItmtStall(_) => false,
    }
}

/// Reads a workload's standard output.
pub fn read(workload: &Workload, output: &str) -> Readings {
    let (parser, metrics) = match workload {
        Workload::Ktap(_) => return ktap::read(output),
        Workload::Command(command) => (command.parser, &command.metrics),
        Workload::Script(script) => (script.parser, &script.metrics),
        _ => return Readings::default(),
    };
    let by_parser = match parser {
        None => Ok(Vec::new()),
        Some(Parser::JsonLines) => json_lines::read(output),
        Some(Parser::Hackbench) => programs::hackbench(output),
        Some(Parser::Cyclictest) => programs::cyclictest(output),
        Some(Parser::Schbench) => programs::schbench(output),
        Some(Parser::StressNg) => programs::stress_ng(output),
        Some(Parser::PerfBench) => programs::perf_bench(output),
    };
    let mut readings = Readings::default();
    for found in [by_parser, patterns::read(metrics, output)] {
        match found {
            Ok(samples) => readings.samples.extend(samples),
            Err(problem) => readings.problem = readings.problem.or(Some(problem)),
        }
    }
    readings
}

/// A sample without labels.
fn sample(metric: &str, value: f64, kind: MetricKind, unit: &str, better: Better) -> Sample {
    Sample {
        metric: metric.into(),
        value,
        kind,
        unit: unit.into(),
        better,
        labels: Labels::new(),
    }
}

fn labelled(mut sample: Sample, name: &str, value: &str) -> Sample {
    sample.labels.insert(name, value);
    sample
}
