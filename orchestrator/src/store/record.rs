//! The record of one run, `runs/NNNNN-…/run.json`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use topolab_protocol::{sample::Sample, settings::SettingRecord};

use crate::{outcome::Outcome, plan::Cell};

/// Version of the results folder. A folder of another version is refused by name.
pub const FORMAT: u32 = 1;

/// Everything a run yielded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunRecord {
    /// [`FORMAT`] at the time of writing.
    pub format: u32,
    /// Place in the campaign's order, from 0.
    pub index: usize,
    /// Which cell.
    pub cell: Cell,
    /// Which round, from 0.
    pub round: u32,
    /// Which try, from 0.
    pub attempt: u32,
    /// Runs restored from one saved guest share its boot.
    pub boot: String,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began, RFC 3339 in UTC.
    pub started: String,
    /// Milliseconds from the start of QEMU to its end.
    pub wall_ms: u64,
    /// Milliseconds from the start of QEMU to the agent's hello.
    pub hello_ms: Option<u64>,
    /// Phases in order: name and milliseconds.
    pub phases: Vec<(String, u64)>,
    /// What the workload and the monitors yielded, in order of arrival.
    pub samples: Vec<Sample>,
    /// What was set in the guest.
    pub settings: Vec<SettingRecord>,
    /// What the run ran on.
    pub environment: Environment,
    /// Whether durations of this run may be judged.
    pub trust: Trust,
    /// Remarks.
    pub notes: Vec<String>,
    /// Last console lines when the run did not complete.
    pub console_tail: Vec<String>,
}

/// What a run ran on. Two runs may be compared when these agree, except in
/// what the experiment varies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// `uname -r` of the host.
    pub host_kernel: String,
    /// CPU model of the host.
    pub host_cpu: String,
    /// Microcode revision of the host, when it is known.
    pub microcode: String,
    /// Name of the host.
    pub host: String,
    /// QEMU's version.
    pub qemu: String,
    /// `kvm` or `tcg`, with options that matter (`tcg,thread=multi`).
    pub accel: String,
    /// Guest CPU model.
    pub cpu_model: String,
    /// SHA-256 of the agent.
    pub agent: String,
    /// SHA-256 of the kernel image.
    pub kernel_image: String,
    /// Build id the guest's kernel reported.
    pub build_id: String,
    /// `uname -r` of the guest.
    pub guest_kernel: String,
    /// SHA-256 of the kernel configuration.
    pub kernel_config: String,
    /// Whole command line of the guest.
    pub cmdline: String,
    /// SHA-256 of the initramfs or base image.
    pub image: String,
    /// Anything else, by name.
    pub more: BTreeMap<String, String>,
}

/// Whether durations may be judged, and what was measured to tell.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trust {
    /// Durations and rates may be judged.
    pub timing: bool,
    /// Why not; empty when they may.
    pub reasons: Vec<String>,
    /// Run delay of the vCPU threads during the workload, milliseconds, one per
    /// vCPU (`/proc/PID/task/TID/schedstat`, second field).
    pub run_delay_ms: Vec<f64>,
    /// Share of the window (0 to 1) in which some host task waited for a CPU
    /// (`/proc/pressure/cpu`, `some`).
    pub cpu_pressure: Option<f64>,
    /// Threads and the host CPUs they were verified to be bound to.
    pub pins: BTreeMap<String, String>,
}
