//! Where a guest runs, as far as QEMU's arguments depend on it.

use crate::topology::CpuList;

/// What runs the guest's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accel {
    /// The host's processor.
    Kvm,
    /// QEMU's emulator.
    Tcg {
        /// How vCPUs share host threads.
        thread: TcgThread,
    },
}

impl std::fmt::Display for Accel {
    /// As in `-accel`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Kvm => "kvm",
            Self::Tcg {
                thread: TcgThread::Single,
            } => "tcg,thread=single",
            Self::Tcg {
                thread: TcgThread::Multi,
            } => "tcg,thread=multi",
        })
    }
}

/// Threads of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TcgThread {
    /// All vCPUs take turns in one thread: slower with many host CPUs, but
    /// kernel text that is patched while it runs is never seen half-patched.
    Single,
    /// A thread per vCPU.
    Multi,
}

/// Host memory a guest node is taken from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostNodes {
    /// Host nodes, list syntax.
    pub nodes: CpuList,
    /// QEMU's `policy`.
    pub policy: MemoryPolicy,
}

/// How host nodes are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// Only these nodes.
    Bind,
    /// These nodes first.
    Preferred,
    /// In turn.
    Interleave,
}

impl MemoryPolicy {
    /// QEMU's word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::Preferred => "preferred",
            Self::Interleave => "interleave",
        }
    }
}

/// Where the guest runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bench {
    /// Accelerator.
    pub accel: Accel,
    /// What this QEMU can do.
    pub capabilities: Capabilities,
    /// CPU model in place of the topology's or the usual one.
    pub cpu_model: Option<String>,
    /// Host memory of each guest node; empty: wherever the host likes.
    pub host_nodes: Vec<Option<HostNodes>>,
}

/// What a QEMU can do, asked of the binary and not of its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Most vCPUs of the q35 machine (`query-machines`, `cpu-max`).
    pub max_cpus: u32,
    /// `-smp modules=` works (`query-command-line-options`, group `smp-opts`).
    pub modules: bool,
    /// The machine has `smp-cache` (`qom-list-properties` of the q35 machine).
    pub smp_cache: bool,
    /// The emulator has an x2APIC (`query-cpu-model-expansion` of `max`), without
    /// which no emulated vCPU has an APIC id above 254.
    pub emulated_x2apic: bool,
}

impl Default for Capabilities {
    /// The least that is supported: QEMU 7.2.
    fn default() -> Self {
        Self {
            max_cpus: 288,
            modules: false,
            smp_cache: false,
            emulated_x2apic: false,
        }
    }
}
