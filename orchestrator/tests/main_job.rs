//! The main job, for real: a kernel with and without a patch, in guests with two
//! nodes, through the command line as a person types it.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use topolab::store;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn topolab(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_topolab"))
        .current_dir(checkout())
        .args(args)
        .output()
        .unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Process numbers of QEMUs whose working folder or arguments name `folder`.
fn qemus_of(folder: &Path) -> Vec<String> {
    let name = folder.to_string_lossy().into_owned();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|pid| pid.chars().all(|c| c.is_ascii_digit()))
        .filter(|pid| {
            let cmdline = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            let is_qemu = cmdline.starts_with(b"qemu-system")
                || String::from_utf8_lossy(&cmdline).contains("/qemu-system");
            is_qemu
                && (String::from_utf8_lossy(&cmdline).contains(&name) || cwd.starts_with(folder))
        })
        .collect()
}

#[test]
fn the_patch_stops_the_scanner_and_the_control_does_not_change() {
    let parent = tempfile::tempdir().unwrap();
    let folder = parent.path().join("results");
    let output = topolab(&[
        "run",
        "numa-scan",
        "--only",
        "dual-node-4",
        "--rounds",
        "5",
        "--seed",
        "1",
        "--accel",
        "tcg",
        "--output",
        folder.to_str().unwrap(),
    ]);
    let table = String::from_utf8_lossy(&output.stdout).into_owned();
    let said = stderr(&output);
    assert!(
        matches!(output.status.code(), Some(0 | 6)),
        "{table}\n{said}"
    );
    let results = store::load(&folder).unwrap();
    assert!(
        results
            .records
            .iter()
            .filter(|r| r.outcome.has_result())
            .count()
            >= 20,
        "{said}"
    );
    let of = |kernel: &str, settings: &str| -> Vec<f64> {
        results
            .records
            .iter()
            .filter(|r| {
                r.outcome.has_result()
                    && r.cell.kernel.ends_with(kernel)
                    && r.cell.settings == settings
            })
            .flat_map(|r| {
                r.samples
                    .iter()
                    .filter(|s| s.metric == "numa_pte_updates")
                    .map(|s| s.value)
            })
            .collect()
    };
    assert!(
        of("@base", "pinned-node0").iter().all(|n| *n > 0.0),
        "{table}"
    );
    assert!(
        of("@all", "pinned-node0").iter().all(|n| *n == 0.0),
        "{table}"
    );
    assert!(of("@all", "unpinned").iter().all(|n| *n > 0.0), "{table}");
    let row = table
        .lines()
        .find(|line| line.starts_with("pinned-node0"))
        .unwrap_or_default();
    assert!(row.contains("better"), "{table}");
    let builds: Vec<_> = results
        .meta
        .kernels
        .iter()
        .map(|kernel| &kernel.build_id)
        .collect();
    assert_eq!(builds.len(), 2);
    assert_ne!(builds[0], builds[1]);
    assert!(qemus_of(parent.path()).is_empty());
}

#[test]
fn a_dry_run_starts_nothing_and_a_seed_names_the_order() {
    let args = [
        "run",
        "numa-scan",
        "--dry-run",
        "--seed",
        "7",
        "--rounds",
        "2",
    ];
    let (first, second) = (topolab(&args), topolab(&args));
    assert!(first.status.success(), "{}", stderr(&first));
    assert_eq!(first.stdout, second.stdout);
    let text = String::from_utf8_lossy(&first.stdout).into_owned();
    assert!(text.contains("seed 7"), "{text}");
}

#[test]
fn every_problem_of_an_experiment_is_told_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("broken.yaml");
    fs::write(
        &file,
        "name: broken\nkernels: [linux-6.12@bas, linux-6.13@base]\ntopologies: [dual-nod-4]\nronds: 3\n\
         workloads:\n  scan: {numa-scan: {memroy: 64M}}\n",
    )
    .unwrap();
    let output = topolab(&["run", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("unknown key `ronds`") && text.contains("did you mean `rounds`?"),
        "{text}"
    );
    assert!(text.contains("unknown key `memroy`"), "{text}");
    // The second step: names that lead nowhere, once the shape is right.
    let fixed = fs::read_to_string(&file)
        .unwrap()
        .replace("ronds", "rounds")
        .replace("memroy", "memory");
    fs::write(&file, fixed).unwrap();
    let output = topolab(&["run", file.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    for wanted in [
        "linux-6.12@bas",
        "no kernel `linux-6.13`",
        "did you mean `dual-node-4`?",
    ] {
        assert!(text.contains(wanted), "{wanted} is not in: {text}");
    }
}
