//! Guests, agents and QEMUs that go wrong, each with the class it must yield.
//! A fake QEMU plays them, so that clocks can be short.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use topolab::{
    host::{Identity, Inventory, LeaseError, Leases},
    image::Image,
    qemu::args::{self, Accel, Capabilities, TcgThread},
    run::{
        Bench, Cancel, Inspect, KernelImage, Limits, Overcommit, PinWish, RunEvent, RunResult,
        RunUnit, Session, Stop, execute,
    },
    topology::{CpuList, PinPolicy, Topology},
};
use topolab_protocol::{
    settings::Settings,
    workload::{Command, Monitors, Workload},
};

fn fake_qemu() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let folder = test.parent().and_then(Path::parent).unwrap();
    let fake = folder.join("examples/fake-qemu");
    assert!(
        fake.exists(),
        "build it first: cargo build -p topolab --examples"
    );
    fake
}

fn bench() -> Bench {
    Bench {
        qemu: fake_qemu(),
        args: args::Bench {
            accel: Accel::Tcg {
                thread: TcgThread::Single,
            },
            capabilities: Capabilities::default(),
            cpu_model: None,
            host_nodes: Vec::new(),
        },
        root: "/".into(),
        identity: Identity::default(),
        pins: PinWish::default(),
        fallback: None,
    }
}

fn unit(way: &str) -> RunUnit {
    RunUnit {
        name: "run-1".into(),
        topology: Topology::from_text("t", "name: t\ncpus: {cores: 1}\nmemory: 512M\n").unwrap(),
        kernel: KernelImage::default(),
        image: Image {
            path: "/image".into(),
            sha256: String::new(),
            bytes: 0,
        }
        .into(),
        agent_sha256: String::new(),
        append: format!("fake={way}"),
        settings: Settings::default(),
        workload: Some(Workload::Command(Command::default())),
        monitors: Monitors::default(),
        // Emulation stretches the boot by 4.
        limits: Limits {
            boot: Duration::from_millis(500),
            no_progress: Duration::from_secs(2),
            phase: Duration::from_secs(5),
            total: Duration::from_secs(30),
        },
        seed: 1,
        allowed_splats: Vec::new(),
        inspect: Inspect::default(),
    }
}

/// A run in a folder that is gone afterwards.
struct Ran {
    folder: tempfile::TempDir,
    result: RunResult,
    events: Vec<RunEvent>,
    took: Duration,
}

impl Ran {
    fn log(&self, name: &str) -> Vec<u8> {
        fs::read(self.folder.path().join("run").join(name)).unwrap()
    }

    /// `class: detail`
    fn verdict(&self) -> String {
        let outcome = &self.result.outcome;
        format!("{}: {}", outcome.class(), outcome.detail())
    }
}

async fn run_unit(unit: RunUnit, cancel: Cancel) -> Ran {
    run_on(unit, &bench(), cancel).await
}

async fn run_on(unit: RunUnit, bench: &Bench, cancel: Cancel) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let mut events = Vec::new();
    let mut hear = |event| events.push(event);
    let session = Session {
        events: &mut hear,
        cancel,
        typed: None,
    };
    let started = Instant::now();
    let result = execute(&unit, bench, &folder.path().join("run"), session).await;
    let took = started.elapsed();
    let pid = events.iter().find_map(|event| match event {
        RunEvent::Started { pid } => Some(*pid),
        _ => None,
    });
    if let Some(pid) = pid {
        let state = fs::read_to_string(format!("/proc/{pid}/stat"));
        assert!(state.is_err(), "QEMU {pid} is still there: {state:?}");
    }
    Ran {
        folder,
        result,
        events,
        took,
    }
}

async fn run(way: &str) -> Ran {
    run_unit(unit(way), Cancel::never()).await
}

#[tokio::test]
async fn a_good_run_completes_and_keeps_its_logs_private() {
    let ran = run("good").await;
    assert_eq!(ran.verdict(), "completed: ");
    assert_eq!(ran.result.samples.len(), 1);
    assert_eq!(ran.result.samples[0].value, 42.0);
    assert_eq!(ran.result.environment.build_id, "f00d");
    let phases: Vec<&str> = ran.result.phases.iter().map(|(name, _)| &**name).collect();
    assert_eq!(
        phases,
        ["boot", "prepare", "command", "measure", "power-off"]
    );
    assert!(
        String::from_utf8(ran.log("console.log"))
            .unwrap()
            .contains("Linux version")
    );
    let folder = ran.folder.path().join("run");
    let mode = fs::metadata(folder).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    assert!(matches!(ran.events[0], RunEvent::Started { .. }));
}

/// Way of the fake, what it is, the verdict.
const CATALOGUE: [(&str, &str); 29] = [
    (
        "exits-at-once",
        "lab-failed: qemu: QEMU ended by itself (exit code 1): qemu-system-x86_64: -cpu nonsense: unable to find CPU model 'nonsense'",
    ),
    (
        "never-greets",
        "lab-failed: qemu: QEMU did not answer `qmp_capabilities` within 10 s",
    ),
    (
        "silent-boot",
        "boot-failed: no hello from the agent within 2 s",
    ),
    (
        "endless-boot",
        "boot-failed: no hello from the agent within 2 s",
    ),
    (
        "boot-panic",
        "boot-failed: panic: Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(N,N)",
    ),
    (
        "boot-reset",
        "boot-failed: the guest reset itself before the agent said hello (reboot or triple fault)",
    ),
    (
        "panic",
        "guest-panic: Kernel panic - not syncing: sysrq triggered crash",
    ),
    (
        "oops-panic",
        "guest-panic: BUG: kernel NULL pointer dereference, address: ADDR in do_thing",
    ),
    (
        "oops",
        "guest-splat: BUG: kernel NULL pointer dereference, address: ADDR in do_thing",
    ),
    (
        "int3",
        "lab-failed: emulator: the emulator broke a healthy kernel (Oops: int3: N [#N] PREEMPT SMP in foo); `tcg,thread=single` does not",
    ),
    ("forged", "completed: "),
    ("forged-panic", "completed: "),
    ("forged-splat", "completed: "),
    (
        "crashes",
        "lab-failed: qemu: QEMU ended by itself (signal 6): it wrote nothing",
    ),
    (
        "killed",
        "lab-failed: qemu: QEMU ended by itself (signal 9): it wrote nothing",
    ),
    (
        "stopped",
        "guest-hang: measure: nothing heard from the agent for 2 s",
    ),
    (
        "power-off",
        "workload-failed: the guest powered itself off before the workload ended",
    ),
    (
        "reset",
        "guest-panic: reset without a message (reboot or triple fault)",
    ),
    (
        "port-closes",
        "lab-failed: agent: the agent closed its port while the guest ran (was it killed?)",
    ),
    (
        "silent",
        "guest-hang: measure: nothing heard from the agent for 2 s",
    ),
    (
        "endless-console",
        "guest-hang: measure: nothing heard from the agent for 2 s",
    ),
    (
        "endless-work",
        "guest-hang: measure: the phase took more than 5 s",
    ),
    ("floods-stderr", "completed: "),
    ("garbage", "completed: "),
    ("giant-length", "completed: "),
    (
        "unknown-words",
        "lab-failed: agent: the agent said something unknown: unknown variant `surrender`",
    ),
    (
        "other-run",
        "lab-failed: agent: the agent ended run `another`, asked was `run-1`",
    ),
    (
        "wrong-count",
        "lab-failed: agent: the agent sent 7 samples, 0 arrived",
    ),
    ("not-testable", "not-testable: no ITMT here"),
];

#[tokio::test]
async fn every_trouble_has_its_class_within_its_clock() {
    let mut wrong = Vec::new();
    for (way, expected) in CATALOGUE {
        let ran = run(way).await;
        let verdict = ran.verdict();
        let quick = ran.took < Duration::from_secs(25);
        if !verdict.starts_with(expected) || !quick {
            wrong.push(format!("{way}: {verdict} after {:?}", ran.took));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[tokio::test]
async fn a_qemu_that_ignores_everything_is_killed() {
    let ran = run("ignores-quit").await;
    assert_eq!(ran.verdict(), "completed: ");
    assert!(
        ran.result
            .notes
            .iter()
            .any(|note| note.contains("did not power off"))
    );
}

#[tokio::test]
async fn the_first_ctrl_c_ends_the_guest_and_says_interrupted() {
    let (stop, cancel) = Stop::new();
    let running = run_unit(unit("silent"), cancel);
    let stopping = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        stop.stop();
    };
    let (ran, ()) = tokio::join!(running, stopping);
    assert_eq!(
        ran.verdict(),
        "lab-failed: interrupted: stopped by the user"
    );
    assert!(ran.took < Duration::from_secs(5), "{:?}", ran.took);
}

#[tokio::test]
async fn a_missing_qemu_and_a_folder_that_cannot_be_made_are_the_labs_fault() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let mut missing = bench();
    missing.qemu = "/nowhere/qemu".into();
    let cases = [
        (
            missing,
            folder.path().join("run"),
            "qemu: there is no program `/nowhere/qemu`",
        ),
        (bench(), file.join("run"), "disk: cannot prepare"),
    ];
    for (bench, run, expected) in cases {
        let session = Session {
            events: &mut |_| {},
            cancel: Cancel::never(),
            typed: None,
        };
        let result = execute(&unit("good"), &bench, &run, session).await;
        assert_eq!(result.outcome.class(), "lab-failed");
        let detail = result.outcome.detail();
        assert!(detail.starts_with(expected), "{detail}");
    }
}

#[tokio::test]
async fn names_of_an_evil_agent_stay_in_the_run_and_its_words_are_inert() {
    let ran = run("evil-names").await;
    assert_eq!(ran.verdict(), "completed: ");
    let evidence = ran.folder.path().join("run/evidence");
    let mut names: Vec<String> = fs::read_dir(evidence)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        ["__31mred", "_.._escaped", "_etc_escaped", "a_b", "unnamed"]
            .iter()
            .map(|name| name.replace("_.._escaped", "_escaped"))
            .collect::<Vec<_>>()
    );
    assert!(
        ran.result
            .notes
            .contains(&"]0;titlegnp.exe <script>".to_string()),
        "{:?}",
        ran.result.notes
    );
    let entries = fs::read_dir(ran.folder.path()).unwrap().count();
    assert_eq!(entries, 1, "nothing beside the run's folder");
}

#[tokio::test]
async fn endless_output_is_cut_on_disk_and_does_not_fail_the_run() {
    let ran = run("endless-output").await;
    assert_eq!(ran.verdict(), "completed: ");
    let log = ran.log("output.log");
    assert!(log.len() < (65 << 20), "{}", log.len());
    assert!(log.ends_with(b"no more of it is kept]\n"));
}

#[tokio::test]
async fn endless_samples_end_the_run() {
    let mut unit = unit("endless-samples");
    unit.limits.phase = Duration::from_secs(300);
    unit.limits.total = Duration::from_secs(300);
    let ran = run_unit(unit, Cancel::never()).await;
    assert!(
        ran.verdict().contains("more than 250000 samples"),
        "{}",
        ran.verdict()
    );
}

#[tokio::test]
async fn a_known_splat_can_be_allowed() {
    let mut unit = unit("oops");
    unit.allowed_splats = vec!["NULL pointer dereference".into()];
    let ran = run_unit(unit, Cancel::never()).await;
    assert_eq!(ran.verdict(), "completed: ");
}

#[tokio::test]
async fn another_kernel_and_another_machine_are_told_before_measuring() {
    let mut other = unit("good");
    other.kernel.build_id = Some("beef".into());
    let ran = run_unit(other, Cancel::never()).await;
    assert_eq!(
        ran.verdict(),
        "lab-failed: identity: the guest runs another kernel: build id f00d, asked was beef"
    );
    assert_eq!(ran.result.samples, []);
    let mut other = unit("good");
    other.topology = Topology::from_text("t", "name: t\ncpus: {cores: 2}\nmemory: 512M\n").unwrap();
    let ran = run_unit(other, Cancel::never()).await;
    assert_eq!(ran.result.outcome.class(), "wrong-topology");
    assert!(
        ran.verdict().contains("asked 0-1, seen 0"),
        "{}",
        ran.verdict()
    );
}

#[tokio::test]
async fn a_kernel_without_virtio_console_is_told_from_its_configuration() {
    let config = tempfile::NamedTempFile::new().unwrap();
    let text = "CONFIG_64BIT=y\nCONFIG_BLK_DEV_INITRD=y\nCONFIG_BINFMT_ELF=y\nCONFIG_PROC_FS=y\n\
        CONFIG_SYSFS=y\nCONFIG_PCI=y\nCONFIG_VIRTIO_PCI=y\n# CONFIG_VIRTIO_CONSOLE is not set\n";
    fs::write(config.path(), text).unwrap();
    let mut unit = unit("silent-boot");
    unit.kernel.config = Some(config.path().into());
    let ran = run_unit(unit, Cancel::never()).await;
    assert_eq!(
        ran.verdict(),
        "boot-failed: agent never came: kernel lacks CONFIG_VIRTIO_CONSOLE"
    );
    // Known before a guest is started.
    assert_eq!(ran.result.console_tail, Vec::<String>::new());
}

/// The last CPU this test may use.
fn last_cpu() -> CpuList {
    let host = Inventory::read(Path::new("/")).unwrap();
    CpuList::from_iter(host.allowed.iter().next_back())
}

#[tokio::test]
async fn vcpus_are_pinned_and_the_cores_are_leased_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let last = last_cpu();
    let mut bench = bench();
    bench.pins = PinWish {
        policy: Some(PinPolicy::Map(vec![(CpuList::all(1), last.clone())])),
        leases: Some(folder.path().into()),
        overcommit: Overcommit::Refuse,
    };
    let ran = run_on(unit("good"), &bench, Cancel::never()).await;
    assert_eq!(ran.verdict(), "completed: ");
    assert_eq!(ran.result.trust.pins["vcpu0"], last.to_string());

    let held = Leases::new(folder.path())
        .take::<_, LeaseError>(&CpuList::new(), |_| Ok((last.clone(), ())))
        .unwrap();
    let ran = run_on(unit("good"), &bench, Cancel::never()).await;
    assert_eq!(
        ran.verdict(),
        format!("lab-failed: pin: host CPUs {last} are leased to other guests")
    );
    drop(held);
    let ran = run_on(unit("good"), &bench, Cancel::never()).await;
    assert_eq!(ran.verdict(), "completed: ");
}

#[tokio::test]
async fn a_vcpu_that_is_not_where_it_belongs_fails_the_lab() {
    let last = last_cpu();
    let mut bench = bench();
    bench.pins.policy = Some(PinPolicy::Map(vec![(CpuList::all(1), last.clone())]));
    let ran = run_on(unit("vcpu-vanishes"), &bench, Cancel::never()).await;
    let begin = format!("lab-failed: pin: cannot bind vCPU 0 to host CPUs {last}: ");
    assert!(ran.verdict().starts_with(&begin), "{}", ran.verdict());
}

#[tokio::test]
async fn more_vcpus_than_host_cpus_can_be_refused() {
    let mut bench = bench();
    bench.pins.overcommit = Overcommit::Refuse;
    let mut unit = unit("good");
    let text = "name: t\ncpus: {cores: 64}\nmemory: 512M\n";
    unit.topology = Topology::from_text("t", text).unwrap();
    let ran = run_on(unit, &bench, Cancel::never()).await;
    assert_eq!(ran.result.outcome.class(), "not-testable");
    assert!(ran.verdict().contains("64 vCPUs on "), "{}", ran.verdict());
}
