//! Benchmarks of the distribution are run for real, and their output is read as
//! an experiment would have it read.

use std::process::Command as Process;

use topolab::readings;
use topolab_protocol::{
    sample::Sample,
    workload::{Command, Parser, Workload},
};

/// Runs a program and reads what it prints.
fn run(parser: Parser, argv: &[&str]) -> Vec<Sample> {
    let output = Process::new(argv[0])
        .args(&argv[1..])
        .output()
        .unwrap_or_else(|error| panic!("cannot run {}: {error}; ./lab test installs it", argv[0]));
    let output = String::from_utf8_lossy(&output.stdout);
    let workload = Workload::Command(Command {
        argv: argv.iter().map(ToString::to_string).collect(),
        parser: Some(parser),
        ..Command::default()
    });
    let readings = readings::read(&workload, &output);
    assert_eq!(readings.problem, None, "{output}");
    readings.samples
}

fn value(samples: &[Sample], metric: &str) -> f64 {
    let found = samples.iter().find(|sample| sample.metric == metric);
    found
        .unwrap_or_else(|| panic!("no {metric} in {samples:?}"))
        .value
}

#[test]
fn hackbench_is_read() {
    let samples = run(Parser::Hackbench, &["hackbench", "-g", "1", "-l", "20"]);
    // Fewer than a minute and more than a microsecond, in nanoseconds.
    assert!(
        (1e3..6e10).contains(&value(&samples, "hackbench_time")),
        "{samples:?}"
    );
}

#[test]
fn cyclictest_is_read() {
    let argv = ["cyclictest", "--quiet", "--loops=20", "--threads=2"];
    let samples = run(Parser::Cyclictest, &argv);
    let threads: Vec<_> = samples
        .iter()
        .filter(|sample| sample.metric == "cyclictest_max")
        .map(|sample| &sample.labels["thread"])
        .collect();
    assert_eq!(threads, ["0", "1"]);
    assert!(value(&samples, "cyclictest_min") <= value(&samples, "cyclictest_max"));
}

#[test]
fn stress_ng_is_read() {
    let argv = [
        "stress-ng",
        "--switch",
        "1",
        "--timeout",
        "1",
        "--metrics",
        "--yaml",
        "/dev/stdout",
    ];
    let samples = run(Parser::StressNg, &argv);
    assert_eq!(&samples[0].labels["stressor"], "switch");
    assert!(value(&samples, "stress_ng_rate") > 0.0, "{samples:?}");
}
