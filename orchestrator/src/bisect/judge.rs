//! What a measurement says about the thing that is sought.
//!
//! Only the sought thing is bad. A broken build or boot, another crash, a machine
//! that cannot run the cell: nothing can be learned there, the tree is skipped. A
//! failure of the lab says nothing at all and is tried again.

use serde::{Deserialize, Serialize};
use topolab_protocol::sample::Sample;

use super::observation::{Observation, Rules, Sought, Worse};
use crate::compare::{combine, per_run};
use crate::outcome::Outcome;
use crate::plan::glob;
use crate::stats::judge::{Effect, PerRun};

/// What is sought.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "judge", rename_all = "kebab-case")]
pub enum Judge {
    /// A change of a metric.
    Metric {
        /// Its name.
        metric: String,
        /// How the samples of a run become its value.
        per_run: Option<PerRun>,
        /// Smallest change worth finding; a share is one of the good end's mean.
        min_effect: Effect,
        /// Which way is worse.
        worse: Option<Worse>,
    },
    /// An outcome of runs.
    Outcome {
        /// Its class, such as `guest-panic`.
        class: String,
        /// What the outcome's detail must look like (`*` and `?`); absent: anything.
        title: Option<String>,
    },
    /// A build that fails.
    Build {
        /// What its first complaint must look like (`*` and `?`); absent: anything.
        complaint: Option<String>,
    },
    /// A sub-test that fails in the workload's output (KTAP or TAP).
    Subtest {
        /// Its name, or a pattern with `*` and `?`.
        name: String,
    },
    /// A command of the user, with the exit codes of `git bisect run`.
    Script {
        /// The command and its arguments.
        command: Vec<String>,
    },
}

/// What was seen at a tree.
#[derive(Debug, Clone, PartialEq)]
pub enum Measurement {
    /// It does not build, or its patches do not apply.
    NoBuild {
        /// The first complaint.
        complaint: String,
    },
    /// It builds; that was all that was asked.
    Builds,
    /// A run ended.
    Ran {
        /// How.
        outcome: Outcome,
        /// What it yielded.
        samples: Vec<Sample>,
        /// What the workload wrote.
        output: String,
    },
    /// The user's command ended.
    Script(ScriptEnd),
    /// The lab failed.
    LabFailed {
        /// Why.
        reason: String,
    },
}

/// How the user's command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScriptEnd {
    /// With this exit code.
    Code(i32),
    /// By this signal.
    Signal(i32),
}

/// What follows from a measurement.
#[derive(Debug, Clone, PartialEq)]
pub enum Ruling {
    /// An answer for the engine.
    Answer(Observation),
    /// The run ended in another way than the one that is sought. Once may be
    /// chance; what ends so again cannot be tested.
    Doubtful {
        /// How it ended.
        reason: String,
    },
    /// The lab failed: measure again, and stop when it keeps failing.
    Again {
        /// Why.
        reason: String,
    },
}

impl Judge {
    /// In which words the engine is answered.
    pub fn sought(&self) -> Sought {
        match self {
            Self::Metric {
                min_effect, worse, ..
            } => Sought::Level {
                min_effect: *min_effect,
                worse: *worse,
            },
            Self::Outcome { .. } | Self::Subtest { .. } => Sought::Event,
            Self::Build { .. } | Self::Script { .. } => Sought::Certain,
        }
    }

    /// Rules that suit it.
    pub fn rules(&self) -> Rules {
        Rules::new(self.sought())
    }

    /// Whether trees have to be run, or only built.
    pub fn needs_runs(&self) -> bool {
        !matches!(self, Self::Build { .. })
    }

    /// What a measurement says.
    pub fn rule(&self, measurement: &Measurement) -> Ruling {
        let skip = |reason: String| Ruling::Answer(Observation::Untestable { reason });
        match (self, measurement) {
            (_, Measurement::LabFailed { reason }) => Ruling::Again {
                reason: reason.clone(),
            },
            (_, Measurement::Ran { outcome, .. }) if outcome.is_retryable() => Ruling::Again {
                reason: outcome.detail(),
            },
            (Self::Script { .. }, Measurement::Script(end)) => Ruling::Answer(script(*end)),
            (Self::Build { complaint: wanted }, Measurement::NoBuild { complaint }) => match wanted
            {
                Some(pattern) if !fits(pattern, complaint) => {
                    skip(format!("another build failure: {complaint}"))
                }
                _ => Ruling::Answer(Observation::Bad),
            },
            (Self::Build { .. }, _) => Ruling::Answer(Observation::Good),
            (_, Measurement::NoBuild { complaint }) => skip(format!("does not build: {complaint}")),
            (
                Self::Metric {
                    metric, per_run, ..
                },
                Measurement::Ran {
                    outcome, samples, ..
                },
            ) if outcome.has_result() => match value(samples, metric, *per_run) {
                Some(value) => Ruling::Answer(Observation::Value { value }),
                None => skip(format!("the run completed without a sample of {metric}")),
            },
            (Self::Outcome { class, title }, Measurement::Ran { outcome, .. }) => {
                let detail = outcome.detail();
                let sought = outcome.class() == class
                    && title
                        .as_deref()
                        .is_none_or(|pattern| fits(pattern, &detail));
                match outcome {
                    _ if sought => Ruling::Answer(Observation::Event { seen: true }),
                    Outcome::Completed => Ruling::Answer(Observation::Event { seen: false }),
                    _ => other(outcome),
                }
            }
            (
                Self::Subtest { name },
                Measurement::Ran {
                    outcome: Outcome::Completed | Outcome::WorkloadFailed { .. },
                    output,
                    ..
                },
            ) => match subtest(output, name) {
                Some(passed) => Ruling::Answer(Observation::Event { seen: !passed }),
                None => skip(format!("the output holds no result of sub-test '{name}'")),
            },
            (_, Measurement::Ran { outcome, .. }) => other(outcome),
            (_, Measurement::Builds | Measurement::Script(_)) => {
                skip("it was built and not run".to_owned())
            }
        }
    }
}

/// Exit codes as `git bisect run` takes them (git-bisect(1), "Bisect run"): 0 is
/// good, 125 cannot be tested, 1 to 127 otherwise is bad, anything else ends it.
fn script(end: ScriptEnd) -> Observation {
    match end {
        ScriptEnd::Code(0) => Observation::Good,
        ScriptEnd::Code(125) => Observation::Untestable {
            reason: "the command said 125".to_owned(),
        },
        ScriptEnd::Code(1..=127) => Observation::Bad,
        ScriptEnd::Code(code) => Observation::Abort {
            reason: format!("the command said {code}"),
        },
        ScriptEnd::Signal(signal) => Observation::Abort {
            reason: format!("the command was ended by signal {signal}"),
        },
    }
}

/// The value of a metric in one run.
pub fn value(samples: &[Sample], metric: &str, how: Option<PerRun>) -> Option<f64> {
    let of_metric: Vec<&Sample> = samples.iter().filter(|s| s.metric == metric).collect();
    let kind = of_metric.first()?.kind;
    let values: Vec<f64> = of_metric.iter().map(|s| s.value).collect();
    combine(&values, per_run(how, kind))
}

/// A run that says nothing about what is sought.
fn other(outcome: &Outcome) -> Ruling {
    let reason = said(outcome);
    match outcome {
        // These follow from the kernel and the machine; another run ends the same.
        Outcome::NotTestable { .. } | Outcome::WrongTopology { .. } => {
            Ruling::Answer(Observation::Untestable { reason })
        }
        _ => Ruling::Doubtful { reason },
    }
}

fn said(outcome: &Outcome) -> String {
    let detail = outcome.detail();
    if detail.is_empty() {
        outcome.class().to_owned()
    } else {
        format!("{}: {detail}", outcome.class())
    }
}

/// A pattern without wildcards fits anywhere in the text.
fn fits(pattern: &str, text: &str) -> bool {
    if pattern.contains(['*', '?']) {
        glob(pattern, text)
    } else {
        text.contains(pattern)
    }
}

/// Whether a sub-test passed, by the last line about it; nothing when there is
/// none, or it was skipped. Lines as in Documentation/dev-tools/ktap.rst:
/// `[not ]ok NUMBER [- ]NAME [# DIRECTIVE]`, indented by nesting.
fn subtest(output: &str, name: &str) -> Option<bool> {
    let mut result = None;
    for line in output.lines() {
        let line = line.trim_start();
        let (passed, rest) = match (line.strip_prefix("not ok "), line.strip_prefix("ok ")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => continue,
        };
        let rest = rest
            .trim_start_matches(|c: char| c.is_ascii_digit())
            .trim_start();
        let rest = rest.strip_prefix("- ").unwrap_or(rest);
        let (title, directive) = match rest.split_once(" # ") {
            Some((title, directive)) => (title, directive.to_ascii_uppercase()),
            None => (rest, String::new()),
        };
        if title.trim_end() == name || glob(name, title.trim_end()) {
            result = (!directive.starts_with("SKIP")).then_some(passed);
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use topolab_protocol::sample::{Better, MetricKind};

    fn ran(outcome: Outcome) -> Measurement {
        Measurement::Ran {
            outcome,
            samples: Vec::new(),
            output: String::new(),
        }
    }

    fn panic(title: &str) -> Outcome {
        Outcome::GuestPanic {
            title: title.to_owned(),
        }
    }

    fn observation(judge: &Judge, measurement: &Measurement) -> Observation {
        match judge.rule(measurement) {
            Ruling::Answer(observation) => observation,
            Ruling::Doubtful { reason } => Observation::Untestable { reason },
            Ruling::Again { reason } => panic!("{reason}"),
        }
    }

    fn is_skip(judge: &Judge, measurement: &Measurement) -> bool {
        matches!(
            observation(judge, measurement),
            Observation::Untestable { .. }
        )
    }

    #[test]
    fn exit_codes_are_those_of_git_bisect_run() {
        let judge = Judge::Script {
            command: vec!["true".to_owned()],
        };
        let of = |code| observation(&judge, &Measurement::Script(ScriptEnd::Code(code)));
        assert_eq!(of(0), Observation::Good);
        for code in [1, 2, 124, 126, 127] {
            assert_eq!(of(code), Observation::Bad, "{code}");
        }
        assert!(matches!(of(125), Observation::Untestable { .. }));
        for code in [128, 130, 255, -1] {
            assert!(matches!(of(code), Observation::Abort { .. }), "{code}");
        }
        let killed = observation(&judge, &Measurement::Script(ScriptEnd::Signal(9)));
        assert!(matches!(killed, Observation::Abort { .. }));
    }

    #[test]
    fn only_the_sought_outcome_is_bad() {
        let judge = Judge::Outcome {
            class: "guest-panic".to_owned(),
            title: Some("BUG: null*push_rt_task".to_owned()),
        };
        let sought = ran(panic("BUG: null deref in push_rt_task"));
        assert_eq!(
            observation(&judge, &sought),
            Observation::Event { seen: true }
        );
        assert_eq!(
            observation(&judge, &ran(Outcome::Completed)),
            Observation::Event { seen: false }
        );
        assert!(is_skip(&judge, &ran(panic("Unable to mount root fs"))));
        assert!(is_skip(
            &judge,
            &ran(Outcome::BootFailed {
                reason: "silent".to_owned()
            })
        ));
        assert!(is_skip(
            &judge,
            &Measurement::NoBuild {
                complaint: "fair.c:1: error".to_owned()
            }
        ));
    }

    #[test]
    fn another_crash_is_doubtful_and_a_wrong_machine_is_not() {
        let judge = Judge::Outcome {
            class: "guest-hang".to_owned(),
            title: None,
        };
        assert!(matches!(
            judge.rule(&ran(panic("x"))),
            Ruling::Doubtful { .. }
        ));
        let machine = Outcome::WrongTopology {
            differences: vec!["nodes: asked 2, seen 1".to_owned()],
        };
        assert!(matches!(judge.rule(&ran(machine)), Ruling::Answer(_)));
    }

    #[test]
    fn a_failure_of_the_lab_is_no_answer() {
        let lab = ran(Outcome::LabFailed {
            part: "qemu".to_owned(),
            reason: "no memory".to_owned(),
        });
        for judge in [
            Judge::Outcome {
                class: "lab-failed".to_owned(),
                title: None,
            },
            Judge::Subtest {
                name: "x".to_owned(),
            },
        ] {
            assert!(matches!(judge.rule(&lab), Ruling::Again { .. }));
        }
    }

    #[test]
    fn a_build_failure_is_bad_only_where_it_is_sought() {
        let any = Judge::Build { complaint: None };
        let particular = Judge::Build {
            complaint: Some("undeclared".to_owned()),
        };
        let broken = |complaint: &str| Measurement::NoBuild {
            complaint: complaint.to_owned(),
        };
        assert_eq!(observation(&any, &broken("anything")), Observation::Bad);
        assert_eq!(observation(&any, &Measurement::Builds), Observation::Good);
        assert_eq!(
            observation(&particular, &broken("fair.c:9: error: 'x' undeclared")),
            Observation::Bad
        );
        assert!(is_skip(&particular, &broken("missing separator")));
    }

    #[test]
    fn a_metric_needs_a_completed_run_and_a_sample() {
        let judge = Judge::Metric {
            metric: "numa_pte_updates".to_owned(),
            per_run: None,
            min_effect: Effect::Relative(0.05),
            worse: None,
        };
        let sample = |value: f64, metric: &str| Sample {
            metric: metric.to_owned(),
            value,
            kind: MetricKind::Count,
            unit: "count".to_owned(),
            better: Better::Lower,
            labels: topolab_protocol::labels::Labels::new(),
        };
        let completed = Measurement::Ran {
            outcome: Outcome::Completed,
            samples: vec![
                sample(5.0, "numa_pte_updates"),
                sample(9.0, "passes"),
                sample(2.0, "numa_pte_updates"),
            ],
            output: String::new(),
        };
        assert_eq!(
            observation(&judge, &completed),
            Observation::Value { value: 7.0 }
        );
        assert!(is_skip(&judge, &ran(Outcome::Completed)));
        assert!(is_skip(&judge, &ran(panic("x"))));
    }

    #[test]
    fn sub_tests_are_read_from_ktap() {
        let output = "KTAP version 1\n1..2\n  # Subtest: sched\n    ok 1 - setup\n    \
                      not ok 2 cpuset_hotplug\nok 3 - old # SKIP no PMU\n";
        assert_eq!(subtest(output, "cpuset_hotplug"), Some(false));
        assert_eq!(subtest(output, "setup"), Some(true));
        assert_eq!(subtest(output, "old"), None);
        assert_eq!(subtest(output, "cpuset_*"), Some(false));
        assert_eq!(subtest(output, "cpuset"), None);
    }
}
