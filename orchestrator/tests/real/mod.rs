//! A real kernel, the real agent and a real QEMU for tests.

pub mod kernel;

use std::{env, path::PathBuf};

use topolab::{
    agent_binary,
    image::{self, ImageSpec},
    qemu::process::find_program,
    run::{Cancel, Lab, LabWish, Limits, QEMU, RunEvent, RunResult, RunUnit, Session, execute},
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
    }
}

/// Runs it on this host.
pub async fn run(unit: &RunUnit) -> (RunResult, Vec<RunEvent>) {
    let path = env::var("PATH").expect("PATH is set");
    let qemu = find_program(QEMU, &path).expect("QEMU is installed");
    let lab = Lab::open(LabWish::usual(&qemu, &cache())).await.unwrap();
    let bench = lab.bench(&unit.topology).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut events = Vec::new();
    let session = Session {
        events: &mut |event| events.push(event),
        cancel: Cancel::never(),
        typed: None,
    };
    let result = execute(unit, &bench, &folder.path().join("run"), session).await;
    (result, events)
}
