//! What is watched around a workload.

pub mod vmstat;

use std::path::{Path, PathBuf};

use topolab_protocol::sample::{Better, MetricKind, Sample};
use topolab_protocol::workload::Monitors;

use vmstat::Vmstat;

/// Why a monitor cannot watch.
#[derive(Debug, thiserror::Error)]
pub enum MonitorError {
    /// A file it reads is not there.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel does not count this.
    #[error("/proc/vmstat has no counter {name}")]
    NoCounter {
        /// The counter.
        name: String,
    },
}

/// Monitors that are running.
pub struct Watch {
    root: PathBuf,
    vmstat: Vec<(String, u64)>,
}

impl Watch {
    /// Starts the monitors an experiment asks for.
    ///
    /// # Errors
    /// When the kernel lacks what one of them reads.
    pub fn start(root: &Path, monitors: &Monitors) -> Result<Self, MonitorError> {
        let mut counters = Vec::new();
        if !monitors.vmstat.is_empty() {
            let now = Vmstat::read(root)?;
            for name in &monitors.vmstat {
                let value = now
                    .get(name)
                    .ok_or_else(|| MonitorError::NoCounter { name: name.clone() })?;
                counters.push((name.clone(), value));
            }
        }
        Ok(Self {
            root: root.to_path_buf(),
            vmstat: counters,
        })
    }

    /// Stops them and returns what they saw.
    pub fn finish(self) -> Vec<Sample> {
        if self.vmstat.is_empty() {
            return Vec::new();
        }
        let Ok(after) = Vmstat::read(&self.root) else {
            return Vec::new();
        };
        self.vmstat
            .into_iter()
            .filter_map(|(name, before)| {
                let after = after.get(&name)?;
                Some(Sample {
                    metric: name,
                    // Counters such as nr_free_pages also fall.
                    value: after as f64 - before as f64,
                    kind: MetricKind::Count,
                    unit: "count".into(),
                    better: Better::Neither,
                    labels: Default::default(),
                })
            })
            .collect()
    }
}
