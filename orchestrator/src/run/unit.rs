//! A run as a self-contained unit: everything it needs goes in by name and
//! hash, everything it yields comes out or lies in its folder.

use std::{
    collections::BTreeMap,
    fs, io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use sha2::{Digest, Sha256};
use topolab_protocol::{
    message::ExitStatus,
    observed::Observed,
    sample::Sample,
    settings::{SettingRecord, Settings},
    workload::{Monitors, Workload},
};

use super::{
    attend::{Attendant, Expected},
    carried::Carrier,
    clocks::Limits,
    dialogue::{Dialogue, Request},
    engine::{self, Channels, Job, Left, Session},
    lab::{Bench, host_cpus},
    needs,
    pinning::{self, Pinning},
};
use crate::{
    agent_binary,
    guest::ssh,
    host::PinMode,
    image::{Reach, UserSpace, disk::overlay},
    kernel::{BuiltKernel, KernelConfig},
    outcome::Outcome,
    qemu::{
        acpi,
        args::{self, Accel, BOOT_WORDS, Chardev, Devices, Drive, Network},
        process::Launch,
    },
    store::record::{Environment, Trust},
    topology::{Topology, cmdline},
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
}

/// What the guest writes to its disk, in the run's folder; removed after the run.
const OVERLAY: &str = "overlay.qcow2";
/// ACPI table with the rankings of the CPUs, in the run's folder.
const RANKING_TABLE: &str = "rankings.aml";

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

/// Runs one guest. Its folder is made (mode 0700) and holds `console.log`,
/// `output.log`, `qemu.args` and `evidence/` afterwards. Never fails: what goes
/// wrong is an outcome.
pub async fn execute(
    unit: &RunUnit,
    bench: &Bench,
    folder: &Path,
    session: Session<'_>,
) -> RunResult {
    let mut environment = environment(unit, bench);
    let mut trust = trust(unit, bench);
    let lacks = match kernel_config(unit) {
        Some(config) => {
            let lacking = needs::lacking_for_disk(&config, &unit.image);
            if !lacking.is_empty() {
                let reason = format!(
                    "this kernel cannot boot a disk: it lacks {}",
                    lacking.join(", ")
                );
                return without_guest(environment, trust, Outcome::NotTestable { reason });
            }
            needs::lacking(&config, &unit.image)
        }
        None => Vec::new(),
    };
    let pinning = match pinning::prepare(&unit.topology, bench) {
        Ok(pinning) => pinning,
        Err(outcome) => return without_guest(environment, trust, outcome),
    };
    let mut notes = pinning.plan.notes.clone();
    if trust.timing && pinning.plan.mode == PinMode::None {
        trust.timing = false;
        trust.reasons.push("vCPUs are not pinned".into());
    }
    let job = match prepare(unit, bench, folder, trust.clone(), lacks, pinning) {
        Ok(job) => job,
        Err(error) => {
            let outcome = Outcome::LabFailed {
                part: "disk".into(),
                reason: format!("cannot prepare `{}`: {error}", folder.display()),
            };
            return without_guest(environment, trust, outcome);
        }
    };
    let left = engine::drive(job, session).await;
    // Nobody needs it any more; where it cannot be removed, it was never made.
    let _ = fs::remove_file(folder.join(OVERLAY));
    if let Some(observed) = &left.observed {
        environment.build_id.clone_from(&observed.build_id);
        environment
            .guest_kernel
            .clone_from(&observed.kernel_release);
        environment.cmdline.clone_from(&observed.cmdline);
    }
    if let Some(version) = &left.qemu_version {
        environment.qemu.clone_from(version);
    }
    let mut result = result(left, environment);
    notes.append(&mut result.notes);
    result.notes = notes;
    result
}

fn result(left: Left, environment: Environment) -> RunResult {
    let exit = left.dialogue.exit().cloned();
    let (samples, settings, mut notes) = left.dialogue.into_yield();
    notes.extend(left.notes);
    let completed = left.outcome == Outcome::Completed;
    RunResult {
        exit,
        samples,
        settings,
        phases: left.phases,
        hello_ms: left.hello_ms,
        wall_ms: left.wall_ms,
        environment,
        trust: left.trust,
        notes,
        observed: left.observed.map(|observed| *observed),
        console_tail: if completed {
            Vec::new()
        } else {
            left.console_tail
        },
        outcome: left.outcome,
    }
}

fn kernel_config(unit: &RunUnit) -> Option<KernelConfig> {
    let text = fs::read_to_string(unit.kernel.config.as_deref()?).ok()?;
    Some(KernelConfig::parse(&text))
}

/// The result of a run whose guest was never started.
fn without_guest(environment: Environment, trust: Trust, outcome: Outcome) -> RunResult {
    RunResult {
        outcome,
        exit: None,
        samples: Vec::new(),
        settings: Vec::new(),
        phases: Vec::new(),
        hello_ms: None,
        wall_ms: 0,
        environment,
        trust,
        notes: Vec::new(),
        observed: None,
        console_tail: Vec::new(),
    }
}

fn prepare<'a>(
    unit: &'a RunUnit,
    bench: &Bench,
    folder: &'a Path,
    trust: Trust,
    lacks: Vec<String>,
    pinning: Pinning,
) -> io::Result<Job<'a>> {
    make_private(folder)?;
    let channels = Channels::open()?;
    let append = command_line(unit);
    let mut acpi_tables = Vec::new();
    if let Some(table) = acpi::ssdt(&unit.topology) {
        fs::write(folder.join(RANKING_TABLE), table)?;
        acpi_tables.push(RANKING_TABLE.into());
    }
    let mut disk = None;
    if let Some(base) = &unit.image.disk {
        overlay::create(&bench.qemu, base, &folder.join(OVERLAY)).map_err(io::Error::other)?;
        disk = Some(Drive {
            path: OVERLAY.into(),
            format: "qcow2",
        });
    }
    let devices = Devices {
        kernel: unit.kernel.path.to_string_lossy().into_owned(),
        initrd: unit
            .image
            .initrd
            .as_ref()
            .map(|image| image.path.to_string_lossy().into_owned()),
        append: append.clone(),
        disk,
        acpi_tables,
        control: Chardev::Inherited(channels.control.number()),
        agent: match unit.image.reach {
            Reach::Port => Chardev::Inherited(channels.agent.number()),
            Reach::Ssh(_) => Chardev::Null,
        },
        network: match unit.image.reach {
            Reach::Port => Network::None,
            Reach::Ssh(_) => Network::Forward(ssh::SSH_PORT),
        },
        console: Chardev::Inherited(channels.console.number()),
        ..Devices::default()
    };
    let mut place = bench.args.clone();
    pinning.bind_memory(&mut place);
    let mut args = args::build(&unit.topology, &place, &devices);
    // The virtual CPUs wait until their threads are where they belong.
    args.push("-S".into());
    fs::write(folder.join("qemu.args"), args.join("\n") + "\n")?;
    let emulated = matches!(bench.args.accel, Accel::Tcg { .. });
    let limits = if emulated {
        unit.limits.emulated()
    } else {
        unit.limits
    };
    let sets = unit.topology.sets.iter();
    let request = Request {
        run: unit.name.clone(),
        settings: unit.settings.clone(),
        workload: unit.workload.clone(),
        monitors: unit.monitors.clone(),
        sets: sets
            .map(|(name, cpus)| (name.clone(), cpus.to_string()))
            .collect(),
        seed: unit.seed,
    };
    let expected = Expected {
        build_id: unit.kernel.build_id.clone(),
        release: unit.kernel.release.clone(),
        topology: Some(unit.topology.clone()),
        words: cmdline::words(&append)
            .into_iter()
            .map(String::from)
            .collect(),
    };
    Ok(Job {
        launch: Launch {
            program: bench.qemu.clone(),
            args,
            folder: folder.into(),
        },
        channels,
        carrier: carrier(unit, limits),
        folder,
        limits,
        dialogue: Dialogue::new(request),
        attendant: Attendant::new(bench.root.clone(), expected, trust, Some(pinning)),
        emulated,
        allowed: &unit.allowed_splats,
        lacks,
    })
}

/// Brings the agent into a guest whose image does not have it.
fn carrier(unit: &RunUnit, limits: Limits) -> Option<Carrier> {
    let Reach::Ssh(login) = &unit.image.reach else {
        return None;
    };
    Some(Carrier {
        login: login.clone(),
        agent: agent_binary::bytes().to_vec(),
        // It knows more about what is wrong than the clock of the boot does.
        limit: limits.boot.saturating_sub(Duration::from_secs(1)),
    })
}

/// Makes a folder that only its owner can look into.
fn make_private(folder: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o700))
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

fn environment(unit: &RunUnit, bench: &Bench) -> Environment {
    Environment {
        host_kernel: bench.identity.kernel.clone(),
        host_cpu: bench.identity.cpu.clone(),
        microcode: bench.identity.microcode.clone(),
        host: bench.identity.host.clone(),
        qemu: String::new(),
        accel: bench.args.accel.to_string(),
        cpu_model: args::cpu(&unit.topology, &bench.args),
        agent: unit.agent_sha256.clone(),
        kernel_image: unit.kernel.sha256.clone(),
        build_id: String::new(),
        guest_kernel: String::new(),
        kernel_config: unit.kernel.config_sha256.clone().unwrap_or_default(),
        cmdline: command_line(unit),
        image: unit.image.sha256.clone(),
        more: BTreeMap::new(),
    }
}

/// What is known about trust before a guest runs.
fn trust(unit: &RunUnit, bench: &Bench) -> Trust {
    let mut reasons = Vec::new();
    if let Accel::Tcg { .. } = bench.args.accel {
        reasons.push("the guest is emulated".into());
    }
    let host = host_cpus();
    let vcpus = unit.topology.vcpus() as usize;
    if vcpus > host {
        reasons.push(format!("{vcpus} vCPUs on {host} host CPUs"));
    }
    Trust {
        timing: reasons.is_empty(),
        reasons,
        ..Trust::default()
    }
}
