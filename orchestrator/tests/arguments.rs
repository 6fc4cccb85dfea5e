//! Whatever a topology file may ask, QEMU takes the arguments it leads to.
#![expect(
    clippy::format_push_string,
    reason = "texts of a test are made piece by piece"
)]

#[path = "real/kernel.rs"]
mod kernel;

use std::{
    collections::BTreeMap,
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use rustix::time::{ClockId, clock_gettime};
use topolab::{
    qemu::{
        acpi,
        args::{Accel, BOOT_WORDS, Bench, Capabilities, Chardev, Devices, TcgThread, build, fit},
        capabilities::{About, ask},
        process::find_program,
    },
    topology::{Topology, draw},
};

/// Whole numbers that a made file takes in turn.
struct Dice {
    numbers: Vec<u32>,
    at: usize,
}

impl Dice {
    /// The next number, from `least` to `most`.
    fn roll(&mut self, least: u32, most: u32) -> u32 {
        let number = self.numbers[self.at % self.numbers.len()];
        self.at += 1;
        least + number % (most - least + 1)
    }

    /// Yes in one case of `n`.
    fn one_in(&mut self, n: u32) -> bool {
        self.roll(1, n) == 1
    }

    fn matrix(&mut self, rows: u32, columns: u32, value: impl Fn(&mut Self) -> String) -> String {
        let rows = (0..rows).map(|_| {
            let row: Vec<String> = (0..columns).map(|_| value(self)).collect();
            format!("[{}]", row.join(", "))
        });
        format!("[{}]", rows.collect::<Vec<_>>().join(", "))
    }
}

/// Texts of topology files; some of them contradict themselves.
fn specs() -> impl Strategy<Value = String> {
    vec(any::<u32>(), 200).prop_map(|numbers| spec(&mut Dice { numbers, at: 0 }))
}

fn spec(dice: &mut Dice) -> String {
    let (sockets, dies) = (dice.roll(1, 4), dice.roll(1, 2));
    let (cores, threads) = (dice.roll(1, 4), dice.roll(1, 2));
    let clusters = if dice.one_in(4) { 2 } else { 1 };
    let mut text = format!(
        "name: made\ncpus: {{sockets: {sockets}, dies: {dies}, clusters: {clusters}, \
         cores: {cores}, threads: {threads}}}\noptional: [clusters, caches]\n"
    );
    let mut cores_all = sockets * dies * clusters * cores;
    let mut count = cores_all * threads;
    let hybrid = threads == 2 && dice.one_in(5);
    if hybrid {
        let performance = dice.roll(1, 4);
        let efficient = dice.roll(1, 8);
        text = format!(
            "name: made\ncpus: {{threads: 2}}\nhybrid: {{performance: {performance}, \
             efficient: {efficient}}}\noptional: [caches]\n"
        );
        cores_all = performance + efficient;
        count = 2 * performance + efficient;
    }
    if dice.one_in(6) {
        text += "caches: {l3: socket}\n";
    }
    // What has no nodes of its own is as simple as hybrid machines are made here.
    let wanted = if hybrid { 0 } else { dice.roll(0, 4) };
    let (mut total, mut with_cpus) = (1, 1);
    if wanted == 0 {
        text += "memory: 512M\n";
    } else {
        // Nodes take whole cores, in runs of nearly equal length.
        with_cpus = wanted.min(cores_all);
        let without_memory = dice.one_in(4);
        text += "nodes:\n";
        for node in 0..with_cpus {
            let first = node * cores_all / with_cpus * threads;
            let last = (node + 1) * cores_all / with_cpus * threads - 1;
            let memory = match without_memory && node > 0 && node == with_cpus - 1 {
                true => String::new(),
                false => format!(", memory: {}M", 128 << node),
            };
            text += &format!("  - {{cpus: {first}-{last}{memory}}}\n");
        }
        total = with_cpus;
        if dice.one_in(3) {
            text += "  - {memory: 256M, initiator: 0}\n";
            total += 1;
        }
        if dice.one_in(2) {
            text += "deliberate: [llc-spans-nodes]\n";
        }
    }
    if total > 1 && !dice.one_in(4) {
        let asymmetric = dice.one_in(3);
        let mut rows = vec![vec![10; total as usize]; total as usize];
        let pairs = (0..total as usize).flat_map(|from| (0..from).map(move |to| (from, to)));
        for (from, to) in pairs {
            let unreachable = dice.one_in(12);
            let mut distance = || {
                if unreachable { 255 } else { dice.roll(11, 254) }
            };
            let there = distance();
            rows[from][to] = there;
            rows[to][from] = if asymmetric { distance() } else { there };
        }
        text += &format!("asymmetric: {asymmetric}\ndistances: {rows:?}\n");
    }
    if wanted > 0 && dice.one_in(3) {
        let latency = dice.matrix(with_cpus, total, |dice| dice.roll(10, 900).to_string());
        let bandwidth = dice.matrix(with_cpus, total, |dice| format!("{}G", dice.roll(1, 60)));
        text += &format!("hmat:\n  latency: {latency}\n  bandwidth: {bandwidth}\n");
        if dice.one_in(2) {
            let size = 1 << dice.roll(0, 9);
            text += &format!("  caches: [{{node: 0, size: {size}M}}]\n");
        }
    }
    if !hybrid && dice.one_in(4) {
        let rankings: Vec<String> = (0..cores_all)
            .map(|_| dice.roll(1, 255).to_string())
            .collect();
        text += &format!("preferred_cores: [{}]\n", rankings.join(", "));
    }
    if count > 1 && dice.one_in(3) {
        text += &format!(
            "sets: {{housekeeping: 0, isolated: \"all,^0\", odd: \"0-{}:1/2\"}}\n\
             cmdline: isolcpus=nohz,{{isolated}} nohz_full={{isolated}}\n",
            count - 1
        );
    }
    if dice.one_in(4) {
        text += "cpu: {flags: [+smep, -avx2]}\n";
    }
    if dice.one_in(8) {
        text += "memory_backing: {prealloc: true}\n";
    }
    text
}

/// Starts QEMU with the machine, vCPUs stopped, and lets it go.
fn accepted(qemu: &Path, about: &About, kernel: &Path, topology: &Topology) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let bench = Bench {
        accel: Accel::Tcg {
            thread: TcgThread::Single,
        },
        capabilities: about.capabilities.clone(),
        cpu_model: None,
        host_nodes: Vec::new(),
    };
    let fitted = fit(topology, &bench).map_err(|reasons| reasons.join("; "))?;
    let topology = &fitted.topology;
    let table = acpi::ssdt(topology);
    if let Some(table) = &table {
        fs::write(folder.path().join("rankings.aml"), table).unwrap();
    }
    let devices = Devices {
        kernel: kernel.display().to_string(),
        append: format!("{BOOT_WORDS} {}", topology.cmdline),
        control: Chardev::Terminal,
        acpi_tables: table.iter().map(|_| "rankings.aml".into()).collect(),
        ..Devices::default()
    };
    let mut started = Command::new(qemu)
        .args(build(topology, &bench, &devices))
        .arg("-S")
        .current_dir(folder.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let words = "{\"execute\": \"qmp_capabilities\"}\n{\"execute\": \"quit\"}\n";
    // A QEMU that refused its arguments is gone already; its words follow.
    let _ = started.stdin.take().unwrap().write_all(words.as_bytes());
    let output = started.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    // Said of every emulated AMD processor with SMT; the guest's siblings are as
    // asked all the same, which the proof of `ryzen-preferred` shows.
    let said: String = said
        .lines()
        .filter(|line| !line.contains("doesn't support hyperthreading"))
        .filter(|line| !line.contains("try enabling topoext feature"))
        .collect();
    match output.status.success() && said.is_empty() {
        true => Ok(()),
        false => Err(format!("{}: {said}", output.status)),
    }
}

/// The installed QEMU, what it says of itself, and the kernel of the tests.
async fn bench() -> (PathBuf, About, PathBuf) {
    let qemu = find_program("qemu-system-x86_64", &env::var("PATH").unwrap()).unwrap();
    let about = ask(&qemu).await.unwrap();
    (qemu, about, kernel::kernel().await.path)
}

async fn try_many(count: u32) {
    let (qemu, about, image) = bench().await;
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut sound, mut refused) = (0, 0);
    let mut parts: BTreeMap<&str, u32> = BTreeMap::new();
    while sound < count {
        let text = specs().new_tree(&mut runner).unwrap().current();
        match Topology::from_text("made", &text) {
            Ok(topology) => {
                sound += 1;
                for (part, there) in [
                    ("several nodes", topology.nodes.len() > 1),
                    ("distances", topology.distances.is_some()),
                    ("memory attributes", topology.hmat.is_some()),
                    ("rankings", topology.preferred_cores.is_some()),
                    ("lone cores", topology.cpus.lone_cores > 0),
                    ("no memory", topology.nodes.iter().any(|n| n.memory == 0)),
                    ("no CPUs", topology.nodes.iter().any(|n| n.cpus.is_empty())),
                ] {
                    *parts.entry(part).or_default() += u32::from(there);
                }
                accepted(&qemu, &about, &image, &topology)
                    .unwrap_or_else(|error| panic!("{error}\n{text}"));
            }
            Err(_) => refused += 1,
        }
        assert!(
            refused < 20 + 4 * sound,
            "too few of the made specs are sound"
        );
    }
    println!("{sound} machines taken, {refused} refused before QEMU saw them; {parts:?}");
    assert!(parts.values().all(|machines| *machines > 0), "{parts:?}");
}

#[tokio::test]
async fn qemu_takes_the_arguments_of_a_sound_topology() {
    try_many(60).await;
}

#[tokio::test]
#[ignore = "a minute: cargo test --test arguments -- --ignored --nocapture"]
async fn qemu_takes_the_arguments_of_many_sound_topologies() {
    try_many(500).await;
}

/// APIC ids above 254 need an x2APIC, which older emulators lack: then it is said.
#[tokio::test]
async fn more_than_255_vcpus_are_taken_or_refused_with_the_reason() {
    let (qemu, about, image) = bench().await;
    let text = "name: wide\ncpus: {sockets: 2, cores: 72, threads: 2}\nnodes:\n\
        - {cpus: 0-143, memory: 512M}\n- {cpus: 144-287, memory: 512M}\n";
    let topology = Topology::from_text("wide", text).unwrap_or_else(|p| panic!("{p}"));
    let taken = accepted(&qemu, &about, &image, &topology);
    if about.capabilities.emulated_x2apic {
        taken.unwrap();
    } else {
        let reason = "this QEMU emulates no x2APIC (9.0 and later do); KVM has one";
        assert_eq!(taken.unwrap_err(), format!("APIC ids up to 399: {reason}"));
    }
}

/// 16 nodes of 32 vCPUs, everything a file can say.
fn large() -> String {
    let mut text =
        String::from("name: large\ncpus: {sockets: 16, cores: 16, threads: 2}\nnodes:\n");
    for node in 0..16 {
        text += &format!(
            "  - {{cpus: {}-{}, memory: 4G}}\n",
            node * 32,
            node * 32 + 31
        );
    }
    let row = |from: i32| -> String {
        let row: Vec<String> = (0..16)
            .map(|to: i32| (10 + 2 * (from - to).abs()).to_string())
            .collect();
        format!("[{}]", row.join(", "))
    };
    let rows: Vec<String> = (0..16).map(row).collect();
    text += &format!("distances: [{}]\n", rows.join(", "));
    text += "sets: {housekeeping: 0-31, isolated: 32-511}\n";
    text += "cmdline: isolcpus=nohz,{isolated} nohz_full={isolated}\n";
    text
}

/// Time this thread had a CPU: a busy host does not change it much.
fn on_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).expect("a thread's time is not negative")
}

#[test]
fn five_hundred_cpus_are_checked_drawn_and_built_at_once() {
    let text = large();
    let bench = Bench {
        accel: Accel::Kvm,
        capabilities: Capabilities {
            max_cpus: 1024,
            ..Capabilities::default()
        },
        cpu_model: None,
        host_nodes: Vec::new(),
    };
    let once = || {
        let begin = on_cpu();
        let topology = Topology::from_text("large", &text).unwrap_or_else(|p| panic!("{p}"));
        let drawing = draw::text(&topology, 100);
        let args = build(&topology, &bench, &Devices::default());
        assert!(drawing.lines().all(|line| line.chars().count() <= 100));
        assert!(args.len() > 100);
        on_cpu() - begin
    };
    let mut times: Vec<Duration> = (0..9).map(|_| once()).collect();
    times.sort();
    println!("512 vCPUs in 16 nodes: {:?} (median of 9)", times[4]);
    // Unoptimised; the bar of 50 ms is for what is installed.
    assert!(times[4] < Duration::from_millis(500), "{times:?}");
}
