//! `topolab bisect` as a person meets it: words, exit codes, and a repository
//! that nobody touched.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(["-c", "user.name=Ann", "-c", "user.email=ann@example.org"])
        .args([
            "-c",
            "init.defaultBranch=main",
            "-c",
            "commit.gpgSign=false",
        ])
        .args(arguments)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned()
}

/// A repository whose commits count upwards, and a place for everything else.
struct World {
    place: tempfile::TempDir,
    repo: PathBuf,
}

impl World {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let repo = place.path().join("repo");
        std::fs::create_dir(&repo).unwrap();
        git(&repo, &["init", "-q"]);
        for number in 0..=20 {
            std::fs::write(repo.join("number"), format!("{number}\n")).unwrap();
            git(&repo, &["add", "."]);
            git(&repo, &["commit", "-qm", &format!("count to {number}")]);
        }
        git(&repo, &["tag", "v1", "main~20"]);
        Self { place, repo }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_topolab"));
        command
            .arg("bisect")
            .args(arguments)
            .current_dir(&self.repo)
            .env("TOPOLAB_CACHE", self.place.path().join("cache"))
            .env("TOPOLAB_RESULTS", self.place.path().join("results"));
        command
    }

    fn bisect(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn fingerprint(&self) -> (String, String, Vec<u8>) {
        (
            git(&self.repo, &["for-each-ref"]),
            git(&self.repo, &["status", "--porcelain"]),
            std::fs::read(self.repo.join(".git/HEAD")).unwrap(),
        )
    }
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_script_names_the_commit_and_leaves_the_repository_alone() {
    let world = World::new();
    std::fs::write(world.repo.join("number"), "dirty\n").unwrap();
    let before = world.fingerprint();
    let folder = world.place.path().join("b");
    let output = world.bisect(&[
        "--good",
        "v1",
        "--bad",
        "main",
        "--confirm",
        "--output",
        folder.to_str().unwrap(),
        "--",
        "sh",
        "-c",
        "[ $(cat number) -lt 13 ]",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = stdout(&output);
    for part in [
        "count to 13",
        "1 file changed",
        "#regzbot introduced: ",
        "confirmed: ",
    ] {
        assert!(said.contains(part), "{part} is missing in {said}");
    }
    assert!(stderr(&output).contains("note: changes to number are in no commit"));
    for file in [
        "report.html",
        "report.txt",
        "bisect.log",
        "bisect.json",
        "answers.jsonl",
    ] {
        assert!(folder.join(file).is_file(), "{file}");
    }
    assert_eq!(world.fingerprint(), before);
}

#[test]
fn the_answer_as_json_is_one_document() {
    let world = World::new();
    let output = world.bisect(&[
        "--good",
        "v1",
        "--bad",
        "main",
        "--json",
        "--",
        "sh",
        "-c",
        "[ $(cat number) -lt 4 ]",
    ]);
    let account: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(account["verdict"]["verdict"], "found");
    assert_eq!(account["suspects"][0]["facts"]["subject"], "count to 4");
    assert_eq!(account["steps"][0]["mark"], "good");
}

#[test]
fn wrong_requests_end_with_two_and_a_next_step() {
    let world = World::new();
    let refuse = |arguments: &[&str]| {
        let output = world.bisect(arguments);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        stderr(&output)
    };
    let swapped = refuse(&["--good", "main", "--bad", "v1", "--", "true"]);
    assert!(swapped.contains("hint: --good v1 --bad main"), "{swapped}");
    let unknown = refuse(&["--good", "v9", "--bad", "main", "--", "true"]);
    assert!(unknown.contains("hint: git -C . fetch --tags"), "{unknown}");
    assert!(refuse(&["--good", "v1", "--bad", "v1", "--", "true"]).contains("are the same commit"));
    assert!(refuse(&["--good", "v1", "--bad", "main"]).contains("nothing says what to measure"));
    assert!(
        refuse(&["numa-scan", "--cell", "pinned-node0", "--metric", "passes"]).contains("--series")
    );
    let cells = refuse(&["numa-scan", "--good", "v1", "--bad", "main"]);
    assert!(cells.contains("hint: --cell 'pinned-node0'"), "{cells}");
    let sought = refuse(&[
        "numa-scan",
        "--good",
        "v1",
        "--bad",
        "main",
        "--cell",
        "pinned-node0",
    ]);
    assert!(
        sought.contains("hint: --metric numa_pte_updates"),
        "{sought}"
    );
    let ends = world.bisect(&["--good", "v1", "--bad", "main", "--", "true"]);
    assert_eq!(ends.status.code(), Some(2));
    assert!(
        stdout(&ends).contains("the bad end is good"),
        "{}",
        stdout(&ends)
    );
    assert!(!world.place.path().join("cache").exists());
}

#[test]
fn an_interrupted_bisection_goes_on_where_it_was() {
    let world = World::new();
    let folder = world.place.path().join("b");
    let gate = world.place.path().join("gate");
    let script = format!(
        "[ -e {} ] || [ $(cat number) != 15 ] || sleep 600; [ $(cat number) -lt 13 ]",
        gate.display()
    );
    let mut child = world
        .command(&[
            "--good",
            "v1",
            "--bad",
            "main",
            "--output",
            folder.to_str().unwrap(),
            "--",
            "sh",
            "-c",
            &script,
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let answers = folder.join("answers.jsonl");
    let begun = Instant::now();
    let lines = || {
        std::fs::read_to_string(&answers)
            .unwrap_or_default()
            .lines()
            .count()
    };
    // Ends and the first half are answered; the next one sleeps.
    while lines() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no third answer");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(200));
    let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let status = child.wait().unwrap();
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!(status.code(), Some(5), "{said}");
    assert!(said.contains("hint: topolab bisect --resume "), "{said}");
    let kept = lines();

    std::fs::write(&gate, "").unwrap();
    let output = world.bisect(&["--resume", folder.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(
        stdout(&output).contains("count to 13"),
        "{}",
        stdout(&output)
    );
    assert!(lines() > kept);
    assert!(!stderr(&output).contains("good end"), "{}", stderr(&output));
}

#[test]
fn a_step_that_cannot_begin_stops_git_bisect_instead_of_blaming_the_commit() {
    let world = World::new();
    let output = world.bisect(&["step", "no-such-experiment", "--outcome", "guest-panic"]);
    assert_eq!(output.status.code(), Some(128), "{}", stderr(&output));
    let output = world.bisect(&[
        "step",
        "numa-scan",
        "--cell",
        "pinned-node0",
        "--metric",
        "passes",
    ]);
    assert_eq!(output.status.code(), Some(128));
    assert!(
        stderr(&output).contains("--bad-above VALUE"),
        "{}",
        stderr(&output)
    );
}
