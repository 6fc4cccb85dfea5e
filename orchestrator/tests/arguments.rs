//! Whatever a topology file may ask, QEMU takes the arguments it leads to.
#![expect(
    clippy::format_push_string,
    reason = "texts of a test are made piece by piece"
)]

#[path = "real/kernel.rs"]
mod kernel;

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use proptest::{
    collection::vec,
    prelude::*,
    strategy::ValueTree,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};
use topolab::{
    qemu::{
        acpi,
        args::{Accel, BOOT_WORDS, Bench, Capabilities, Chardev, Devices, TcgThread, build},
        process::find_program,
    },
    topology::{Topology, draw},
};

/// Texts of topology files; some of them contradict themselves.
fn specs() -> impl Strategy<Value = String> {
    let shape = (1..=4_u32, 1..=2_u32, 1..=4_u32, 1..=2_u32);
    let nodes = (0..=4_usize, any::<bool>(), any::<bool>());
    let numbers = (
        vec(11..=254_u8, 36),
        vec(1..=255_u32, 64),
        vec(10..900_u32, 36),
    );
    let asked = (0..4_u8, 0..4_u8, 0..4_u8, 0..4_u8);
    (shape, nodes, numbers, asked).prop_map(|(shape, nodes, numbers, asked)| {
        let (sockets, dies, cores, threads) = shape;
        let count = sockets * dies * cores * threads;
        let mut text = format!(
            "name: made\ncpus: {{sockets: {sockets}, dies: {dies}, cores: {cores}, \
             threads: {threads}}}\n"
        );
        let (wanted, without_memory, without_cpus) = nodes;
        // Nodes take whole cores, in runs of equal length.
        let cores_all = count / threads;
        let with_cpus = u32::try_from(wanted).unwrap().clamp(1, cores_all);
        let mut total = 1;
        if wanted == 0 {
            text += "memory: 512M\n";
        } else {
            text += "nodes:\n";
            for node in 0..with_cpus {
                let first = node * cores_all / with_cpus * threads;
                let last = (node + 1) * cores_all / with_cpus * threads - 1;
                if without_memory && node > 0 && node == with_cpus - 1 {
                    text += &format!("  - {{cpus: {first}-{last}}}\n");
                } else {
                    text += &format!("  - {{cpus: {first}-{last}, memory: {}M}}\n", 128 << node);
                }
            }
            total = with_cpus as usize;
            if without_cpus {
                text += "  - {memory: 256M, initiator: 0}\n";
                total += 1;
            }
        }
        let (distances, rankings, latencies) = numbers;
        let (with_distances, with_rankings, with_sets, with_hmat) = asked;
        if with_distances > 0 && total > 1 {
            let row = |from: usize| -> String {
                let row: Vec<String> = (0..total)
                    .map(|to| match from == to {
                        true => "10".into(),
                        false => distances[from.min(to) * total + from.max(to)].to_string(),
                    })
                    .collect();
                format!("[{}]", row.join(", "))
            };
            let rows: Vec<String> = (0..total).map(row).collect();
            text += &format!("distances: [{}]\n", rows.join(", "));
        }
        if with_rankings == 1 {
            let rankings: Vec<String> = (0..cores_all as usize)
                .map(|core| rankings[core % 64].to_string())
                .collect();
            text += &format!("preferred_cores: [{}]\n", rankings.join(", "));
        }
        if with_sets == 1 && count > 1 {
            text += &format!(
                "sets: {{housekeeping: 0, isolated: 1-{}}}\n\
                 cmdline: isolcpus=nohz,{{isolated}} nohz_full={{isolated}}\n",
                count - 1
            );
        }
        if with_hmat == 1 && wanted > 0 && !without_memory {
            let row = |from: usize| -> String {
                let row: Vec<String> = (0..total)
                    .map(|to| latencies[from * total + to].to_string())
                    .collect();
                format!("[{}]", row.join(", "))
            };
            let rows: Vec<String> = (0..with_cpus as usize).map(row).collect();
            text += &format!("hmat: {{latency: [{}]}}\n", rows.join(", "));
        }
        text
    })
}

/// Starts QEMU with the machine, vCPUs stopped, and lets it go.
fn accepted(qemu: &Path, kernel: &Path, topology: &Topology) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let table = acpi::ssdt(topology);
    if let Some(table) = &table {
        fs::write(folder.path().join("rankings.aml"), table).unwrap();
    }
    let bench = Bench {
        accel: Accel::Tcg {
            thread: TcgThread::Single,
        },
        capabilities: Capabilities::default(),
        cpu_model: None,
        host_nodes: Vec::new(),
    };
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

async fn try_many(count: u32) {
    let qemu = find_program("qemu-system-x86_64", &env::var("PATH").unwrap()).unwrap();
    let image: PathBuf = kernel::kernel().await.path;
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let (mut sound, mut refused) = (0, 0);
    while sound < count {
        let text = specs().new_tree(&mut runner).unwrap().current();
        match Topology::from_text("made", &text) {
            Ok(topology) => {
                sound += 1;
                accepted(&qemu, &image, &topology)
                    .unwrap_or_else(|error| panic!("{error}\n{text}"));
            }
            Err(_) => refused += 1,
        }
        assert!(refused < 20 + sound, "too few of the made specs are sound");
    }
    println!("{sound} machines taken, {refused} refused before QEMU saw them");
}

#[tokio::test]
async fn qemu_takes_the_arguments_of_a_sound_topology() {
    try_many(300).await;
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
        let begin = Instant::now();
        let topology = Topology::from_text("large", &text).unwrap_or_else(|p| panic!("{p}"));
        let drawing = draw::text(&topology, 100);
        let args = build(&topology, &bench, &Devices::default());
        assert!(drawing.lines().all(|line| line.chars().count() <= 100));
        assert!(args.len() > 100);
        begin.elapsed()
    };
    let mut times: Vec<Duration> = (0..9).map(|_| once()).collect();
    times.sort();
    println!("512 vCPUs in 16 nodes: {:?} (median of 9)", times[4]);
    // Unoptimised and on a busy host; the bar of 50 ms is for what is installed.
    assert!(times[4] < Duration::from_millis(500), "{times:?}");
}
