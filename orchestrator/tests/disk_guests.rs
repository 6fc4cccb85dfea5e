//! TOPOLAB_DISK_KERNEL=FILE cargo test --release -p topolab --test disk_guests -- --ignored --nocapture --test-threads 1
//!
//! Guests with disks, for real: needs root (or user namespaces), mmdebstrap, a Debian
//! mirror and QEMU. FILE is a kernel built from `kernels/linux-6.12-disk.yaml`, its
//! configuration beside it as `config`. Figures of a run are in `docs/images.md`.
//! Disks are kept in `TOPOLAB_CACHE`, or below the build folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use topolab::{
    agent_binary,
    image::{
        UserSpace,
        disk::{self, Base, Debian, Disk, Existing, Freshness, Logins, Recipe, Tools, file_hash},
    },
    qemu::process::find_program,
    run::{
        Bench, Cancel, KernelImage, Lab, LabWish, Limits, RunEvent, RunResult, RunUnit, Session,
        execute,
    },
    topology::Topology,
};
use topolab_protocol::workload::{Command as Program, Workload};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

fn path() -> String {
    std::env::var("PATH").unwrap()
}

fn qemu() -> PathBuf {
    find_program("qemu-system-x86_64", &path()).expect("QEMU is installed")
}

/// The folder in which disks are kept from one call to the next.
fn cache() -> PathBuf {
    let folder = std::env::var_os("TOPOLAB_CACHE").map(PathBuf::from);
    let folder = folder.unwrap_or_else(|| env!("CARGO_TARGET_TMPDIR").into());
    folder.join(topolab::image::ready::DISK_FOLDER)
}

fn kernel() -> KernelImage {
    let path = std::env::var_os("TOPOLAB_DISK_KERNEL");
    let path = PathBuf::from(path.expect("TOPOLAB_DISK_KERNEL names a kernel"));
    let config = path.with_file_name("config");
    KernelImage {
        config: config.exists().then_some(config),
        path,
        ..KernelImage::default()
    }
}

fn topology() -> Topology {
    Topology::read(&root().join("topologies/dual-node-4.yaml")).unwrap()
}

async fn bench(topology: &Topology) -> Bench {
    let wish = LabWish::usual(&qemu(), &std::env::temp_dir());
    Lab::open(wish)
        .await
        .unwrap()
        .bench(topology)
        .await
        .unwrap()
}

fn recipe() -> Debian {
    match Recipe::read(&root().join("images/debian.yaml"))
        .unwrap()
        .base
    {
        Base::Debian(debian) => debian,
        other => panic!("{other:?}"),
    }
}

fn build(debian: &Debian, folder: &Path) -> Disk {
    let say = &mut |line: &str| println!("  {line}");
    let tools = Tools::new(&path());
    let agent = agent_binary::bytes();
    disk::build(debian, agent, folder, &tools, Freshness::Cached, say).unwrap()
}

fn unit(image: UserSpace, script: &str) -> RunUnit {
    let argv = ["/bin/sh", "-c", script].map(String::from).to_vec();
    RunUnit {
        name: "test".into(),
        topology: topology(),
        kernel: kernel(),
        image,
        agent_sha256: agent_binary::sha256().into(),
        append: String::new(),
        settings: Default::default(),
        workload: Some(Workload::Command(Program {
            argv,
            ..Program::default()
        })),
        monitors: Default::default(),
        limits: Limits::default(),
        seed: 1,
        allowed_splats: Vec::new(),
        inspect: Default::default(),
    }
}

/// Runs a guest; `on` hears its events. Gives the result and what was written.
async fn run(unit: &RunUnit, on: &mut (dyn FnMut(&RunEvent) + Send)) -> (RunResult, String) {
    let folder = tempfile::tempdir().unwrap();
    let bench = bench(&unit.topology).await;
    let mut text = String::new();
    let mut events = |event: RunEvent| {
        on(&event);
        if let RunEvent::Output { bytes, .. } = event {
            text += &String::from_utf8_lossy(&bytes);
        }
    };
    let session = Session {
        events: &mut events,
        cancel: Cancel::never(),
        typed: None,
    };
    let run_folder = folder.path().join("run");
    let result = execute(unit, &bench, &run_folder, session).await;
    assert!(!run_folder.join("overlay.qcow2").exists());
    println!(
        "{}: {} hello after {:?} ms, whole run {} ms",
        result.outcome.class(),
        result.outcome.detail(),
        result.hello_ms,
        result.wall_ms
    );
    if !result.outcome.has_result() {
        println!("{}", result.console_tail.join("\n"));
    }
    (result, text)
}

#[tokio::test]
#[ignore = "real guests, see the first line"]
async fn systemd_is_running_when_the_agent_greets() {
    let cache = cache();
    let image = UserSpace::from(build(&recipe(), &cache));
    let script = "systemctl is-system-running; systemd-analyze; systemd-analyze blame";
    let (result, text) = run(&unit(image, script), &mut |_| {}).await;
    println!("{text}");
    assert_eq!(result.outcome.class(), "completed");
    assert!(text.starts_with("running\n"));
}

/// A disk as others make them: a partition table, an SSH server, one key that may
/// log in, and nothing of ours. The network is not set up in it either.
fn foreign_disk(folder: &Path, spare: u64) -> (PathBuf, PathBuf) {
    let tree = folder.join("tree");
    let made = Command::new("mmdebstrap")
        .args([
            "--quiet",
            "--variant=minbase",
            "--include=systemd-sysv,openssh-server",
        ])
        .args(["--format=directory", "bookworm"])
        .arg(&tree)
        .status()
        .unwrap();
    assert!(made.success());
    let key = folder.join("key");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&key)
        .status()
        .unwrap();
    assert!(made.success());
    fs::create_dir_all(tree.join("root/.ssh")).unwrap();
    fs::copy(
        folder.join("key.pub"),
        tree.join("root/.ssh/authorized_keys"),
    )
    .unwrap();
    let disk = folder.join("disk.raw");
    fs::File::create(&disk).unwrap().set_len(1 << 30).unwrap();
    let made = Command::new("mke2fs")
        .args(["-q", "-F", "-t", "ext4", "-E", "offset=1048576", "-d"])
        .arg(&tree)
        .arg(&disk)
        .arg(format!("{}k", spare >> 10))
        .status()
        .unwrap();
    assert!(made.success());
    let mut table = [0; 512];
    table[446 + 4] = 0x83;
    table[446 + 8..446 + 12].copy_from_slice(&2048u32.to_le_bytes());
    table[446 + 12..446 + 16].copy_from_slice(&u32::try_from(spare >> 9).unwrap().to_le_bytes());
    table[510..].copy_from_slice(&[0x55, 0xaa]);
    std::os::unix::fs::FileExt::write_all_at(&open(&disk), &table, 0).unwrap();
    (disk, key)
}

fn open(path: &Path) -> fs::File {
    fs::OpenOptions::new().write(true).open(path).unwrap()
}

fn existing(path: PathBuf, key: PathBuf) -> Existing {
    Existing {
        path,
        format: None,
        root: None,
        user: "root".into(),
        key: Some(key),
        host_key: None,
    }
}

#[tokio::test]
#[ignore = "real guests, see the first line"]
async fn a_disk_never_seen_before_is_entered_over_ssh() {
    let folder = tempfile::tempdir().unwrap();
    let (disk, key) = foreign_disk(folder.path(), 900 << 20);
    let before = file_hash(&disk).unwrap();
    let existing = existing(disk.clone(), key);
    let image = disk::user_space(&existing, &qemu(), &Logins::default()).unwrap();
    let script = "id -u; cat /proc/1/comm; ls -d /dev/shm/topolab.*; dmesg | tail -3";
    let (result, text) = run(&unit(image.clone(), script), &mut |_| {}).await;
    println!("{text}");
    assert_eq!(result.outcome.class(), "completed");
    assert!(text.starts_with("0\nsystemd\n/dev/shm/topolab."), "{text}");
    assert_eq!(file_hash(&disk).unwrap(), before);

    // The same disk, and what can be wrong with entering it.
    let mut strange = existing.clone();
    let stranger = folder.path().join("stranger");
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(&stranger)
        .status();
    assert!(made.unwrap().success());
    strange.key = Some(stranger.clone());
    let image = disk::user_space(&strange, &qemu(), &Logins::default()).unwrap();
    let (result, _) = run(&unit(image, "true"), &mut |_| {}).await;
    assert!(
        result
            .outcome
            .detail()
            .starts_with("ssh: `127.0.0.1` lets `root` not in with the key")
    );

    let mut changed = existing;
    let public = fs::read_to_string(stranger.with_extension("pub")).unwrap();
    changed.host_key = Some(
        public
            .split_whitespace()
            .take(2)
            .collect::<Vec<_>>()
            .join(" "),
    );
    let image = disk::user_space(&changed, &qemu(), &Logins::default()).unwrap();
    let (result, _) = run(&unit(image, "true"), &mut |_| {}).await;
    let detail = result.outcome.detail();
    assert!(
        detail.contains("shows another host key than the image has"),
        "{detail}"
    );
}

#[tokio::test]
#[ignore = "real guests, see the first line"]
async fn a_disk_is_the_same_after_twenty_runs_of_which_five_were_killed() {
    let cache = cache();
    let disk = build(&recipe(), &cache);
    let path = disk.path.clone();
    let hash = disk.manifest.disk_sha256.clone();
    let image = UserSpace::from(disk);
    let begin = Instant::now();
    for number in 0..20u64 {
        let mut unit = unit(
            image.clone(),
            "dd if=/dev/zero of=/scribble bs=1M count=20; sync",
        );
        // Killed at five different moments between the first write and the end.
        let killed = number % 4 == 3;
        if killed {
            unit.workload = Some(Workload::Command(Program {
                argv: ["/bin/sh", "-c", "while :; do cp -r /usr /scribble; done"]
                    .map(String::from)
                    .to_vec(),
                ..Program::default()
            }));
        }
        let mut pid = None;
        let (result, _) = run(&unit, &mut |event| match event {
            RunEvent::Started { pid: started } => pid = Some(*started),
            RunEvent::Hello { .. } if killed => {
                let pid = pid.take().expect("it was started before it greeted");
                std::thread::spawn(move || {
                    std::thread::sleep(Duration::from_millis(100 * (number + 1)));
                    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap());
                    rustix::process::kill_process(pid.unwrap(), rustix::process::Signal::KILL)
                });
            }
            _ => {}
        })
        .await;
        let class = result.outcome.class();
        assert_eq!(class, if killed { "lab-failed" } else { "completed" });
    }
    println!("twenty runs in {:?}", begin.elapsed());
    assert_eq!(file_hash(&path).unwrap(), hash);
}
