//! The values of one side of a comparison.

use super::summary::mean;

/// One value per run, grouped by the boot it came from. Runs restored from
/// one saved guest share that boot's memory layout and are not independent of
/// each other; runs of different boots are.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sample {
    boots: Vec<Vec<f64>>,
}

impl Sample {
    /// Runs that each booted a guest of their own.
    pub fn independent(values: &[f64]) -> Self {
        Self {
            boots: values.iter().map(|value| vec![*value]).collect(),
        }
    }

    /// Runs grouped by boot; empty groups are left out.
    pub fn grouped(boots: Vec<Vec<f64>>) -> Self {
        Self {
            boots: boots.into_iter().filter(|runs| !runs.is_empty()).collect(),
        }
    }

    /// Runs with the name of their boot, in any order.
    pub fn by_boot<'a>(runs: impl IntoIterator<Item = (&'a str, f64)>) -> Self {
        let mut names: Vec<&str> = Vec::new();
        let mut boots: Vec<Vec<f64>> = Vec::new();
        for (boot, value) in runs {
            match names.iter().position(|name| *name == boot) {
                Some(index) => boots[index].push(value),
                None => {
                    names.push(boot);
                    boots.push(vec![value]);
                }
            }
        }
        Self { boots }
    }

    /// Values by boot.
    pub fn boots(&self) -> &[Vec<f64>] {
        &self.boots
    }

    /// All values, boot after boot.
    pub fn values(&self) -> Vec<f64> {
        self.boots.concat()
    }

    /// Number of runs.
    pub fn runs(&self) -> usize {
        self.boots.iter().map(Vec::len).sum()
    }

    /// Whether some boot gave several runs.
    pub fn is_clustered(&self) -> bool {
        self.boots.iter().any(|runs| runs.len() > 1)
    }

    /// What may be taken as independent: the runs when each has its own boot,
    /// the means of the boots otherwise.
    pub fn units(&self) -> Vec<f64> {
        self.boots.iter().map(|runs| mean(runs)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_boot_become_one_unit() {
        let sample = Sample::by_boot([("a", 1.0), ("b", 10.0), ("a", 3.0)]);
        assert_eq!(sample.runs(), 3);
        assert!(sample.is_clustered());
        assert_eq!(sample.units(), [2.0, 10.0]);
        assert_eq!(sample.values(), [1.0, 3.0, 10.0]);
        assert!(!Sample::independent(&[1.0, 2.0]).is_clustered());
        assert_eq!(Sample::grouped(vec![vec![], vec![4.0]]).runs(), 1);
    }
}
