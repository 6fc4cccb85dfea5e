//! What a bisection looks like to whoever reads it.

use std::path::PathBuf;

use topolab::bisect::account::{Account, Confirmation};
use topolab::bisect::git::{CommitFacts, Range, RangeRequest};
use topolab::bisect::judge::Judge;
use topolab::bisect::session::{Entry, FORMAT, Plan, Session, Target};
use topolab::bisect::{Costs, History, Observation, Place, Step, Verdict, Worse, html, text};
use topolab::plan::Cell;
use topolab::stats::judge::Effect;
use topolab::store::record::Environment;

fn id(number: u32) -> String {
    format!("{number:x}").repeat(40)[..40].to_owned()
}

fn subject(place: Place) -> String {
    match place {
        Place::GoodEnd => "Linux 6.12".to_owned(),
        Place::BadEnd => "mm: last".to_owned(),
        Place::At(candidate) => format!("mm: change {candidate}"),
    }
}

fn plan(judge: Judge) -> Plan {
    let ids: Vec<String> = (1..=12).map(id).collect();
    Plan {
        format: FORMAT,
        topolab: "0.0.0".to_owned(),
        started: "2025-04-01T08:00:00Z".to_owned(),
        experiment: Some("numa-scan".to_owned()),
        experiment_text: String::new(),
        cell: Some(Cell {
            kernel: "linux-6.12@base".to_owned(),
            topology: "dual-node-4".to_owned(),
            cmdline: "default".to_owned(),
            settings: "pinned-node0".to_owned(),
            workload: "scan".to_owned(),
        }),
        target: Target::Git {
            repo: PathBuf::from("/src/linux"),
            request: RangeRequest {
                good: "v6.12".to_owned(),
                bad: "main".to_owned(),
                ..RangeRequest::default()
            },
            range: Range {
                good: "0".repeat(40),
                bad: ids[11].clone(),
                history: History::linear(ids).unwrap(),
                skipped: Vec::new(),
            },
        },
        rules: judge.rules(),
        judge,
    }
}

/// Plays a bisection and gives its session, verdict and the folder it lives in.
fn play(
    judge: Judge,
    answer: impl Fn(Place, u32) -> Observation,
) -> (tempfile::TempDir, Session, Verdict) {
    let place = tempfile::tempdir().unwrap();
    let mut session = Session::create(&place.path().join("b"), plan(judge)).unwrap();
    loop {
        let question = match session.engine().next(Costs::default()) {
            Step::Done(verdict) => return (place, session, verdict),
            Step::Ask(question) => question,
        };
        let observation = answer(question.place, question.run);
        session
            .record(Entry {
                place: question.place,
                observation,
                image: None,
                build_seconds: if question.run == 1 { 21.0 } else { 0.0 },
                run_seconds: 9.0,
                folder: None,
                at: "2025-04-01T08:00:00Z".to_owned(),
            })
            .unwrap();
    }
}

fn metric() -> Judge {
    Judge::Metric {
        metric: "numa_pte_updates".to_owned(),
        per_run: None,
        min_effect: Effect::Relative(0.05),
        worse: Some(Worse::Higher),
    }
}

fn scans(place: Place, run: u32) -> Observation {
    match place {
        Place::At(5) => Observation::Untestable {
            reason: "does not build: fair.c:7: error".to_owned(),
        },
        Place::GoodEnd | Place::At(0..=6) => Observation::Value { value: 0.0 },
        _ => Observation::Value {
            value: 65_500.0 + f64::from(run) * 10.0,
        },
    }
}

fn facts(number: u32) -> CommitFacts {
    CommitFacts {
        id: id(number + 1),
        subject: format!("mm: change {number}"),
        author: "Ann <ann@example.org>".to_owned(),
        date: "2025-03-30T10:00:00+02:00".to_owned(),
        diffstat: " kernel/sched/fair.c | 9 ---------\n 1 file changed, 9 deletions(-)".to_owned(),
    }
}

fn account() -> Account {
    let (_place, session, verdict) = play(metric(), scans);
    let mut account = Account::of(&session, Some(&verdict), &subject, &[facts(7)]);
    account.environment = Some(Environment {
        accel: "tcg,thread=multi".to_owned(),
        qemu: "7.2.22".to_owned(),
        host_cpu: "some CPU".to_owned(),
        host_kernel: "6.1.0".to_owned(),
        kernel_config: "abcdef0123456789".to_owned(),
        ..Environment::default()
    });
    account.confirmation.push(Confirmation {
        what: "culprit against its parent".to_owned(),
        agrees: Some(true),
        detail: "good 0 ± 0 (5 runs), bad 65,520 ± 10 (5 runs)".to_owned(),
        runs: 10,
        build_seconds: 3.0,
        run_seconds: 50.0,
    });
    account.spent.wall_seconds = Some(400.0);
    account
}

#[test]
fn the_path_and_the_culprit() {
    insta::assert_snapshot!(text::render(&account(), 110), @r#"
    Searched v6.12..main for a change of numa_pte_updates: 12 candidates
    Cell: dual-node-4 · default · pinned-node0 · scan
    Ends: good 0 ± 0 (5 runs), bad 65 530 ± 15.81 (5 runs), difference 65 530 [65 479, 65 581]

           tree          runs            seen  P(bad)  mark  build s  run s  subject
     good  000000000000     5           0 ± 0   0.000  good       21     45  Linux 6.12
     bad   cccccccccccc     5  65 530 ± 15.81   1.000  bad        21     45  mm: last
     1     666666666666     0                          skip       21      9  mm: change 5 (does not build:
                                                                             fair.c:7: error)
     2     333333333333     1               0   0.000  good       21      9  mm: change 2
     3     999999999999     1          65 510   1.000  bad        21      9  mm: change 8
     4     555555555555     1               0   0.000  good       21      9  mm: change 4
     5     888888888888     2   65 515 ± 7.07   1.000  bad        21     18  mm: change 7
     6     777777777777     2           0 ± 0   0.000  good       21     18  mm: change 6

    The culprit, with confidence above 99.99 %:

      888888888888 ("mm: change 7")
      Ann <ann@example.org>  2025-03-30T10:00:00+02:00
       kernel/sched/fair.c | 9 ---------
       1 file changed, 9 deletions(-)
    confirmed: culprit against its parent: good 0 ± 0 (5 runs), bad 65,520 ± 10 (5 runs)

    17 runs, 8 trees (6 between the ends); building 2 min 48 s, running 2 min 42 s; confirming: 10 runs, building 3 s, running 50 s; in all 6 min 40 s (96 % of it building and running)
    "#);
}

#[test]
fn the_paragraph_for_a_mail() {
    insta::assert_snapshot!(text::mail(&account()), @r#"
    A change of numa_pte_updates in v6.12..main (12 candidates) first appears with

      888888888888 ("mm: change 7")

    with confidence above 99.99 %, 17 runs over 8 trees.
    Ends: good 0 ± 0 (5 runs), bad 65 530 ± 15.81 (5 runs), difference 65 530 [65 479, 65 581].
    Measured again, culprit against its parent: good 0 ± 0 (5 runs), bad 65,520 ± 10 (5 runs).
    Guest: dual-node-4 · default · pinned-node0 · scan.
    Bench: tcg,thread=multi, QEMU 7.2.22, some CPU, host kernel 6.1.0; guest configuration abcdef012345.

    #regzbot introduced: 8888888888888888888888888888888888888888
    "#);
}

#[test]
fn the_page_holds_the_picture_and_everything_the_text_says() {
    let page = html::page(&account()).unwrap();
    for part in [
        "<svg",
        "mm: change 7",
        "#regzbot introduced: 8888",
        "tcg,thread=multi",
        "does not build",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    assert_eq!(
        page.matches("<circle").count(),
        usize::try_from(account().spent.runs).unwrap()
    );
}

#[test]
fn suspects_that_cannot_be_told_apart_become_a_range() {
    let (_place, session, verdict) = play(metric(), |place, run| match place {
        Place::At(6 | 7) => Observation::Untestable {
            reason: "does not build".to_owned(),
        },
        Place::At(5) => scans(Place::GoodEnd, run),
        other => scans(other, run),
    });
    let named = [facts(6), facts(7), facts(8)];
    let account = Account::of(&session, Some(&verdict), &subject, &named);
    assert_eq!(account.introduced, Some(format!("{}..{}", id(6), id(9))));
    let mail = text::mail(&account);
    assert!(mail.contains("one of these 3 candidates"), "{mail}");
    insta::assert_snapshot!(text::conclusion(&account), @r#"
    The culprit is one of 3 candidates, with confidence above 99.99 %; no tree that can be tested tells them apart:

      777777777777 ("mm: change 6")  33 %
      Ann <ann@example.org>  2025-03-30T10:00:00+02:00

      888888888888 ("mm: change 7")  33 %
      Ann <ann@example.org>  2025-03-30T10:00:00+02:00

      999999999999 ("mm: change 8")  33 %
      Ann <ann@example.org>  2025-03-30T10:00:00+02:00
    "#);
}

#[test]
fn ends_that_do_not_differ_say_what_it_would_take() {
    let (_place, session, verdict) = play(metric(), |place, run| {
        let wobble = f64::from((run * 7) % 11) * 6.0;
        Observation::Value {
            value: if place == Place::GoodEnd {
                100.0
            } else {
                108.0
            } + wobble,
        }
    });
    let account = Account::of(&session, Some(&verdict), &subject, &[]);
    insta::assert_snapshot!(text::conclusion(&account), @"
    The ends do not differ: good 130.3 ± 19.02 (60 runs), bad 138.3 ± 19.02 (60 runs), difference 8 [-2.98, 18.98].
    If what was seen is the truth, about 6270 runs of each end would show it.
    ");
    assert_eq!(text::mail(&account), "");
}

#[test]
fn a_crash_is_told_in_counts() {
    let judge = Judge::Outcome {
        class: "guest-panic".to_owned(),
        title: Some("BUG: push_rt_task".to_owned()),
    };
    let (_place, session, verdict) = play(judge, |place, run| Observation::Event {
        seen: matches!(place, Place::BadEnd | Place::At(9..)) && run % 2 == 0,
    });
    let account = Account::of(&session, Some(&verdict), &subject, &[facts(9)]);
    insta::assert_snapshot!(text::mail(&account), @r#"
    Guest-panic 'BUG: push_rt_task' in v6.12..main (12 candidates) first appears with

      aaaaaaaaaaaa ("mm: change 9")

    with confidence 99.53 %, 58 runs over 6 trees.
    Ends: runs that show it: good 0 of 12, bad 6 of 12.
    Guest: dual-node-4 · default · pinned-node0 · scan.

    #regzbot introduced: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa
    "#);
    assert_eq!(account.explains, None);
}
