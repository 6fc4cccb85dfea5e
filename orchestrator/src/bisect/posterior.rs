//! How probable each candidate is as the culprit, given every run so far.

use super::history::History;
use super::noise::{Group, Noise};

/// What is known of one candidate's tree.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Known {
    /// Its runs, as the noise model counts them.
    Runs(Group),
    /// Beyond doubt.
    Sure {
        /// It is bad.
        bad: bool,
    },
}

/// What was learned about one place.
#[derive(Debug, Clone)]
pub struct Evidence<'a> {
    /// Which candidates its tree holds; none for the good end, all for the bad one.
    pub held: &'a [bool],
    /// What is known.
    pub known: Known,
}

/// Two trees that gave the same image: no candidate between them can be the culprit.
#[derive(Debug, Clone)]
pub struct Same<'a> {
    /// Which candidates the one holds.
    pub one: &'a [bool],
    /// Which candidates the other holds.
    pub other: &'a [bool],
}

/// The posterior over the culprit.
#[derive(Debug, Clone, PartialEq)]
pub struct Posterior {
    /// Probability of each candidate to be the culprit.
    pub culprit: Vec<f64>,
    /// Probability of each candidate's tree to be bad.
    pub bad: Vec<f64>,
    /// Runs of the good side under the most probable split.
    pub good_side: Group,
    /// Runs of the bad side under the most probable split.
    pub bad_side: Group,
}

/// Weighs every candidate. `None` when sure answers contradict each other, so
/// that no candidate remains.
///
/// Before any evidence all candidates are equally probable.
pub fn weigh(
    history: &History,
    noise: Option<&Noise>,
    evidence: &[Evidence<'_>],
    same: &[Same<'_>],
) -> Option<Posterior> {
    let n = history.len();
    let mut possible = vec![true; n];
    let mut bad_sides = vec![Group::default(); n];
    let mut total = Group::default();
    for piece in evidence {
        match piece.known {
            Known::Sure { bad } => {
                for (possible, held) in possible.iter_mut().zip(piece.held) {
                    *possible &= *held == bad;
                }
            }
            Known::Runs(group) => {
                total = total.and(group);
                for (side, held) in bad_sides.iter_mut().zip(piece.held) {
                    if *held {
                        *side = side.and(group);
                    }
                }
            }
        }
    }
    for pair in same {
        for ((possible, one), other) in possible.iter_mut().zip(pair.one).zip(pair.other) {
            *possible &= one == other;
        }
    }
    let rest = |side: Group| Group {
        n: total.n - side.n,
        sum: total.sum - side.sum,
        squares: total.squares - side.squares,
    };
    let mut logs = vec![f64::NEG_INFINITY; n];
    // Neighbours mostly share their split; its evidence is computed once.
    let mut last: Option<(Group, f64)> = None;
    for at in 0..n {
        if !possible[at] {
            continue;
        }
        let side = bad_sides[at];
        logs[at] = match (noise, last) {
            (None, _) => 0.0,
            (Some(_), Some((known, log))) if known == side => log,
            (Some(noise), _) => {
                let log = noise.log_evidence(rest(side), side);
                last = Some((side, log));
                log
            }
        };
    }
    let (best, peak) =
        logs.iter()
            .copied()
            .enumerate()
            .fold((0, f64::NEG_INFINITY), |best, (at, log)| {
                if log > best.1 { (at, log) } else { best }
            });
    if peak == f64::NEG_INFINITY {
        return None;
    }
    let mut culprit: Vec<f64> = logs.iter().map(|log| (log - peak).exp()).collect();
    let sum: f64 = culprit.iter().sum();
    for weight in &mut culprit {
        *weight /= sum;
    }
    let bad = history.held_weight(&culprit);
    Some(Posterior {
        culprit,
        bad,
        good_side: rest(bad_sides[best]),
        bad_side: bad_sides[best],
    })
}
