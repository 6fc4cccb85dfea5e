//! From the values of two sides to a verdict.
//!
//! The decision joins a test of "no change" with a test of "no change that
//! matters", after Lakens, "Equivalence Tests", Social Psychological and
//! Personality Science 8 (2017):
//!
//! - the interval of the change lies within the minimum effect: `same`;
//! - it leaves out 0, reaches beyond the minimum effect, and the permutation
//!   test, corrected for the comparisons of its table, agrees: `better` or `worse`;
//! - otherwise `undecided`, with the number of runs that would decide.
//!
//! So a real change that is smaller than the minimum effect ends as `same`, and
//! one as large as the minimum effect is found with the runs that are asked for.

use serde::{Deserialize, Serialize};
use topolab_protocol::sample::Better;

use super::{
    Sample,
    bootstrap::{Bootstrap, Change, Scale},
    correction::Correction,
    judge::{CompareSpec, Effect},
    permutation,
    power::{runs_for_p, runs_needed},
    sequential::alpha_at,
    summary::{mean, variance},
};

/// How strictly the rows of one table are judged.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rules {
    /// Which direction is good news.
    pub better: Better,
    /// Changes below this are of no interest.
    pub min_effect: Effect,
    /// Accepted chance of a false verdict.
    pub alpha: f64,
    /// Chance to find a change of `min_effect` that further runs are asked for.
    pub power: f64,
    /// Fewer runs a side decide nothing.
    pub min_runs: usize,
    /// Correction over the table.
    pub correction: Correction,
    /// How intervals are made.
    pub bootstrap: Bootstrap,
}

impl Rules {
    /// The rules of an experiment for one metric.
    pub fn of(spec: &CompareSpec, metric: &str, better: Better) -> Self {
        Self {
            better,
            min_effect: spec.min_effect(metric),
            alpha: spec.alpha.value,
            power: spec.power.value,
            min_runs: spec.min_runs.value as usize,
            correction: spec.correction,
            bootstrap: Bootstrap {
                resamples: spec.resamples.value as usize,
                seed: spec.seed,
                alpha: spec.alpha.value,
            },
        }
    }
}

impl Rules {
    /// The same rules at the level of one of several looks at growing data; 0
    /// stands for a number of runs fixed before.
    #[must_use]
    pub fn at_look(mut self, look: u32) -> Self {
        if look > 0 {
            self.alpha = alpha_at(self.alpha, look);
            self.bootstrap.alpha = self.alpha;
        }
        self
    }
}

/// The verdict of one comparison.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "class", rename_all = "kebab-case")]
pub enum Verdict {
    /// Changed for the better.
    Better,
    /// Changed for the worse.
    Worse,
    /// No change that matters: the interval lies within the minimum effect.
    Same {
        /// The minimum effect, in the scale of the change.
        within: f64,
    },
    /// Nothing can be said yet.
    Undecided {
        /// Why.
        reason: Doubt,
        /// Estimated further runs of each side; absent when no reasonable
        /// number would decide.
        more_runs: Option<usize>,
    },
    /// Not to be judged.
    Invalid {
        /// Why.
        reason: Unfit,
    },
}

/// Why a comparison is undecided.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case")]
pub enum Doubt {
    /// Not enough runs for any verdict.
    TooFewRuns {
        /// Runs of the side that has fewer.
        have: usize,
        /// Runs needed.
        need: usize,
    },
    /// Not enough boots: runs of one boot are not independent.
    TooFewBoots {
        /// Boots of the side that has fewer.
        have: usize,
        /// Boots needed.
        need: usize,
    },
    /// The interval holds both no change and a change that matters.
    Noise {
        /// Half of the interval's width, in the scale of the change.
        half_width: f64,
        /// The minimum effect in that scale.
        min_effect: f64,
    },
    /// The change does not stand out among the comparisons of the table.
    Comparisons {
        /// Comparisons in the table.
        comparisons: usize,
        /// Corrected p-value.
        p: f64,
    },
    /// The baseline is 0, so a minimum effect in percent means nothing.
    ZeroBaseline,
}

/// Why a comparison is not judged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "because", rename_all = "kebab-case")]
pub enum Unfit {
    /// A duration or rate from a bench that cannot carry it.
    UntrustedTiming {
        /// What is wrong with the bench.
        reason: String,
    },
    /// No run of a side yielded a value.
    NoResults {
        /// The side: `baseline` or `new`.
        side: String,
        /// What became of its runs.
        reason: String,
    },
    /// Both sides ran the same kernel image: any change is noise.
    EqualImages,
    /// No direction of the metric is better.
    NoDirection,
}

/// What was measured of a comparison, before any decision.
#[derive(Debug, Clone, PartialEq)]
pub struct Measured {
    /// The change; absent when a side has fewer than two independent units.
    pub change: Option<Change>,
    /// Two-sided p-value of the permutation test over independent units.
    pub p: f64,
    /// Runs of the side that has fewer.
    pub runs: usize,
    /// Independent units (boots, or runs with a boot each) of that side.
    pub units: usize,
    /// Whether several runs share a boot.
    pub clustered: bool,
    /// What one unit a side adds to the change's standard error, in its scale.
    pub spread: f64,
    /// Mean of the baseline.
    pub base_mean: f64,
}

/// Measures a comparison. `base_means` are the resampled means of the baseline
/// ([`Bootstrap::means`] with stream 0), made once for all its comparisons.
pub fn measure(base: &Sample, base_means: &[f64], new: &Sample, bootstrap: &Bootstrap) -> Measured {
    let change = bootstrap.change_of_means(base, base_means, new, &bootstrap.means(new, 1));
    let (base_units, new_units) = (base.units(), new.units());
    let base_mean = mean(&base.values());
    let stretch = match change {
        Some(Change {
            scale: Scale::Relative,
            value,
            ..
        }) => (value + 1.0, 1.0 / base_mean),
        _ => (1.0, 1.0),
    };
    let spread =
        (stretch.0 * stretch.0 * variance(&base_units) + variance(&new_units)).sqrt() * stretch.1;
    Measured {
        change,
        p: permutation::p_value(&base_units, &new_units, bootstrap.seed),
        runs: base.runs().min(new.runs()),
        units: base_units.len().min(new_units.len()),
        clustered: base.is_clustered() || new.is_clustered(),
        spread,
        base_mean,
    }
}

impl Measured {
    /// The minimum effect in the scale of the change.
    fn margin(&self, scale: Scale, min_effect: Effect) -> f64 {
        match (scale, min_effect) {
            (Scale::Relative, Effect::Relative(share)) => share,
            (Scale::Absolute, Effect::Absolute(size)) => size,
            (Scale::Relative, Effect::Absolute(size)) => size / self.base_mean.abs(),
            (Scale::Absolute, Effect::Relative(share)) => share * self.base_mean.abs(),
        }
    }

    /// Further runs a side that are likely to decide. Runs of boots already
    /// made are counted in: `k` runs a boot ask for `k` times as many runs.
    fn more_runs(&self, margin: f64, comparisons: usize, rules: &Rules) -> Option<usize> {
        let change = self.change?;
        let size = change.value.abs();
        // "Changed" needs an interval that leaves out 0, "same" one that stays
        // within the margin; whichever is nearer to the truth decides.
        let effect = size.max(margin - size);
        let power = 1.0 - (1.0 - rules.power) / 2.0;
        let by_noise = runs_needed(self.spread, effect, rules.alpha, power)?;
        let level = match rules.correction {
            Correction::None => rules.alpha,
            _ => rules.alpha / comparisons.max(1) as f64,
        };
        let need = by_noise.max(runs_for_p(level)?);
        // What stands undecided with the runs that should have decided gets half
        // as many again.
        let more = if need > self.units {
            need - self.units
        } else {
            self.units.div_ceil(2)
        };
        Some(more * self.runs.div_ceil(self.units.max(1)))
    }
}

/// Judges the rows of a table together: corrected p-values and verdicts, in
/// the order given.
pub fn judge(rows: &[Measured], rules: &Rules) -> Vec<(f64, Verdict)> {
    let p: Vec<f64> = rows.iter().map(|row| row.p).collect();
    let adjusted = rules.correction.adjust(&p);
    rows.iter()
        .zip(adjusted)
        .map(|(row, p)| (p, decide(row, p, rows.len(), rules)))
        .collect()
}

fn decide(row: &Measured, p: f64, comparisons: usize, rules: &Rules) -> Verdict {
    let undecided = |reason, more_runs| Verdict::Undecided { reason, more_runs };
    if row.runs < rules.min_runs {
        let reason = Doubt::TooFewRuns {
            have: row.runs,
            need: rules.min_runs,
        };
        return undecided(reason, Some(rules.min_runs - row.runs));
    }
    let Some(change) = row.change else {
        let need = runs_for_p(rules.alpha).unwrap_or(4);
        let more = (need - row.units) * row.runs.div_ceil(row.units.max(1));
        let reason = Doubt::TooFewBoots {
            have: row.units,
            need,
        };
        return undecided(reason, Some(more));
    };
    let margin = row.margin(change.scale, rules.min_effect);
    if change.interval.is_within(margin) {
        return Verdict::Same { within: margin };
    }
    let changed = change.interval.excludes_zero();
    if changed && p <= rules.alpha {
        return match (rules.better, change.value > 0.0) {
            (Better::Lower, false) | (Better::Higher, true) => Verdict::Better,
            (Better::Lower, true) | (Better::Higher, false) => Verdict::Worse,
            (Better::Neither, _) => Verdict::Invalid {
                reason: Unfit::NoDirection,
            },
        };
    }
    let more = row.more_runs(margin, comparisons, rules);
    let least = permutation::least_p(row.units, row.units);
    if row.clustered && least > rules.alpha {
        let need = runs_for_p(rules.alpha).unwrap_or(4);
        return undecided(
            Doubt::TooFewBoots {
                have: row.units,
                need,
            },
            more,
        );
    }
    if changed {
        return undecided(Doubt::Comparisons { comparisons, p }, more);
    }
    if margin == 0.0 {
        return undecided(Doubt::ZeroBaseline, None);
    }
    let half_width = change.interval.half_width();
    undecided(
        Doubt::Noise {
            half_width,
            min_effect: margin,
        },
        more,
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rules(better: Better) -> Rules {
        Rules::of(&CompareSpec::default(), "m", better)
    }

    fn measured(base: &[f64], new: &[f64]) -> Measured {
        let bootstrap = rules(Better::Lower).bootstrap;
        let (base, new) = (Sample::independent(base), Sample::independent(new));
        measure(&base, &bootstrap.means(&base, 0), &new, &bootstrap)
    }

    fn verdict(base: &[f64], new: &[f64]) -> Verdict {
        judge(&[measured(base, new)], &rules(Better::Lower))
            .remove(0)
            .1
    }

    const BASE: [f64; 5] = [48_211.0, 47_000.0, 49_000.0, 48_500.0, 48_300.0];

    #[test]
    fn what_is_gone_is_better_when_lower_is() {
        assert_eq!(verdict(&BASE, &[0.0; 5]), Verdict::Better);
        let row = measured(&BASE, &[0.0; 5]);
        assert_eq!(
            judge(std::slice::from_ref(&row), &rules(Better::Higher))[0].1,
            Verdict::Worse
        );
        let neither = &judge(&[row], &rules(Better::Neither))[0].1;
        assert_eq!(
            *neither,
            Verdict::Invalid {
                reason: Unfit::NoDirection
            }
        );
    }

    #[test]
    fn what_appears_from_nothing_is_worse() {
        assert_eq!(verdict(&[0.0; 5], &BASE), Verdict::Worse);
    }

    #[test]
    fn nothing_and_nothing_are_the_same() {
        assert_eq!(verdict(&[0.0; 5], &[0.0; 5]), Verdict::Same { within: 0.0 });
    }

    #[test]
    fn a_small_but_certain_change_is_the_same() {
        let base = [1000.0, 1000.1, 999.9, 1000.0, 1000.05];
        let new = base.map(|value| value * 1.003);
        assert_eq!(verdict(&base, &new), Verdict::Same { within: 0.05 });
    }

    #[test]
    fn few_runs_decide_nothing() {
        let expected = Verdict::Undecided {
            reason: Doubt::TooFewRuns { have: 3, need: 4 },
            more_runs: Some(1),
        };
        assert_eq!(verdict(&BASE[..3], &[0.0; 3]), expected);
        assert_eq!(
            verdict(&BASE, &[]),
            Verdict::Undecided {
                reason: Doubt::TooFewRuns { have: 0, need: 4 },
                more_runs: Some(4),
            }
        );
    }

    #[test]
    fn noise_asks_for_more_runs() {
        let base = [100.0, 130.0, 80.0, 120.0, 70.0];
        let new = [95.0, 125.0, 85.0, 110.0, 75.0];
        let Verdict::Undecided {
            reason:
                Doubt::Noise {
                    half_width,
                    min_effect,
                },
            more_runs,
        } = verdict(&base, &new)
        else {
            panic!("{:?}", verdict(&base, &new));
        };
        assert!(half_width > 0.2 && min_effect == 0.05);
        assert!(more_runs.unwrap() > 100);
    }

    #[test]
    fn a_percentage_of_nothing_cannot_be_judged() {
        let few = [0.0, 0.0, 1.0, 0.0, 0.0];
        let Verdict::Undecided { reason, more_runs } = verdict(&[0.0; 5], &few) else {
            panic!("a single event is no evidence");
        };
        assert_eq!((reason, more_runs), (Doubt::ZeroBaseline, None));
    }

    #[test]
    fn many_comparisons_ask_for_more_than_one() {
        let mut rows = vec![measured(&BASE, &[0.0; 5])];
        for shift in 0..9 {
            let new: Vec<f64> = BASE.iter().rev().map(|v| v + f64::from(shift)).collect();
            rows.push(measured(&BASE, &new));
        }
        let Verdict::Undecided {
            reason: Doubt::Comparisons {
                comparisons: 10, ..
            },
            more_runs,
        } = &judge(&rows, &rules(Better::Lower))[0].1
        else {
            panic!("5 runs a side cannot stand out among 10 comparisons");
        };
        assert_eq!(*more_runs, Some(1));
    }

    #[test]
    fn runs_of_few_boots_ask_for_boots() {
        let bootstrap = rules(Better::Lower).bootstrap;
        let grouped = |shift: f64| {
            let boot = |b: f64| (0..5).map(|i| shift + b + f64::from(i) / 10.0).collect();
            Sample::grouped(vec![boot(0.0), boot(1.0), boot(2.0)])
        };
        let (base, new) = (grouped(100.0), grouped(200.0));
        let row = measure(&base, &bootstrap.means(&base, 0), &new, &bootstrap);
        let Verdict::Undecided { reason, more_runs } =
            judge(&[row], &rules(Better::Lower)).remove(0).1
        else {
            panic!("three boots a side cannot decide");
        };
        assert_eq!(reason, Doubt::TooFewBoots { have: 3, need: 4 });
        assert_eq!(more_runs, Some(5));
    }

    fn values() -> impl Strategy<Value = Vec<f64>> {
        let count = prop_oneof![3 => 0.0f64..1e6, 1 => Just(0.0)];
        prop::collection::vec(count.prop_map(f64::round), 0..9)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]

        #[test]
        fn whatever_the_values_the_numbers_make_sense(base in values(), new in values()) {
            let row = measured(&base, &new);
            prop_assert!(row.p > 0.0 && row.p <= 1.0);
            if let Some(change) = row.change {
                prop_assert!(change.value.is_finite());
                prop_assert!(change.interval.low <= change.value && change.value <= change.interval.high);
            }
            let verdict = judge(&[row], &rules(Better::Lower)).remove(0).1;
            if base.len().min(new.len()) < 4 {
                prop_assert!(matches!(verdict, Verdict::Undecided { .. }), "{verdict:?}");
            }
        }

        #[test]
        fn the_unit_does_not_matter(base in values(), new in values()) {
            // A power of two changes no digit of the mantissa.
            let scaled = |values: &[f64]| values.iter().map(|value| value * 1024.0).collect::<Vec<_>>();
            let here = judge(&[measured(&base, &new)], &rules(Better::Lower)).remove(0);
            let there = judge(&[measured(&scaled(&base), &scaled(&new))], &rules(Better::Lower)).remove(0);
            prop_assert_eq!(here.0, there.0);
            prop_assert_eq!(word(&here.1), word(&there.1));
        }

        #[test]
        fn the_order_of_runs_does_not_decide(base in values(), mut new in values()) {
            let here = measured(&base, &new);
            new.reverse();
            let there = measured(&base, &new);
            prop_assert!((here.p - there.p).abs() < 1e-9);
        }
    }

    fn word(verdict: &Verdict) -> std::mem::Discriminant<Verdict> {
        std::mem::discriminant(verdict)
    }
}
