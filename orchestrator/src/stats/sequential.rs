//! Looking at growing data without fooling oneself.
//!
//! Whoever stops when a difference shows finds differences that are not there.
//! Look number `k` therefore spends only `alpha / (k (k + 1))` of the accepted
//! chance of a false verdict: these shares add up to `alpha` however many looks
//! there are (alpha spending, Lan and DeMets, "Discrete Sequential Boundaries
//! for Clinical Trials", Biometrika 70, 1983, with a Bonferroni bound instead of
//! the joint distribution). Rounds grow by at least a third between looks, so
//! looks stay few.

/// The level of look number `look`, from 1.
pub fn alpha_at(alpha: f64, look: u32) -> f64 {
    let look = f64::from(look.max(1));
    alpha / (look * (look + 1.0))
}

/// What to do after a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Everything that can be decided is.
    Stop,
    /// So many rounds more, then another look.
    Rounds(u32),
    /// The limit is reached, or no number of rounds in reach would decide.
    Hopeless,
}

/// What to do when comparisons ask for `more` runs each (`None`: no number of
/// runs decides), `done` rounds are done and at most `most` may be.
pub fn next(more: &[Option<usize>], done: u32, most: u32) -> Next {
    if more.is_empty() {
        return Next::Stop;
    }
    // Rounds run every cell, so the most demanding comparison that can be met
    // sets the number.
    let Some(wanted) = more.iter().flatten().max() else {
        return Next::Hopeless;
    };
    let left = most.saturating_sub(done);
    if left == 0 {
        return Next::Hopeless;
    }
    let wanted = u32::try_from(*wanted)
        .unwrap_or(u32::MAX)
        .max(done.div_ceil(3))
        .max(1);
    Next::Rounds(wanted.min(left))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_spend_no_more_than_alpha() {
        let spent: f64 = (1..10_000).map(|look| alpha_at(0.05, look)).sum();
        assert!(spent < 0.05 && spent > 0.0499);
        assert_eq!(alpha_at(0.05, 1), 0.025);
    }

    #[test]
    fn rounds_are_added_until_everything_is_decided_or_hopeless() {
        assert_eq!(next(&[], 5, 30), Next::Stop);
        assert_eq!(next(&[Some(4), Some(9), None], 5, 30), Next::Rounds(9));
        assert_eq!(next(&[Some(1)], 12, 30), Next::Rounds(4));
        assert_eq!(next(&[Some(100)], 12, 30), Next::Rounds(18));
        assert_eq!(next(&[Some(100)], 30, 30), Next::Hopeless);
        assert_eq!(next(&[None, None], 5, 30), Next::Hopeless);
    }
}
