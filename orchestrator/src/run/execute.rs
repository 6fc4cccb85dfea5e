//! Makes a run of the engine from a unit and a bench, and a result from what it
//! leaves.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{DirBuilderExt, PermissionsExt},
    },
    path::Path,
    time::Duration,
};

use super::{
    attend::{Attendant, Expected},
    carried::Carrier,
    clocks::Limits,
    dialogue::{Dialogue, Request},
    engine::{self, Channels, GDB_SOCKET, Job, Left, Session},
    entrance::Entrance,
    event::RunEvent,
    fitting,
    lab::{Bench, host_cpus},
    needs,
    pinning::{self, Pinning},
    unit::{RunResult, RunUnit, command_line},
};
use crate::{
    agent_binary,
    guest::ssh,
    host::PinMode,
    image::{Reach, disk::overlay, ready::SHARE},
    kernel::KernelConfig,
    outcome::Outcome,
    qemu::{
        acpi,
        args::{self, Accel, Chardev, Devices, Drive, Network, Share},
        process::Launch,
    },
    store::record::{Environment, Trust},
    topology::cmdline,
};

/// What the guest writes to its disk, in the run's folder; removed after the run.
const OVERLAY: &str = "overlay.qcow2";
/// ACPI table with the rankings of the CPUs, in the run's folder.
const RANKING_TABLE: &str = "rankings.aml";

/// Runs one guest. Its folder is made (mode 0700) and holds `console.log`,
/// `output.log`, `qemu.args` and `evidence/` afterwards. Never fails: what goes
/// wrong is an outcome.
pub async fn execute(
    unit: &RunUnit,
    bench: &Bench,
    folder: &Path,
    session: Session<'_>,
) -> RunResult {
    execute_as(unit, bench, folder, session, Way::Boot).await
}

/// How a guest begins, and to what end. The file is one in which guests are
/// saved, open for what is done with it.
#[derive(Debug)]
pub(super) enum Way {
    /// It boots and runs the workload.
    Boot,
    /// It boots, is proved, and is saved.
    Save(File),
    /// It is restored, proved again, and runs the workload.
    Restore(File),
}

pub(super) async fn execute_as(
    unit: &RunUnit,
    bench: &Bench,
    folder: &Path,
    session: Session<'_>,
    way: Way,
) -> RunResult {
    let mut environment = environment(unit, bench);
    let mut trust = trust(unit, bench);
    let config = kernel_config(unit);
    let fitting = match fitting::fit(unit, bench, config.as_ref()) {
        Ok(fitting) => fitting,
        Err(outcome) => return RunResult::without_guest(unit, bench, outcome),
    };
    let unit = &fitting.unit;
    let mut notes = fitting.notes.clone();
    if let Some(config) = &config {
        if let Some(outcome) = cannot_come(config, unit) {
            return RunResult::without_guest(unit, bench, outcome);
        }
        let silent = needs::lacking_for_console(config);
        if !silent.is_empty() {
            let options = silent.join(", ");
            let note = format!("the console stays empty, whatever happens: kernel lacks {options}");
            (session.events)(RunEvent::Note(note.clone()));
            notes.push(note);
        }
    }
    let pinning = match pinning::prepare(&unit.topology, bench) {
        Ok(pinning) => pinning,
        Err(outcome) => return RunResult::without_guest(unit, bench, outcome),
    };
    notes.extend(pinning.plan.notes.iter().cloned());
    if trust.timing && pinning.plan.mode == PinMode::None {
        trust.timing = false;
        trust.reasons.push("vCPUs are not pinned".into());
    }
    let job = match prepare(unit, bench, folder, trust.clone(), pinning, way) {
        Ok(job) => job,
        Err(error) => {
            let outcome = Outcome::LabFailed {
                part: "disk".into(),
                reason: format!("cannot prepare `{}`: {error}", folder.display()),
            };
            return RunResult::without_guest(unit, bench, outcome);
        }
    };
    let left = engine::drive(job, session).await;
    Entrance::remove(folder);
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

impl RunResult {
    /// The result of a run whose guest was never started.
    pub(super) fn without_guest(unit: &RunUnit, bench: &Bench, outcome: Outcome) -> Self {
        Self {
            outcome,
            exit: None,
            samples: Vec::new(),
            settings: Vec::new(),
            phases: Vec::new(),
            hello_ms: None,
            wall_ms: 0,
            environment: environment(unit, bench),
            trust: trust(unit, bench),
            notes: Vec::new(),
            observed: None,
            console_tail: Vec::new(),
        }
    }
}

fn prepare<'a>(
    unit: &'a RunUnit,
    bench: &Bench,
    folder: &'a Path,
    trust: Trust,
    pinning: Pinning,
    way: Way,
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
    let mut devices = Devices {
        kernel: unit.kernel.path.to_string_lossy().into_owned(),
        initrd: unit
            .image
            .initrd
            .as_ref()
            .map(|image| image.path.to_string_lossy().into_owned()),
        append: append.clone(),
        disk,
        share: unit.image.share.as_ref().map(|folder| Share {
            folder: folder.to_string_lossy().into_owned(),
            tag: SHARE,
        }),
        acpi_tables,
        control: Chardev::Inherited(channels.control.number()),
        agent: match &unit.image.reach {
            Reach::Port => Chardev::Inherited(channels.agent.number()),
            Reach::Ssh(_) => Chardev::Null,
        },
        network: match unit.image.ssh() {
            None => Network::None,
            Some(_) => Network::Forward(ssh::SSH_PORT),
        },
        console: Chardev::Inherited(channels.console.number()),
        ..Devices::default()
    };
    let mut dialogue = Dialogue::new(request(unit));
    let mut files = Vec::new();
    let mut save = None;
    match way {
        Way::Boot => {}
        Way::Save(file) => save = Some(file),
        Way::Restore(file) => {
            let file = rustix::io::fcntl_dupfd_cloexec(&file, 100)?;
            devices.incoming = Some(format!("fd:{}", file.as_raw_fd()));
            dialogue.expect_restored();
            files.push(file);
        }
    }
    let mut place = bench.args.clone();
    pinning.bind_memory(&mut place);
    let mut args = args::build(&unit.topology, &place, &devices);
    // The virtual CPUs wait until their threads are where they belong.
    args.push("-S".into());
    if unit.inspect.stops_at_panic() {
        // In place of what [`args::build`] says: nothing is lost by a reset.
        args.extend(["-action", "panic=pause"].map(String::from));
    }
    if unit.inspect.gdb {
        let stub = format!("unix:{GDB_SOCKET},server=on,wait=off");
        args.extend(["-gdb".into(), stub]);
    }
    fs::write(folder.join("qemu.args"), args.join("\n") + "\n")?;
    let emulated = matches!(bench.args.accel, Accel::Tcg { .. });
    let limits = if emulated {
        unit.limits.emulated()
    } else {
        unit.limits
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
        login: unit.image.ssh().cloned(),
        carrier: carrier(unit, limits),
        folder,
        limits,
        dialogue,
        files,
        save,
        inspect: unit.inspect,
        attendant: Attendant::new(bench.root.clone(), expected, trust, Some(pinning)),
        emulated,
        allowed: &unit.allowed_splats,
    })
}

/// What the kernel's configuration says of a guest that need not be started.
fn cannot_come(config: &KernelConfig, unit: &RunUnit) -> Option<Outcome> {
    let for_disk = needs::lacking_for_disk(config, &unit.image);
    if !for_disk.is_empty() {
        let reason = format!(
            "this kernel cannot mount the image's root: it lacks {}",
            for_disk.join(", ")
        );
        return Some(Outcome::NotTestable { reason });
    }
    let lacking = needs::lacking(config, &unit.image);
    (!lacking.is_empty()).then(|| Outcome::BootFailed {
        reason: format!("agent never came: kernel lacks {}", lacking.join(", ")),
    })
}

/// What is asked of the guest.
fn request(unit: &RunUnit) -> Request {
    let sets = unit.topology.sets.iter();
    Request {
        run: unit.name.clone(),
        settings: unit.settings.clone(),
        workload: unit.workload.clone(),
        monitors: unit.monitors.clone(),
        sets: sets
            .map(|(name, cpus)| (name.clone(), cpus.to_string()))
            .collect(),
        seed: unit.seed,
    }
}

/// Brings the agent into a guest whose image does not have it.
fn carrier(unit: &RunUnit, limits: Limits) -> Option<Carrier> {
    let Reach::Ssh(_) = &unit.image.reach else {
        return None;
    };
    Some(Carrier {
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
    if unit.image.share.is_some() {
        reasons.push("the guest's files are those of the host, over 9p".into());
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
