//! Correction for the many comparisons of one table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the p-values of a table's rows are corrected together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Correction {
    /// Of the changes reported, at most the share `alpha` is expected to be
    /// false (Benjamini and Hochberg, J. Royal Statistical Society B 57, 1995).
    #[default]
    BenjaminiHochberg,
    /// The chance that any reported change is false is at most `alpha` (Holm,
    /// Scandinavian Journal of Statistics 6, 1979).
    Holm,
    /// Each row stands alone.
    None,
}

impl Correction {
    /// Corrected p-values, in the order given.
    pub fn adjust(self, p: &[f64]) -> Vec<f64> {
        let m = p.len();
        let mut order: Vec<usize> = (0..m).collect();
        order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
        let mut adjusted = p.to_vec();
        match self {
            Self::None => {}
            Self::Holm => {
                let mut highest = 0.0f64;
                for (rank, index) in order.into_iter().enumerate() {
                    highest = highest.max(p[index] * (m - rank) as f64).min(1.0);
                    adjusted[index] = highest;
                }
            }
            Self::BenjaminiHochberg => {
                let mut lowest = 1.0f64;
                for (rank, index) in order.into_iter().enumerate().rev() {
                    lowest = lowest.min(p[index] * m as f64 / (rank + 1) as f64);
                    adjusted[index] = lowest;
                }
            }
        }
        adjusted
    }

    /// As written below a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::BenjaminiHochberg => "Benjamini-Hochberg",
            Self::Holm => "Holm",
            Self::None => "none",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_comparison_needs_no_correction() {
        for correction in [
            Correction::BenjaminiHochberg,
            Correction::Holm,
            Correction::None,
        ] {
            assert_eq!(correction.adjust(&[0.03]), [0.03]);
            assert!(correction.adjust(&[]).is_empty());
        }
    }

    #[test]
    fn adjusted_values_keep_the_order_and_stay_below_one() {
        let p = [0.01, 0.6, 0.02, 0.9];
        assert_eq!(Correction::Holm.adjust(&p), [0.04, 1.0, 0.06, 1.0]);
        assert_eq!(
            Correction::BenjaminiHochberg.adjust(&p),
            [0.04, 0.7999999999999999, 0.04, 0.9]
        );
    }
}
