//! What a large campaign costs. Measured, so run by hand and in release:
//! `cargo test --release --test scale -- --ignored --nocapture`.
//! `docs/statistics.md` keeps the figures.

mod synthetic;

use std::{
    process::Command,
    time::{Duration, Instant},
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use synthetic::{campaign, normal, sample};
use topolab::stats::{Sample, bootstrap::Bootstrap};
use topolab_protocol::{
    labels::Labels,
    sample::{Better, MetricKind, Sample as Measurement},
};

/// Largest resident size of the children so far, MiB.
fn children_peak() -> i64 {
    // SAFETY: getrusage writes the whole struct, for which zeros are valid.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a live struct of the right type.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage) };
    assert_eq!(failed, 0);
    usage.ru_maxrss / 1024
}

/// 200 cells × 30 runs × 10 metrics and a million raw samples.
#[test]
#[ignore = "measures; needs --release and a quiet machine"]
fn a_large_campaign_is_compared_and_drawn() {
    let settings: Vec<String> = (0..20)
        .map(|n| format!("  setting-{n}: {{sysctl: {{kernel.numa_balancing: 1}}}}"))
        .collect();
    let topologies: Vec<String> = (0..5).map(|n| format!("machine-{n}")).collect();
    let experiment = format!(
        "name: large\nkernels: [linux-6.12@base, linux-6.12+series@all]\ntopologies: [{}]\nsettings:\n{}\nworkloads:\n  scan: {{numa-scan: {{}}}}\nrounds: 30\ncompare: {{baseline: {{kernels: linux-6.12@base}}}}\n",
        topologies.join(", "),
        settings.join("\n"),
    );
    let large = campaign(&experiment, 1, |cell, random| {
        let shift = if cell.kernel.ends_with("@all") {
            1.05
        } else {
            1.0
        };
        let mut samples: Vec<Measurement> = (0..9)
            .map(|n| {
                let value = (10_000.0 * shift * (1.0 + 0.03 * normal(random))).round();
                sample(&format!("count_{n}"), MetricKind::Count, "count", value)
            })
            .collect();
        for place in 0..167 {
            samples.push(Measurement {
                metric: "latency".into(),
                value: (3000.0 * shift * (0.5 * normal(random)).exp()).round(),
                kind: MetricKind::Duration,
                unit: "ns".into(),
                better: Better::Lower,
                labels: Labels::from([("cpu", (place % 8).to_string())]),
            });
        }
        samples
    });
    assert_eq!(large.meta.cells.len(), 200);
    let folder = tempfile::tempdir().unwrap();
    large.write(&folder.path().join("large"));
    drop(large);
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .args(["report", "large", "--html", "large.html"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let took = started.elapsed();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let page = folder.path().join("large.html").metadata().unwrap().len();
    println!(
        "compare and page: {took:.2?}, {} MiB at most, page of {} KiB",
        children_peak(),
        page / 1024
    );
    let started = Instant::now();
    let output = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .args(["compare", "large"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    println!(
        "compare alone: {:.2?}, {} lines",
        started.elapsed(),
        output.stdout.split(|b| *b == b'\n').count()
    );
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert!(children_peak() < 500);
}

/// Intervals of 200 comparisons of 30 runs a side from 10 000 resamples each.
#[test]
#[ignore = "measures; needs --release and a quiet machine"]
fn many_intervals() {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut side = |_| {
        Sample::independent(
            &(0..30)
                .map(|_| 100.0 + random.random::<f64>())
                .collect::<Vec<_>>(),
        )
    };
    let pairs: Vec<(Sample, Sample)> = (0..200).map(|n| (side(n), side(n))).collect();
    let bootstrap = Bootstrap {
        resamples: 10_000,
        seed: 1,
        alpha: 0.05,
    };
    let started = Instant::now();
    let intervals = pairs
        .iter()
        .filter_map(|(base, new)| bootstrap.change(base, new))
        .count();
    let took = started.elapsed();
    assert_eq!(intervals, 200);
    println!("200 intervals from 10 000 resamples: {took:.2?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}
