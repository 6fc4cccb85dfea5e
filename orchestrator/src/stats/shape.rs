//! Shapes that a mean hides: values far out, and values in two groups.

use super::summary::{mean, median, sorted, variance};

/// Modified z-scores above which a value is flagged, by number of values: one
/// normal sample in a hundred holds such a value. The usual constant, 3.5 (Iglewicz
/// and Hoaglin, "How to Detect and Handle Outliers", 1993), flags every fifth
/// sample of a few runs. Simulated, see `critical_values_are_as_simulated`.
const FAR_OUT: [(usize, f64); 9] = [
    (6, 10.1),
    (8, 8.0),
    (10, 6.9),
    (12, 6.25),
    (15, 5.9),
    (20, 5.25),
    (30, 4.8),
    (50, 4.45),
    (100, 4.3),
];

/// Groups of whole numbers nearer than this many Poisson deviations are one.
const FAR_APART: f64 = 3.5;

/// The value of a table at `n`, between its entries in a straight line; `None`
/// below its first entry, the last one's value beyond its end.
fn at(table: &[(usize, f64)], n: usize) -> Option<f64> {
    let above = table.iter().position(|(size, _)| *size >= n);
    match above {
        None => table.last().map(|(_, value)| *value),
        Some(0) => (n == table[0].0).then_some(table[0].1),
        Some(above) => {
            let ((low, at_low), (high, at_high)) = (table[above - 1], table[above]);
            let share = (n - low) as f64 / (high - low) as f64;
            Some(at_low + share * (at_high - at_low))
        }
    }
}

/// The scatter that counts have anyhow: of whole numbers no less is expected than
/// the square root of their mean (Poisson). 0 for values with fractions.
fn scatter_of_counts(values: &[f64]) -> f64 {
    if values.iter().any(|value| value.fract() != 0.0) {
        return 0.0;
    }
    mean(values).abs().max(1.0).sqrt()
}

/// Places of values that lie far out. They are flagged for a person to look at,
/// never left out of any number.
///
/// The modified z-score is `0.6745 (x - median) / MAD`; where more than half of
/// the values are equal the MAD is 0 and the mean absolute deviation takes its
/// place, scaled by 1.2533 (the same source, and IBM's documentation of it).
pub fn outliers(values: &[f64]) -> Vec<usize> {
    let Some(far_out) = at(&FAR_OUT, values.len()) else {
        return Vec::new();
    };
    let middle = median(values).expect("there are values");
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    let mad = median(&deviations).expect("there are values");
    let (scale, far_out) = if mad > 0.0 {
        (mad / 0.674_5, far_out)
    } else {
        // This scale grows with what it measures, so the usual constant is strict enough.
        (1.253_314 * mean(&deviations), 3.5)
    };
    let scale = scale.max(scatter_of_counts(values));
    if scale == 0.0 {
        return Vec::new();
    }
    deviations
        .iter()
        .enumerate()
        .filter(|(_, deviation)| **deviation / scale > far_out)
        .map(|(place, _)| place)
        .collect()
}

/// Two groups of values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TwoGroups {
    /// Values in the lower group.
    pub lower: usize,
    /// Their mean.
    pub lower_mean: f64,
    /// Values in the upper group.
    pub upper: usize,
    /// Their mean.
    pub upper_mean: f64,
}

/// Share of the total sum of squares that is left within the best two groups,
/// below which one in a thousand samples of a *uniform* distribution falls, by
/// number of values (each group holding at least two of them and a tenth).
/// Simulated, see `critical_values_are_as_simulated`. The uniform is the
/// unimodal distribution nearest to two modes.
const CRITICAL: [(usize, f64); 10] = [
    (6, 0.0052),
    (7, 0.0105),
    (8, 0.0164),
    (10, 0.0288),
    (12, 0.0411),
    (15, 0.0572),
    (20, 0.0787),
    (30, 0.106),
    (50, 0.136),
    (100, 0.167),
];

/// Tells values that fall into two groups: the split that leaves the least
/// spread within groups, held against what one group would leave (Engelman and
/// Hartigan, "Percentage Points of a Test for Clusters", J. American Statistical
/// Association 64, 1969, with a uniform instead of a normal reference). `None`
/// for one group or fewer than six values.
pub fn two_groups(values: &[f64]) -> Option<TwoGroups> {
    let critical = at(&CRITICAL, values.len())?;
    let (share, split) = best_split(&sorted(values))?;
    if share >= critical {
        return None;
    }
    let values = sorted(values);
    let (lower, upper) = values.split_at(split);
    if mean(upper) - mean(lower) < FAR_APART * scatter_of_counts(&values) {
        return None;
    }
    Some(TwoGroups {
        lower: lower.len(),
        lower_mean: mean(lower),
        upper: upper.len(),
        upper_mean: mean(upper),
    })
}

/// The best split of sorted values: share of the sum of squares left within
/// groups, and the size of the lower group. `None` when all values are equal.
fn best_split(sorted: &[f64]) -> Option<(f64, usize)> {
    let n = sorted.len();
    let total = variance(sorted) * (n.saturating_sub(1)) as f64;
    if total <= 0.0 {
        return None;
    }
    let center = mean(sorted);
    let least = 2.max(n.div_ceil(10));
    let mut sum = 0.0;
    let mut best = (f64::INFINITY, 0);
    for split in 1..n {
        sum += sorted[split - 1] - center;
        if split < least || n - split < least {
            continue;
        }
        // With values around their mean the two groups' sums cancel.
        let between = sum * sum / split as f64 + sum * sum / (n - split) as f64;
        let share = ((total - between) / total).max(0.0);
        if share < best.0 {
            best = (share, split);
        }
    }
    (best.1 > 0).then_some(best)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::bootstrap::Indices;

    #[test]
    fn far_values_are_flagged_also_among_equals() {
        assert_eq!(outliers(&[10.0, 10.2, 9.9, 10.1, 10.0, 25.0]), [5]);
        assert_eq!(outliers(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 9.0]), [7]);
        assert!(outliers(&[0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0]).is_empty());
        assert!(outliers(&[1.0; 10]).is_empty());
        assert!(outliers(&[1.0, 1.0, 1.0, 1.0, 100.0]).is_empty());
    }

    #[test]
    fn scans_that_happen_or_not_are_two_groups() {
        let values = [0.0, 68_618.0, 0.0, 65_547.0, 0.0, 65_545.0, 0.0];
        let groups = two_groups(&values).unwrap();
        assert_eq!((groups.lower, groups.upper), (4, 3));
        assert_eq!(groups.lower_mean, 0.0);
        assert_eq!(two_groups(&[0.0, 1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 0.0]), None);
        assert_eq!(two_groups(&[5.0; 8]), None);
        assert_eq!(two_groups(&values[..5]), None);
        let even: Vec<f64> = (0..20).map(f64::from).collect();
        assert_eq!(two_groups(&even), None);
    }

    fn uniform(random: &mut Indices) -> f64 {
        (random.below(1 << 31) as f64 + 0.5) / 2f64.powi(31)
    }

    fn normal(random: &mut Indices) -> f64 {
        let (u, v) = (uniform(random), uniform(random));
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }

    #[test]
    fn critical_values_are_as_simulated() {
        const SAMPLES: usize = 20_000;
        for n in [6, 8, 10, 15, 20, 30, 50] {
            let mut random = Indices::new(5, n as u64);
            let (mut grouped, mut flagged) = (0, 0);
            for _ in 0..SAMPLES {
                let even: Vec<f64> = (0..n).map(|_| uniform(&mut random)).collect();
                grouped += usize::from(two_groups(&even).is_some());
                let bell: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
                flagged += usize::from(!outliers(&bell).is_empty());
            }
            let share = |count: usize| count as f64 / SAMPLES as f64;
            assert!((0.0004..0.002).contains(&share(grouped)), "{n}: {grouped}");
            assert!((0.007..0.013).contains(&share(flagged)), "{n}: {flagged}");
        }
    }
}
