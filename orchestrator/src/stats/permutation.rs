//! Permutation test of a difference between two sides.
//!
//! Under "nothing changed" every way of dealing the values to the two sides is
//! equally likely, whatever their distribution: counts that are mostly zero,
//! bimodal values and few runs need no further assumption. The statistic is
//! Welch's t, which keeps the test honest when only the spread changed
//! (Janssen, "Studentized permutation tests for non-i.i.d. hypotheses and the
//! generalized Behrens-Fisher problem", Statistics & Probability Letters 36,
//! 1997).

use super::bootstrap::Indices;

/// Up to so many ways of dealing, all are tried (9 against 9 runs).
pub const EXACT_LIMIT: u64 = 50_000;
/// Random deals beyond [`EXACT_LIMIT`]: p-values down to 0.0001, enough for tables of
/// 500 rows at the level 0.05.
pub const RANDOM_DEALS: usize = 10_000;
/// A random test ends after so many deals at least as extreme as the real one
/// (Besag and Clifford, "Sequential Monte Carlo p-values", Biometrika 78, 1991).
pub const ENOUGH: usize = 50;

/// Two-sided p-value; 1 when a side has fewer than two values.
pub fn p_value(base: &[f64], new: &[f64], seed: u64) -> f64 {
    let (n, m) = (base.len(), new.len());
    if n < 2 || m < 2 {
        return 1.0;
    }
    let deal = Deal::of(base, new);
    let observed = deal.statistic(base.iter().map(|value| value - deal.center));
    let at_least = |statistic: f64| statistic >= observed * (1.0 - 1e-9);
    if ways(n + m, n).is_some_and(|ways| ways <= EXACT_LIMIT) {
        let (mut all, mut extreme) = (0u64, 0u64);
        deal.each(n, |sum, squares| {
            all += 1;
            extreme += u64::from(at_least(deal.statistic_of(sum, squares)));
        });
        return extreme as f64 / all as f64;
    }
    let mut random = Indices::new(seed, 2);
    let mut values = deal.values.clone();
    let mut extreme = 0;
    for deals in 1..=RANDOM_DEALS {
        let (mut sum, mut squares) = (0.0, 0.0);
        for place in 0..n {
            let other = place + random.below(values.len() - place);
            values.swap(place, other);
            sum += values[place];
            squares += values[place] * values[place];
        }
        extreme += usize::from(at_least(deal.statistic_of(sum, squares)));
        if extreme == ENOUGH {
            return ENOUGH as f64 / deals as f64;
        }
    }
    (extreme + 1) as f64 / (RANDOM_DEALS + 1) as f64
}

/// The least p-value that `n` against `m` values can give.
pub fn least_p(n: usize, m: usize) -> f64 {
    if n < 2 || m < 2 {
        return 1.0;
    }
    let random = 1.0 / (RANDOM_DEALS + 1) as f64;
    match ways(n + m, n) {
        // A deal and its mirror image are equally extreme when sides are equal.
        Some(ways) if ways <= EXACT_LIMIT => (if n == m { 2.0 } else { 1.0 }) / ways as f64,
        _ => random,
    }
}

/// Ways to choose `k` of `n`; `None` beyond 64 bits.
fn ways(n: usize, k: usize) -> Option<u64> {
    let k = k.min(n - k) as u64;
    let mut ways = 1u64;
    for step in 0..k {
        ways = ways.checked_mul(n as u64 - step)? / (step + 1);
    }
    Some(ways)
}

/// Both sides' values around their common mean, and their totals.
struct Deal {
    values: Vec<f64>,
    center: f64,
    sum: f64,
    squares: f64,
    n: f64,
    m: f64,
    /// Below this, a variance is rounding.
    nothing: f64,
}

impl Deal {
    fn of(base: &[f64], new: &[f64]) -> Self {
        let all = [base, new].concat();
        let center = super::summary::mean(&all);
        let values: Vec<f64> = all.iter().map(|value| value - center).collect();
        let squares: f64 = values.iter().map(|value| value * value).sum();
        let largest = all.iter().fold(0.0f64, |max, value| max.max(value.abs()));
        Self {
            sum: values.iter().sum(),
            squares,
            center,
            values,
            n: base.len() as f64,
            m: new.len() as f64,
            nothing: (largest * 1e-12).powi(2),
        }
    }

    fn statistic(&self, base: impl Iterator<Item = f64>) -> f64 {
        let (mut sum, mut squares) = (0.0, 0.0);
        for value in base {
            sum += value;
            squares += value * value;
        }
        self.statistic_of(sum, squares)
    }

    /// |t| of Welch from the sums over the base side.
    fn statistic_of(&self, sum: f64, squares: f64) -> f64 {
        let (other, other_squares) = (self.sum - sum, self.squares - squares);
        let difference = sum / self.n - other / self.m;
        let v_base = ((squares - sum * sum / self.n) / (self.n - 1.0)).max(0.0);
        let v_new = ((other_squares - other * other / self.m) / (self.m - 1.0)).max(0.0);
        let error = v_base / self.n + v_new / self.m;
        if difference * difference <= self.nothing {
            0.0
        } else if error <= self.nothing {
            f64::INFINITY
        } else {
            difference.abs() / error.sqrt()
        }
    }

    /// Calls `see` with the sums of every choice of `n` values.
    fn each(&self, n: usize, mut see: impl FnMut(f64, f64)) {
        let values = &self.values;
        let mut chosen: Vec<usize> = (0..n).collect();
        loop {
            let (mut sum, mut squares) = (0.0, 0.0);
            for &index in &chosen {
                sum += values[index];
                squares += values[index] * values[index];
            }
            see(sum, squares);
            // The next choice in lexicographic order.
            let Some(place) = (0..n)
                .rev()
                .find(|&place| chosen[place] < values.len() - n + place)
            else {
                return;
            };
            chosen[place] += 1;
            for later in place + 1..n {
                chosen[later] = chosen[later - 1] + 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_separation_of_few_runs_gives_the_least_p() {
        let base = [48_211.0, 47_000.0, 49_000.0, 48_500.0, 48_300.0];
        assert!((p_value(&base, &[0.0; 5], 1) - 2.0 / 252.0).abs() < 1e-12);
        assert!((least_p(5, 5) - 2.0 / 252.0).abs() < 1e-12);
        assert!((least_p(4, 6) - 1.0 / 210.0).abs() < 1e-12);
    }

    #[test]
    fn constants_and_single_values_prove_nothing() {
        assert_eq!(p_value(&[3.0; 4], &[3.0; 4], 1), 1.0);
        assert_eq!(p_value(&[0.0; 4], &[0.0; 4], 1), 1.0);
        assert_eq!(p_value(&[1.0], &[2.0, 3.0], 1), 1.0);
        assert_eq!(least_p(1, 5), 1.0);
    }

    #[test]
    fn different_constants_are_as_far_apart_as_can_be() {
        assert!((p_value(&[0.1; 4], &[0.3; 4], 1) - 2.0 / 70.0).abs() < 1e-12);
    }

    #[test]
    fn a_single_event_in_many_zeros_is_no_evidence() {
        let mut base = [0.0; 9];
        base[3] = 1.0;
        assert_eq!(p_value(&base, &[0.0; 9], 1), 1.0);
    }

    #[test]
    fn random_deals_agree_with_all_deals() {
        // 9 against 9 is exact; the same values doubled are not.
        let base: Vec<f64> = (0..9).map(|i| 10.0 + f64::from(i * i % 7)).collect();
        let new: Vec<f64> = (0..9).map(|i| 11.5 + f64::from(i * 5 % 8)).collect();
        let exact = p_value(&base, &new, 1);
        let deal = Deal::of(&base, &new);
        let observed = deal.statistic(base.iter().map(|v| v - deal.center));
        let mut random = Indices::new(3, 2);
        let mut values = deal.values.clone();
        let mut extreme = 0;
        for _ in 0..20_000 {
            for place in 0..9 {
                let other = place + random.below(18 - place);
                values.swap(place, other);
            }
            extreme += usize::from(deal.statistic(values[..9].iter().copied()) >= observed);
        }
        assert!(
            (exact - f64::from(extreme as u32) / 20_000.0).abs() < 0.01,
            "{exact}"
        );
    }

    #[test]
    fn many_runs_with_a_clear_change_reach_the_floor() {
        let base: Vec<f64> = (0..40).map(|i| 100.0 + f64::from(i % 5)).collect();
        let new: Vec<f64> = (0..40).map(|i| 120.0 + f64::from(i % 5)).collect();
        assert_eq!(p_value(&base, &new, 1), least_p(40, 40));
        assert!(p_value(&base, &base, 1) > 0.5);
    }
}
