//! Whole bisections: saved, interrupted, resumed; scripts on real repositories.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::process::Command;

use topolab::bisect::git::{RangeRequest, Repository};
use topolab::bisect::judge::{Judge, Measurement};
use topolab::bisect::script::ScriptLab;
use topolab::bisect::session::{FORMAT, Plan, Session, SessionError, Target};
use topolab::bisect::{
    DriveError, History, Observation, Place, Progress, Ready, Run, Tree, Verdict, drive,
};
use topolab::outcome::Outcome;
use topolab::run::{Cancel, Stop};

fn plan(target: Target, judge: Judge) -> Plan {
    Plan {
        format: FORMAT,
        topolab: "0.0.0".to_owned(),
        started: "2025-04-01T08:00:00Z".to_owned(),
        experiment: None,
        experiment_text: String::new(),
        cell: None,
        target,
        rules: judge.rules(),
        judge,
    }
}

fn series(patches: u32) -> Target {
    Target::Series {
        kernel: "linux".to_owned(),
        series: "s".to_owned(),
        patches: Vec::new(),
        history: History::linear((1..=patches).map(|p| p.to_string()).collect()).unwrap(),
    }
}

fn panics() -> Judge {
    Judge::Outcome {
        class: "guest-panic".to_owned(),
        title: None,
    }
}

/// A guest that panics from this patch on.
fn guest(tree: &Tree, culprit: u32) -> Measurement {
    let bad = match tree.place {
        Place::GoodEnd => false,
        Place::BadEnd => true,
        Place::At(at) => at >= culprit,
    };
    Measurement::Ran {
        outcome: if bad {
            Outcome::GuestPanic {
                title: "BUG".to_owned(),
            }
        } else {
            Outcome::Completed
        },
        samples: Vec::new(),
        output: String::new(),
    }
}

fn ran(measurement: Measurement) -> Run {
    Run {
        measurement,
        folder: None,
    }
}

fn image(name: &str) -> Ready {
    Ready::Yes {
        image: Some(name.to_owned()),
    }
}

#[tokio::test]
async fn every_answer_is_on_disk_and_a_cut_off_one_never_was() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bisect-x");
    let runs = Cell::new(0u32);
    let ready = async |tree: &Tree| image(&tree.name);
    let never = Cancel::never();

    let stop_after = |limit: u32| {
        let runs = &runs;
        async move |tree: &Tree, _: u32| {
            runs.set(runs.get() + 1);
            if runs.get() > limit {
                return ran(Measurement::LabFailed {
                    reason: "disk full".to_owned(),
                });
            }
            ran(guest(tree, 11))
        }
    };
    let mut session = Session::create(&folder, plan(series(40), panics())).unwrap();
    let again = RefCell::new(0);
    let verdict = drive(
        &mut session,
        &ready,
        &stop_after(13),
        &never,
        &mut |progress| {
            if matches!(progress, Progress::Again { .. }) {
                *again.borrow_mut() += 1;
            }
        },
    )
    .await
    .unwrap();
    assert_eq!(
        verdict,
        Verdict::Aborted {
            reason: "the lab failed 3 times in a row: disk full".to_owned()
        }
    );
    assert_eq!(*again.borrow(), 3);
    let busy = Session::open(&folder).unwrap_err();
    assert!(matches!(busy, SessionError::Busy(_)), "{busy}");
    drop(session);

    // The power goes while the next line is written.
    let answers = folder.join("answers.jsonl");
    let mut text = std::fs::read(&answers).unwrap();
    text.extend(b"{\"place\":\"good-end\",\"ans");
    std::fs::write(&answers, text).unwrap();

    let mut session = Session::open(&folder).unwrap();
    assert_eq!(session.entries().len(), 13);
    let verdict = drive(
        &mut session,
        &ready,
        &stop_after(u32::MAX),
        &never,
        &mut |_| {},
    )
    .await
    .unwrap();
    let Verdict::Found { culprit } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(culprit.candidate, 11);
    drop(session);
    // Opened once more, the answer is there without another run.
    let before = runs.get();
    let mut session = Session::open(&folder).unwrap();
    drive(&mut session, &ready, &stop_after(0), &never, &mut |_| {})
        .await
        .unwrap();
    assert_eq!(runs.get(), before);
}

#[tokio::test]
async fn an_interrupt_keeps_what_was_answered() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("bisect-x");
    let mut session = Session::create(&folder, plan(series(40), panics())).unwrap();
    let (hand, cancel) = Stop::new();
    let runs = Cell::new(0);
    let run = async |tree: &Tree, _: u32| {
        runs.set(runs.get() + 1);
        if runs.get() == 5 {
            hand.stop();
            std::future::pending::<()>().await;
        }
        ran(guest(tree, 3))
    };
    let ready = async |tree: &Tree| image(&tree.name);
    let error = drive(&mut session, &ready, &run, &cancel, &mut |_| {})
        .await
        .unwrap_err();
    assert!(
        matches!(error, DriveError::Interrupted { answers: 4 }),
        "{error}"
    );
    drop(session);
    assert_eq!(Session::open(&folder).unwrap().entries().len(), 4);
}

#[tokio::test]
async fn equal_images_are_run_once_and_broken_ones_never() {
    let place = tempfile::tempdir().unwrap();
    let mut session = Session::create(&place.path().join("b"), plan(series(16), panics())).unwrap();
    let never = Cancel::never();
    // Patches 7 to 12 change nothing that is compiled; patch 15 breaks the build.
    let ready = async |tree: &Tree| match tree.place {
        Place::At(6..=11) => image("the image of patch 6"),
        Place::At(5) => image("the image of patch 6"),
        Place::At(14) => Ready::Broken {
            complaint: "fair.c:7: error".to_owned(),
        },
        _ => image(&tree.name),
    };
    let built = RefCell::new(Vec::new());
    let run = async |tree: &Tree, _: u32| {
        built.borrow_mut().push(tree.place);
        ran(guest(tree, 13))
    };
    let verdict = drive(&mut session, &ready, &run, &never, &mut |_| {})
        .await
        .unwrap();
    assert!(
        matches!(&verdict, Verdict::Found { culprit } if culprit.candidate == 13),
        "{verdict:?}"
    );
    let mut shared: Vec<_> = built
        .borrow()
        .iter()
        .filter(|p| matches!(p, Place::At(5..=11)))
        .copied()
        .collect();
    shared.sort();
    shared.dedup();
    assert!(shared.len() <= 1, "{shared:?}");
    assert!(!built.borrow().contains(&Place::At(14)));
}

#[tokio::test]
async fn a_folder_that_is_none_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let none = Session::open(place.path()).unwrap_err();
    assert!(matches!(none, SessionError::NotABisection(_)));
    let folder = place.path().join("b");
    drop(Session::create(&folder, plan(series(4), panics())).unwrap());
    let text = std::fs::read_to_string(folder.join("bisect.json")).unwrap();
    std::fs::write(
        folder.join("bisect.json"),
        text.replacen("\"format\":1", "\"format\":9", 1),
    )
    .unwrap();
    let version = Session::open(&folder).unwrap_err();
    assert!(
        matches!(version, SessionError::Version { found: 9, .. }),
        "{version}"
    );
}

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

/// Twenty commits that count upwards in a file; number 9 is unreadable.
fn counting(place: &Path) -> PathBuf {
    let repo = place.join("repo");
    std::fs::create_dir_all(&repo).unwrap();
    git(&repo, &["init", "-q"]);
    for number in 0..=20 {
        let text = if number == 9 {
            "broken".to_owned()
        } else {
            number.to_string()
        };
        std::fs::write(repo.join("number"), text + "\n").unwrap();
        git(&repo, &["add", "."]);
        git(&repo, &["commit", "-qm", &format!("count to {number}")]);
    }
    repo
}

async fn script_session(place: &Path, repo: &Path, script: &str) -> (Session, ScriptLab) {
    let repository = Repository::open(repo, Path::new("git")).await.unwrap();
    let request = RangeRequest {
        good: "main~20".to_owned(),
        bad: "main".to_owned(),
        ..RangeRequest::default()
    };
    let range = repository.range(&request).await.unwrap();
    let command: Vec<String> = ["sh", "-c", script].map(str::to_owned).to_vec();
    let target = Target::Git {
        repo: repo.to_owned(),
        request,
        range,
    };
    let judge = Judge::Script {
        command: command.clone(),
    };
    let folder = place.join("bisect-script");
    let session = Session::create(&folder, plan(target, judge)).unwrap();
    let lab = ScriptLab {
        repository: repository.copy(&place.join("own")).await.unwrap(),
        command,
        runs: folder.join("runs"),
        count: Cell::new(0),
    };
    (session, lab)
}

#[tokio::test]
async fn a_script_finds_what_git_bisect_run_finds() {
    let place = tempfile::tempdir().unwrap();
    let repo = counting(place.path());
    let script = "n=$(cat number); echo \"at $n\"; [ $n = broken ] && exit 125; [ $n -lt 13 ]";
    let (mut session, lab) = script_session(place.path(), &repo, script).await;
    let never = Cancel::never();
    let ready = async |_: &Tree| Ready::Yes { image: None };
    let run = async |tree: &Tree, number: u32| lab.run(tree, number).await;
    let verdict = drive(&mut session, &ready, &run, &never, &mut |_| {})
        .await
        .unwrap();
    let Verdict::Found { culprit } = verdict else {
        panic!("{verdict:?}");
    };
    let id = session.engine().history().id(culprit.candidate).to_owned();
    assert_eq!(
        git(&repo, &["log", "-1", "--format=%s", &id]),
        "count to 13"
    );

    let plain = place.path().join("plain");
    git(
        place.path(),
        &[
            "clone",
            "-q",
            repo.to_str().unwrap(),
            plain.to_str().unwrap(),
        ],
    );
    git(&plain, &["bisect", "start", "main", "main~20"]);
    git(&plain, &["bisect", "run", "sh", "-c", script]);
    assert_eq!(git(&plain, &["rev-parse", "refs/bisect/bad"]), id);

    let logs: Vec<_> = session
        .entries()
        .iter()
        .filter_map(|e| e.folder.clone())
        .collect();
    let log = session
        .folder()
        .join("runs")
        .join(&logs[0])
        .join("output.log");
    assert_eq!(std::fs::read_to_string(log).unwrap(), "at 0\n");
    assert_eq!(git(&repo, &["status", "--porcelain"]), "");
}

#[tokio::test]
async fn a_script_that_says_128_stops_it_with_the_state_kept() {
    let place = tempfile::tempdir().unwrap();
    let repo = counting(place.path());
    let script = "n=$(cat number); [ $n = 10 ] && exit 130; [ $n = broken ] || [ $n -lt 13 ]";
    let (mut session, lab) = script_session(place.path(), &repo, script).await;
    let never = Cancel::never();
    let ready = async |_: &Tree| Ready::Yes { image: None };
    let run = async |tree: &Tree, number: u32| lab.run(tree, number).await;
    let verdict = drive(&mut session, &ready, &run, &never, &mut |_| {})
        .await
        .unwrap();
    assert_eq!(
        verdict,
        Verdict::Aborted {
            reason: "the command said 130".to_owned()
        }
    );
    let answered = session.entries().len();
    let folder = session.folder().to_owned();
    drop(session);
    let session = Session::open(&folder).unwrap();
    assert_eq!(session.entries().len(), answered - 1);
    assert!(
        session
            .entries()
            .iter()
            .all(|e| !matches!(e.observation, Observation::Abort { .. }))
    );
}

#[tokio::test]
async fn other_crashes_are_run_again_until_they_repeat_themselves() {
    let place = tempfile::tempdir().unwrap();
    let mut session = Session::create(&place.path().join("b"), plan(series(16), panics())).unwrap();
    let never = Cancel::never();
    let ready = async |tree: &Tree| image(&tree.name);
    let crashed = Cell::new(0);
    let hang = |reason: &str| {
        ran(Measurement::Ran {
            outcome: Outcome::GuestHang {
                phase: "boot".to_owned(),
                reason: reason.to_owned(),
            },
            samples: Vec::new(),
            output: String::new(),
        })
    };
    // Patch 9 hangs always, patch 8 twice, in two ways.
    let tried = Cell::new(0);
    let run = async |tree: &Tree, _: u32| match tree.place {
        Place::At(8) => {
            tried.set(tried.get() + 1);
            hang("silent")
        }
        Place::At(7) if crashed.get() < 2 => {
            crashed.set(crashed.get() + 1);
            hang(["silent", "no timer"][crashed.get() - 1])
        }
        _ => ran(guest(tree, 7)),
    };
    let verdict = drive(&mut session, &ready, &run, &never, &mut |_| {})
        .await
        .unwrap();
    assert!(
        matches!(&verdict, Verdict::Found { culprit } if culprit.candidate == 7),
        "{verdict:?}"
    );
    assert_eq!(crashed.get(), 2);
    assert_eq!(tried.get() % 2, 0, "the same hang twice is enough");
    let skipped: Vec<_> = session
        .entries()
        .iter()
        .filter(|e| matches!(e.observation, Observation::Untestable { .. }))
        .map(|e| e.place)
        .collect();
    assert!(skipped.iter().all(|p| *p == Place::At(8)), "{skipped:?}");
}
