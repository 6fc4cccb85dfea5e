//! What a histogram trigger shows in its `hist` file
//! (`Documentation/trace/histogram.rst`).

use std::collections::BTreeMap;

/// A histogram.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Its entries.
    pub entries: Vec<Entry>,
    /// Events that found no room.
    pub dropped: u64,
}

/// One entry.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Value by key; a symbol without its address.
    pub keys: BTreeMap<String, String>,
    /// How often.
    pub hits: u64,
}

impl Histogram {
    /// Reads the file; what is no entry is passed over.
    pub fn parse(text: &str) -> Self {
        let mut histogram = Self::default();
        for line in text.lines() {
            if let Some(entry) = entry(line) {
                histogram.entries.push(entry);
            } else if let Some(dropped) = line.trim().strip_prefix("Dropped:") {
                histogram.dropped += dropped.trim().parse::<u64>().unwrap_or(0);
            }
        }
        histogram
    }

    /// Hits by CPU, for entries whose key `key` is a CPU number.
    pub fn per_cpu(&self, key: &str) -> BTreeMap<usize, u64> {
        let mut cpus = BTreeMap::new();
        for entry in &self.entries {
            if let Some(cpu) = entry.keys.get(key).and_then(|cpu| cpu.parse().ok()) {
                *cpus.entry(cpu).or_default() += entry.hits;
            }
        }
        cpus
    }
}

fn entry(line: &str) -> Option<Entry> {
    let rest = line.trim_start().strip_prefix('{')?;
    let (keys, values) = rest.rsplit_once('}')?;
    let hits = values.trim().strip_prefix("hitcount:")?;
    let hits = hits.split_whitespace().next()?.parse().ok()?;
    let keys = keys
        .split(',')
        .filter_map(|pair| {
            let (key, value) = pair.split_once(':')?;
            // A symbol is shown as `[ffffffff81234567] name`.
            let value = value.rsplit(']').next().unwrap_or(value);
            Some((key.trim().to_string(), value.trim().to_string()))
        })
        .collect();
    Some(Entry { keys, hits })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_read_by_key() {
        let text = "# event histogram\n#\n# trigger info: hist:keys=function.sym,cpu:vals=hitcount:sort=hitcount:size=2048 [active]\n#\n\n\
            { function: [ffffffff811f2a10] lru_add_drain_per_cpu                       , cpu:          5 } hitcount:          3\n\
            { function: [ffffffff811f2a10] lru_add_drain_per_cpu                       , cpu:          6 } hitcount:          4\n\
            { function: [ffffffff81100000] vmstat_update                               , cpu:          5 } hitcount:         10\n\n\
            Totals:\n    Hits: 17\n    Entries: 3\n    Dropped: 2\n";
        let histogram = Histogram::parse(text);
        assert_eq!(histogram.entries.len(), 3);
        assert_eq!(
            histogram.entries[0].keys["function"],
            "lru_add_drain_per_cpu"
        );
        assert_eq!(histogram.per_cpu("cpu"), BTreeMap::from([(5, 13), (6, 4)]));
        assert_eq!(histogram.dropped, 2);
    }

    #[test]
    fn an_empty_histogram_counts_nothing() {
        let text = "# event histogram\n\nTotals:\n    Hits: 0\n    Entries: 0\n    Dropped: 0\n";
        assert_eq!(Histogram::parse(text), Histogram::default());
    }
}
