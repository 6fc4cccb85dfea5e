//! The bench a run needs, found out once: QEMU, what it can do, the host, the
//! accelerator that works.

use std::path::{Path, PathBuf};

use crate::{
    host::Identity,
    qemu::{
        accel::{self, KvmError, KvmState, Memory, Question, Wish},
        args::{self, Accel, TcgThread},
        capabilities::{self, About, AskError},
    },
    topology::{PinPolicy, Topology},
};

/// Where a run happens.
#[derive(Debug, Clone)]
pub struct Bench {
    /// The QEMU program.
    pub qemu: PathBuf,
    /// Accelerator, capabilities, memory binding.
    pub args: args::Bench,
    /// Folder with `dev`, `proc` and `sys`; `/` but for tests.
    pub root: PathBuf,
    /// What this host is.
    pub identity: Identity,
    /// Where vCPUs run on the host.
    pub pins: PinWish,
    /// Why guests are emulated although KVM might have been expected.
    pub fallback: Option<String>,
}

/// What is asked of pinning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinWish {
    /// In place of the topology's own wish.
    pub policy: Option<PinPolicy>,
    /// Folder in which CPUs are leased; absent: nobody else is expected.
    pub leases: Option<PathBuf>,
    /// What to do when there are more vCPUs than host CPUs.
    pub overcommit: Overcommit,
}

/// What to do when there are more vCPUs than host CPUs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Overcommit {
    /// Run; durations are marked.
    #[default]
    Allow,
    /// Do not run.
    Refuse,
}

/// What the user asks of the bench.
#[derive(Debug, Clone)]
pub struct LabWish {
    /// The QEMU program.
    pub qemu: PathBuf,
    /// Accelerator.
    pub accel: Wish,
    /// How an emulated guest's vCPUs share host threads; absent: as the host
    /// suggests.
    pub tcg_thread: Option<TcgThread>,
    /// CPU model in place of the topology's or the usual one.
    pub cpu_model: Option<String>,
    /// Where vCPUs run on the host.
    pub pins: PinWish,
    /// Folder in which answers are remembered.
    pub cache: PathBuf,
    /// Folder with `dev`, `proc` and `sys`; `/` but for tests.
    pub root: PathBuf,
}

/// A QEMU that answered, on a host that was looked at.
#[derive(Debug, Clone)]
pub struct Lab {
    wish: LabWish,
    about: About,
    identity: Identity,
}

impl Lab {
    /// Asks QEMU and looks at the host.
    ///
    /// # Errors
    /// When QEMU does not answer.
    pub async fn open(wish: LabWish) -> Result<Self, AskError> {
        let about = capabilities::ask(&wish.qemu).await?;
        Ok(Self {
            identity: Identity::read(&wish.root),
            about,
            wish,
        })
    }

    /// What QEMU told about itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// What this host is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The bench for guests of a topology. Whether KVM works may depend on the
    /// CPU model, so it is asked for each (and remembered).
    ///
    /// # Errors
    /// When KVM is insisted on and does not work.
    pub async fn bench(&self, topology: &Topology) -> Result<Bench, KvmError> {
        let mut args = args::Bench {
            accel: Accel::Kvm,
            capabilities: self.about.capabilities.clone(),
            cpu_model: self.wish.cpu_model.clone(),
            host_nodes: Vec::new(),
        };
        let cpu = args::cpu(topology, &args);
        let choice = accel::choose(
            self.wish.accel,
            self.tcg_thread(),
            &self.question(&cpu, Memory::Use),
        )
        .await?;
        args.accel = choice.accel;
        Ok(Bench {
            qemu: self.wish.qemu.clone(),
            args,
            root: self.wish.root.clone(),
            identity: self.identity.clone(),
            pins: self.wish.pins.clone(),
            fallback: choice.fallback,
        })
    }

    /// Whether KVM works for a CPU model, tried now.
    pub async fn try_kvm(&self, cpu: &str) -> KvmState {
        accel::kvm_state(&self.question(cpu, Memory::Renew)).await
    }

    fn question<'a>(&'a self, cpu: &'a str, memory: Memory) -> Question<'a> {
        Question {
            qemu: &self.wish.qemu,
            host: &self.identity.key,
            root: &self.wish.root,
            cpu,
            cache: &self.wish.cache,
            memory,
        }
    }

    /// One thread for all vCPUs cannot see half-patched kernel text, and on two
    /// host CPUs it costs nothing. With more host CPUs a thread per vCPU is
    /// worth the rare emulator fault, which is told apart and tried again.
    fn tcg_thread(&self) -> TcgThread {
        self.wish.tcg_thread.unwrap_or(if host_cpus() <= 2 {
            TcgThread::Single
        } else {
            TcgThread::Multi
        })
    }
}

/// CPUs this process may use.
pub(super) fn host_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The usual name of the program.
pub const QEMU: &str = "qemu-system-x86_64";

impl LabWish {
    /// The usual bench: this host, what works best.
    pub fn usual(qemu: &Path, cache: &Path) -> Self {
        Self {
            qemu: qemu.into(),
            accel: Wish::Auto,
            tcg_thread: None,
            cpu_model: None,
            pins: PinWish::default(),
            cache: cache.into(),
            root: "/".into(),
        }
    }
}
