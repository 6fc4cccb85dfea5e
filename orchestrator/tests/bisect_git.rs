//! Ranges of real git repositories, made here.

use std::path::{Path, PathBuf};
use std::process::Command;

use topolab::bisect::git::{RangeError, RangeRequest, Repository};
use topolab::bisect::{Costs, Engine, Observation, Place, Rules, Sought, Step, Verdict, git_log};

/// Runs git in a folder, away from the settings of whoever runs the test.
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
        .env("GIT_AUTHOR_DATE", "2025-04-01T10:00:00+02:00")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .to_owned();
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success(),
        "git {arguments:?}: {said}{complaint}"
    );
    said
}

fn commit(repo: &Path, name: &str) -> String {
    std::fs::write(repo.join(format!("{name}.c")), format!("{name}\n")).unwrap();
    git(repo, &["add", "."]);
    git(repo, &["commit", "-qm", &format!("area: change {name}")]);
    git(repo, &["rev-parse", "HEAD"])
}

/// base ─ a ─ b ─ c ───── m ─ d
///          └─ s ─ t ─ u ─┘
fn repository(place: &Path) -> PathBuf {
    let repo = place.join("linux");
    std::fs::create_dir_all(&repo).unwrap();
    git(&repo, &["init", "-q"]);
    commit(&repo, "base");
    git(&repo, &["tag", "v1"]);
    commit(&repo, "a");
    git(&repo, &["branch", "side"]);
    commit(&repo, "b");
    commit(&repo, "c");
    git(&repo, &["checkout", "-q", "side"]);
    for name in ["s", "t", "u"] {
        commit(&repo, name);
    }
    git(&repo, &["checkout", "-q", "main"]);
    git(
        &repo,
        &["merge", "-q", "--no-ff", "-m", "Merge side", "side"],
    );
    commit(&repo, "d");
    git(&repo, &["tag", "v2"]);
    repo
}

fn between(good: &str, bad: &str) -> RangeRequest {
    RangeRequest {
        good: good.to_owned(),
        bad: bad.to_owned(),
        ..RangeRequest::default()
    }
}

async fn open(repo: &Path) -> Repository {
    Repository::open(repo, Path::new("git")).await.unwrap()
}

/// Everything of a repository that a bisection must leave alone.
fn fingerprint(repo: &Path) -> (Vec<u8>, String, String) {
    let listing = Command::new("find")
        .arg(repo)
        .args([
            "-not",
            "-path",
            "*/.git/objects/*",
            "-printf",
            "%p %T@ %s\n",
        ])
        .output()
        .unwrap();
    (
        std::fs::read(repo.join(".git/index")).unwrap(),
        git(repo, &["for-each-ref"]),
        String::from_utf8(listing.stdout).unwrap(),
    )
}

/// Searches for the first commit that holds the file of `culprit`.
fn search(engine: &mut Engine, repo: &Path, culprit: &str, broken: &[&str]) -> Verdict {
    let holds = |id: &str, name: &str| {
        let file = format!("{name}.c");
        !git(repo, &["ls-tree", "--name-only", id, "--", &file]).is_empty()
    };
    loop {
        let question = match engine.next(Costs::default()) {
            Step::Done(verdict) => return verdict,
            Step::Ask(question) => question,
        };
        let observation = match question.place {
            Place::GoodEnd => Observation::Good,
            Place::BadEnd => Observation::Bad,
            Place::At(candidate) => {
                let id = engine.history().id(candidate).to_owned();
                let subject = git(repo, &["log", "-1", "--format=%s", &id]);
                if broken.iter().any(|name| subject.ends_with(name)) {
                    Observation::Untestable {
                        reason: "broken".to_owned(),
                    }
                } else if holds(&id, culprit) {
                    Observation::Bad
                } else {
                    Observation::Good
                }
            }
        };
        engine.answer(question.place, observation).unwrap();
    }
}

#[tokio::test]
async fn a_commit_inside_a_merged_branch_is_found() {
    let place = tempfile::tempdir().unwrap();
    let repo = repository(place.path());
    let repository = open(&repo).await;
    let range = repository.range(&between("v1", "v2")).await.unwrap();
    assert_eq!(range.history.len(), 8);
    let mut engine = Engine::new(range.history.clone(), Rules::new(Sought::Certain));
    let Verdict::Found { culprit } = search(&mut engine, &repo, "t", &[]) else {
        panic!("one commit adds t.c");
    };
    let facts = repository
        .facts(range.history.id(culprit.candidate))
        .await
        .unwrap();
    assert_eq!(facts.subject, "area: change t");
    assert_eq!(facts.author, "Ann <ann@example.org>");
    assert_eq!(facts.date, "2025-04-01T10:00:00+02:00");
    assert!(facts.diffstat.contains("t.c | 1 +"), "{}", facts.diffstat);
}

#[tokio::test]
async fn first_parents_blame_the_merge_and_paths_narrow() {
    let place = tempfile::tempdir().unwrap();
    let repo = repository(place.path());
    let repository = open(&repo).await;
    let request = RangeRequest {
        first_parent: true,
        ..between("v1", "v2")
    };
    let range = repository.range(&request).await.unwrap();
    assert_eq!(range.history.len(), 5);
    let mut engine = Engine::new(range.history.clone(), Rules::new(Sought::Certain));
    let Verdict::Found { culprit } = search(&mut engine, &repo, "t", &[]) else {
        panic!("the merge brings t.c");
    };
    let merge = repository
        .facts(range.history.id(culprit.candidate))
        .await
        .unwrap();
    assert_eq!(merge.subject, "Merge side");
    assert!(
        merge.diffstat.contains("3 files changed"),
        "{}",
        merge.diffstat
    );

    let request = RangeRequest {
        paths: vec!["t.c".to_owned(), "c.c".to_owned()],
        ..between("v1", "v2")
    };
    let range = repository.range(&request).await.unwrap();
    let subjects = repository
        .subjects(&(0..2).map(|c| range.history.id(c)).collect::<Vec<_>>())
        .await
        .unwrap();
    let mut subjects = subjects;
    subjects.sort();
    assert_eq!(subjects, ["area: change c", "area: change t"]);
}

#[tokio::test]
async fn the_first_question_is_as_good_as_gits() {
    let place = tempfile::tempdir().unwrap();
    let repo = repository(place.path());
    let range = open(&repo).await.range(&between("v1", "v2")).await.unwrap();
    let mut engine = Engine::new(range.history.clone(), Rules::new(Sought::Certain));
    engine.answer(Place::GoodEnd, Observation::Good).unwrap();
    engine.answer(Place::BadEnd, Observation::Bad).unwrap();
    let Step::Ask(question) = engine.next(Costs::default()) else {
        panic!("eight candidates are left");
    };
    let Place::At(candidate) = question.place else {
        panic!("the ends are answered");
    };
    let all = git(&repo, &["rev-list", "--bisect-all", "v2", "^v1"]);
    let distance = |line: &str| {
        line.split("dist=")
            .nth(1)
            .unwrap()
            .trim_end_matches(')')
            .to_owned()
    };
    let ours = all
        .lines()
        .find(|line| line.starts_with(range.history.id(candidate)))
        .unwrap();
    assert_eq!(distance(ours), distance(all.lines().next().unwrap()));
}

#[tokio::test]
async fn the_log_replays_in_plain_git() {
    let place = tempfile::tempdir().unwrap();
    let repo = repository(place.path());
    let request = RangeRequest {
        skip: vec!["v2~1".to_owned()],
        ..between("v1", "v2")
    };
    let repository = open(&repo).await;
    let range = repository.range(&request).await.unwrap();
    assert_eq!(range.skipped.len(), 1);
    let mut engine =
        Engine::new(range.history.clone(), Rules::new(Sought::Certain)).without(&range.skipped);
    let verdict = search(&mut engine, &repo, "s", &[]);
    let subject = |id: &str| git(&repo, &["log", "-1", "--format=%s", id]);
    let text = git_log(&engine, &request, &range, Some(&verdict), &subject);
    assert!(text.contains("# first bad commit: ["), "{text}");

    let clone = place.path().join("clone");
    git(
        place.path(),
        &[
            "clone",
            "-q",
            repo.to_str().unwrap(),
            clone.to_str().unwrap(),
        ],
    );
    let log = place.path().join("bisect.log");
    std::fs::write(&log, &text).unwrap();
    git(&clone, &["bisect", "replay", log.to_str().unwrap()]);
    let replayed = git(&clone, &["bisect", "log"]);
    let first_bad = |log: &str| {
        log.lines()
            .find(|l| l.starts_with("# first bad commit"))
            .map(str::to_owned)
    };
    assert_eq!(first_bad(&replayed), first_bad(&text));
}

#[tokio::test]
async fn ends_that_cannot_be_searched_are_told_and_nothing_is_touched() {
    let place = tempfile::tempdir().unwrap();
    let repo = repository(place.path());
    std::fs::write(repo.join("a.c"), "dirty\n").unwrap();
    let before = fingerprint(&repo);
    let repository = open(&repo).await;
    let refuse = async |good: &str, bad: &str| {
        repository
            .range(&between(good, bad))
            .await
            .unwrap_err()
            .to_string()
    };
    assert_eq!(
        refuse("v2", "v1").await,
        "the bad end 'v1' is an ancestor of the good end 'v2': the ends are swapped"
    );
    let same = refuse("v2", "main").await;
    assert!(
        same.starts_with("the good end 'v2' and the bad end 'main' are the same commit"),
        "{same}"
    );
    assert!(
        refuse("v9", "v2")
            .await
            .starts_with("the good end 'v9' names no commit in ")
    );
    assert!(
        refuse("v1", "--help")
            .await
            .starts_with("the bad end '--help' names no commit")
    );
    let apart = refuse("v2~2", "side").await;
    assert!(apart.contains("they part at"), "{apart}");
    assert!(apart.ends_with("(area: change a)"), "{apart}");
    let nothing = repository
        .range(&RangeRequest {
            paths: vec!["base.c".to_owned()],
            ..between("v1", "v2")
        })
        .await
        .unwrap_err();
    assert_eq!(
        nothing.to_string(),
        "no commit between 'v1' and 'v2' touches base.c"
    );
    let skip = repository
        .range(&RangeRequest {
            skip: vec!["v1..nowhere".to_owned()],
            ..between("v1", "v2")
        })
        .await
        .unwrap_err();
    assert!(
        skip.to_string()
            .starts_with("'v1..nowhere' to be skipped names no commits")
    );
    assert_eq!(repository.uncommitted().await.unwrap(), ["a.c"]);
    let outside = Repository::open(Path::new("/"), Path::new("git"))
        .await
        .unwrap_err();
    assert!(matches!(outside, RangeError::NotARepository { .. }));
    assert_eq!(fingerprint(&repo), before);
}

#[tokio::test]
async fn a_shallow_clone_is_named_as_the_cause() {
    let place = tempfile::tempdir().unwrap();
    let repo = repository(place.path());
    let shallow = place.path().join("shallow");
    let address = format!("file://{}", repo.display());
    git(
        place.path(),
        &[
            "clone",
            "-q",
            "--depth=2",
            &address,
            shallow.to_str().unwrap(),
        ],
    );
    let good = git(&repo, &["rev-parse", "v1"]);
    let error = open(&shallow)
        .await
        .range(&between(&good, "main"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, RangeError::Unknown { shallow: true, .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn our_copy_checks_out_and_reverts_without_the_users_repository_noticing() {
    let place = tempfile::tempdir().unwrap();
    let repo = repository(place.path());
    let before = fingerprint(&repo);
    let repository = open(&repo).await;
    let own = repository.copy(&place.path().join("own")).await.unwrap();
    let range = repository.range(&between("v1", "v2")).await.unwrap();
    own.checkout(&range.good).await.unwrap();
    assert!(own.path().join("base.c").exists() && !own.path().join("a.c").exists());
    let t = git(&repo, &["rev-parse", "side~1"]);
    let reverted = own.reverted(&range.bad, &t).await.unwrap().unwrap();
    let files = |commit: &str| git(own.path(), &["ls-tree", "--name-only", commit]);
    assert!(!files(&reverted).contains("t.c") && files(&reverted).contains("u.c"));
    assert_eq!(
        git(own.path(), &["rev-parse", &format!("{reverted}^")]),
        range.bad
    );
    let merge = git(&repo, &["rev-parse", "v2~1"]);
    let without_merge = own.reverted(&range.bad, &merge).await.unwrap().unwrap();
    assert!(!files(&without_merge).contains("u.c") && files(&without_merge).contains("d.c"));
    // What was never there cannot be taken back.
    assert_eq!(own.reverted(&range.good, &t).await.unwrap(), None);
    own.checkout(&range.bad).await.unwrap();
    // A second use finds the same repository.
    repository.copy(&place.path().join("own")).await.unwrap();
    assert_eq!(fingerprint(&repo), before);
}
