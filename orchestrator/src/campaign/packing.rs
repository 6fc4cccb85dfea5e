//! Which guests may run beside each other.
//!
//! A guest that runs alone may be larger than the host (its durations are then
//! marked). Beside others it must fit: what is measured in one must not be the
//! doing of another.

use std::{fs, num::NonZeroUsize, path::Path, str::FromStr};

use crate::{
    qemu::args::{Accel, TcgThread},
    run::Bench,
    topology::{PinPolicy, Topology},
};

/// How many guests at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Jobs {
    /// As many as fit.
    Auto,
    /// As many as fit, and no more than this.
    AtMost(NonZeroUsize),
}

impl Default for Jobs {
    fn default() -> Self {
        Self::AtMost(NonZeroUsize::MIN)
    }
}

impl FromStr for Jobs {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            _ => text
                .parse()
                .map(Self::AtMost)
                .map_err(|_| "write `auto` or a number from 1"),
        }
    }
}

/// What a host has for guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// CPUs this process may use.
    pub cpus: usize,
    /// Bytes of memory that can be had without swapping.
    pub memory: u64,
}

impl Room {
    /// What the host has now: `MemAvailable` of `/proc/meminfo`, of which a tenth
    /// is left alone.
    pub fn of_host(root: &Path) -> Self {
        let text = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let kib = text.lines().find_map(|line| {
            let rest = line.strip_prefix("MemAvailable:")?;
            rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        });
        Self {
            cpus: std::thread::available_parallelism().map_or(1, NonZeroUsize::get),
            // A host that does not tell is not the place to be bold.
            memory: kib.map_or(0, |kib| kib / 10 * 9 * 1024),
        }
    }
}

/// What a guest takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Need {
    /// Host CPUs it keeps busy.
    pub cpus: usize,
    /// Bytes: its memory, and what QEMU takes beside it.
    pub memory: u64,
    /// It must have the host for itself: its durations may be judged and nothing
    /// keeps others off its CPUs, or it insists on CPUs that others would insist on.
    pub alone: bool,
}

/// Bytes that QEMU takes beside the guest's memory; emulation's translated code is
/// the largest part (`tb-size`, up to 1 GiB in `accel/tcg/region.c` but rarely filled).
const BESIDE: u64 = 256 << 20;

impl Need {
    /// What a guest of `topology` takes on `bench`.
    pub fn of(topology: &Topology, bench: &Bench) -> Self {
        let vcpus = topology.vcpus() as usize;
        let policy = bench.pins.policy.as_ref().unwrap_or(&topology.pin);
        // Leases keep guests apart that are pinned; see `run::pinning`.
        let (cpus, apart) = match bench.args.accel {
            Accel::Tcg {
                thread: TcgThread::Single,
            } => (1, true),
            // Durations of emulated guests are never judged.
            Accel::Tcg { .. } => (vcpus, true),
            Accel::Kvm => (vcpus, matches!(policy, PinPolicy::Auto | PinPolicy::Paired)),
        };
        Self {
            cpus,
            memory: topology.memory() + BESIDE,
            alone: !apart || matches!(policy, PinPolicy::Map(_)),
        }
    }
}

/// Whether `next` may start beside those that run.
pub fn fits(running: &[Need], next: Need, room: Room, jobs: Jobs) -> bool {
    if running.is_empty() {
        return true;
    }
    if let Jobs::AtMost(most) = jobs
        && running.len() >= most.get()
    {
        return false;
    }
    let all = || running.iter().chain([&next]);
    !all().any(|need| need.alone)
        && all().map(|need| need.cpus).sum::<usize>() <= room.cpus
        && all().map(|need| need.memory).sum::<u64>() <= room.memory
}

/// Why guests run one after another although more may run at once; nothing when
/// two of them fit.
pub fn alone(needs: impl Iterator<Item = Need>, room: Room, jobs: Jobs) -> Option<String> {
    if jobs == Jobs::default() {
        return None;
    }
    // The order decides who meets whom, and any two may.
    let least = needs.min_by_key(|need| (need.alone, need.cpus, need.memory))?;
    if fits(&[least], least, room, jobs) {
        return None;
    }
    let why = if least.alone {
        "their time may be judged and nothing keeps others off their CPUs (`pin: auto` would)"
            .into()
    } else {
        format!(
            "one takes {} CPUs and {} MiB, and this host has {} CPUs and {} MiB free",
            least.cpus,
            least.memory >> 20,
            room.cpus,
            room.memory >> 20
        )
    };
    Some(format!("guests run one after another: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        cpus: 8,
        memory: 8 << 30,
    };

    fn need(cpus: usize, gib: u64) -> Need {
        Need {
            cpus,
            memory: gib << 30,
            alone: false,
        }
    }

    fn at_most(n: usize) -> Jobs {
        Jobs::AtMost(n.try_into().unwrap())
    }

    #[test]
    fn guests_share_a_host_as_long_as_cpus_and_memory_last() {
        assert!(fits(&[need(4, 2)], need(4, 2), ROOM, Jobs::Auto));
        assert!(!fits(&[need(4, 2)], need(5, 2), ROOM, Jobs::Auto));
        assert!(!fits(&[need(1, 5)], need(1, 4), ROOM, Jobs::Auto));
        assert!(fits(&[need(1, 1); 7], need(1, 1), ROOM, Jobs::Auto));
        assert!(!fits(&[need(1, 1); 8], need(1, 0), ROOM, Jobs::Auto));
    }

    #[test]
    fn a_number_is_a_limit_and_never_a_licence_to_overcommit() {
        assert!(!fits(&[need(1, 1)], need(1, 1), ROOM, at_most(1)));
        assert!(fits(&[need(1, 1)], need(1, 1), ROOM, at_most(2)));
        assert!(!fits(&[need(6, 1)], need(4, 1), ROOM, at_most(2)));
    }

    #[test]
    fn a_guest_larger_than_the_host_runs_alone() {
        assert!(fits(&[], need(16, 64), ROOM, Jobs::Auto));
        assert!(!fits(&[need(16, 64)], need(1, 0), ROOM, Jobs::Auto));
    }

    #[test]
    fn a_guest_that_must_be_alone_neither_joins_nor_is_joined() {
        let alone = Need {
            alone: true,
            ..need(1, 1)
        };
        assert!(fits(&[], alone, ROOM, Jobs::Auto));
        assert!(!fits(&[need(1, 1)], alone, ROOM, Jobs::Auto));
        assert!(!fits(&[alone], need(1, 1), ROOM, Jobs::Auto));
    }

    #[test]
    fn why_guests_run_one_after_another_is_said() {
        let said = |need: Need, jobs| alone([need].into_iter(), ROOM, jobs);
        assert_eq!(said(need(4, 1), Jobs::Auto), None);
        assert_eq!(said(need(8, 1), at_most(1)), None);
        let many = said(need(6, 1), at_most(2)).unwrap();
        assert!(many.contains("6 CPUs and 1024 MiB"), "{many}");
        let alone = Need {
            alone: true,
            ..need(1, 1)
        };
        assert!(said(alone, Jobs::Auto).unwrap().contains("pin: auto"));
    }

    #[test]
    fn durations_that_count_need_cores_of_their_own() {
        use crate::{host::Identity, qemu::args, run::PinWish};
        let topology = |pin: &str| {
            let text = format!("name: t\ncpus: {{cores: 2}}\nmemory: 512M\npin: {pin}\n");
            Topology::from_text("t", &text).unwrap()
        };
        let bench = |accel| Bench {
            qemu: "/qemu".into(),
            args: args::Bench {
                accel,
                capabilities: args::Capabilities::default(),
                cpu_model: None,
                host_nodes: Vec::new(),
            },
            root: "/".into(),
            identity: Identity::default(),
            pins: PinWish::default(),
            fallback: None,
        };
        let emulated = |thread| bench(Accel::Tcg { thread });
        let of = |pin: &str, bench: &Bench| {
            let need = Need::of(&topology(pin), bench);
            (need.cpus, need.alone)
        };
        assert_eq!(of("auto", &bench(Accel::Kvm)), (2, false));
        assert_eq!(of("paired", &bench(Accel::Kvm)), (2, false));
        assert_eq!(of("none", &bench(Accel::Kvm)), (2, true));
        assert_eq!(of("{0-1: 2-3}", &bench(Accel::Kvm)), (2, true));
        assert_eq!(of("none", &emulated(TcgThread::Single)), (1, false));
        assert_eq!(of("none", &emulated(TcgThread::Multi)), (2, false));
        assert_eq!(
            Need::of(&topology("auto"), &bench(Accel::Kvm)).memory,
            768 << 20
        );
    }

    #[test]
    fn jobs_are_a_number_or_auto() {
        assert_eq!("auto".parse(), Ok(Jobs::Auto));
        assert_eq!("3".parse(), Ok(at_most(3)));
        for wrong in ["0", "-1", "many", ""] {
            assert!(wrong.parse::<Jobs>().is_err(), "{wrong}");
        }
    }
}
