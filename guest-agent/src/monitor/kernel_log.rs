//! Kernel messages while a workload runs.

use std::path::{Path, PathBuf};

use topolab_protocol::sample::Better;
use topolab_protocol::workload::KernelLog;

use super::{Monitor, MonitorError, Seen, count};
use crate::kmsg;

/// The monitor.
pub struct Log {
    reader: kmsg::Reader,
    wanted: Vec<(String, String)>,
}

/// Begins to listen.
pub fn start(root: &Path, wanted: &KernelLog) -> Result<Log, MonitorError> {
    let mut reader = kmsg::Reader::open(root).map_err(|source| MonitorError::Read {
        path: PathBuf::from("/dev/kmsg"),
        source,
    })?;
    // What was said before does not count.
    reader.records();
    Ok(Log {
        reader,
        wanted: wanted.count.clone().into_iter().collect(),
    })
}

impl Monitor for Log {
    fn finish(mut self: Box<Self>) -> Result<Seen, MonitorError> {
        let records = self.reader.records();
        let mut seen = Seen::default();
        for (metric, part) in &self.wanted {
            let hits = records
                .iter()
                .filter(|record| record.by_kernel() && record.text.contains(part))
                .count();
            let mut sample = count(metric.clone(), hits as f64);
            sample.better = Better::Lower;
            seen.samples.push(sample);
        }
        let said: Vec<String> = records
            .iter()
            .filter(|record| record.by_kernel())
            .map(|record| {
                let seconds = record.time_us as f64 / 1e6;
                format!("[{seconds:12.6}] {}", record.text)
            })
            .collect();
        if !said.is_empty() {
            seen.evidence
                .push(("kernel-log.txt".into(), said.join("\n") + "\n"));
        }
        Ok(seen)
    }
}
