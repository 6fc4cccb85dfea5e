//! `itmt-stall`: whether a woken task waits behind another one on the preferred
//! CPU while CPUs it may use are idle.

use serde::{Deserialize, Serialize};

/// Parameters of `itmt-stall`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct ItmtStall {
    /// Threads that each work a burst and wait to be woken for the next.
    pub workers: u32,
    /// CPUs the workers may use, cpulist; absent: the topology's set `preferred`,
    /// or all but the waker's.
    pub cpus: Option<String>,
    /// CPU of the thread that wakes them; it polls and never sleeps.
    pub waker_cpu: u32,
    /// CPU time of a burst, microseconds.
    pub burst_us: f64,
    /// Pause between the end of a burst and the wakeup, microseconds.
    pub gap_us: f64,
    /// How long, seconds.
    pub seconds: f64,
    /// Threads beside the workers, on the same CPUs, that work now and then and
    /// so give the balancer something to do.
    pub disturbers: u32,
    /// CPU time of each of their bursts, microseconds.
    pub disturb_us: f64,
    /// Time between two of them, microseconds.
    pub disturb_every_us: f64,
}

impl Default for ItmtStall {
    fn default() -> Self {
        Self {
            workers: 2,
            cpus: None,
            waker_cpu: 2,
            burst_us: 1000.0,
            gap_us: 10.0,
            seconds: 20.0,
            disturbers: 0,
            disturb_us: 200.0,
            disturb_every_us: 5000.0,
        }
    }
}
