//! A real kernel, the real agent and a real QEMU for tests.
//!
//! The kernel is `linux-6.12@base`, built into the user's cache the first time
//! (minutes) and found there afterwards. `TOPOLAB_TEST_KERNEL=/path/to/bzImage`
//! takes another one in its place.

use std::{
    env,
    path::{Path, PathBuf},
};

use tokio::sync::OnceCell;
use topolab::{
    agent_binary,
    image::{self, ImageSpec},
    kernel::{self, Builder, Cache, Ccache, Kernel, Tools, Variant},
    qemu::process::find_program,
    run::{
        Cancel, KernelImage, Lab, LabWish, Limits, QEMU, RunEvent, RunResult, RunUnit, Session,
        execute,
    },
    topology::Topology,
};
use topolab_protocol::{
    settings::Settings,
    workload::{Command, Monitors, Workload},
};

/// The checkout.
pub fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The user's cache.
pub fn cache() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").expect("HOME is set")).join(".cache/topolab");
    env::var_os("TOPOLAB_CACHE").map_or_else(home, PathBuf::from)
}

/// The kernel of the tests.
pub async fn kernel() -> KernelImage {
    static BUILT: OnceCell<KernelImage> = OnceCell::const_new();
    BUILT.get_or_init(build).await.clone()
}

async fn build() -> KernelImage {
    if let Some(path) = env::var_os("TOPOLAB_TEST_KERNEL") {
        return KernelImage {
            path: path.into(),
            ..KernelImage::default()
        };
    }
    let file = checkout().join("kernels/linux-6.12.yaml");
    let kernel = Kernel::read(&file).unwrap_or_else(|problems| panic!("{problems}"));
    let builder = Builder {
        cache: Cache::inside(&cache()),
        tools: Tools::in_path(env::var_os("PATH").as_deref()),
        jobs: 2,
        ccache: Ccache::Use,
    };
    let built = kernel::build(&builder, &kernel, None, &Variant::Base, &|_| {}).await;
    let built = built.unwrap_or_else(|error| panic!("{error}"));
    KernelImage {
        path: built.image,
        sha256: built.image_sha256,
        build_id: built.build_id,
        release: Some(built.release),
        config: built.config,
        config_sha256: built.config_sha256,
    }
}

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
