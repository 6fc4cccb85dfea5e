//! `/proc/interrupts` and `/proc/softirqs`: rows of one counter per CPU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Monitor, MonitorError, Seen, count, cpu_label};

/// A file with a table.
pub struct Table {
    file: &'static str,
    shown: &'static str,
    prefix: &'static str,
}

/// Hardware interrupts and IPIs.
pub const INTERRUPTS: Table = Table {
    file: "proc/interrupts",
    shown: "/proc/interrupts",
    prefix: "irq_",
};

/// Software interrupts.
pub const SOFTIRQS: Table = Table {
    file: "proc/softirqs",
    shown: "/proc/softirqs",
    prefix: "softirq_",
};

type Row = BTreeMap<usize, u64>;

/// The monitor: deltas of chosen rows.
pub struct Rows {
    root: PathBuf,
    table: &'static Table,
    before: Vec<(String, Row)>,
}

/// Reads the chosen rows for the first time.
pub fn start(root: &Path, table: &'static Table, names: &[String]) -> Result<Rows, MonitorError> {
    let now = parse(&super::read(root, table.file)?);
    let before = names
        .iter()
        .map(|name| {
            let row = now.get(name).ok_or_else(|| MonitorError::NoRow {
                file: table.shown,
                name: format!("row {name}"),
            })?;
            Ok((name.clone(), row.clone()))
        })
        .collect::<Result<_, MonitorError>>()?;
    Ok(Rows {
        root: root.to_path_buf(),
        table,
        before,
    })
}

impl Monitor for Rows {
    fn finish(self: Box<Self>) -> Result<Seen, MonitorError> {
        let now = parse(&super::read(&self.root, self.table.file)?);
        let mut seen = Seen::default();
        for (name, before) in &self.before {
            let after = now.get(name);
            for (cpu, before) in before {
                // A CPU that went offline has no column any more.
                let Some(after) = after.and_then(|row| row.get(cpu)) else {
                    continue;
                };
                let metric = format!("{}{}", self.table.prefix, name.to_lowercase());
                let mut sample = count(metric, after.saturating_sub(*before) as f64);
                sample.labels = cpu_label(*cpu);
                seen.samples.push(sample);
            }
        }
        Ok(seen)
    }
}

/// The header names the CPUs; a row has a name, one number per CPU and a
/// description. Rows that are not per CPU (`ERR`, `MIS`) have fewer numbers.
fn parse(text: &str) -> BTreeMap<String, Row> {
    let mut lines = text.lines();
    let cpus: Vec<usize> = lines
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .filter_map(|name| name.strip_prefix("CPU")?.parse().ok())
        .collect();
    lines
        .filter_map(|line| {
            let (name, rest) = line.split_once(':')?;
            let values = rest.split_whitespace().map_while(|word| word.parse().ok());
            let row: Row = cpus.iter().copied().zip(values).collect();
            (row.len() == cpus.len()).then(|| (name.trim().to_string(), row))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_belong_to_the_cpus_of_the_header() {
        let text = "           CPU0       CPU2\n  1:          9          8   IO-APIC   1-edge      i8042\nRES:       1000       2000   Rescheduling interrupts\nERR:          0\n";
        let table = parse(text);
        assert_eq!(table["RES"], BTreeMap::from([(0, 1000), (2, 2000)]));
        assert_eq!(table["1"][&2], 8);
        assert!(!table.contains_key("ERR"));
    }
}
