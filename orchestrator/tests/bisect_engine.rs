//! The bisection engine, asked and answered by scripts.

use proptest::prelude::*;
use topolab::bisect::simulate::{Scenario, Shape, Signal, Totals, World};
use topolab::bisect::{
    AnswerError, Costs, Engine, History, Observation, Place, Rules, Sought, Step, Verdict, Worse,
};
use topolab::stats::judge::Effect;

fn line(n: usize, sought: Sought) -> Engine {
    let ids = (1..=n).map(|i| format!("c{i}")).collect();
    Engine::new(History::linear(ids).unwrap(), Rules::new(sought))
}

fn untestable() -> Observation {
    Observation::Untestable {
        reason: "does not build".to_owned(),
    }
}

/// Answers until the end, and tells what was asked.
fn play(
    engine: &mut Engine,
    mut answer: impl FnMut(Place) -> Observation,
) -> (Vec<Place>, Verdict) {
    let mut asked = Vec::new();
    loop {
        match engine.next(Costs::default()) {
            Step::Done(verdict) => return (asked, verdict),
            Step::Ask(question) => {
                asked.push(question.place);
                engine
                    .answer(question.place, answer(question.place))
                    .unwrap();
                assert!(asked.len() < 5000, "the engine does not come to an end");
            }
        }
    }
}

fn bad_from(culprit: u32) -> impl Fn(Place) -> Observation {
    move |place| match place {
        Place::GoodEnd => Observation::Good,
        Place::At(at) if at < culprit => Observation::Good,
        _ => Observation::Bad,
    }
}

const LEVEL: Sought = Sought::Level {
    min_effect: Effect::Relative(0.05),
    worse: Some(Worse::Higher),
};

#[test]
fn both_ends_come_first_then_halves() {
    let mut engine = line(8, Sought::Certain);
    let (asked, verdict) = play(&mut engine, bad_from(5));
    assert_eq!(
        asked,
        [
            Place::GoodEnd,
            Place::BadEnd,
            Place::At(3),
            Place::At(5),
            Place::At(4)
        ]
    );
    let Verdict::Found { culprit } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(culprit.candidate, 5);
    assert_eq!(culprit.probability.to_bits(), 1f64.to_bits());
}

#[test]
fn broken_neighbours_remain_as_suspects() {
    let mut engine = line(8, Sought::Certain);
    let (_, verdict) = play(&mut engine, |place| match place {
        Place::At(3 | 4) => untestable(),
        other => bad_from(4)(other),
    });
    let Verdict::FoundAmong { suspects } = verdict else {
        panic!("{verdict:?}");
    };
    let names: Vec<u32> = suspects.iter().map(|s| s.candidate).collect();
    assert_eq!(names, [3, 4, 5]);
}

#[test]
fn excluded_commits_are_never_asked() {
    let mut engine = line(8, Sought::Certain).without(&[3, 4]);
    let (asked, _) = play(&mut engine, bad_from(6));
    assert!(!asked.contains(&Place::At(3)) && !asked.contains(&Place::At(4)));
}

#[test]
fn ends_that_are_not_what_they_were_said_to_be_stop_it() {
    let refused = |answer: fn(Place) -> Observation| {
        let (asked, verdict) = play(&mut line(8, Sought::Certain), answer);
        let Verdict::EndRefused { reason } = verdict else {
            panic!("{verdict:?}");
        };
        (asked.len(), reason)
    };
    assert_eq!(
        refused(|_| Observation::Bad),
        (1, "the good end is bad".to_owned())
    );
    assert_eq!(
        refused(|_| Observation::Good),
        (2, "the bad end is good".to_owned())
    );
    assert_eq!(
        refused(|_| untestable()),
        (
            1,
            "the good end cannot be tested: does not build".to_owned()
        )
    );
}

#[test]
fn ends_of_a_metric_are_measured_in_turn_and_compared() {
    let (asked, verdict) = play(&mut line(8, LEVEL), |_| Observation::Value { value: 7.0 });
    assert_eq!(
        &asked[..4],
        [Place::GoodEnd, Place::BadEnd, Place::GoodEnd, Place::BadEnd]
    );
    assert_eq!(asked.len(), 10);
    assert!(matches!(verdict, Verdict::EndsAlike { .. }));

    let (_, verdict) = play(&mut line(8, LEVEL), |place| Observation::Value {
        value: if place == Place::GoodEnd { 9.0 } else { 7.0 },
    });
    let Verdict::EndsSwapped { ends } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!((ends.good_runs, ends.bad_runs), (5, 5));
}

#[test]
fn a_clear_metric_takes_two_runs_where_it_matters() {
    let mut engine = line(100, LEVEL);
    let (asked, verdict) = play(&mut engine, |place| Observation::Value {
        value: match place {
            Place::GoodEnd => 100.0,
            Place::At(at) if at < 40 => 100.0,
            _ => 200.0,
        },
    });
    assert!(matches!(verdict, Verdict::Found { culprit } if culprit.candidate == 40));
    let runs = |at| asked.iter().filter(|p| **p == Place::At(at)).count();
    assert_eq!((runs(39), runs(40)), (2, 2));
}

#[test]
fn one_odd_run_does_not_name_a_commit() {
    let mut engine = line(100, LEVEL);
    let mut odd = true;
    let (_, verdict) = play(&mut engine, |place| Observation::Value {
        value: match place {
            Place::GoodEnd => 100.0,
            Place::At(at) if at < 20 => 100.0,
            // The first run of the first step misses the effect.
            Place::At(_) if std::mem::take(&mut odd) => 100.0,
            _ => 200.0,
        },
    });
    assert!(
        matches!(verdict, Verdict::Found { ref culprit } if culprit.candidate == 20),
        "{verdict:?}"
    );
}

#[test]
fn equal_images_share_a_mark_and_clear_what_lies_between() {
    let mut engine = line(16, Sought::Certain);
    let (asked, verdict) = play(&mut engine, |place| match place {
        Place::At(at @ 4..=9) if at != 5 => Observation::SameAs {
            place: Place::At(5),
        },
        other => bad_from(12)(other),
    });
    assert!(
        matches!(verdict, Verdict::Found { ref culprit } if culprit.candidate == 12),
        "{verdict:?}"
    );
    assert!(asked.len() <= 8, "{asked:?}");

    let (_, verdict) = play(&mut line(16, Sought::Certain), |place| match place {
        Place::BadEnd => Observation::SameAs {
            place: Place::GoodEnd,
        },
        other => bad_from(12)(other),
    });
    assert!(matches!(verdict, Verdict::EndRefused { reason } if reason.contains("same image")));
}

#[test]
fn an_abort_is_kept_and_can_be_taken_back() {
    let mut engine = line(8, Sought::Certain);
    for (place, answer) in [
        (Place::GoodEnd, Observation::Good),
        (Place::BadEnd, Observation::Bad),
    ] {
        engine.answer(place, answer).unwrap();
    }
    let before = engine.next(Costs::default());
    let stop = Observation::Abort {
        reason: "disk full".to_owned(),
    };
    engine.answer(Place::At(3), stop).unwrap();
    assert_eq!(
        engine.next(Costs::default()),
        Step::Done(Verdict::Aborted {
            reason: "disk full".to_owned()
        })
    );
    engine.resume();
    assert_eq!(engine.next(Costs::default()), before);
}

#[test]
fn answers_that_contradict_each_other_are_said_so() {
    let mut engine = line(8, Sought::Certain);
    for (place, answer) in [
        (Place::GoodEnd, Observation::Good),
        (Place::BadEnd, Observation::Bad),
        (Place::At(2), Observation::Bad),
        (Place::At(5), Observation::Good),
    ] {
        engine.answer(place, answer).unwrap();
    }
    let Step::Done(Verdict::Contradiction { .. }) = engine.next(Costs::default()) else {
        panic!("a good commit on top of a bad one");
    };
}

#[test]
fn answers_of_another_kind_are_refused() {
    let mut engine = line(8, LEVEL);
    assert!(matches!(
        engine.answer(Place::GoodEnd, Observation::Good),
        Err(AnswerError::Kind { .. })
    ));
    assert!(matches!(
        engine.answer(Place::GoodEnd, Observation::Value { value: f64::NAN }),
        Err(AnswerError::NotFinite { .. })
    ));
    assert_eq!(
        engine
            .answer(Place::At(8), Observation::Value { value: 1.0 })
            .unwrap_err()
            .to_string(),
        "there is no candidate 8: the history has 8"
    );
    assert!(engine.answers().is_empty());
}

#[test]
fn the_limit_of_runs_ends_it_with_suspects() {
    let history = History::linear((1..=64).map(|i| i.to_string()).collect()).unwrap();
    let rules = Rules {
        max_runs: 14,
        ..Rules::new(LEVEL)
    };
    let mut engine = Engine::new(history, rules);
    let (asked, verdict) = play(&mut engine, |place| Observation::Value {
        value: match place {
            Place::GoodEnd => 100.0,
            Place::At(at) if at < 40 => 100.0,
            _ => 200.0,
        },
    });
    assert_eq!(asked.len(), 14);
    let Verdict::Undecided { suspects, reason } = verdict else {
        panic!("{verdict:?}");
    };
    assert_eq!(reason, "the allowed 14 runs are spent");
    assert!(suspects.iter().any(|s| s.candidate == 40));
}

/// A random history: each commit has one or two parents among the few before it.
fn histories() -> impl Strategy<Value = (History, u32)> {
    proptest::collection::vec((1usize..4, 1usize..8, proptest::bool::weighted(0.3)), 1..60)
        .prop_flat_map(|rows| {
            let n = rows.len();
            let listed = rows
                .into_iter()
                .enumerate()
                .map(|(at, (first, second, merge))| {
                    let mut parents = Vec::new();
                    let steps = if merge {
                        vec![first, second]
                    } else {
                        vec![first]
                    };
                    for back in steps {
                        if let Some(parent) = at.checked_sub(back) {
                            parents.push(parent.to_string());
                        }
                    }
                    parents.dedup();
                    (at.to_string(), parents)
                })
                .collect();
            let culprit = 0..u32::try_from(n).unwrap();
            (Just(History::with_parents(listed).unwrap()), culprit)
        })
}

proptest! {
    #[test]
    fn every_culprit_is_found_in_any_history((history, culprit) in histories()) {
        let holds: Vec<bool> = (0..u32::try_from(history.len()).unwrap())
            .map(|at| history.ancestors(&[at])[culprit as usize])
            .collect();
        let mut engine = Engine::new(history, Rules::new(Sought::Certain));
        let (_, verdict) = play(&mut engine, |place| match place {
            Place::GoodEnd => Observation::Good,
            Place::At(at) if !holds[at as usize] => Observation::Good,
            _ => Observation::Bad,
        });
        let found = matches!(&verdict, Verdict::Found { culprit: c } if c.candidate == culprit);
        prop_assert!(found, "{:?}", verdict);
    }

    #[test]
    fn what_cannot_be_tested_never_clears_the_culprit(
        (history, culprit) in histories(),
        broken in proptest::collection::vec(proptest::bool::weighted(0.3), 60),
    ) {
        let holds: Vec<bool> = (0..u32::try_from(history.len()).unwrap())
            .map(|at| history.ancestors(&[at])[culprit as usize])
            .collect();
        let mut engine = Engine::new(history, Rules::new(Sought::Certain));
        let (_, verdict) = play(&mut engine, |place| match place {
            Place::GoodEnd => Observation::Good,
            Place::At(at) if broken[at as usize] => untestable(),
            Place::At(at) if !holds[at as usize] => Observation::Good,
            _ => Observation::Bad,
        });
        let among = match &verdict {
            Verdict::Found { culprit: c } => c.candidate == culprit,
            Verdict::FoundAmong { suspects } | Verdict::Undecided { suspects, .. } => {
                suspects.iter().any(|s| s.candidate == culprit)
            }
            _ => false,
        };
        prop_assert!(among, "{:?}", verdict);
    }

    #[test]
    fn the_same_answers_lead_to_the_same_question(cut in 0usize..40, seed in 0u32..1000) {
        let noise = |place: Place, run: u32| {
            let at = match place { Place::At(at) => at, Place::GoodEnd => 0, Place::BadEnd => 99 };
            let wobble = f64::from((at * 31 + run * 17 + seed) % 11) - 5.0;
            if at >= 30 { 120.0 + wobble } else { 100.0 + wobble }
        };
        let mut first = line(100, LEVEL);
        let (_, verdict) = {
            let mut runs = std::collections::BTreeMap::new();
            play(&mut first, |place| {
                let run = runs.entry(place).or_insert(0);
                *run += 1;
                Observation::Value { value: noise(place, *run) }
            })
        };
        let mut second = line(100, LEVEL);
        for (at, answer) in first.answers().iter().enumerate() {
            if at >= cut {
                let Step::Ask(question) = second.next(Costs::default()) else {
                    panic!("ended early");
                };
                prop_assert_eq!(question.place, answer.place);
            }
            second.answer(answer.place, answer.observation.clone()).unwrap();
        }
        prop_assert_eq!(second.next(Costs::default()), Step::Done(verdict));
    }
}

/// The small version of `examples/bisect_simulation.rs`.
#[test]
fn invented_regressions_are_named_rightly() {
    let base = Scenario {
        commits: 200,
        signal: Signal::Level {
            cov: 0.10,
            effect: 0.15,
            shape: Shape::Normal,
        },
        broken: 0.0,
        broken_stretch: 3.0,
        nameable: true,
    };
    let crash = Signal::Event {
        bad: 0.3,
        good: 0.0,
    };
    let level = Sought::Level {
        min_effect: Effect::Relative(0.02),
        worse: None,
    };
    for (scenario, sought) in [
        (base, level),
        (
            Scenario {
                broken: 0.1,
                ..base
            },
            level,
        ),
        (
            Scenario {
                signal: crash,
                ..base
            },
            Sought::Event,
        ),
        (
            Scenario {
                signal: crash,
                broken: 0.1,
                ..base
            },
            Sought::Event,
        ),
    ] {
        let mut totals = Totals::default();
        for number in 0..60 {
            let world = World::new(scenario, 11, number);
            totals.add(world.search(Rules::new(sought), Costs::default()).unwrap());
        }
        assert!(totals.right >= 57, "{scenario:?}: {totals:?}");
        assert!(totals.wrong <= 1, "{scenario:?}: {totals:?}");
    }
}
