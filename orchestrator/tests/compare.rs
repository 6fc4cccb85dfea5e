//! `topolab compare` as people and scripts use it.

#[path = "synthetic/numa_scan.rs"]
mod numa_scan;
mod synthetic;

use std::{
    path::Path,
    process::{Command, Output},
};

use numa_scan::numa_scan;
use synthetic::{campaign, normal, sample};
use topolab_protocol::{labels::Labels, sample::MetricKind};

fn topolab(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_topolab"))
        .args(args)
        .current_dir(folder)
        .env_clear()
        .output()
        .unwrap()
}

fn answer(output: &Output) -> String {
    assert!(
        output.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_table_of_the_main_job() {
    let folder = tempfile::tempdir().unwrap();
    numa_scan(1).write(&folder.path().join("tonight"));
    let output = topolab(folder.path(), &["compare", "tonight"]);
    assert_eq!(output.status.code(), Some(0));
    insta::assert_snapshot!(answer(&output), @"
    numa-scan: kernel linux-6.12+numa-scan-skip@all, topology dual-node-4, workload scan, baseline
      linux-6.12@base

    numa_pte_updates per run (count, lower is better), 6 runs, interleaved
    settings               base            all  verdict
    pinned-node0  49 532 ±2.6 %       0 ±0.0 %  better [-100 %, -100 %]
    unpinned      49 592 ±2.2 %  49 935 ±4.2 %  undecided [-3.8 %, +5.2 %]: noise ±4.5 % hides 5 %,
                                                ≈15 more runs
    mean ±CoV; [interval of the change at 95 %]; changes below 5 % do not matter, Benjamini-Hochberg
      over 2 rows

    passes mean per run (rate, passes/s, higher is better), 6 runs, interleaved
    settings                 base             all  verdict
    pinned-node0  12.02 ±10.3 % ~  12.39 ±8.9 % ~  not judged ~
    unpinned      12.30 ±14.9 % ~  11.73 ±5.6 % ~  not judged ~
    ~ the bench cannot carry timing (accelerator tcg): shown, never judged

    gates
    result  metric            rule        cell                because
    pass    numa_pte_updates  must_be: 0  all · pinned-node0  it holds in all 6 runs
    ");
}

#[test]
fn a_broken_gate_is_exit_code_1() {
    let folder = tempfile::tempdir().unwrap();
    let mut campaign = numa_scan(1);
    for record in &mut campaign.records {
        record.samples[0].value += 1.0;
    }
    campaign.write(&folder.path().join("tonight"));
    let output = topolab(folder.path(), &["compare", "tonight", "--width", "80"]);
    assert_eq!(output.status.code(), Some(1));
    let text = answer(&output);
    assert!(text.contains("FAIL"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn two_nights_are_compared_and_a_changed_bench_is_shown() {
    let folder = tempfile::tempdir().unwrap();
    numa_scan(1).write(&folder.path().join("last"));
    let mut tonight = numa_scan(2);
    for record in &mut tonight.records {
        record.environment.qemu = "8.2.1".into();
        record.environment.kernel_image += "-tonight";
        if record.cell.settings == "unpinned" {
            record.samples[0].value *= 1.3;
        }
    }
    tonight.write(&folder.path().join("tonight"));
    let output = topolab(
        folder.path(),
        &["compare", "last", "tonight", "-m", "numa_pte_updates"],
    );
    insta::assert_snapshot!(answer(&output), @"
    numa-scan: tonight against last, topology dual-node-4, workload scan

    compared runs differ in more than the experiment varies:
      qemu: 7.2.22 → 8.2.1, 4 comparisons

    numa_pte_updates per run (count, lower is better), 6 runs
    kernel  settings               last        tonight  verdict
    base    pinned-node0  49 532 ±2.6 %  49 486 ±3.6 %  same [-4.0 %, +4.1 %] within ±5 %
    all     pinned-node0       0 ±0.0 %       0 ±0.0 %  same
    base    unpinned      49 592 ±2.2 %  65 006 ±2.4 %  worse [+27.6 %, +35.3 %]
    all     unpinned      49 935 ±4.2 %  66 164 ±3.3 %  worse [+26.5 %, +39.3 %]
    mean ±CoV; [interval of the change at 95 %]; changes below 5 % do not matter, Benjamini-Hochberg
      over 4 rows

    gates
    result  metric            rule        cell                because
    pass    numa_pte_updates  must_be: 0  all · pinned-node0  it holds in all 6 runs
    ");
    let same = topolab(
        folder.path(),
        &[
            "compare",
            "tonight",
            "--baseline",
            "last",
            "-m",
            "numa_pte_updates",
        ],
    );
    assert_eq!(same.stdout, output.stdout);
}

#[test]
fn other_shapes_hold_the_same_comparison() {
    let folder = tempfile::tempdir().unwrap();
    numa_scan(1).write(&folder.path().join("r"));
    let json = answer(&topolab(folder.path(), &["compare", "r", "--json"]));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["tables"][0]["rows"][0]["verdict"]["class"], "better");
    let csv = answer(&topolab(
        folder.path(),
        &["compare", "r", "--format", "csv"],
    ));
    assert_eq!(csv.lines().count(), 5);
    let markdown = answer(&topolab(
        folder.path(),
        &["compare", "r", "--format", "markdown"],
    ));
    assert!(markdown.contains("| pinned-node0 |"), "{markdown}");
}

#[test]
fn what_cannot_be_compared_is_told_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    numa_scan(1).write(&folder.path().join("r"));
    let output = topolab(
        folder.path(),
        &["compare", "r", "--base", "kernels=linux-6.13@base"],
    );
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"error: no cell has kernels = `linux-6.13@base`, the baseline; there are: linux-6.12@base, linux-6.12+numa-scan-skip@all");
    let output = topolab(folder.path(), &["compare", "nowhere"]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"error: nowhere: not a results folder (there is no campaign.json)");
    let output = topolab(
        folder.path(),
        &["compare", "r", "--metric", "numa_pte_update"],
    );
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8_lossy(&output.stderr), @"
    error: no run has a metric `numa_pte_update`
    hint: did you mean `numa_pte_updates`?
    ");
}

/// The shapes in which two reports on the kernel's mailing list showed their numbers:
/// kernel by CPU and setting, and every run with its total.
#[test]
fn tables_of_ones_own_shape() {
    let experiment = "\
name: rt-push-ipi
kernels: [linux-6.12@base, linux-6.12+rt-push@all, linux-6.12+rt-push@no-ipi]
topologies: [smp-4]
settings: {md-1: {}, md-0: {}}
workloads: {push: {numa-scan: {}}}
rounds: 5
compare: {baseline: {kernels: linux-6.12@base}}
";
    let night = campaign(experiment, 7, |cell, random| {
        let mut samples = Vec::new();
        for interval in 0..6 {
            for cpu in [1, 2] {
                let storm = cell.kernel.ends_with("@base") && cell.settings == "md-1" && cpu == 1;
                let mean = match (
                    cell.kernel.ends_with("@no-ipi"),
                    storm,
                    cell.settings.as_str(),
                    cpu,
                ) {
                    (true, ..) => 0.0,
                    (_, true, ..) => 41_474.7,
                    (_, _, "md-0", 1) => 4784.4,
                    (_, _, "md-0", _) => 85.0,
                    _ => 0.0,
                };
                let mut ipis = sample(
                    "push_ipis",
                    MetricKind::Count,
                    "count",
                    (mean * (1.0 + 0.002 * normal(random))).round(),
                );
                ipis.labels =
                    Labels::from([("cpu", cpu.to_string()), ("interval", interval.to_string())]);
                samples.push(ipis);
            }
        }
        let stalls = if cell.settings == "md-1" { 120.0 } else { 1.0 };
        samples.push(sample(
            "stalls",
            MetricKind::Count,
            "count",
            (stalls * (1.0 + 0.5 * normal(random)).max(0.0)).round(),
        ));
        samples.push(sample("handoffs", MetricKind::Count, "count", 58_900.0));
        samples
    });
    let folder = tempfile::tempdir().unwrap();
    night.write(&folder.path().join("r"));
    let by_cpu = [
        "compare",
        "r",
        "-m",
        "push_ipis",
        "--rows",
        "kernel",
        "--columns",
        "cpu,settings",
        "--each",
        "sample",
    ];
    insta::assert_snapshot!(answer(&topolab(folder.path(), &by_cpu)), @"
    push_ipis per sample (count)
    kernel     cpu 1 md-1    cpu 1 md-0  cpu 2 md-1  cpu 2 md-0
    base    41 479 ±0.1 %  4 785 ±0.2 %           0   85 ±0.0 %
    all                 0  4 783 ±0.2 %           0   85 ±0.0 %
    no-ipi              0             0           0           0
    mean ±CoV over 30 samples; pooled over interval
    ");
    let totals = [
        "compare",
        "r",
        "-m",
        "stalls",
        "--of",
        "handoffs",
        "--rows",
        "settings",
        "--cell",
        "per-run total",
        "--only",
        "kernels=linux-6.12@base",
    ];
    insta::assert_snapshot!(answer(&topolab(folder.path(), &totals)), @"
    stalls of handoffs per run (count)
    settings  stalls per run              total
    md-1      149 120 164 54 49  536 of 294 500
    md-0      0 1 1 1 1            4 of 294 500
    every value, and their total over 5 runs
    ");
    let medians = [
        "compare",
        "r",
        "-m",
        "push_ipis",
        "--rows",
        "kernel,settings",
        "--columns",
        "cpu",
        "--cell",
        "median [ci]",
        "--format",
        "markdown",
    ];
    insta::assert_snapshot!(answer(&topolab(folder.path(), &medians)), @r"
    **push_ipis per run (count)**

    | kernel | settings | cpu 1 | cpu 2 |
    | --- | --- | ---: | ---: |
    | base | md-1 | 248 848 \[248 774, 248 961\] | 0 \[0, 0\] |
    | base | md-0 | 28 710 \[28 694, 28 722\] | 510 \[510, 510\] |
    | all | md-1 | 0 \[0, 0\] | 0 \[0, 0\] |
    | all | md-0 | 28 692 \[28 680, 28 721\] | 510 \[510, 510\] |
    | no-ipi | md-1 | 0 \[0, 0\] | 0 \[0, 0\] |
    | no-ipi | md-0 | 0 \[0, 0\] | 0 \[0, 0\] |

    median \[interval between order statistics, at least 95 % where the number of values allows\] over 5 runs; interval added up within a run
    ");
    let mixed = topolab(
        folder.path(),
        &["compare", "r", "-m", "stalls", "--rows", "kernel"],
    );
    assert_eq!(mixed.status.code(), Some(2));
    insta::assert_snapshot!(String::from_utf8_lossy(&mixed.stderr), @"
    error: `settings` varies (md-1, md-0) but tells neither rows nor columns apart
    hint: add --rows or --columns settings, or keep one: --only settings=md-1
    ");
}
