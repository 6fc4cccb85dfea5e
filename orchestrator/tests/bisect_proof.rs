//! A regression of a number, found for real: twelve commits on Debian's 6.12, one
//! of which lets NUMA balancing scan confined tasks again, one does not build,
//! one does not boot. Kernels are compiled and guests are emulated, so it takes
//! many minutes and is run by hand:
//!
//! ```text
//! cargo test -p topolab --test bisect_proof -- --ignored --nocapture
//! ```
//!
//! `TOPOLAB_PROOF` names a folder to work in and to keep; the kernel's source is
//! taken from `/usr/src` or fetched with apt-get.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(program: &str, folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_AUTHOR_NAME", "Ann")
        .env("GIT_AUTHOR_EMAIL", "ann@example.org")
        .env("GIT_COMMITTER_NAME", "Ann")
        .env("GIT_COMMITTER_EMAIL", "ann@example.org")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {output:?}"
    );
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

/// Unpacks Debian's source into `folder` and gives the tree.
fn source(folder: &Path) -> PathBuf {
    let installed = Path::new("/usr/src/linux-source-6.12.tar.xz");
    let tarball = if installed.is_file() {
        installed.to_owned()
    } else {
        run("apt-get", folder, &["download", "linux-source-6.12"]);
        run(
            "sh",
            folder,
            &["-c", "dpkg-deb -x linux-source-6.12_*.deb deb"],
        );
        folder.join("deb/usr/src/linux-source-6.12.tar.xz")
    };
    run("tar", folder, &["-xJf", tarball.to_str().unwrap()]);
    folder.join("linux-source-6.12")
}

fn append(tree: &Path, file: &str, text: &str) {
    let path = tree.join(file);
    let old = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("{old}{text}")).unwrap();
}

fn replace(tree: &Path, file: &str, old: &str, new: &str) {
    let path = tree.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(old).count(), 1, "{file}: {old}");
    fs::write(&path, text.replace(old, new)).unwrap();
}

const BROKEN_BUILD: &str = "#error this does not build\n";
const BOOT: &str = "static void __init do_basic_setup(void)\n{\n";

/// The base with the patch, and twelve commits on top of it.
fn repository(folder: &Path) -> PathBuf {
    let tree = source(folder);
    let commit = |subject: &str| {
        run("git", &tree, &["commit", "-qam", subject]);
    };
    let mark = |file: &str, number: u32| {
        append(
            &tree,
            file,
            &format!("\nstatic const int proof_mark_{number} __used = {number};\n"),
        );
        commit(&format!("{file}: mark {number}"));
    };
    run("git", &tree, &["init", "-q"]);
    // Debian ships no .gitignore'd files; everything in the tarball is source.
    run("git", &tree, &["add", "-A", "-f"]);
    run(
        "git",
        &tree,
        &["commit", "-qm", "Linux 6.12 as Debian ships it"],
    );
    let patches = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/patches/numa-scan-skip");
    let patch = fs::read_dir(patches)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|e| e == "patch"))
        .unwrap();
    run("git", &tree, &["am", "-q", patch.to_str().unwrap()]);
    run("git", &tree, &["tag", "proof-good"]);

    mark("kernel/sys.c", 1);
    mark("mm/util.c", 2);
    replace(
        &tree,
        "init/main.c",
        BOOT,
        &format!("{BOOT}\tpanic(\"the boot is broken\");\n"),
    );
    commit("init: stop early");
    replace(
        &tree,
        "init/main.c",
        "\tpanic(\"the boot is broken\");\n",
        "",
    );
    commit("init: go on");
    append(
        &tree,
        "kernel/panic.c",
        "/* A remark that compiles to nothing. */\n",
    );
    commit("panic: a remark");
    append(&tree, "mm/util.c", BROKEN_BUILD);
    commit("mm: a slip");
    replace(&tree, "mm/util.c", BROKEN_BUILD, "");
    commit("mm: mend the slip");
    run("git", &tree, &["revert", "--no-edit", "proof-good"]);
    run(
        "git",
        &tree,
        &[
            "commit",
            "-q",
            "--amend",
            "-m",
            "sched/numa: scan confined tasks again",
        ],
    );
    mark("kernel/fork.c", 9);
    mark("fs/open.c", 10);
    mark("kernel/exit.c", 11);
    mark("kernel/cpu.c", 12);
    run("git", &tree, &["tag", "proof-bad"]);
    assert_eq!(
        run(
            "git",
            &tree,
            &["rev-list", "--count", "proof-good..proof-bad"]
        ),
        "12"
    );
    tree
}

#[test]
#[ignore = "compiles a kernel and boots dozens of emulated guests: many minutes"]
fn the_commit_that_scans_again_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let place =
        std::env::var_os("TOPOLAB_PROOF").map_or_else(|| scratch.path().to_owned(), PathBuf::from);
    fs::create_dir_all(&place).unwrap();
    let repo = place.join("linux-source-6.12");
    if !repo.join(".git/refs/tags/proof-bad").is_file() {
        repository(&place);
    }
    let folder = place.join("bisect");
    drop(fs::remove_dir_all(&folder));
    let output = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .env("TOPOLAB_CACHE", place.join("cache"))
        .args([
            "bisect",
            "numa-scan",
            "--cell",
            "pinned-node0",
            "--metric",
            "numa_pte_updates",
        ])
        .args([
            "--good",
            "proof-good",
            "--bad",
            "proof-bad",
            "--accel",
            "tcg",
            "--confirm",
            "--json",
        ])
        .arg("--repo")
        .arg(&repo)
        .arg("--output")
        .arg(&folder)
        .stderr(std::process::Stdio::inherit())
        .output()
        .unwrap();
    println!("{}", fs::read_to_string(folder.join("report.txt")).unwrap());
    println!("{}", fs::read_to_string(folder.join("bisect.log")).unwrap());
    assert_eq!(output.status.code(), Some(0));
    let account: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(account["verdict"]["verdict"], "found");
    assert_eq!(
        account["suspects"][0]["facts"]["subject"],
        "sched/numa: scan confined tasks again"
    );
    let steps = account["steps"].as_array().unwrap();
    let measured = steps
        .iter()
        .filter(|step| step["place"]["at"].is_u64() && step["runs"].as_u64() > Some(0))
        .count();
    assert!((1..=6).contains(&measured), "{measured} measured steps");
    for step in steps.iter().filter(|step| step["mark"] == "skip") {
        let subject = step["subject"].as_str().unwrap();
        assert!(
            ["init: stop early", "mm: a slip"].contains(&subject),
            "{step}"
        );
    }
    assert!(
        steps.iter().any(|step| step["mark"] == "skip"),
        "the broken ones lie in the way"
    );
    let confirmations = account["confirmation"].as_array().unwrap();
    assert_eq!(confirmations.len(), 2, "the parent, and the revert");
    for confirmation in confirmations {
        assert_eq!(confirmation["agrees"], true, "{confirmation}");
    }
    let spent = &account["spent"];
    let busy: f64 = confirmations
        .iter()
        .chain([spent])
        .flat_map(|part| ["build_seconds", "run_seconds"].map(|of| part[of].as_f64().unwrap()))
        .sum();
    let wall = spent["wall_seconds"].as_f64().unwrap();
    println!(
        "in all {wall:.0} s, building and running {busy:.0} s ({:.0} %)",
        100.0 * busy / wall
    );
    assert!(busy >= 0.8 * wall, "the search itself is slow");
}
