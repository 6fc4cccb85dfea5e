//! How many runs a verdict needs.

use super::{bootstrap::t_quantile, permutation::least_p};

/// More runs a side than this are not asked for: the answer is "hopeless".
pub const MOST_RUNS: usize = 10_000;

/// Runs a side after which a change of `effect` will be told from none with
/// the probability `power`, at the level `alpha`: the classic size of a
/// two-sample comparison of means with t quantiles, iterated because they
/// depend on the answer (Chow, Shao and Wang, "Sample Size Calculations in
/// Clinical Research", 2008, section 3.2).
///
/// `spread` is the standard deviation that one run of each side adds to the
/// change: `sqrt(sd_base² + sd_new²)`, in the change's own scale. `None` beyond
/// [`MOST_RUNS`] or when the effect is 0.
pub fn runs_needed(spread: f64, effect: f64, alpha: f64, power: f64) -> Option<usize> {
    if effect <= 0.0 || !spread.is_finite() {
        return None;
    }
    let enough = |n: usize| {
        let freedom = 2.0 * (n as f64 - 1.0);
        let reach = t_quantile(1.0 - alpha / 2.0, freedom) + t_quantile(power, freedom);
        reach * spread / (n as f64).sqrt() <= effect
    };
    let (mut low, mut high) = (1, 2);
    while !enough(high) {
        if high >= MOST_RUNS {
            return None;
        }
        low = high;
        high = (high * 2).min(MOST_RUNS);
    }
    while high - low > 1 {
        let middle = low + (high - low) / 2;
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// Runs a side from which on a permutation test can give `p` at all.
pub fn runs_for_p(p: f64) -> Option<usize> {
    (2..=64).find(|n| least_p(*n, *n) <= p)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_asks_for_runs_by_its_square() {
        let few = runs_needed(0.03 * 2f64.sqrt(), 0.05, 0.05, 0.95).unwrap();
        let many = runs_needed(0.06 * 2f64.sqrt(), 0.05, 0.05, 0.95).unwrap();
        assert_eq!(few, 11);
        assert!(many > 3 * few && many < 5 * few, "{many}");
    }

    #[test]
    fn no_noise_asks_for_the_least_and_endless_noise_for_nothing() {
        assert_eq!(runs_needed(0.0, 0.05, 0.05, 0.95), Some(2));
        assert_eq!(runs_needed(1e6, 0.05, 0.05, 0.95), None);
        assert_eq!(runs_needed(1.0, 0.0, 0.05, 0.95), None);
    }

    #[test]
    fn the_permutation_test_has_its_own_floor() {
        assert_eq!(runs_for_p(0.05), Some(4));
        assert_eq!(runs_for_p(0.005), Some(6));
        assert_eq!(runs_for_p(1e-9), None);
    }
}
