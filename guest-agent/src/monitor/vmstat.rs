//! `/proc/vmstat`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::{Monitor, MonitorError, Seen, count};

/// All counters at one moment.
#[derive(Debug)]
pub struct Vmstat {
    counters: HashMap<String, u64>,
}

impl Vmstat {
    /// Reads the counters now.
    ///
    /// # Errors
    /// When `proc/vmstat` below `root` cannot be read.
    pub fn read(root: &Path) -> Result<Self, MonitorError> {
        Ok(Self::parse(&super::read(root, "proc/vmstat")?))
    }

    /// One counter.
    pub fn get(&self, name: &str) -> Option<u64> {
        self.counters.get(name).copied()
    }

    fn parse(text: &str) -> Self {
        let counters = text
            .lines()
            .filter_map(|line| {
                let (name, value) = line.split_once(' ')?;
                Some((name.to_string(), value.parse().ok()?))
            })
            .collect();
        Self { counters }
    }
}

/// The monitor: deltas of chosen counters.
pub struct Chosen {
    root: PathBuf,
    before: Vec<(String, u64)>,
}

/// Reads the chosen counters for the first time.
pub fn start(root: &Path, names: &[String]) -> Result<Chosen, MonitorError> {
    let now = Vmstat::read(root)?;
    let before = names
        .iter()
        .map(|name| {
            let value = now.get(name).ok_or_else(|| MonitorError::NoRow {
                file: "/proc/vmstat",
                name: name.clone(),
            })?;
            Ok((name.clone(), value))
        })
        .collect::<Result<_, MonitorError>>()?;
    Ok(Chosen {
        root: root.to_path_buf(),
        before,
    })
}

impl Monitor for Chosen {
    fn finish(self: Box<Self>) -> Result<Seen, MonitorError> {
        let after = Vmstat::read(&self.root)?;
        let samples = self
            .before
            .into_iter()
            .filter_map(|(name, before)| {
                let after = after.get(&name)?;
                // Counters such as nr_free_pages also fall.
                Some(count(name, after as f64 - before as f64))
            })
            .collect();
        Ok(Seen {
            samples,
            ..Seen::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_by_name() {
        let vmstat = Vmstat::parse("nr_free_pages 42\nnuma_pte_updates 7\nbroken\n");
        assert_eq!(vmstat.get("numa_pte_updates"), Some(7));
        assert_eq!(vmstat.get("broken"), None);
    }
}
