//! `/proc/vmstat`.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use super::MonitorError;

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
        let path = root.join("proc/vmstat");
        let text =
            fs::read_to_string(&path).map_err(|source| MonitorError::Read { path, source })?;
        Ok(Self::parse(&text))
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
