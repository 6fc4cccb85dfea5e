//! The candidates of a bisection and who contains whom.
//!
//! A candidate is a commit (or a patch of a series). A tree at candidate `x`
//! holds the change of `c` when `c` is `x` or one of its ancestors; that is all
//! a bisection needs to know of a history, linear or with merges.

use serde::{Deserialize, Serialize};

/// Candidates in topological order, parents before children. The good end lies
/// before all of them, the bad end holds all of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    ids: Vec<String>,
    parents: Vec<Vec<u32>>,
}

/// A list that is no history.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HistoryError {
    /// Nothing to choose from.
    #[error("there is no commit between the good and the bad end")]
    Empty,
    /// The same candidate twice.
    #[error("{id} is listed twice")]
    Twice {
        /// The candidate.
        id: String,
    },
    /// A parent listed after its child.
    #[error("{parent} is listed after its child {child}")]
    Order {
        /// The child.
        child: String,
        /// The parent.
        parent: String,
    },
}

impl History {
    /// One candidate after the other, oldest first: a patch series, or a
    /// history without merges.
    ///
    /// # Errors
    /// No candidate, or one listed twice.
    pub fn linear(ids: Vec<String>) -> Result<Self, HistoryError> {
        let parents = (0..ids.len())
            .map(|i| i.checked_sub(1).map(as_index).into_iter().collect())
            .collect();
        Self::checked(ids, parents)
    }

    /// Candidates with the ids of their parents, parents first. Parents that are
    /// not listed lie on the good side and are dropped.
    ///
    /// # Errors
    /// No candidate, one listed twice, or a child before its parent.
    pub fn with_parents(listed: Vec<(String, Vec<String>)>) -> Result<Self, HistoryError> {
        let place: std::collections::HashMap<&str, usize> = listed
            .iter()
            .enumerate()
            .map(|(i, (id, _))| (id.as_str(), i))
            .collect();
        let mut parents = Vec::with_capacity(listed.len());
        for (i, (child, names)) in listed.iter().enumerate() {
            let mut known = Vec::new();
            for name in names {
                match place.get(name.as_str()) {
                    Some(&at) if at < i => known.push(as_index(at)),
                    Some(_) => {
                        return Err(HistoryError::Order {
                            child: child.clone(),
                            parent: name.clone(),
                        });
                    }
                    None => {}
                }
            }
            parents.push(known);
        }
        let ids = listed.into_iter().map(|(id, _)| id).collect();
        Self::checked(ids, parents)
    }

    fn checked(ids: Vec<String>, parents: Vec<Vec<u32>>) -> Result<Self, HistoryError> {
        if ids.is_empty() {
            return Err(HistoryError::Empty);
        }
        let mut seen = std::collections::HashSet::new();
        if let Some(id) = ids.iter().find(|id| !seen.insert(id.as_str())) {
            return Err(HistoryError::Twice { id: id.clone() });
        }
        Ok(Self { ids, parents })
    }

    /// How many candidates.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Never true: a history without candidates is refused.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Name of a candidate.
    pub fn id(&self, candidate: u32) -> &str {
        &self.ids[candidate as usize]
    }

    /// The candidate of this name.
    pub fn find(&self, id: &str) -> Option<u32> {
        self.ids.iter().position(|known| known == id).map(as_index)
    }

    /// Its parents among the candidates.
    pub fn parents(&self, candidate: u32) -> &[u32] {
        &self.parents[candidate as usize]
    }

    /// One flag per candidate: whether the trees at `of` hold it.
    pub fn ancestors(&self, of: &[u32]) -> Vec<bool> {
        let mut held = vec![false; self.len()];
        for &start in of {
            held[start as usize] = true;
        }
        // Parents come before children, so one pass from the newest is enough.
        for child in (0..self.len()).rev() {
            if held[child] {
                for &parent in &self.parents[child] {
                    held[parent as usize] = true;
                }
            }
        }
        held
    }

    /// For each candidate the sum of `weights` over what its tree holds: the
    /// probability that it is bad, when `weights` are those of the culprit.
    ///
    /// Along a line the sum is the parent's plus its own; only a merge needs a
    /// walk of its own, as in git's `bisect.c` (`do_find_bisection`).
    pub fn held_weight(&self, weights: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.len()];
        let mut stamp = vec![u32::MAX; self.len()];
        let mut stack = Vec::new();
        for at in 0..self.len() {
            sums[at] = match self.parents[at].as_slice() {
                [] => weights[at],
                [parent] => sums[*parent as usize] + weights[at],
                parents => {
                    let mark = as_index(at);
                    let mut sum = weights[at];
                    stack.extend_from_slice(parents);
                    while let Some(next) = stack.pop() {
                        let next = next as usize;
                        if stamp[next] != mark {
                            stamp[next] = mark;
                            sum += weights[next];
                            stack.extend_from_slice(&self.parents[next]);
                        }
                    }
                    sum
                }
            };
        }
        sums
    }

    /// The candidates no testable place tells apart from `culprit`: those held
    /// by every testable place that holds it, and by none that does not.
    /// `culprit` itself is always one of them. Ascending.
    pub fn inseparable(&self, culprit: u32, testable: &[bool]) -> Vec<u32> {
        let mut holds = vec![false; self.len()];
        holds[culprit as usize] = true;
        let mut nearest = Vec::new();
        // Descendants reached without passing a testable one: only the first
        // testable on each way matters, later ones hold what it holds.
        for at in culprit as usize..self.len() {
            let reached = holds[at]
                || self.parents[at]
                    .iter()
                    .any(|&p| holds[p as usize] && !testable[p as usize]);
            if reached {
                holds[at] = true;
                if testable[at] {
                    nearest.push(as_index(at));
                }
            }
        }
        let mut descends = vec![false; self.len()];
        descends[culprit as usize] = true;
        for at in culprit as usize..self.len() {
            descends[at] |= self.parents[at].iter().any(|&p| descends[p as usize]);
        }
        let others: Vec<u32> = (0..self.len())
            .filter(|&at| testable[at] && !descends[at])
            .map(as_index)
            .collect();
        let excluded = self.ancestors(&others);
        let mut suspects: Vec<bool> = excluded.iter().map(|held| !held).collect();
        for place in nearest {
            let held = self.ancestors(&[place]);
            for (suspect, held) in suspects.iter_mut().zip(held) {
                *suspect &= held;
            }
        }
        (0..self.len())
            .filter(|&at| suspects[at])
            .map(as_index)
            .collect()
    }
}

/// Indices are 32 bits wide: no history comes near.
fn as_index(at: usize) -> u32 {
    u32::try_from(at).expect("fewer candidates than 2^32")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(n: usize) -> Vec<String> {
        (1..=n).map(|i| i.to_string()).collect()
    }

    /// a ─ b ─ c ─ m ─ z
    ///  └─ s ─────┘
    fn forked() -> History {
        let rows = [
            ("a", ""),
            ("b", "a"),
            ("c", "b"),
            ("s", "a"),
            ("m", "c s"),
            ("z", "m"),
        ];
        History::with_parents(
            rows.map(|(id, parents)| {
                let parents = parents.split_whitespace().map(str::to_owned).collect();
                (id.to_owned(), parents)
            })
            .to_vec(),
        )
        .unwrap()
    }

    #[test]
    fn a_merge_counts_a_shared_ancestor_once() {
        let history = forked();
        assert_eq!(
            history.held_weight(&[1.0; 6]),
            [1.0, 2.0, 3.0, 2.0, 5.0, 6.0]
        );
    }

    #[test]
    fn held_weight_is_the_sum_over_ancestors() {
        let history = forked();
        let weights = [0.1, 0.2, 0.05, 0.3, 0.15, 0.2];
        for (at, sum) in history.held_weight(&weights).into_iter().enumerate() {
            let held = history.ancestors(&[as_index(at)]);
            let expected: f64 = weights
                .iter()
                .zip(held)
                .filter(|(_, h)| *h)
                .map(|(w, _)| w)
                .sum();
            assert!((sum - expected).abs() < 1e-12);
        }
    }

    #[test]
    fn untestable_neighbours_cannot_be_told_apart() {
        let line = History::linear(named(6)).unwrap();
        let mut testable = vec![true; 6];
        assert_eq!(line.inseparable(3, &testable), [3]);
        testable[3] = false;
        assert_eq!(line.inseparable(3, &testable), [3, 4]);
        assert_eq!(line.inseparable(4, &testable), [3, 4]);
        assert_eq!(line.inseparable(2, &testable), [2]);

        let fork = forked();
        let all_but_c = [true, true, false, true, true, true];
        assert_eq!(fork.inseparable(2, &all_but_c), [2, 4]);
        assert_eq!(fork.inseparable(3, &all_but_c), [3]);
    }

    #[test]
    fn lists_that_are_no_history_are_refused() {
        assert_eq!(History::linear(Vec::new()), Err(HistoryError::Empty));
        let twice = History::linear(vec!["a".into(), "a".into()]).unwrap_err();
        assert_eq!(twice.to_string(), "a is listed twice");
        let order = History::with_parents(vec![
            ("child".into(), vec!["parent".into()]),
            ("parent".into(), vec![]),
        ])
        .unwrap_err();
        assert_eq!(order.to_string(), "parent is listed after its child child");
    }
}
