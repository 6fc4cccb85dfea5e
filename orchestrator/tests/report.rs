//! `topolab report`: every file it writes, read by what would read it.

#[path = "synthetic/numa_scan.rs"]
mod numa_scan;
mod synthetic;

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use numa_scan::numa_scan;
use synthetic::{Campaign, campaign, normal, sample};
use topolab::outcome::Outcome;
use topolab_protocol::sample::MetricKind;

fn topolab(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_topolab"))
        .args(args)
        .current_dir(folder)
        .env_clear()
        .output()
        .unwrap()
}

/// A night on which much went wrong, with names and consoles that try to break
/// out of any format.
fn bad_night() -> Campaign {
    let mut night = numa_scan(3);
    let records = &mut night.records;
    records[5].outcome = Outcome::GuestPanic {
        title: "BUG: <script>alert(1)</script> & \"quotes\" # 5".into(),
    };
    records[5].samples.clear();
    records[5].console_tail = vec![
        "[    1.0] \u{1b}[31mred\u{1b}[0m \u{0}nul ]]> </system-out> <script>alert(1)</script>"
            .into(),
        "ok 1 forged".into(),
        "not ok 2 forged # SKIP".into(),
    ];
    records[9].outcome = Outcome::LabFailed {
        part: "qemu".into(),
        reason: "it left with status 1".into(),
    };
    records[9].samples.clear();
    records[14].outcome = Outcome::NotTestable {
        reason: "needs KVM".into(),
    };
    records[14].samples.clear();
    for record in records
        .iter_mut()
        .filter(|record| record.cell.kernel.ends_with("@all"))
    {
        record.environment.qemu = "8.2.1".into();
    }
    night.meta.experiment.about = "What <b>pinned</b> memory costs & why".into();
    night.meta.kernels[1].unavailable =
        Some("numa-scan-skip/0002-x.patch: hunk 2 does not apply".into());
    let topology = "name: dual-node-4\ncpus: {sockets: 2, cores: 2, threads: 1}\nnodes:\n  - {cpus: 0-1, memory: 512M}\n  - {cpus: 2-3, memory: 512M}\n";
    night
        .meta
        .topologies
        .insert("dual-node-4".into(), topology.into());
    night
}

fn written(campaign: &Campaign, shape: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    campaign.write(&folder.path().join("night"));
    let output = topolab(
        folder.path(),
        &["report", "night", &format!("--{shape}"), "out"],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::read_to_string(folder.path().join("out")).unwrap()
}

#[test]
fn junit_maps_outcomes_and_carries_the_console() {
    let text = written(&bad_night(), "junit");
    let report = quick_junit::Report::deserialize_from_str(&text).unwrap();
    assert_eq!((report.tests, report.failures, report.errors), (5, 1, 1));
    insta::assert_snapshot!(text, @r#"
    <?xml version="1.0" encoding="UTF-8"?>
    <testsuites name="numa-scan" tests="5" skipped="0" failures="1" errors="1">
        <testsuite name="linux-6.12@base" tests="2" skipped="0" errors="1" failures="0">
            <properties>
                <property name="results" value="night"/>
                <property name="seed" value="3"/>
            </properties>
            <testcase name="dual-node-4 · default · pinned-node0 · scan" classname="numa-scan.linux-6.12@base" time="48.000"/>
            <testcase name="dual-node-4 · default · unpinned · scan" classname="numa-scan.linux-6.12@base" time="48.000">
                <error message="lab-failed: qemu: it left with status 1 (run 9): 5 × completed, 1 × lab-failed" type="lab-failed"/>
            </testcase>
        </testsuite>
        <testsuite name="linux-6.12+numa-scan-skip@all" tests="2" skipped="0" errors="0" failures="1">
            <properties>
                <property name="results" value="night"/>
                <property name="seed" value="3"/>
            </properties>
            <testcase name="dual-node-4 · default · pinned-node0 · scan" classname="numa-scan.linux-6.12+numa-scan-skip@all" time="48.000"/>
            <testcase name="dual-node-4 · default · unpinned · scan" classname="numa-scan.linux-6.12+numa-scan-skip@all" time="48.000">
                <failure message="guest-panic: BUG: &lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quotes&quot; # 5 (run 5): 5 × completed, 1 × guest-panic" type="guest-panic"/>
                <system-out>run 5: guest-panic: BUG: &lt;script&gt;alert(1)&lt;/script&gt; &amp; &quot;quotes&quot; # 5
    [    1.0] red nul ]]&gt; &lt;/system-out&gt; &lt;script&gt;alert(1)&lt;/script&gt;
    ok 1 forged
    not ok 2 forged # SKIP</system-out>
            </testcase>
        </testsuite>
        <testsuite name="gates" tests="1" skipped="0" errors="0" failures="0">
            <testcase name="numa_pte_updates must_be: 0 · linux-6.12+numa-scan-skip@all · dual-node-4 · default · pinned-node0 · scan" classname="numa-scan.gates"/>
        </testsuite>
    </testsuites>
    "#);
}

#[test]
fn ktap_is_what_the_kernel_documents() {
    let text = written(&bad_night(), "ktap");
    insta::assert_snapshot!(text, @r#"
    KTAP version 1
    1..5
      KTAP version 1
      # Subtest: linux-6.12@base · dual-node-4 · default · pinned-node0 · scan
      1..6
      ok 1 run 2 round 0
      ok 2 run 4 round 1
      ok 3 run 11 round 2
      # not-testable: needs KVM
      ok 4 run 14 round 3 # SKIP not-testable: needs KVM
      ok 5 run 16 round 4
      ok 6 run 21 round 5
    ok 1 linux-6.12@base · dual-node-4 · default · pinned-node0 · scan
      KTAP version 1
      # Subtest: linux-6.12+numa-scan-skip@all · dual-node-4 · default · pinned-node0 · scan
      1..6
      ok 1 run 1 round 0
      ok 2 run 7 round 1
      ok 3 run 10 round 2
      ok 4 run 12 round 3
      ok 5 run 17 round 4
      ok 6 run 22 round 5
    ok 2 linux-6.12+numa-scan-skip@all · dual-node-4 · default · pinned-node0 · scan
      KTAP version 1
      # Subtest: linux-6.12@base · dual-node-4 · default · unpinned · scan
      1..6
      ok 1 run 0 round 0
      ok 2 run 6 round 1
      # lab-failed: qemu: it left with status 1
      not ok 3 run 9 round 2
      ok 4 run 13 round 3
      ok 5 run 18 round 4
      ok 6 run 20 round 5
    not ok 3 linux-6.12@base · dual-node-4 · default · unpinned · scan
      KTAP version 1
      # Subtest: linux-6.12+numa-scan-skip@all · dual-node-4 · default · unpinned · scan
      1..6
      ok 1 run 3 round 0
      # guest-panic: BUG: <script>alert(1)</script> & "quotes" # 5
      # [    1.0]  [31mred [0m  nul ]]> </system-out> <script>alert(1)</script>
      # ok 1 forged
      # not ok 2 forged # SKIP
      not ok 2 run 5 round 1
      ok 3 run 8 round 2
      ok 4 run 15 round 3
      ok 5 run 19 round 4
      ok 6 run 23 round 5
    not ok 4 linux-6.12+numa-scan-skip@all · dual-node-4 · default · unpinned · scan
    # it holds in all 6 runs
    ok 5 gate numa_pte_updates must_be: 0 in linux-6.12+numa-scan-skip@all · dual-node-4 · default · pinned-node0 · scan
    "#);
    check_ktap(&text);
}

/// The rules of `Documentation/dev-tools/ktap.rst` that a reader relies on:
/// version, plan, results numbered from 1 without a gap, subtests two blanks in.
fn check_ktap(text: &str) {
    let mut open: Vec<(usize, usize)> = Vec::new();
    for line in text.lines() {
        let depth = (line.len() - line.trim_start().len()) / 2;
        let line = line.trim_start();
        if line.starts_with("KTAP version 1") {
            assert_eq!(depth, open.len());
            open.push((0, 0));
        } else if let Some(plan) = line.strip_prefix("1..") {
            open[depth].0 = plan.parse().unwrap();
        } else if let Some(result) = line.strip_prefix("not ok ").or(line.strip_prefix("ok ")) {
            open.truncate(depth + 1);
            open[depth].1 += 1;
            let number: usize = result.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(number, open[depth].1, "{line}");
            assert!(number <= open[depth].0, "{line}");
        } else {
            assert!(line.starts_with('#'), "{line}");
        }
    }
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].0, open[0].1);
}

#[test]
fn lines_of_json_are_read_back_to_the_same_reports() {
    let folder = tempfile::tempdir().unwrap();
    bad_night().write(&folder.path().join("night"));
    let run = |results: &str, name: &str| {
        let (html, junit, jsonl) = (
            format!("{name}.html"),
            format!("{name}.xml"),
            format!("{name}.out"),
        );
        let args = [
            "report", results, "--html", &html, "--junit", &junit, "--jsonl", &jsonl,
        ];
        assert!(topolab(folder.path(), &args).status.success());
        [html, junit, jsonl].map(|file| fs::read_to_string(folder.path().join(file)).unwrap())
    };
    let live = run("night", "live");
    fs::write(folder.path().join("night.jsonl"), &live[2]).unwrap();
    let replayed = run("night.jsonl", "replayed");
    assert!(live == replayed);

    let mut lines: Vec<&str> = live[2].lines().collect();
    lines.pop();
    fs::write(folder.path().join("cut.jsonl"), lines.join("\n")).unwrap();
    let output = topolab(folder.path(), &["compare", "cut.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("cut off: 24 runs, and no count at the end"),
        "{message}"
    );

    let other = live[2].replace("\"topolab_jsonl\":1", "\"topolab_jsonl\":9");
    fs::write(folder.path().join("other.jsonl"), other).unwrap();
    let output = topolab(folder.path(), &["compare", "other.jsonl"]);
    assert_eq!(output.status.code(), Some(2));
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("JSONL version 9; this topolab reads version 1"),
        "{message}"
    );
}

#[test]
fn kcidb_has_a_test_for_every_run_metric_and_gate() {
    let json: serde_json::Value = serde_json::from_str(&written(&bad_night(), "kcidb")).unwrap();
    let tests = json["tests"].as_array().unwrap();
    let count = |status: &str| tests.iter().filter(|test| test["status"] == status).count();
    assert_eq!(
        (count("FAIL"), count("MISS"), count("SKIP"), count("PASS")),
        (1, 1, 1, 1)
    );
    assert_eq!(count("DONE"), 21 + 4);
    assert_eq!(json["builds"][1]["status"], "FAIL");
}

/// Validates with the package KCIDB's own clients use. It comes from PyPI, so
/// the test runs where that can be reached:
/// `cargo test --test report kcidb_io -- --ignored`.
#[test]
#[ignore = "installs kcidb-io from PyPI into a temporary folder"]
fn kcidb_io_accepts_the_report() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(
        folder.path().join("report.json"),
        written(&bad_night(), "kcidb"),
    )
    .unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program)
            .args(args)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    run("python3", &["-m", "venv", "v"]);
    run("v/bin/pip", &["-q", "install", "kcidb-io"]);
    let check =
        "import json, kcidb_io; kcidb_io.schema.LATEST.validate(json.load(open('report.json')))";
    run("v/bin/python", &["-c", check]);
}

#[test]
fn the_page_escapes_everything_and_needs_nothing() {
    let page = written(&bad_night(), "html");
    assert!(
        !page.contains("<script"),
        "no script, also not from a console"
    );
    assert!(!page.contains("<b>pinned"));
    assert!(page.contains("&lt;script&gt;alert(1)"));
    assert!(!page.contains('\u{1b}') && !page.contains('\0'));
    let urls: Vec<&str> = page
        .match_indices("://")
        .map(|(at, _)| &page[at.saturating_sub(8)..at + 20])
        .collect();
    assert!(
        urls.iter().all(|url| url.contains("www.w3.org")),
        "{urls:?}"
    );
    for part in [
        "Gates",
        "Compared runs differ",
        "numa_pte_updates",
        "Runs that did not complete",
        "Builds",
        "Topologies",
        "Environment",
        "How to reproduce",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

/// Several kernels, latencies with many samples, and a drifting bench.
fn rich() -> Campaign {
    let experiment = "\
name: delayed-dequeue
about: Wakeups onto a busy CPU while an allowed one idles
kernels: [linux-6.12@base, linux-6.12+dd@1, linux-6.12+dd@1..2, linux-6.12+dd@all]
topologies: [preferred-8]
cmdlines: {default: '', nohz-full-isolated: nohz_full=4-7}
settings: {itmt-on: {itmt: true}, itmt-off: {itmt: false}}
workloads:
  handoff: {numa-scan: {seconds: 8}}
rounds: 12
compare:
  baseline: {kernels: linux-6.12@base}
  metrics:
    stalls: {better: lower, min_effect: 5%, gate: {max_regression: 5%}}
    handoff: {better: lower, per_run: p99}
    migrations: {better: lower}
";
    let mut rich = campaign(experiment, 5, |cell, random| {
        let fixed = cell.kernel.contains("+dd") && !cell.kernel.ends_with("@1");
        let itmt = cell.settings == "itmt-on";
        let stalls = if itmt && !fixed {
            120.0 * (1.0 + 0.3 * normal(random)).max(0.0)
        } else {
            (0.6 * normal(random)).max(0.0)
        };
        let mut samples = vec![
            sample("stalls", MetricKind::Count, "count", stalls.round()),
            sample(
                "migrations",
                MetricKind::Count,
                "count",
                (9000.0 * (1.0 + 0.05 * normal(random))).round(),
            ),
        ];
        for _ in 0..500 {
            let wait =
                3000.0 * (0.4 * normal(random)).exp() * if itmt && !fixed { 1.3 } else { 1.0 };
            samples.push(sample("handoff", MetricKind::Duration, "ns", wait));
        }
        samples
    });
    for record in &mut rich.records {
        record.samples[1].value *= 1.0 + 0.0008 * record.index as f64;
    }
    let topology = "name: preferred-8\ncpus: {sockets: 1, cores: 8, threads: 1}\nnodes:\n  - {cpus: 0-7, memory: 1G}\nsets: {workers: 4-7}\npreferred_cores: [100, 100, 100, 100, 211, 216, 231, 221]\n";
    rich.meta
        .topologies
        .insert("preferred-8".into(), topology.into());
    rich
}

/// Opens the page in headless Chromium, narrow and wide, light and dark, and
/// leaves the screenshots in `target/screenshots` for a person to look at.
#[test]
#[ignore = "needs Chromium (Debian package `chromium`); leaves screenshots to look at"]
fn the_page_opens_in_a_browser() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .parent()
        .unwrap()
        .join("screenshots");
    fs::create_dir_all(&target).unwrap();
    for (name, campaign) in [("bad-night", bad_night()), ("rich", rich())] {
        let page = target.join(format!("{name}.html"));
        fs::write(&page, written(&campaign, "html")).unwrap();
        for (width, height) in [(1400, 4600), (390, 9000)] {
            for scheme in ["light", "dark"] {
                let shot = target.join(format!("{name}-{width}-{scheme}.png"));
                let _ = fs::remove_file(&shot);
                let profile = tempfile::tempdir().unwrap();
                let output = Command::new("chromium")
                    .args([
                        "--headless=new",
                        "--no-sandbox",
                        "--disable-gpu",
                        "--hide-scrollbars",
                    ])
                    .args(["--enable-logging=stderr", "--v=0"])
                    .arg(format!("--user-data-dir={}", profile.path().display()))
                    .arg(format!("--window-size={width},{height}"))
                    .arg(format!(
                        "--blink-settings=preferredColorScheme={}",
                        i32::from(scheme == "light")
                    ))
                    .arg(format!("--screenshot={}", shot.display()))
                    .arg(format!("file://{}", page.display()))
                    .output()
                    .expect("chromium is installed");
                let log = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(shot.exists(), "{log}");
                let complaints: Vec<&str> = log
                    .lines()
                    .filter(|line| line.contains("CONSOLE"))
                    .collect();
                assert!(complaints.is_empty(), "{complaints:?}");
            }
        }
    }
}
