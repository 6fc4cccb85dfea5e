//! A trace kept as a file in the guest, for the host to fetch.

use std::path::{Path, PathBuf};

use topolab_protocol::workload::RawTrace;

use super::{Monitor, MonitorError, Seen, count};
use crate::trace::{Instance, TraceError};

/// Where the trace is written in the guest.
const FILE: &str = "/run/topolab/trace.txt";

/// The monitor.
pub struct Recorder {
    instance: Instance,
}

/// Begins to record.
pub fn start(root: &Path, wanted: &RawTrace) -> Result<Recorder, MonitorError> {
    let instance = Instance::new(root, "topolab-trace")?;
    instance.buffer_kb(wanted.buffer_kb)?;
    for event in &wanted.events {
        let event = instance.event(event)?;
        instance.record(&event, None)?;
    }
    Ok(Recorder { instance })
}

impl Monitor for Recorder {
    fn finish(self: Box<Self>) -> Result<Seen, MonitorError> {
        self.instance.recording(false)?;
        let text = self.instance.text()?;
        let path = PathBuf::from(FILE);
        path.parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&path, text))
            .map_err(|source| TraceError::Io {
                action: "write",
                path: path.clone(),
                source,
            })?;
        Ok(Seen {
            samples: vec![count("trace_events_lost", self.instance.lost() as f64)],
            artefacts: vec![path],
            ..Seen::default()
        })
    }
}
