//! What several verbs need of this machine: the library of files, the kernel
//! builder and the bench that guests run on.

use std::path::{Path, PathBuf};

use clap::Args;
use topolab::{
    campaign::Library,
    kernel::{Builder, Ccache, Tools},
    plan::BenchSpec,
    qemu::{accel::Wish, process::find_program},
    run::{Lab, LabWish, QEMU},
    topology::PinPolicy,
};

use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    kernel,
};

/// Arguments about the bench.
#[derive(Debug, Clone, Default, Args)]
pub struct BenchArgs {
    /// auto, kvm or tcg
    #[arg(long, value_name = "ACCEL")]
    pub accel: Option<Wish>,
    /// Where vCPUs run on this host, in place of what the files say: auto, paired,
    /// none, or pairs of vCPUs and host CPUs like '0-3=2-5 4=7'
    #[arg(long, value_name = "PINS")]
    pub pin: Option<PinPolicy>,
}

impl BenchArgs {
    /// These, and where they say nothing the experiment's accelerator. (How it is
    /// pinned is for the campaign to read.)
    pub fn or(&self, experiment: &BenchSpec) -> Self {
        Self {
            accel: self.accel.or(experiment.accel.map(Into::into)),
            pin: self.pin.clone(),
        }
    }
}

/// Folders with `topologies/`, `kernels/` and `experiments/`: here, then those of
/// the checkout this program was built from.
pub fn library() -> Library {
    Library::new(library_roots())
}

/// These folders.
pub fn library_roots() -> Vec<PathBuf> {
    let mut roots = vec![PathBuf::from(".")];
    let built_from = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    if let Ok(checkout) = built_from.canonicalize() {
        roots.push(checkout);
    }
    roots
}

/// The runtime that guests and builds live on: one thread, so that a QEMU's
/// "kill me when my parent thread dies" is bound to a thread that lives as long as we do.
pub fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::lab)
}

/// Programs that build kernels.
pub fn tools() -> Tools {
    Tools::in_path(std::env::var_os("PATH").as_deref())
}

/// Builds kernels on all CPUs of this process.
pub fn builder(folders: &Folders) -> Builder {
    let ccache = if std::env::var_os("TOPOLAB_NO_CCACHE").is_some() {
        Ccache::Leave
    } else {
        Ccache::Use
    };
    kernel::builder(folders, None, ccache)
}

/// The folder in which host CPUs are leased.
pub fn leases(folders: &Folders) -> PathBuf {
    folders.runtime.join("cpus")
}

/// Asks QEMU and looks at the host.
pub async fn open(folders: &Folders, bench: &BenchArgs) -> Result<Lab, Failure> {
    let path = std::env::var("PATH").unwrap_or_default();
    let qemu = find_program(QEMU, &path).ok_or_else(|| {
        Failure::lab(format_args!("there is no {QEMU} in PATH"))
            .hint("apt-get install qemu-system-x86")
    })?;
    let mut wish = LabWish::usual(&qemu, &folders.cache);
    wish.pins.leases = Some(leases(folders));
    wish.pins.policy.clone_from(&bench.pin);
    if let Some(accel) = bench.accel {
        wish.accel = accel;
    }
    Lab::open(wish)
        .await
        .map_err(|error| Failure::of(Kind::Lab, &error).hint("topolab doctor"))
}
