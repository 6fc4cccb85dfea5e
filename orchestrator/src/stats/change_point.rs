//! Where a series of nights changes its level.
//!
//! Binary segmentation (Scott and Knott, "A Cluster Analysis Method for Grouping
//! Means in the Analysis of Variance", Biometrics 30, 1974): the split with the
//! largest standardised difference of means is kept when random orders of the
//! same values rarely show one as large, and both parts are looked at again.
//! Nothing is assumed of the distribution; one far value makes no change
//! point, because a part needs at least [`LEAST`] values.

use super::{bootstrap::Indices, summary::mean};

/// Fewest values on either side of a change point.
pub const LEAST: usize = 3;
/// Random orders a split is held against.
const ORDERS: usize = 999;

/// A change of level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ChangePoint {
    /// Place of the first value of the new level.
    pub at: usize,
    /// Mean of the level before, back to the change point before it.
    pub before: f64,
    /// Mean of the level from there on.
    pub after: f64,
    /// p-value of the split within its part of the series.
    pub p: f64,
}

/// Change points of a series in order, at the level `alpha` for each split.
pub fn change_points(values: &[f64], alpha: f64, seed: u64) -> Vec<ChangePoint> {
    let mut found: Vec<(usize, f64)> = Vec::new();
    let mut parts = vec![(0, values.len())];
    while let Some((start, end)) = parts.pop() {
        let part = &values[start..end];
        let Some((observed, split)) = best_split(part) else {
            continue;
        };
        let mut random = Indices::new(seed, start as u64 + 16);
        let mut shuffled = part.to_vec();
        let mut as_large = 1;
        for _ in 0..ORDERS {
            for place in (1..shuffled.len()).rev() {
                shuffled.swap(place, random.below(place + 1));
            }
            let by_chance = best_split(&shuffled).map_or(0.0, |(size, _)| size);
            as_large += usize::from(by_chance >= observed * (1.0 - 1e-12));
        }
        let p = as_large as f64 / (ORDERS + 1) as f64;
        if p <= alpha {
            found.push((start + split, p));
            parts.push((start, start + split));
            parts.push((start + split, end));
        }
    }
    found.sort_unstable_by_key(|(at, _)| *at);
    let places: Vec<usize> = found.iter().map(|(at, _)| *at).collect();
    found
        .iter()
        .enumerate()
        .map(|(index, (at, p))| {
            let start = if index == 0 { 0 } else { places[index - 1] };
            let end = places.get(index + 1).copied().unwrap_or(values.len());
            ChangePoint {
                at: *at,
                before: mean(&values[start..*at]),
                after: mean(&values[*at..end]),
                p: *p,
            }
        })
        .collect()
}

/// Largest standardised difference of means, `|mean - mean| sqrt(n m / (n + m))`,
/// and the size of the first part. `None` for too few or equal values.
fn best_split(values: &[f64]) -> Option<(f64, usize)> {
    let n = values.len();
    if n < 2 * LEAST {
        return None;
    }
    let center = mean(values);
    let mut sum = 0.0;
    let mut best = (0.0, 0);
    for split in 1..=n - LEAST {
        sum += values[split - 1] - center;
        if split < LEAST {
            continue;
        }
        // |sum| n / (split (n - split)) is the difference of the means.
        let size = sum.abs() * (n as f64 / (split * (n - split)) as f64).sqrt();
        if size > best.0 {
            best = (size, split);
        }
    }
    (best.0 > 1e-12 * center.abs()).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(place: usize) -> f64 {
        [0.3, -0.8, 0.5, -0.1, 0.9, -0.6, 0.1, -0.4, 0.7, -0.5][place * 7 % 10]
    }

    #[test]
    fn two_steps_are_found_where_they_are() {
        let values: Vec<f64> = (0..40)
            .map(|night| {
                noise(night)
                    + [100.0, 110.0, 104.0][usize::from(night >= 12) + usize::from(night >= 29)]
            })
            .collect();
        let found = change_points(&values, 0.01, 1);
        assert_eq!(
            found.iter().map(|point| point.at).collect::<Vec<_>>(),
            [12, 29]
        );
        assert!((found[0].before - 100.0).abs() < 0.5 && (found[0].after - 110.0).abs() < 0.5);
        assert!((found[1].after - 104.0).abs() < 0.5);
    }

    #[test]
    fn noise_equal_values_and_one_far_value_are_no_change() {
        let values: Vec<f64> = (0..30).map(noise).collect();
        assert!(change_points(&values, 0.01, 1).is_empty());
        assert!(change_points(&[7.0; 30], 0.01, 1).is_empty());
        let mut one = vec![7.0; 30];
        one[14] = 100.0;
        assert!(change_points(&one, 0.01, 1).is_empty());
        assert!(change_points(&[1.0, 2.0], 0.01, 1).is_empty());
    }
}
