//! A real kernel, the real agent and a real QEMU for tests.

pub mod kernel;

use std::{env, path::PathBuf};

use topolab::{
    agent_binary,
    image::{self, ImageSpec},
    qemu::process::find_program,
    run::{
        Bench, Cancel, Inspect, Lab, LabWish, Limits, QEMU, RunEvent, RunResult, RunUnit, Session,
        execute,
    },
    topology::Topology,
};
use topolab_protocol::{
    settings::Settings,
    workload::{Command, Monitors, Workload},
};

use kernel::{cache, checkout, kernel};

/// A run of host programs on a topology of the library, in a fresh guest.
pub async fn unit(topology: &str, argv: &[&str], programs: &[&str]) -> RunUnit {
    let file = checkout().join(format!("topologies/{topology}.yaml"));
    let spec = ImageSpec {
        agent: agent_binary::bytes().to_vec(),
        programs: programs.iter().map(PathBuf::from).collect(),
        ..ImageSpec::default()
    };
    let command = Command {
        argv: argv.iter().map(ToString::to_string).collect(),
        ..Command::default()
    };
    RunUnit {
        name: "test".into(),
        topology: Topology::read(&file).unwrap_or_else(|problems| panic!("{problems}")),
        kernel: kernel().await,
        image: image::build(&spec, &cache().join("images")).unwrap().into(),
        agent_sha256: agent_binary::sha256().into(),
        append: String::new(),
        settings: Settings::default(),
        workload: (!argv.is_empty()).then_some(Workload::Command(command)),
        monitors: Monitors::default(),
        limits: Limits::default(),
        seed: 1,
        allowed_splats: Vec::new(),
        inspect: Inspect::default(),
    }
}

/// What works best on this host.
pub async fn bench(unit: &RunUnit) -> Bench {
    let path = env::var("PATH").expect("PATH is set");
    let qemu = find_program(QEMU, &path).expect("QEMU is installed");
    let lab = Lab::open(LabWish::usual(&qemu, &cache())).await.unwrap();
    lab.bench(&unit.topology).await.unwrap()
}

/// A session nobody interrupts.
pub fn session(events: &mut (dyn FnMut(RunEvent) + Send)) -> Session<'_> {
    Session {
        events,
        cancel: Cancel::never(),
        typed: None,
    }
}

/// Runs it on this host.
pub async fn run(unit: &RunUnit) -> (RunResult, Vec<RunEvent>) {
    let bench = bench(unit).await;
    let folder = tempfile::tempdir().unwrap();
    let mut events = Vec::new();
    let mut hear = |event| events.push(event);
    let result = execute(unit, &bench, &folder.path().join("run"), session(&mut hear)).await;
    (result, events)
}
