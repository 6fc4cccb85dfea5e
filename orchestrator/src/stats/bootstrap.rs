//! Bootstrap intervals of the change from one side to the other.
//!
//! The interval is the *expanded percentile* interval of Hesterberg, "What
//! Teachers Should Know About the Bootstrap", The American Statistician 69
//! (2015), section 4: the plain percentile interval is too narrow for few
//! runs, because a resample's spread is that of n rather than n - 1 and
//! because normal rather than t quantiles are implied. Both are put right by
//! taking quantiles further out, here with the degrees of freedom of Welch.
//! Boots are resampled first and their runs second (Davison and Hinkley,
//! "Bootstrap Methods and their Application", 1997, section 3.8).

use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use super::{
    Sample,
    summary::{mean, variance},
};

/// An interval, low to high, both ends finite.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether 0 lies outside.
    pub fn excludes_zero(&self) -> bool {
        self.low > 0.0 || self.high < 0.0
    }

    /// Whether the interval lies within `±margin`, ends included.
    pub fn is_within(&self, margin: f64) -> bool {
        self.low >= -margin && self.high <= margin
    }

    /// Half of its width.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// In what a change is expressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// `new / base - 1`; -1 is "gone", 0.05 is "5 % more".
    Relative,
    /// `new - base`, in the metric's unit. Used when the base is 0, or so
    /// near to it that resamples of it are.
    Absolute,
}

/// A change and the interval that holds it with the confidence asked for.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// In what the numbers are.
    pub scale: Scale,
    /// The change of the means.
    pub value: f64,
    /// Where the true change may lie.
    pub interval: Interval,
}

/// How intervals are made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bootstrap {
    /// Resamples, at least 100.
    pub resamples: usize,
    /// Seed; the same seed and values give the same interval on every machine.
    pub seed: u64,
    /// Share of intervals that may miss the true change, such as 0.05.
    pub alpha: f64,
}

impl Bootstrap {
    /// Means of resamples of one side. The two sides of a comparison must use
    /// different streams.
    pub fn means(&self, sample: &Sample, stream: u64) -> Vec<f64> {
        let mut random = Indices::new(self.seed, stream);
        let boots = sample.boots();
        if boots.is_empty() {
            return Vec::new();
        }
        if !sample.is_clustered() {
            let values = sample.values();
            let scale = 1.0 / values.len() as f64;
            return (0..self.resamples)
                .map(|_| random.sum_of(&values) * scale)
                .collect();
        }
        (0..self.resamples)
            .map(|_| {
                let (mut sum, mut runs) = (0.0, 0);
                for _ in 0..boots.len() {
                    let boot = &boots[random.below(boots.len())];
                    sum += random.sum_of(boot);
                    runs += boot.len();
                }
                sum / runs as f64
            })
            .collect()
    }

    /// The change from `base` to `new`; `None` unless both sides have at least
    /// two independent units.
    pub fn change(&self, base: &Sample, new: &Sample) -> Option<Change> {
        if base.boots().len() < 2 || new.boots().len() < 2 {
            return None;
        }
        self.change_of_means(base, &self.means(base, 0), new, &self.means(new, 1))
    }

    /// As [`Bootstrap::change`], from resampled means made before: a baseline
    /// is resampled once for all its comparisons.
    pub fn change_of_means(
        &self,
        base: &Sample,
        base_means: &[f64],
        new: &Sample,
        new_means: &[f64],
    ) -> Option<Change> {
        if base.boots().len() < 2 || new.boots().len() < 2 {
            return None;
        }
        let (base_mean, new_mean) = (mean(&base.values()), mean(&new.values()));
        let pairs = base_means.iter().zip(new_means);
        let is_ratio = base_mean > 0.0
            && base_means.iter().all(|mean| *mean > 0.0)
            && new_means.iter().all(|mean| *mean >= 0.0);
        let (scale, value, mut changes): (_, _, Vec<f64>) = if is_ratio {
            (
                Scale::Relative,
                new_mean / base_mean - 1.0,
                pairs.map(|(base, new)| new / base - 1.0).collect(),
            )
        } else {
            (
                Scale::Absolute,
                new_mean - base_mean,
                pairs.map(|(base, new)| new - base).collect(),
            )
        };
        // The error of a ratio is, to first order, that of the difference
        // between `new` and `base` scaled up to it.
        let stretch = if is_ratio { new_mean / base_mean } else { 1.0 };
        let tail = tail_share(&base.units(), stretch, &new.units(), self.alpha);
        let mut interval = Interval {
            low: pick(&mut changes, tail),
            high: pick(&mut changes, 1.0 - tail),
        };
        // Resamples of few, uneven values may all lie on one side of the value.
        interval.low = interval.low.min(value);
        interval.high = interval.high.max(value);
        Some(Change {
            scale,
            value,
            interval,
        })
    }
}

/// Share of resamples outside the interval on each side.
fn tail_share(base: &[f64], stretch: f64, new: &[f64], alpha: f64) -> f64 {
    let (n_base, n_new) = (base.len() as f64, new.len() as f64);
    let v_base = stretch * stretch * variance(base) / n_base;
    let v_new = variance(new) / n_new;
    let total = v_base + v_new;
    if total == 0.0 {
        return alpha / 2.0;
    }
    let freedom =
        total * total / (v_base * v_base / (n_base - 1.0) + v_new * v_new / (n_new - 1.0));
    let resampled = v_base * (n_base - 1.0) / n_base + v_new * (n_new - 1.0) / n_new;
    let t = t_quantile(1.0 - alpha / 2.0, freedom);
    let normal = Normal::standard();
    normal.cdf(-t * (total / resampled).sqrt())
}

/// Quantile of Student's t with `freedom` degrees of freedom, which must be above 0.
pub fn t_quantile(p: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom)
        .map(|t| t.inverse_cdf(p))
        .unwrap_or_else(|_| Normal::standard().inverse_cdf(p))
}

/// The value below which `share` of `values` lie, without interpolation;
/// reorders them.
fn pick(values: &mut [f64], share: f64) -> f64 {
    let place = (share * (values.len() - 1) as f64).round() as usize;
    *values.select_nth_unstable_by(place, f64::total_cmp).1
}

/// Random indices, two from each 64 random bits.
pub(super) struct Indices {
    random: ChaCha8Rng,
    kept: Option<u32>,
}

impl Indices {
    pub(super) fn new(seed: u64, stream: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        random.set_stream(stream);
        Self { random, kept: None }
    }

    /// An index below `n`. The multiplication favours some indices by at most
    /// `n / 2^32` (Lemire, "Fast Random Integer Generation in an Interval", 2019).
    pub(super) fn below(&mut self, n: usize) -> usize {
        let bits = match self.kept.take() {
            Some(bits) => bits,
            None => {
                let both = self.random.next_u64();
                self.kept = Some(both as u32);
                (both >> 32) as u32
            }
        };
        ((u64::from(bits) * n as u64) >> 32) as usize
    }

    fn sum_of(&mut self, values: &[f64]) -> f64 {
        let mut sum = 0.0;
        for _ in 0..values.len() {
            sum += values[self.below(values.len())];
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOTSTRAP: Bootstrap = Bootstrap {
        resamples: 2000,
        seed: 7,
        alpha: 0.05,
    };

    fn change(base: &[f64], new: &[f64]) -> Option<Change> {
        BOOTSTRAP.change(&Sample::independent(base), &Sample::independent(new))
    }

    #[test]
    fn what_is_gone_has_changed_by_minus_one() {
        let gone = change(&[48_000.0, 49_000.0, 47_500.0], &[0.0; 3]).unwrap();
        assert_eq!(gone.scale, Scale::Relative);
        assert_eq!(gone.value, -1.0);
        assert_eq!(
            gone.interval,
            Interval {
                low: -1.0,
                high: -1.0
            }
        );
    }

    #[test]
    fn what_comes_from_nothing_is_a_difference() {
        let new = change(&[0.0; 4], &[10.0, 12.0, 11.0, 13.0]).unwrap();
        assert_eq!(new.scale, Scale::Absolute);
        assert_eq!(new.value, 11.5);
        assert!(new.interval.low > 9.0 && new.interval.high < 14.0);
    }

    #[test]
    fn a_baseline_that_is_often_zero_is_a_difference() {
        let change = change(&[0.0, 0.0, 0.0, 1.0], &[5.0, 6.0, 5.0, 7.0]).unwrap();
        assert_eq!(change.scale, Scale::Absolute);
    }

    #[test]
    fn equal_constants_do_not_change() {
        let still = change(&[3.0; 3], &[3.0; 5]).unwrap();
        assert_eq!((still.value, still.interval.half_width()), (0.0, 0.0));
        assert_eq!(change(&[0.0; 3], &[0.0; 3]).unwrap().value, 0.0);
    }

    #[test]
    fn one_unit_a_side_has_no_interval() {
        assert_eq!(change(&[3.0], &[3.0, 4.0]), None);
        assert_eq!(change(&[], &[]), None);
        let one_boot = Sample::grouped(vec![vec![1.0, 2.0, 3.0]]);
        assert_eq!(BOOTSTRAP.change(&one_boot, &one_boot), None);
    }

    #[test]
    fn the_seed_decides() {
        let base = [10.0, 11.0, 12.0, 9.0, 10.5];
        let new = [10.2, 11.9, 12.5, 9.9, 10.1];
        assert_eq!(change(&base, &new), change(&base, &new));
        let other = Bootstrap {
            seed: 8,
            ..BOOTSTRAP
        };
        assert_ne!(
            change(&base, &new),
            other.change(&Sample::independent(&base), &Sample::independent(&new))
        );
    }

    #[test]
    fn boots_that_differ_widen_the_interval() {
        let base = Sample::independent(&[100.0, 101.0, 99.0, 100.5, 99.5, 100.0]);
        let runs = [90.0, 90.1, 90.2, 110.0, 110.1, 110.2];
        let as_runs = BOOTSTRAP
            .change(&base, &Sample::independent(&runs))
            .unwrap();
        let as_boots = BOOTSTRAP
            .change(
                &base,
                &Sample::grouped(vec![runs[..3].to_vec(), runs[3..].to_vec()]),
            )
            .unwrap();
        assert!(as_boots.interval.half_width() > as_runs.interval.half_width());
    }
}
