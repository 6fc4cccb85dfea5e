//! What is said of one set of values.

use serde::{Deserialize, Serialize};
use statrs::distribution::{Binomial, DiscreteCDF};

/// Summary of values. Every field is finite.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Number of values, at least 1.
    pub n: usize,
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample (divisor n - 1); 0 for one value.
    pub sd: f64,
    /// Coefficient of variation, `sd / |mean|`; 0 when all values are 0, absent
    /// when values scatter around a mean of 0 or there is one value only.
    pub cov: Option<f64>,
    /// Least value.
    pub min: f64,
    /// First quartile, see [`quantile`].
    pub q1: f64,
    /// Median.
    pub median: f64,
    /// Third quartile.
    pub q3: f64,
    /// Greatest value.
    pub max: f64,
}

impl Summary {
    /// Summary of finite values; `None` when there are none.
    pub fn of(values: &[f64]) -> Option<Self> {
        if values.is_empty() {
            return None;
        }
        let sorted = sorted(values);
        let mean = mean(values);
        let sd = variance(values).sqrt();
        Some(Self {
            n: values.len(),
            mean,
            sd,
            cov: cov(values),
            min: sorted[0],
            q1: quantile(&sorted, 0.25),
            median: quantile(&sorted, 0.5),
            q3: quantile(&sorted, 0.75),
            max: sorted[sorted.len() - 1],
        })
    }
}

/// A sorted copy.
pub fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// Arithmetic mean; 0 for no values.
pub fn mean(values: &[f64]) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.iter().sum::<f64>() / values.len() as f64
}

/// Variance of the sample, in two passes, divisor n - 1; 0 for fewer than two
/// values and for values that are all equal (where rounding of the mean would
/// leave a trace).
pub fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 || values.iter().all(|value| *value == values[0]) {
        return 0.0;
    }
    let mean = mean(values);
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    squares / (values.len() - 1) as f64
}

/// Coefficient of variation, see [`Summary::cov`].
pub fn cov(values: &[f64]) -> Option<f64> {
    let (mean, sd) = (mean(values), variance(values).sqrt());
    match values.len() {
        0 | 1 => None,
        _ if sd == 0.0 => Some(0.0),
        _ if mean == 0.0 => None,
        _ => Some(sd / mean.abs()),
    }
}

/// Quantile of sorted values with linear interpolation between neighbours
/// (type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages",
/// The American Statistician 50, 1996; the default of R and numpy).
///
/// # Panics
/// There are no values, or `p` is outside 0 to 1.
pub fn quantile(sorted: &[f64], p: f64) -> f64 {
    assert!(
        !sorted.is_empty() && (0.0..=1.0).contains(&p),
        "a quantile needs values and a share from 0 to 1"
    );
    let place = p * (sorted.len() - 1) as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(sorted.len() - 1);
    let share = place - below as f64;
    if share == 0.0 {
        return sorted[below];
    }
    sorted[below] + share * (sorted[above] - sorted[below])
}

/// Median of values in any order; `None` when there are none.
pub fn median(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| quantile(&sorted(values), 0.5))
}

/// Interval of the median between two order statistics, as narrow as `level`
/// allows; the whole range where there are too few values for it (fewer than six
/// at 0.95). It assumes nothing of the distribution (Conover, "Practical
/// Nonparametric Statistics", 1999, section 3.2). `None` when there are no values.
pub fn median_interval(values: &[f64], level: f64) -> Option<(f64, f64)> {
    let n = values.len();
    let sorted = sorted(values);
    let (first, last) = (*sorted.first()?, *sorted.last()?);
    let halves = Binomial::new(0.5, n as u64).ok()?;
    // Values beyond the k-th from either end miss the median with twice P(X < k).
    let place = (1..=n / 2)
        .rev()
        .find(|k| 1.0 - 2.0 * halves.cdf(*k as u64 - 1) >= level);
    Some(place.map_or((first, last), |k| (sorted[k - 1], sorted[n - k])))
}

/// Geometric mean, for ratios; `None` when there are no values or one is not
/// above 0.
pub fn geometric_mean(values: &[f64]) -> Option<f64> {
    if values.is_empty() || values.iter().any(|value| *value <= 0.0) {
        return None;
    }
    let logs: f64 = values.iter().map(|value| value.ln()).sum();
    Some((logs / values.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn no_value_has_no_summary_and_one_has_no_spread() {
        assert_eq!(Summary::of(&[]), None);
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!(
            (one.mean, one.sd, one.cov, one.median),
            (7.0, 0.0, None, 7.0)
        );
    }

    #[test]
    fn zeros_vary_by_nothing_and_a_zero_mean_has_no_cov() {
        assert_eq!(Summary::of(&[0.0; 5]).unwrap().cov, Some(0.0));
        assert_eq!(Summary::of(&[-1.0, 1.0]).unwrap().cov, None);
        assert_eq!(Summary::of(&[0.1; 3]).unwrap().cov, Some(0.0));
    }

    #[test]
    fn the_median_lies_between_order_statistics() {
        let values: Vec<f64> = (1..=20).map(f64::from).collect();
        // Table A3 of Conover: for 20 values, the 6th and the 15th.
        assert_eq!(median_interval(&values, 0.95), Some((6.0, 15.0)));
        assert_eq!(median_interval(&values[..6], 0.95), Some((1.0, 6.0)));
        assert_eq!(median_interval(&values[..3], 0.95), Some((1.0, 3.0)));
        assert_eq!(median_interval(&[], 0.95), None);
    }

    #[test]
    fn geometric_mean_is_for_positive_values() {
        assert_eq!(geometric_mean(&[1.0, 0.0]), None);
        assert_eq!(geometric_mean(&[]), None);
        assert!((geometric_mean(&[2.0, 8.0]).unwrap() - 4.0).abs() < 1e-12);
    }

    proptest! {
        #[test]
        fn quantiles_rise_and_stay_within(mut values in prop::collection::vec(-1e9f64..1e9, 1..40), p in 0.0f64..1.0, q in 0.0f64..1.0) {
            values.sort_unstable_by(f64::total_cmp);
            let (low, high) = (p.min(q), p.max(q));
            prop_assert!(quantile(&values, low) <= quantile(&values, high) + 1e-6);
            prop_assert!(quantile(&values, p) >= values[0]);
            prop_assert!(quantile(&values, p) <= values[values.len() - 1]);
        }
    }
}
