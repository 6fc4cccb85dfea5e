//! From a wish to vCPU threads that are where they belong.

use super::lab::{Bench, Overcommit, host_cpus};
use crate::{
    host::{
        self, Inventory, InventoryError, Lease, LeaseError, Leases, PinError, PinMode, PinPlan,
        affinity::{self, AffinityError},
    },
    outcome::Outcome,
    qemu::{
        args::{self, Accel, HostNodes, MemoryPolicy},
        qmp::VcpuThread,
    },
    topology::{CpuList, PinPolicy, Topology},
};

/// A plan and the right to carry it out.
#[derive(Debug)]
pub(super) struct Pinning {
    /// The plan.
    pub plan: PinPlan,
    /// Held while the guest runs.
    _lease: Option<Lease>,
}

/// Why a guest cannot be pinned as asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum PinningError {
    #[error(transparent)]
    Plan(#[from] PinError),
    #[error(transparent)]
    Lease(#[from] LeaseError),
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    #[error(
        "{vcpus} vCPUs on {cpus} host CPUs, and overcommit is refused (`bench: {{overcommit: allow}}` runs them, durations marked)"
    )]
    Overcommit { vcpus: u32, cpus: usize },
}

impl PinningError {
    /// What it makes of a run. Trying again helps only where others are in the way.
    pub fn outcome(&self, contended: bool) -> Outcome {
        let reason = self.to_string();
        let here_and_now = contended || matches!(self, Self::Lease(_) | Self::Inventory(_));
        if here_and_now {
            let part = "pin".into();
            Outcome::LabFailed { part, reason }
        } else {
            Outcome::NotTestable { reason }
        }
    }
}

/// Plans for one guest and leases its cores.
pub(super) fn prepare(topology: &Topology, bench: &Bench) -> Result<Pinning, Outcome> {
    let vcpus = topology.vcpus();
    let cpus = host_cpus();
    if bench.pins.overcommit == Overcommit::Refuse && vcpus as usize > cpus {
        return Err(PinningError::Overcommit { vcpus, cpus }.outcome(false));
    }
    let policy = match (&bench.pins.policy, &topology.pin, bench.args.accel) {
        (Some(policy), _, _) => policy,
        // Durations of emulated guests are never judged, and threads of several
        // emulators do better where the host's scheduler puts them.
        (None, PinPolicy::Auto, Accel::Tcg { .. }) => &PinPolicy::None,
        (None, wish, _) => wish,
    };
    let without_lease = |plan| Pinning { plan, _lease: None };
    if *policy == PinPolicy::None {
        return Ok(without_lease(PinPlan::none()));
    }
    let host = Inventory::read(&bench.root);
    let host = host.map_err(|error| PinningError::from(error).outcome(false))?;
    let make = |leased: &CpuList| host::plan(topology, policy, &host, leased);
    let Some(folder) = &bench.pins.leases else {
        let plan = make(&CpuList::new());
        return plan
            .map(without_lease)
            .map_err(|error| PinningError::from(error).outcome(false));
    };
    let mut contended = false;
    let taken = Leases::new(folder).take(&host.online, |leased| {
        contended = !leased.is_empty();
        let plan = make(leased)?;
        // Whole cores: a neighbour on the other thread would be felt.
        Ok::<_, PinningError>((host.whole_cores(&plan.used()), plan))
    });
    let (lease, plan) = taken.map_err(|error| error.outcome(contended))?;
    Ok(Pinning {
        plan,
        _lease: Some(lease),
    })
}

impl Pinning {
    /// Binds guest memory to the host nodes of the plan, where the user has not
    /// said anything else.
    pub fn bind_memory(&self, args: &mut args::Bench) {
        if !args.host_nodes.is_empty() || self.plan.nodes.is_empty() {
            return;
        }
        let nodes = self.plan.nodes.iter().map(|node| {
            node.map(|node| HostNodes {
                nodes: CpuList::from_iter([node]),
                policy: MemoryPolicy::Bind,
            })
        });
        args.host_nodes = nodes.collect();
    }

    /// Binds the threads of a QEMU whose vCPUs stand still, and reads back.
    /// Gives what is bound where, by name.
    pub fn apply(
        &self,
        root: &std::path::Path,
        process: u32,
        vcpus: &[VcpuThread],
    ) -> Result<Vec<(String, String)>, AffinityError> {
        let mut bound = Vec::new();
        if self.plan.mode == PinMode::None {
            return Ok(bound);
        }
        let all = affinity::threads(root, process)?;
        if let Some(others) = &self.plan.others {
            for thread in all
                .iter()
                .filter(|&&t| vcpus.iter().all(|v| v.thread_id != t))
            {
                affinity::bind(*thread, others, &format!("QEMU's thread {thread}"))?;
            }
            bound.push(("qemu".into(), others.to_string()));
        }
        for (vcpu, thread) in vcpus.iter().enumerate() {
            // With `tcg,thread=single` one thread runs all vCPUs.
            let sharing = vcpus.iter().zip(&self.plan.vcpus);
            let cpus = sharing
                .filter(|(other, _)| other.thread_id == thread.thread_id)
                .fold(CpuList::new(), |all, (_, cpus)| all.or(cpus));
            affinity::bind(thread.thread_id, &cpus, &format!("vCPU {vcpu}"))?;
            bound.push((format!("vcpu{vcpu}"), cpus.to_string()));
        }
        Ok(bound)
    }
}
