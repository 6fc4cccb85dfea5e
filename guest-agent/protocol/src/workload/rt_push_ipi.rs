//! `rt-push-ipi`: how often CPUs that could run a waiting real-time task ask
//! another CPU by IPI to push it to them.

use serde::{Deserialize, Serialize};

/// Parameters of `rt-push-ipi`. The defaults show the effect on an emulated
/// four-CPU machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct RtPushIpi {
    /// Intervals counted one after the other.
    pub intervals: u32,
    /// Length of each, seconds.
    pub interval_seconds: f64,
    /// The victim works with migration disabled (needs the module `mdspin`,
    /// named below `settings: modules`).
    pub migrate_disable: bool,
    /// The task that others would like to pull: lowest priority, allowed on the
    /// CPUs of both others.
    pub victim: RtTask,
    /// Mostly works, pinned where the victim then cannot run.
    pub busy: RtTask,
    /// Mostly sleeps; each time it does, its CPU looks for tasks to pull.
    pub sleeper: RtTask,
}

impl Default for RtPushIpi {
    fn default() -> Self {
        Self {
            intervals: 6,
            interval_seconds: 5.0,
            migrate_disable: true,
            victim: RtTask {
                cpus: "1-2".into(),
                priority: 10,
                work_us: 1_000_000.0,
                sleep_us: 100.0,
            },
            busy: RtTask {
                cpus: "1".into(),
                priority: 20,
                work_us: 20_000.0,
                sleep_us: 300.0,
            },
            sleeper: RtTask {
                cpus: "2".into(),
                priority: 15,
                work_us: 5.0,
                sleep_us: 50.0,
            },
        }
    }
}

/// A SCHED_FIFO task that works and sleeps in turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct RtTask {
    /// CPUs it may use, cpulist.
    pub cpus: String,
    /// Priority, 1 to 99.
    pub priority: u32,
    /// Microseconds of work before each sleep.
    pub work_us: f64,
    /// Microseconds of sleep.
    pub sleep_us: f64,
}
