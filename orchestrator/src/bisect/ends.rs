//! Whether the two ends differ enough to search between them.
//!
//! The ends are measured in turn. They are compared only at certain counts of
//! runs (each half as many again as the last), with a strict level at every look,
//! so that looking often does not make differences out of noise.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::beta::ln_beta;

use super::noise::Noise;
use super::observation::{Rules, Sought, Worse};
use crate::stats::judge::Effect;

/// Chance of a false alarm allowed at one look, both directions together. With
/// the half dozen looks there are, ends without a difference pass for different
/// in about one bisection of a hundred at most.
const LOOK_LEVEL: f64 = 0.002;

/// What the runs of the ends say so far.
#[derive(Debug, Clone, PartialEq)]
pub enum Ends {
    /// Not enough runs yet.
    More,
    /// They differ; the search can begin.
    Differ(Noise, Comparison),
    /// They differ the wrong way round.
    Swapped(Comparison),
    /// They do not differ by the wanted effect, or not within the allowed runs.
    Alike(Comparison),
}

/// The two ends in numbers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Runs of the good end.
    pub good_runs: u32,
    /// Runs of the bad end.
    pub bad_runs: u32,
    /// Mean (of events: rate) of the good end.
    pub good: f64,
    /// Mean (of events: rate) of the bad end.
    pub bad: f64,
    /// Standard deviation of the good end; 0 for rates.
    pub good_sd: f64,
    /// Standard deviation of the bad end; 0 for rates.
    pub bad_sd: f64,
    /// Interval of bad minus good that the strict level of one look gives
    /// (Welch's); empty for rates.
    pub interval: Option<(f64, f64)>,
    /// Smallest difference that was asked for, in the metric's unit.
    pub min_effect: f64,
    /// For a metric whose runs fall into two clusters: values beyond it are events.
    pub threshold: Option<f64>,
    /// Runs per end that would be enough, if what was seen is the truth.
    /// `None` when no number is: the difference seen is below the wanted effect.
    pub runs_needed: Option<u32>,
}

/// Judges the values of both ends (of events: 1 seen, 0 not).
pub fn compare(rules: &Rules, good: &[f64], bad: &[f64]) -> Ends {
    let runs = good.len().min(bad.len());
    if good.len() != bad.len() || !is_look(rules, runs) {
        return Ends::More;
    }
    let last = runs >= rules.max_end_runs as usize;
    match rules.sought {
        Sought::Certain => Ends::More,
        Sought::Event => rates(good, bad, None, false, last),
        Sought::Level { min_effect, worse } => match clusters(good, bad) {
            Some((threshold, below)) => {
                let event = |v: &f64| f64::from(u8::from((*v > threshold) != below));
                let seen = |values: &[f64]| values.iter().map(event).collect::<Vec<_>>();
                let wrong_way = matches!(
                    (worse, below),
                    (Some(Worse::Higher), true) | (Some(Worse::Lower), false)
                );
                let ends = rates(&seen(good), &seen(bad), Some(threshold), below, last);
                match ends {
                    Ends::Differ(_, facts) if wrong_way => Ends::Swapped(facts),
                    other => other,
                }
            }
            None => levels(good, bad, min_effect, worse, last),
        },
    }
}

/// Whether the ends are compared at this many runs of each.
fn is_look(rules: &Rules, runs: usize) -> bool {
    let mut look = rules.end_runs.max(2) as usize;
    let last = rules.max_end_runs as usize;
    while look < runs && look < last {
        look = (look + look.div_ceil(2)).min(last);
    }
    look == runs
}

/// Values further from their end's median than this many robust standard
/// deviations are drawn in to that distance: one wild run is then an odd run, not
/// the whole variance. Of a normal metric about one run in four hundred is.
const WILD: f64 = 3.0;

fn levels(good: &[f64], bad: &[f64], min_effect: Effect, worse: Option<Worse>, last: bool) -> Ends {
    let middles = (median(good), median(bad));
    let reach = WILD
        * robust_sd(good)
            .max(robust_sd(bad))
            .max((middles.1 - middles.0).abs() / 20.0);
    let tamed = |values: &[f64], middle: f64| -> Vec<f64> {
        values
            .iter()
            .map(|v| v.clamp(middle - reach, middle + reach))
            .collect()
    };
    let (good_mean, good_var) = moments(&tamed(good, middles.0));
    let (bad_mean, bad_var) = moments(&tamed(bad, middles.1));
    let difference = bad_mean - good_mean;
    let wanted = match min_effect {
        Effect::Relative(share) => share * good_mean.abs(),
        Effect::Absolute(size) => size,
    };
    let (n_good, n_bad) = (count(good), count(bad));
    let error = (good_var / n_good + bad_var / n_bad).sqrt();
    let half = if error > 0.0 {
        // Welch (1947), with Satterthwaite's degrees of freedom.
        let freedom = error.powi(4)
            / ((good_var / n_good).powi(2) / (n_good - 1.0)
                + (bad_var / n_bad).powi(2) / (n_bad - 1.0));
        error * quantile(freedom, 1.0 - LOOK_LEVEL / 2.0)
    } else {
        0.0
    };
    let clear_of_wanted = difference.abs() - half > wanted && difference != 0.0;
    let below_wanted = difference.abs() + half < wanted || (difference == 0.0 && half == 0.0);
    let runs_needed = (difference.abs() > wanted).then(|| {
        let z = quantile(1e6, 1.0 - LOOK_LEVEL / 2.0) + quantile(1e6, 0.9);
        let n = (good_var + bad_var) * (z / (difference.abs() - wanted)).powi(2);
        whole(n.ceil().max(2.0))
    });
    let facts = Comparison {
        good_runs: whole(n_good),
        bad_runs: whole(n_bad),
        good: good_mean,
        bad: bad_mean,
        good_sd: good_var.sqrt(),
        bad_sd: bad_var.sqrt(),
        interval: Some((difference - half, difference + half)),
        min_effect: wanted,
        threshold: None,
        runs_needed,
    };
    if clear_of_wanted {
        let wrong_way = match worse {
            Some(Worse::Higher) => difference < 0.0,
            Some(Worse::Lower) => difference > 0.0,
            None => false,
        };
        if wrong_way {
            return Ends::Swapped(facts);
        }
        Ends::Differ(
            Noise::Level {
                origin: good_mean,
                unit: difference.abs(),
                low: middles.0.min(middles.1) - reach,
                high: middles.0.max(middles.1) + reach,
            },
            facts,
        )
    } else if last || below_wanted {
        Ends::Alike(facts)
    } else {
        Ends::More
    }
}

fn rates(good: &[f64], bad: &[f64], threshold: Option<f64>, below: bool, last: bool) -> Ends {
    let seen = |values: &[f64]| whole(values.iter().sum());
    let (n_good, n_bad) = (whole(count(good)), whole(count(bad)));
    let (k_good, k_bad) = (seen(good), seen(bad));
    let share = |k: u32, n: u32| f64::from(k) / f64::from(n);
    let facts = Comparison {
        good_runs: n_good,
        bad_runs: n_bad,
        good: share(k_good, n_good),
        bad: share(k_bad, n_bad),
        good_sd: 0.0,
        bad_sd: 0.0,
        interval: None,
        min_effect: 0.0,
        threshold,
        runs_needed: runs_for_rates(share(k_good, n_good), share(k_bad, n_bad)),
    };
    let noise = Noise::Rate { threshold, below };
    if fisher(k_good, n_good, k_bad, n_bad) <= EVENT_LEVEL {
        Ends::Differ(noise, facts)
    } else if fisher(k_bad, n_bad, k_good, n_good) <= EVENT_LEVEL {
        Ends::Swapped(facts)
    } else if last {
        Ends::Alike(facts)
    } else {
        Ends::More
    }
}

/// Level of one look at events. It is wider than for levels: the sought outcome
/// is a particular one, and the search keeps learning both rates.
const EVENT_LEVEL: f64 = 0.01;

/// One-sided exact test (Fisher 1935): the chance that this many or more of the
/// events fall on the second side, were both rates equal.
fn fisher(k_first: u32, n_first: u32, k_second: u32, n_second: u32) -> f64 {
    let events = k_first + k_second;
    let ln_choose = |n: u32, k: u32| {
        let (n, k) = (f64::from(n), f64::from(k));
        -(n + 1.0).ln() - ln_beta(n - k + 1.0, k + 1.0)
    };
    let total = ln_choose(n_first + n_second, events);
    (k_second..=events.min(n_second))
        .filter(|k| events - k <= n_first)
        .map(|k| (ln_choose(n_first, events - k) + ln_choose(n_second, k) - total).exp())
        .sum()
}

/// Runs per end for the exact test to see these rates; `None` when they are equal.
fn runs_for_rates(good: f64, bad: f64) -> Option<u32> {
    if good == bad {
        return None;
    }
    (2..=5000u32).find(|n| {
        let expected = |rate: f64| whole((rate * f64::from(*n)).round());
        let (low, high) = (expected(good.min(bad)), expected(good.max(bad)));
        fisher(low, *n, high, *n) <= EVENT_LEVEL
    })
}

/// A metric that misses its effect in some runs: its values lie in two clusters
/// with a gap wider than either, and at least one end has runs in both. Gives the middle of
/// the gap, and whether the lower cluster is the bad end's.
///
/// A normal metric never looks so: a gap of half the range between ten or
/// more values means two kinds of runs.
fn clusters(good: &[f64], bad: &[f64]) -> Option<(f64, bool)> {
    let mut all: Vec<f64> = good.iter().chain(bad).copied().collect();
    all.sort_by(f64::total_cmp);
    let (first, last) = (*all.first()?, *all.last()?);
    let pair = all
        .windows(2)
        .max_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0])))?;
    let middle = pair[0].midpoint(pair[1]);
    if pair[1] - pair[0] < 0.5 * (last - first) || last <= first {
        return None;
    }
    let above = |values: &[f64]| values.iter().filter(|v| **v > middle).count();
    let (good_above, bad_above) = (above(good), above(bad));
    let mixed = |k: usize, n: usize| k >= 2 && n - k >= 2;
    (mixed(good_above, good.len()) || mixed(bad_above, bad.len()))
        .then_some((middle, bad_above * good.len() < good_above * bad.len()))
}

/// Mean and unbiased variance.
fn moments(values: &[f64]) -> (f64, f64) {
    let n = count(values);
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, squares / (n - 1.0))
}

/// Median absolute deviation, scaled to a normal's standard deviation.
fn robust_sd(values: &[f64]) -> f64 {
    let middle = median(values);
    let distances: Vec<f64> = values.iter().map(|v| (v - middle).abs()).collect();
    1.4826 * median(&distances)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[half]
    } else {
        sorted[half - 1].midpoint(sorted[half])
    }
}

fn quantile(freedom: f64, p: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom.max(1.0))
        .expect("degrees of freedom are at least one")
        .inverse_cdf(p)
}

#[expect(clippy::cast_precision_loss, reason = "counts of runs are small")]
fn count(values: &[f64]) -> f64 {
    values.len() as f64
}

/// A count kept as a float, back as a count.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts of runs are small, whole and not negative; larger ones saturate"
)]
fn whole(n: f64) -> u32 {
    n as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(worse: Option<Worse>) -> Rules {
        Rules {
            max_end_runs: 12,
            ..Rules::new(Sought::Level {
                min_effect: Effect::Relative(0.05),
                worse,
            })
        }
    }

    #[test]
    fn looks_grow_by_half() {
        let rules = Rules::new(Sought::Event);
        let looks: Vec<usize> = (1..=60).filter(|n| is_look(&rules, *n)).collect();
        assert_eq!(looks, [5, 8, 12, 18, 27, 41, 60]);
    }

    #[test]
    fn clear_levels_differ_at_the_first_look() {
        let good = [100.0, 101.0, 99.0, 100.5, 99.5];
        let bad = good.map(|v| v * 1.15);
        assert!(matches!(
            compare(&level(None), &good, &bad),
            Ends::Differ(Noise::Level { .. }, _)
        ));
        assert!(matches!(
            compare(&level(Some(Worse::Higher)), &good, &bad),
            Ends::Differ(..)
        ));
        assert!(matches!(
            compare(&level(Some(Worse::Lower)), &good, &bad),
            Ends::Swapped(_)
        ));
        assert_eq!(compare(&level(None), &good, &bad[..4]), Ends::More);
    }

    #[test]
    fn alike_ends_stop_with_the_numbers() {
        let good = [100.0, 101.0, 99.0, 100.5, 99.5];
        let bad = [101.0, 102.0, 100.0, 101.5, 100.5];
        let Ends::Alike(facts) = compare(&level(None), &good, &bad) else {
            panic!("one percent is not five");
        };
        assert_eq!(facts.runs_needed, None);
        assert!((facts.min_effect - 5.0).abs() < 1e-9);
    }

    #[test]
    fn noise_asks_for_more_and_says_how_many() {
        let good: Vec<f64> = (0..12)
            .map(|i| 100.0 + f64::from((i * 7) % 12) * 4.0 - 22.0)
            .collect();
        let bad: Vec<f64> = good.iter().map(|v| v + 9.0).collect();
        assert_eq!(compare(&level(None), &good[..5], &bad[..5]), Ends::More);
        let Ends::Alike(facts) = compare(&level(None), &good, &bad) else {
            panic!("the spread hides the difference");
        };
        assert!(facts.runs_needed.unwrap() > 12, "{facts:?}");
    }

    #[test]
    fn runs_without_spread_are_judged_by_their_difference() {
        let rules = level(None);
        assert!(matches!(
            compare(&rules, &[0.0; 5], &[68_000.0; 5]),
            Ends::Differ(..)
        ));
        assert!(matches!(
            compare(&rules, &[3.0; 5], &[3.0; 5]),
            Ends::Alike(_)
        ));
    }

    #[test]
    fn a_metric_that_misses_half_its_runs_is_an_event() {
        let rules = Rules::new(Sought::Level {
            min_effect: Effect::Relative(0.05),
            worse: Some(Worse::Higher),
        });
        let good = [0.0; 12];
        let mut bad = [0.0; 12];
        for value in bad.iter_mut().take(7) {
            *value = 65_500.0;
        }
        let Ends::Differ(Noise::Rate { threshold, below }, facts) = compare(&rules, &good, &bad)
        else {
            panic!("seven of twelve against none");
        };
        assert_eq!((threshold, below), (Some(32_750.0), false));
        assert!((facts.bad - 7.0 / 12.0).abs() < 1e-12);
    }

    #[test]
    fn the_exact_test_agrees_with_the_published_tea_table() {
        // Fisher's lady: 3 of 4 right on one side, 1 of 4 on the other: 17/70.
        assert!((fisher(1, 4, 3, 4) - 17.0 / 70.0).abs() < 1e-12);
        assert!((fisher(0, 4, 4, 4) - 1.0 / 70.0).abs() < 1e-12);
    }

    #[test]
    fn events_on_the_good_end_are_swapped_ends() {
        let rules = Rules::new(Sought::Event);
        let never = [0.0; 8];
        let always = [1.0; 8];
        assert!(matches!(compare(&rules, &never, &always), Ends::Differ(..)));
        assert!(matches!(compare(&rules, &always, &never), Ends::Swapped(_)));
        assert_eq!(compare(&rules, &never, &never), Ends::More);
    }
}
