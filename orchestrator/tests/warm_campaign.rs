//! Warm campaigns for real: guests are booted and proved once, saved, and restored
//! for the runs.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use topolab::store::{self, Results};

/// A scanner that is as quick as it can be, for one second; memory pinned to one node.
const EXPERIMENT: &str = "\
name: scan-warm
kernels: [linux-6.12@base]
topologies: [dual-node-4]
settings:
  pinned-node0:
    sysctl: {kernel.numa_balancing: 1}
    cgroups: {work: {cpuset.mems: \"0\"}}
workloads:
  scan: {numa-scan: {memory: 16M, seconds: 1, threads: 4, cgroup: work}}
boot: warm
boots: 2
";

fn run(folder: &Path) -> Results {
    let file = folder.join("experiment.yaml");
    fs::write(&file, EXPERIMENT).unwrap();
    let results = folder.join("results");
    let output = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .args([
            "run", "--seed", "3", "--accel", "tcg", "--rounds", "4", "--output",
        ])
        .args([&results, &file])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 6)), "{said}");
    store::load(&results).unwrap()
}

#[test]
fn rounds_take_turns_with_the_boots_and_saved_guests_do_not_stay() {
    let parent = tempfile::tempdir().unwrap();
    let results = run(parent.path());
    let mut boots: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for record in &results.records {
        assert!(record.outcome.has_result(), "{record:?}");
        boots.entry(&record.boot).or_default().push(record.round);
        assert_eq!(record.environment.more["start"], "warm");
        assert_eq!(record.phases[0].0, "restore", "{record:?}");
    }
    let mut rounds: Vec<Vec<u32>> = boots.into_values().collect();
    rounds.sort();
    assert_eq!(rounds, [[0, 2], [1, 3]]);
    assert!(!results.path.join("boots").exists());
    // How a boot went is kept with the run it was made for.
    let made_for: Vec<bool> = fs::read_dir(results.path.join("runs"))
        .unwrap()
        .map(|run| run.unwrap().path().join("boot/console.log").is_file())
        .collect();
    assert_eq!(made_for.iter().filter(|made| **made).count(), 2);
}
