//! Tracepoints and kernel functions, counted per CPU by histogram triggers.

use std::collections::BTreeMap;
use std::path::Path;

use topolab_protocol::sample::Better;
use topolab_protocol::workload::Counter;

use super::{Monitor, MonitorError, Seen, count, cpu_label};
use crate::trace::{Event, Instance};

/// The monitor.
pub struct Counters {
    instance: Instance,
    counted: Vec<(String, Better, Event)>,
}

/// Begins to count.
pub fn start(root: &Path, wanted: &BTreeMap<String, Counter>) -> Result<Counters, MonitorError> {
    let mut instance = Instance::new(root, "topolab-counters")?;
    let mut counted = Vec::new();
    for (name, counter) in wanted {
        let event = match (&counter.event, &counter.function) {
            (Some(event), None) => instance.event(event)?,
            (None, Some(function)) => instance.probe(function)?,
            _ => return Err(MonitorError::Counter { name: name.clone() }),
        };
        counted.push((name.clone(), counter.better, event, &counter.filter));
    }
    // Probes are all in place before the first begins to count, because
    // placing one stops the machine for a moment.
    let counted = counted
        .into_iter()
        .map(|(name, better, event, filter)| {
            instance.count(&event, "common_cpu", filter.as_deref())?;
            Ok((name, better, event))
        })
        .collect::<Result<_, MonitorError>>()?;
    Ok(Counters { instance, counted })
}

impl Monitor for Counters {
    fn finish(self: Box<Self>) -> Result<Seen, MonitorError> {
        let mut seen = Seen::default();
        for (name, better, event) in &self.counted {
            let cpus = self.instance.counted(event)?.per_cpu("common_cpu");
            // A run in which nothing happened has a value too: zero.
            let cpus = if cpus.is_empty() {
                BTreeMap::from([(0, 0)])
            } else {
                cpus
            };
            for (cpu, hits) in cpus {
                let mut sample = count(name.clone(), hits as f64);
                sample.better = *better;
                sample.labels = cpu_label(cpu);
                seen.samples.push(sample);
            }
        }
        Ok(seen)
    }
}
