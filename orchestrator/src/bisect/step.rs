//! One step of somebody else's bisection: is this tree good or bad?

use statrs::distribution::{Binomial, DiscreteCDF};

/// What the runs so far say of a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Run it once more.
    More,
    /// Good.
    Good,
    /// Bad.
    Bad,
    /// The allowed runs do not decide it.
    Unclear,
}

/// Decides by a fixed threshold from whether each run lay beyond it: at once when
/// the first `runs` agree, else when one side leads so far that an even tree would
/// do so in one of twenty cases at most (sign test); after `limit` runs not at all.
pub fn by_threshold(beyond: &[bool], runs: u32, limit: u32) -> Decision {
    let n = u32::try_from(beyond.len()).unwrap_or(u32::MAX);
    let bad = u32::try_from(beyond.iter().filter(|b| **b).count()).unwrap_or(u32::MAX);
    if n < runs {
        return Decision::More;
    }
    let lead = bad.max(n - bad);
    let decided = lead == n || tail(lead, n) <= 0.025;
    match (decided, bad > n - bad) {
        (true, true) => Decision::Bad,
        (true, false) => Decision::Good,
        (false, _) if n >= limit => Decision::Unclear,
        (false, _) => Decision::More,
    }
}

/// Decides by an outcome that good trees never show: bad at the first one seen,
/// good after `runs` without.
pub fn by_outcome(seen: &[bool], runs: u32) -> Decision {
    if seen.contains(&true) {
        Decision::Bad
    } else if seen.len() >= runs as usize {
        Decision::Good
    } else {
        Decision::More
    }
}

/// Chance of `lead` or more of `n` fair coins.
fn tail(lead: u32, n: u32) -> f64 {
    let coins = Binomial::new(0.5, u64::from(n)).expect("one half is a probability");
    coins.sf(u64::from(lead).saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(text: &str) -> Vec<bool> {
        text.chars().map(|c| c == 'b').collect()
    }

    #[test]
    fn agreeing_runs_decide_at_once_and_others_need_a_lead() {
        let of = |text: &str| by_threshold(&runs(text), 3, 12);
        assert_eq!(of("bb"), Decision::More);
        assert_eq!(of("bbb"), Decision::Bad);
        assert_eq!(of("ggg"), Decision::Good);
        assert_eq!(of("bbg"), Decision::More);
        assert_eq!(of("bbgbbbbb"), Decision::More);
        assert_eq!(of("bbgbbbbbb"), Decision::Bad);
        assert_eq!(of("bgbgbgbgbgbg"), Decision::Unclear);
    }

    #[test]
    fn one_crash_is_enough() {
        assert_eq!(by_outcome(&runs("gg"), 3), Decision::More);
        assert_eq!(by_outcome(&runs("ggg"), 3), Decision::Good);
        assert_eq!(by_outcome(&runs("gb"), 3), Decision::Bad);
    }
}
