//! What is watched around a workload.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::sample::Better;

/// Monitors of an experiment. Each says what it cost, as samples of
/// `monitor_cost` with the label `monitor`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Monitors {
    /// Deltas of these `/proc/vmstat` counters, as count metrics.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vmstat: Vec<String>,
    /// Deltas of these rows of `/proc/interrupts` (`LOC`, `RES`, `24`, …) per CPU,
    /// as `irq_NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<String>,
    /// Deltas of these rows of `/proc/softirqs` (`TIMER`, `SCHED`, …) per CPU, as
    /// `softirq_NAME`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub softirqs: Vec<String>,
    /// Deltas of run time, run delay and time slices per CPU from
    /// `/proc/schedstat`, as `sched_run_time`, `sched_run_delay`, `sched_slices`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub schedstat: bool,
    /// Stall times of these resources (`cpu`, `memory`, `io`) from
    /// `/proc/pressure`, as `pressure_NAME_some` and `_full`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pressure: Vec<String>,
    /// Tracepoints and kernel functions to count per CPU, by metric name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<String, Counter>,
    /// Watches named tasks for uninterruptible sleep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Blocked>,
    /// Records a trace, kept beside the samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<RawTrace>,
    /// Counts kernel messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_log: Option<KernelLog>,
}

/// Something the kernel does, counted per CPU by a histogram trigger.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Counter {
    /// A tracepoint, `GROUP:NAME`, such as `sched:sched_migrate_task`.
    pub event: Option<String>,
    /// A kernel function, counted when it is entered; instead of `event`.
    pub function: Option<String>,
    /// Event filter as tracefs takes it, such as `orig_cpu < 4`.
    pub filter: Option<String>,
    /// Which direction is good news.
    pub better: Better,
}

impl Default for Counter {
    fn default() -> Self {
        Self {
            event: None,
            function: None,
            filter: None,
            better: Better::Neither,
        }
    }
}

/// Tasks watched for uninterruptible sleep (state D).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Blocked {
    /// Names (`comm`); `*` at the end stands for any rest.
    pub tasks: Vec<String>,
    /// Between two looks, milliseconds.
    pub every_ms: f64,
    /// A task blocked longer than this has its stack kept, milliseconds.
    pub stack_after_ms: f64,
}

impl Default for Blocked {
    fn default() -> Self {
        Self {
            tasks: Vec::new(),
            every_ms: 20.0,
            stack_after_ms: 1000.0,
        }
    }
}

/// A trace kept as a file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct RawTrace {
    /// Tracepoints, `GROUP:NAME` or a whole `GROUP`.
    pub events: Vec<String>,
    /// Buffer per CPU, KiB; the oldest events are lost when it is full.
    pub buffer_kb: u32,
}

impl Default for RawTrace {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            buffer_kb: 1024,
        }
    }
}

/// Kernel messages, counted while the workload runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct KernelLog {
    /// Metric name to a part of the message, such as
    /// `hung_tasks: blocked for more than`.
    pub count: BTreeMap<String, String>,
}
