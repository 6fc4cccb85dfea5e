//! How noisy numbers become evidence.
//!
//! Under the hypothesis "`c` is the culprit" every run belongs to one of two
//! groups: trees without `c` behave as the good end, trees with it as the bad
//! end. The evidence for `c` is the marginal likelihood of that split, all
//! unknowns (two means and a variance, or two rates) integrated out. So nothing
//! is fixed after the ends were measured: every later run also teaches what good
//! and bad look like, and few runs give little certainty.
//!
//! - Levels: normal groups with a shared variance, flat means, and an
//!   inverse-gamma variance. The change-point posterior of Smith, "A Bayesian
//!   approach to inference about a change-point in a sequence of random
//!   variables", Biometrika 62 (1975). A shared variance keeps the evidence of a
//!   value monotone: no value below the good mean can speak for a bad mean above it.
//! - Rates: events of a Bernoulli trial with Jeffreys' prior Beta(1/2, 1/2) on
//!   each rate; the beta-binomial closed form.

use statrs::function::beta::ln_beta;

use super::channel::Channel;

/// Sufficient statistics of the runs of one side.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Group {
    /// Runs.
    pub n: f64,
    /// Sum of their numbers (of events: how many were seen).
    pub sum: f64,
    /// Sum of their squares.
    pub squares: f64,
}

impl Group {
    /// Of these numbers.
    pub fn of(numbers: &[f64]) -> Self {
        let mut group = Self::default();
        for number in numbers {
            group.n += 1.0;
            group.sum += number;
            group.squares += number * number;
        }
        group
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            n: self.n + other.n,
            sum: self.sum + other.sum,
            squares: self.squares + other.squares,
        }
    }

    /// Mean; 0 without runs.
    pub fn mean(self) -> f64 {
        if self.n > 0.0 { self.sum / self.n } else { 0.0 }
    }

    /// Sum of squared deviations from the mean.
    pub fn deviation(self) -> f64 {
        if self.n > 0.0 {
            (self.squares - self.sum * self.sum / self.n).max(0.0)
        } else {
            0.0
        }
    }
}

/// The model chosen from the runs of the two ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Noise {
    /// Values around one of two levels.
    Level {
        /// Subtracted from every value, for the sake of rounding: the good mean.
        origin: f64,
        /// Values are divided by this: the distance of the ends' means.
        unit: f64,
        /// Values below are taken as this (in the metric's unit), so that one wild
        /// run is an odd run and not the whole variance.
        low: f64,
        /// Values above are taken as this.
        high: f64,
    },
    /// Events with one of two rates.
    Rate {
        /// For a metric whose runs fall into two clusters: a value beyond it is an event.
        threshold: Option<f64>,
        /// Whether values below the threshold are the events.
        below: bool,
    },
}

/// The prior knows the variance as little as one run would: about a twentieth of
/// the ends' distance, so that runs without any spread do not claim certainty.
const PRIOR_SHAPE: f64 = 0.5;
const PRIOR_SCALE: f64 = 0.5 * 0.05 * 0.05;

impl Noise {
    /// The number of a run's value as the groups count it.
    pub fn number(&self, value: f64) -> f64 {
        match *self {
            Self::Level {
                origin,
                unit,
                low,
                high,
            } => (value.clamp(low, high) - origin) / unit,
            Self::Rate { threshold, below } => {
                let event = match threshold {
                    Some(t) => (value > t) != below,
                    None => value > 0.5,
                };
                f64::from(u8::from(event))
            }
        }
    }

    /// Log marginal likelihood of the split into these groups, up to a constant
    /// that is the same for every split of the same runs.
    pub fn log_evidence(&self, good: Group, bad: Group) -> f64 {
        match self {
            Self::Level { .. } => {
                let n = good.n + bad.n;
                let rest = PRIOR_SCALE + (good.deviation() + bad.deviation()) / 2.0;
                -0.5 * (good.n.max(1.0) * bad.n.max(1.0)).ln()
                    - (PRIOR_SHAPE + (n - 2.0) / 2.0) * rest.ln()
            }
            Self::Rate { .. } => {
                ln_beta(good.sum + 0.5, good.n - good.sum + 0.5)
                    + ln_beta(bad.sum + 0.5, bad.n - bad.sum + 0.5)
            }
        }
    }

    /// What one more run can teach, as a function of the probability that the
    /// place is bad.
    pub fn channel(&self, good: Group, bad: Group) -> Channel {
        match self {
            Self::Level { .. } => {
                let n = good.n + bad.n;
                let variance = (PRIOR_SCALE + (good.deviation() + bad.deviation()) / 2.0)
                    / (PRIOR_SHAPE + (n - 2.0) / 2.0);
                Channel::Gaussian {
                    distance: (bad.mean() - good.mean()).abs() / variance.sqrt(),
                }
            }
            Self::Rate { .. } => {
                let rate = |g: Group| (g.sum + 0.5) / (g.n + 1.0);
                Channel::Binary {
                    good: rate(good),
                    bad: rate(bad),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVEL: Noise = Noise::Level {
        origin: 100.0,
        unit: 15.0,
        low: 40.0,
        high: 200.0,
    };

    fn groups(noise: &Noise, good: &[f64], bad: &[f64]) -> (Group, Group) {
        let numbers =
            |values: &[f64]| -> Vec<f64> { values.iter().map(|v| noise.number(*v)).collect() };
        (Group::of(&numbers(good)), Group::of(&numbers(bad)))
    }

    #[test]
    fn the_right_split_has_more_evidence() {
        let (good, bad) = groups(&LEVEL, &[99.0, 101.0, 100.0, 98.0], &[115.0, 117.0, 114.0]);
        let (mixed_good, mixed_bad) =
            groups(&LEVEL, &[99.0, 101.0, 100.0], &[98.0, 115.0, 117.0, 114.0]);
        assert!(LEVEL.log_evidence(good, bad) > LEVEL.log_evidence(mixed_good, mixed_bad) + 3.0);
    }

    #[test]
    fn evidence_does_not_depend_on_the_unit() {
        let other = Noise::Level {
            origin: 1000.0,
            unit: 150.0,
            low: 400.0,
            high: 2000.0,
        };
        let (good, bad) = groups(&LEVEL, &[99.0, 101.0, 104.0], &[115.0, 117.0]);
        let (good10, bad10) = groups(&other, &[990.0, 1010.0, 1040.0], &[1150.0, 1170.0]);
        assert!((LEVEL.log_evidence(good, bad) - other.log_evidence(good10, bad10)).abs() < 1e-9);
    }

    #[test]
    fn a_crash_says_more_than_its_absence() {
        let rate = Noise::Rate {
            threshold: None,
            below: false,
        };
        let good = Group {
            n: 30.0,
            sum: 0.0,
            squares: 0.0,
        };
        let bad = Group {
            n: 30.0,
            sum: 9.0,
            squares: 9.0,
        };
        let crash = Group {
            n: 1.0,
            sum: 1.0,
            squares: 1.0,
        };
        let calm = Group {
            n: 1.0,
            sum: 0.0,
            squares: 0.0,
        };
        let for_bad = |run: Group| {
            rate.log_evidence(good, bad.and(run)) - rate.log_evidence(good.and(run), bad)
        };
        assert!(for_bad(crash) > 2.0);
        assert!((-0.5..-0.2).contains(&for_bad(calm)), "{}", for_bad(calm));
    }
}
