//! A run as a self-contained unit: everything it needs goes in by name and
//! hash, everything it yields comes out or lies in its folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use topolab_protocol::{
    message::ExitStatus,
    observed::Observed,
    sample::Sample,
    settings::{SettingRecord, Settings},
    workload::{Monitors, Workload},
};

use super::{clocks::Limits, engine::Inspect};
use crate::{
    image::UserSpace,
    kernel::BuiltKernel,
    outcome::Outcome,
    qemu::args::BOOT_WORDS,
    store::record::{Environment, Trust},
    topology::Topology,
};

/// A kernel as a run needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelImage {
    /// The bootable image.
    pub path: PathBuf,
    /// SHA-256 of it, lower-case hex.
    pub sha256: String,
    /// GNU build id, when it is known; the guest must report the same.
    pub build_id: Option<String>,
    /// `uname -r`, when it is known; the guest must report the same.
    pub release: Option<String>,
    /// Its final configuration, when there is one.
    pub config: Option<PathBuf>,
    /// SHA-256 of the configuration.
    pub config_sha256: Option<String>,
}

impl KernelImage {
    /// A bootable image about which nothing else is known.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let bytes = fs::read(path)?;
        Ok(Self {
            path: std::path::absolute(path)?,
            sha256: format!("{:x}", Sha256::digest(bytes)),
            ..Self::default()
        })
    }
}

impl From<&BuiltKernel> for KernelImage {
    fn from(built: &BuiltKernel) -> Self {
        Self {
            path: built.image.clone(),
            sha256: built.image_sha256.clone(),
            build_id: built.build_id.clone(),
            release: Some(built.release.clone()),
            config: built.config.clone(),
            config_sha256: built.config_sha256.clone(),
        }
    }
}

/// One run.
#[derive(Debug, Clone)]
pub struct RunUnit {
    /// Name of the run; the agent echoes it.
    pub name: String,
    /// The machine.
    pub topology: Topology,
    /// The kernel.
    pub kernel: KernelImage,
    /// The guest's user space.
    pub image: UserSpace,
    /// SHA-256 of the agent in it.
    pub agent_sha256: String,
    /// Words for the kernel's command line after the topology's own.
    pub append: String,
    /// What is written in the guest before the workload.
    pub settings: Settings,
    /// What runs. Nothing: the guest is booted, looked at and powered off.
    pub workload: Option<Workload>,
    /// What is watched around it.
    pub monitors: Monitors,
    /// How long things may take; the boot is stretched under emulation.
    pub limits: Limits,
    /// Seed for whatever the workload draws.
    pub seed: u64,
    /// Complaints of the kernel that are known, as parts of their titles.
    pub allowed_splats: Vec<String>,
    /// How closely the guest is looked at.
    pub inspect: Inspect,
}

/// What a run yields.
#[derive(Debug, Clone, PartialEq)]
pub struct RunResult {
    /// How it ended.
    pub outcome: Outcome,
    /// How the workload ended, when it did.
    pub exit: Option<ExitStatus>,
    /// What was measured.
    pub samples: Vec<Sample>,
    /// What was set.
    pub settings: Vec<SettingRecord>,
    /// Phases in order: name and milliseconds.
    pub phases: Vec<(String, u64)>,
    /// Start of QEMU to hello, milliseconds.
    pub hello_ms: Option<u64>,
    /// Start of QEMU to its end, milliseconds.
    pub wall_ms: u64,
    /// What the run ran on.
    pub environment: Environment,
    /// Whether durations may be judged.
    pub trust: Trust,
    /// Remarks.
    pub notes: Vec<String>,
    /// What the guest said it sees.
    pub observed: Option<Observed>,
    /// Last console lines; empty for a completed run.
    pub console_tail: Vec<String>,
}

impl RunResult {
    /// The result of a run that was lost before it could say anything.
    pub fn nowhere(outcome: Outcome) -> Self {
        Self {
            outcome,
            exit: None,
            samples: Vec::new(),
            settings: Vec::new(),
            phases: Vec::new(),
            hello_ms: None,
            wall_ms: 0,
            environment: Environment::default(),
            trust: Trust::default(),
            notes: Vec::new(),
            observed: None,
            console_tail: Vec::new(),
        }
    }
}

/// Words every guest gets, then the image's, the topology's and the cell's.
pub fn command_line(unit: &RunUnit) -> String {
    let parts = [
        BOOT_WORDS,
        &unit.image.words,
        &unit.topology.cmdline,
        &unit.append,
    ];
    let parts = parts
        .iter()
        .map(|part| part.trim())
        .filter(|part| !part.is_empty());
    parts.collect::<Vec<_>>().join(" ")
}
