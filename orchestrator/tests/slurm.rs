//! A real Slurm on one host: munged, slurmctld and two slurmd of Debian's packages
//! `munge slurmctld slurmd slurm-client`, with real kernels and guests. Run by hand:
//! `cargo test --test slurm -- --ignored --nocapture --test-threads 1`.
//! `docs/slurm.md` keeps what was seen.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use topolab::store::{self, record::RunRecord};

const EXPERIMENT: &str = "name: numa-two
kernels: [linux-6.12@base, linux-6.12+numa-scan-skip@all]
topologies: [dual-node-4, dual-two]
# A timer that is late in an emulated guest is no fault of the IO-APIC.
cmdlines: {default: no_timer_check}
settings:
  pinned-node0:
    sysctl: {kernel.numa_balancing: 1}
    files:
      /sys/kernel/debug/sched/numa_balancing/scan_delay_ms: 50
      /sys/kernel/debug/sched/numa_balancing/scan_period_min_ms: 50
    cgroups: {work: {cpuset.mems: \"0\"}}
workloads:
  scan: {numa-scan: {memory: 64M, seconds: 1.5, threads: 2, cgroup: work}}
rounds: 4
# Emulated guests of two nodes share the CPUs of one host: some stand still for a while.
allowed_splats: [workqueue lockup, soft lockup, rcu]
compare:
  baseline: {kernels: linux-6.12@base}
  metrics:
    numa_pte_updates: {better: lower, min_effect: 5%}
    numa_hint_faults: {better: lower, min_effect: 5%}
";

/// A second machine with two nodes, smaller than the first.
const DUAL_TWO: &str = "name: dual-two
cpus: {sockets: 2, cores: 1}
nodes:
  - {cpus: 0, memory: 512M}
  - {cpus: 1, memory: 512M}
";

/// A cluster that ends with this value.
struct Cluster {
    folder: tempfile::TempDir,
    daemons: BTreeMap<&'static str, Child>,
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn program(name: &str) -> PathBuf {
    let places = ["/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let found = places.map(|place| Path::new(place).join(name));
    found
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or_else(|| panic!("no {name}: apt-get install munge slurmctld slurmd slurm-client"))
}

impl Cluster {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path();
        // munged wants everybody to reach its socket.
        fs::set_permissions(place, fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["munge", "ctl", "n1", "n2"] {
            let path = place.join(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(place.join("munge/key"), [7; 64]).unwrap();
        fs::set_permissions(place.join("munge/key"), fs::Permissions::from_mode(0o600)).unwrap();
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        let user = String::from_utf8(user).unwrap();
        let (at, user) = (place.display(), user.trim());
        let (control, n1, n2) = (free_port(), free_port(), free_port());
        let text = format!(
            "ClusterName=test\nSlurmctldHost=localhost\nSlurmctldPort={control}\n\
             SlurmUser={user}\nSlurmdUser={user}\nAuthType=auth/munge\n\
             AuthInfo=socket={at}/munge/socket\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nSelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU_Memory\nStateSaveLocation={at}/ctl\n\
             SlurmdSpoolDir={at}/%n\nSlurmctldPidFile={at}/ctl.pid\n\
             SlurmdPidFile={at}/%n.pid\nSlurmctldLogFile={at}/ctl.log\n\
             SlurmdLogFile={at}/%n.log\nSlurmdParameters=config_overrides\n\
             MpiDefault=none\nReturnToService=2\nSlurmdTimeout=10\nKillWait=5\n\
             JobRequeue=1\nJobAcctGatherType=jobacct_gather/none\n\
             NodeName=n1 NodeHostname=localhost NodeAddr=127.0.0.1 Port={n1} CPUs=5 RealMemory=6000\n\
             NodeName=n2 NodeHostname=localhost NodeAddr=127.0.0.1 Port={n2} CPUs=5 RealMemory=6000\n\
             PartitionName=lab Nodes=n1,n2 Default=YES State=UP\n"
        );
        fs::write(place.join("slurm.conf"), text).unwrap();
        let mut cluster = Self {
            folder,
            daemons: BTreeMap::new(),
        };
        for name in ["munged", "slurmctld", "n1", "n2"] {
            cluster.up(name);
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while cluster
            .says("sinfo", &["-h", "-N", "-o", "%T"])
            .matches("idle")
            .count()
            < 2
        {
            assert!(Instant::now() < deadline, "the nodes do not come up");
            sleep(Duration::from_millis(500));
        }
        cluster
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts a daemon in the foreground, as our child.
    fn up(&mut self, name: &'static str) {
        let mut command = match name {
            "munged" => {
                let mut command = Command::new(program("munged"));
                let folder = self.path("munge");
                for (option, file) in [
                    ("key-file", "key"),
                    ("socket", "socket"),
                    ("pid-file", "pid"),
                    ("seed-file", "seed"),
                ] {
                    command.arg(format!("--{option}={}", folder.join(file).display()));
                }
                command.args(["--foreground", "--force"]);
                command
            }
            "slurmctld" => {
                let mut command = Command::new(program("slurmctld"));
                command.arg("-D");
                command
            }
            node => {
                let mut command = Command::new(program("slurmd"));
                command.args(["-D", "-N", node]);
                command
            }
        };
        let child = command
            .env("SLURM_CONF", self.path("slurm.conf"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        self.daemons.insert(name, child);
        if name == "munged" {
            let deadline = Instant::now() + Duration::from_secs(20);
            while !self.path("munge/socket").exists() {
                assert!(Instant::now() < deadline, "munged does not come up");
                sleep(Duration::from_millis(100));
            }
        }
    }

    /// Kills a daemon as a power cut would.
    fn down(&mut self, name: &'static str) {
        if let Some(mut child) = self.daemons.remove(name) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }

    /// Kills what tasks of a node run, as its end would.
    fn kill_tasks(&self, node: &str) -> usize {
        let conf = format!("SLURM_CONF={}", self.path("slurm.conf").display());
        let node = format!("SLURMD_NODENAME={node}");
        let mut killed = 0;
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else {
                continue;
            };
            let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
            let has = |word: &str| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|w| w == word.as_bytes())
            };
            if has(&conf) && has(&node) {
                let status = Command::new("kill").args(["-9", &pid.to_string()]).status();
                killed += usize::from(status.unwrap().success());
            }
        }
        killed
    }

    fn says(&self, client: &str, args: &[&str]) -> String {
        let output = Command::new(program(client))
            .args(args)
            .env("SLURM_CONF", self.path("slurm.conf"))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    fn topolab(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_topolab"));
        command
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .env("SLURM_CONF", self.path("slurm.conf"))
            .args(args);
        command
    }

    fn experiment(&self) -> String {
        let path = self.path("experiments/numa-two.yaml");
        for folder in ["experiments", "topologies"] {
            fs::create_dir_all(self.path(folder)).unwrap();
        }
        fs::write(&path, EXPERIMENT).unwrap();
        fs::write(self.path("topologies/dual-two.yaml"), DUAL_TWO).unwrap();
        path.display().to_string()
    }

    fn run(&self, folder: &str, more: &[&str]) -> Command {
        let experiment = self.experiment();
        let folder = self.path(folder).display().to_string();
        let mut args = vec!["run", &experiment, "--seed", "1", "--accel", "tcg"];
        args.extend(["--output", &folder]);
        args.extend(more);
        self.topolab(&args)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for state in ["PENDING", "RUNNING"] {
            let _ = Command::new(program("scancel"))
                .arg(format!("--state={state}"))
                .env("SLURM_CONF", self.path("slurm.conf"))
                .status();
        }
        sleep(Duration::from_secs(3));
        for name in ["n1", "n2", "slurmctld", "munged"] {
            self.down(name);
        }
    }
}

fn text(output: &Output) -> String {
    format!(
        "{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

/// Completed runs by index; panics when one is there twice.
fn completed(folder: &Path) -> BTreeMap<usize, RunRecord> {
    let mut found = BTreeMap::new();
    for record in store::load(folder).unwrap().records {
        if record.outcome.has_result() {
            let before = found.insert(record.index, record);
            assert_eq!(before, None, "a run has two results");
        }
    }
    found
}

/// Indices of runs that ended, in order. A guest that an overloaded emulator
/// disturbed ended, too; a run the lab lost did not. One that ended twice is there twice.
fn ended(folder: &Path) -> Vec<usize> {
    let records = store::load(folder).unwrap().records;
    let ended = records.iter().filter(|one| !one.outcome.is_retryable());
    ended.map(|record| record.index).collect()
}

/// Verdicts by row, as `compare --format json` tells them.
fn verdicts(cluster: &Cluster, folder: &str) -> Vec<(String, String)> {
    let folder = cluster.path(folder).display().to_string();
    let output = cluster
        .topolab(&["compare", &folder, "--format", "json"])
        .output()
        .unwrap();
    let comparison: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut rows = Vec::new();
    for table in comparison["tables"].as_array().unwrap() {
        for row in table["rows"].as_array().unwrap() {
            rows.push((
                format!("{} {}", table["metric"], row["cell"]),
                row["verdict"]["class"].to_string(),
            ));
        }
    }
    assert!(!rows.is_empty());
    rows
}

#[test]
#[ignore = "needs Debian's munge, slurmctld, slurmd and slurm-client"]
fn a_campaign_gives_the_same_table_as_locally() {
    let cluster = Cluster::start();
    let batch = cluster.run("batch", &["--on", "slurm"]).output().unwrap();
    println!("{}", text(&batch));
    let local = cluster.run("local", &[]).output().unwrap();
    println!("{}", text(&local));
    let (there, here) = (
        completed(&cluster.path("batch")),
        completed(&cluster.path("local")),
    );
    assert_eq!(there.len(), 16);
    for (index, run) in &there {
        let other = &here[index];
        assert_eq!((&run.cell, run.round), (&other.cell, other.round));
        let (a, b) = (&run.environment, &other.environment);
        assert_eq!(a.kernel_image, b.kernel_image);
        assert_eq!(
            (&a.cmdline, &a.image, &a.qemu),
            (&b.cmdline, &b.image, &b.qemu)
        );
    }
    assert_eq!(verdicts(&cluster, "batch"), verdicts(&cluster, "local"));
}

#[test]
#[ignore = "needs Debian's munge, slurmctld, slurmd and slurm-client"]
fn killed_daemons_and_submitters_lose_and_double_nothing() {
    let mut cluster = Cluster::start();
    let mut submitter = cluster.run("r", &["--on", "slurm"]).spawn().unwrap();
    let folder = cluster.path("r");
    let runs = |folder: &Path| fs::read_dir(folder.join("runs")).map_or(0, Iterator::count);
    let until = |count: usize| {
        let deadline = Instant::now() + Duration::from_secs(300);
        while runs(&folder) < count {
            assert!(Instant::now() < deadline, "only {} runs", runs(&folder));
            sleep(Duration::from_millis(200));
        }
    };
    until(1);
    submitter.kill().unwrap();
    submitter.wait().unwrap();
    until(3);
    cluster.down("n1");
    println!("processes killed on n1: {}", cluster.kill_tasks("n1"));
    sleep(Duration::from_secs(3));
    cluster.down("slurmctld");
    sleep(Duration::from_secs(5));
    cluster.up("slurmctld");
    sleep(Duration::from_secs(20));
    cluster.up("n1");
    let attached = cluster
        .topolab(&["run", "--attach", folder.to_str().unwrap()])
        .output()
        .unwrap();
    println!("{}", text(&attached));
    println!(
        "{}",
        fs::read_to_string(folder.join("batch/submissions.jsonl")).unwrap()
    );
    assert_eq!(ended(&folder), (0..16).collect::<Vec<_>>());
}

#[test]
#[ignore = "needs Debian's munge, slurmctld, slurmd and slurm-client"]
fn a_cancelled_campaign_leaves_other_jobs_alone_and_can_be_resumed() {
    let cluster = Cluster::start();
    let output = cluster
        .run("r", &["--on", "slurm", "--detach"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let other = cluster.path("other.sh");
    fs::write(&other, "#!/bin/sh\n#SBATCH --hold\nsleep 1\n").unwrap();
    cluster.says("sbatch", &[other.to_str().unwrap()]);
    let folder = cluster.path("r");
    let folder_text = folder.to_str().unwrap();
    let output = cluster.topolab(&["cancel", folder_text]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    sleep(Duration::from_secs(3));
    assert_eq!(
        cluster.says("squeue", &["-h", "-r", "-o", "%j"]).trim(),
        "other.sh"
    );
    let output = cluster
        .topolab(&["run", "--resume", folder_text])
        .output()
        .unwrap();
    println!("{}", text(&output));
    assert_eq!(ended(&folder), (0..16).collect::<Vec<_>>());
}
