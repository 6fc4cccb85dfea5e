//! Tests that look at ranks only: no value is so far out that it decides alone.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

/// What the Mann-Whitney test says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MannWhitney {
    /// U of the second side: pairs in which its value is the greater, ties as halves.
    pub u: f64,
    /// Two-sided p-value.
    pub p: f64,
    /// Chance that a run of the second side exceeds one of the first, ties as
    /// halves: 0.5 when nothing changed.
    pub superiority: f64,
}

/// Mann-Whitney U test of two sides. Exact without ties when a side has at most
/// eight values; else the normal approximation with corrections for ties and
/// continuity (Mann and Whitney, Annals of Mathematical Statistics 18, 1947;
/// ties after Lehmann, "Nonparametrics", 1975, section 1.4; the choice is that of
/// scipy's `mannwhitneyu`). `None` when a side is empty.
pub fn mann_whitney(first: &[f64], second: &[f64]) -> Option<MannWhitney> {
    let (n, m) = (first.len(), second.len());
    if n == 0 || m == 0 {
        return None;
    }
    let all = [second, first].concat();
    let (ranks, ties) = ranks(&all);
    let rank_sum: f64 = ranks[..m].iter().sum();
    let pairs = (n * m) as f64;
    let u = rank_sum - (m * (m + 1)) as f64 / 2.0;
    let larger = u.max(pairs - u);
    let has_ties = ties > 0.0;
    let p = if !has_ties && n.min(m) <= 8 {
        (2.0 * upper_tail(n, m, larger.ceil() as usize)).min(1.0)
    } else {
        let total = (n + m) as f64;
        let variance = pairs / 12.0 * (total + 1.0 - ties / (total * (total - 1.0)));
        if variance <= 0.0 {
            1.0
        } else {
            let z = (larger - pairs / 2.0 - 0.5) / variance.sqrt();
            (2.0 * (1.0 - Normal::standard().cdf(z))).clamp(0.0, 1.0)
        }
    };
    Some(MannWhitney {
        u,
        p,
        superiority: u / pairs,
    })
}

/// Ranks from 1, ties averaged, and the sum of `t³ - t` over groups of ties.
pub fn ranks(values: &[f64]) -> (Vec<f64>, f64) {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|a, b| values[*a].total_cmp(&values[*b]));
    let mut ranks = vec![0.0; values.len()];
    let mut ties = 0.0;
    let mut start = 0;
    while start < order.len() {
        let mut end = start + 1;
        while end < order.len() && values[order[end]] == values[order[start]] {
            end += 1;
        }
        let size = (end - start) as f64;
        ties += size.powi(3) - size;
        for index in &order[start..end] {
            ranks[*index] = (start + end + 1) as f64 / 2.0;
        }
        start = end;
    }
    (ranks, ties)
}

/// P(U >= u) for sides of `n` and `m` values without ties.
fn upper_tail(n: usize, m: usize, u: usize) -> f64 {
    // counts[k] = subsets of the ranks seen so far with U = k, by subset size:
    // the usual recursion f(n, m, k) = f(n-1, m, k-m) + f(n, m-1, k).
    let most = n * m;
    let mut counts = vec![vec![0.0f64; most + 1]; n + 1];
    for row in &mut counts {
        row[0] = 1.0;
    }
    for second in 1..=m {
        let mut next = vec![vec![0.0; most + 1]; n + 1];
        next[0][0] = 1.0;
        for first in 1..=n {
            for k in 0..=first * second {
                let shorter = if k >= second {
                    next[first - 1][k - second]
                } else {
                    0.0
                };
                let before = if k <= first * (second - 1) {
                    counts[first][k]
                } else {
                    0.0
                };
                next[first][k] = shorter + before;
            }
        }
        counts = next;
    }
    let all: f64 = counts[n].iter().sum();
    counts[n].iter().skip(u).sum::<f64>() / all
}

/// Spearman's rank correlation of values with their order, and its two-sided
/// p-value from the t distribution (Kendall and Gibbons, "Rank Correlation
/// Methods", 1990, section 4.12; good from about ten values on). `None` for
/// fewer than ten values or values that are all equal.
pub fn trend(values: &[f64]) -> Option<(f64, f64)> {
    let n = values.len();
    if n < 10 {
        return None;
    }
    let (ranks, _) = ranks(values);
    let middle = (n as f64 + 1.0) / 2.0;
    let (mut both, mut of_ranks, mut of_places) = (0.0, 0.0, 0.0);
    for (place, rank) in ranks.iter().enumerate() {
        let place = place as f64 + 1.0 - middle;
        let rank = rank - middle;
        both += place * rank;
        of_ranks += rank * rank;
        of_places += place * place;
    }
    if of_ranks == 0.0 {
        return None;
    }
    let rho = (both / (of_ranks * of_places).sqrt()).clamp(-1.0, 1.0);
    let freedom = n as f64 - 2.0;
    let left = 1.0 - rho * rho;
    if left <= 0.0 {
        return Some((rho, 0.0));
    }
    let t = rho.abs() * (freedom / left).sqrt();
    let p = StudentsT::new(0.0, 1.0, freedom).map_or(1.0, |t_of| 2.0 * (1.0 - t_of.cdf(t)));
    Some((rho, p.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ties_share_a_rank() {
        assert_eq!(
            ranks(&[3.0, 1.0, 3.0, 2.0]),
            (vec![3.5, 1.0, 3.5, 2.0], 6.0)
        );
        assert_eq!(ranks(&[]), (vec![], 0.0));
    }

    #[test]
    fn equal_sides_are_not_different() {
        let same = mann_whitney(&[1.0; 5], &[1.0; 5]).unwrap();
        assert_eq!((same.p, same.superiority), (1.0, 0.5));
        assert_eq!(mann_whitney(&[], &[1.0]), None);
    }

    #[test]
    fn full_separation_has_the_exact_p() {
        let apart = mann_whitney(&[1.0, 2.0, 3.0, 4.0], &[5.0, 6.0, 7.0, 8.0]).unwrap();
        assert!((apart.p - 2.0 / 70.0).abs() < 1e-12);
        assert_eq!((apart.u, apart.superiority), (16.0, 1.0));
    }

    #[test]
    fn a_steady_rise_is_a_trend_and_constants_are_none() {
        let rising: Vec<f64> = (0..12).map(f64::from).collect();
        assert_eq!(trend(&rising), Some((1.0, 0.0)));
        assert_eq!(trend(&[4.0; 20]), None);
        assert_eq!(trend(&rising[..9]), None);
    }
}
