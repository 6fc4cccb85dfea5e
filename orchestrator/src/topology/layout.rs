//! Sockets, dies, clusters, cores and threads, and who shares what.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::CpuList;

/// How many of each there are in the next larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct CpuLayout {
    /// Sockets of the machine.
    pub sockets: u32,
    /// Dies per socket.
    pub dies: u32,
    /// Clusters per die: cores that share an L2 cache (QEMU's `modules`).
    pub clusters: u32,
    /// Cores per cluster.
    pub cores: u32,
    /// Threads per core.
    pub threads: u32,
    /// The machine's last so many cores have only their first thread, as the
    /// efficient cores of a hybrid processor beside performance cores with two.
    pub lone_cores: u32,
}

/// Where a vCPU sits; each number counts from 0 within the next larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Socket of the machine.
    pub socket: u32,
    /// Die of the socket.
    pub die: u32,
    /// Cluster of the die.
    pub cluster: u32,
    /// Core of the cluster.
    pub core: u32,
    /// Thread of the core.
    pub thread: u32,
}

/// What a group of vCPUs has in common.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// A core: its threads.
    Core,
    /// A cluster, QEMU's `module`.
    Cluster,
    /// A die.
    Die,
    /// A socket.
    Socket,
}

impl CpuLayout {
    /// How many vCPUs.
    pub fn count(&self) -> u32 {
        self.core_count() * self.threads - self.lone_cores * (self.threads - 1)
    }

    /// Cores of the machine.
    pub fn core_count(&self) -> u32 {
        self.sockets * self.dies * self.clusters * self.cores
    }

    /// Cores of a group.
    fn cores_of(&self, level: Level) -> u32 {
        match level {
            Level::Core => 1,
            Level::Cluster => self.cores,
            Level::Die => self.cores * self.clusters,
            Level::Socket => self.cores * self.clusters * self.dies,
        }
    }

    /// Core of the machine, from 0, and thread of that core.
    pub fn core_and_thread(&self, vcpu: u32) -> (u32, u32) {
        let full = self.core_count() - self.lone_cores;
        match vcpu.checked_sub(full * self.threads) {
            Some(beyond) => (full + beyond, 0),
            None => (vcpu / self.threads, vcpu % self.threads),
        }
    }

    /// Where a vCPU sits. Threads count fastest, as in QEMU's
    /// `x86_topo_ids_from_idx()` (`include/hw/i386/topology.h`).
    pub fn place(&self, vcpu: u32) -> Place {
        let (core, thread) = self.core_and_thread(vcpu);
        let cluster = core / self.cores;
        let die = cluster / self.clusters;
        Place {
            socket: die / self.dies,
            die: die % self.dies,
            cluster: cluster % self.clusters,
            core: core % self.cores,
            thread,
        }
    }

    /// Place of a vCPU in QEMU's list of all CPUs the machine could have, which
    /// numbers its ACPI objects: threads that single-threaded cores lack count.
    pub fn slot(&self, vcpu: u32) -> u32 {
        let (core, thread) = self.core_and_thread(vcpu);
        core * self.threads + thread
    }

    /// The highest APIC id: each count takes as many bits as it needs, as in
    /// QEMU's `x86_apicid_from_topo_ids()` (`include/hw/i386/topology.h`).
    pub fn last_apic_id(&self) -> u32 {
        let bits = |count: u32| count.next_power_of_two().trailing_zeros();
        let core = self.place(self.count() - 1);
        let thread_bits = bits(self.threads);
        let core_bits = thread_bits + bits(self.cores);
        let cluster_bits = core_bits + bits(self.clusters);
        let die_bits = cluster_bits + bits(self.dies);
        let threads = if self.lone_cores > 0 { 0 } else { core.thread };
        threads
            | core.core << thread_bits
            | core.cluster << core_bits
            | core.die << cluster_bits
            | core.socket << die_bits
    }

    /// Number of the group a vCPU is in, from 0 over the whole machine.
    pub fn group_index(&self, vcpu: u32, level: Level) -> u32 {
        self.core_and_thread(vcpu).0 / self.cores_of(level)
    }

    /// All groups of a level, in order.
    pub fn groups(&self, level: Level) -> Vec<CpuList> {
        let count = self.core_count() / self.cores_of(level);
        let mut groups = vec![CpuList::new(); count as usize];
        for vcpu in 0..self.count() {
            groups[self.group_index(vcpu, level) as usize].insert(vcpu);
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(groups: &[CpuList]) -> Vec<String> {
        groups.iter().map(CpuList::to_string).collect()
    }

    #[test]
    fn threads_count_fastest_and_sockets_slowest() {
        let layout = CpuLayout {
            sockets: 2,
            dies: 2,
            clusters: 2,
            cores: 2,
            threads: 2,
            lone_cores: 0,
        };
        assert_eq!(layout.count(), 32);
        let place = Place {
            socket: 1,
            die: 0,
            cluster: 1,
            core: 0,
            thread: 1,
        };
        assert_eq!(layout.place(21), place);
        let dies = layout.groups(Level::Die);
        assert_eq!(written(&dies), ["0-7", "8-15", "16-23", "24-31"]);
        assert_eq!(layout.groups(Level::Cluster)[5].to_string(), "20-23");
    }

    #[test]
    fn efficient_cores_have_one_thread() {
        let layout = CpuLayout {
            sockets: 1,
            dies: 1,
            clusters: 1,
            cores: 5,
            threads: 2,
            lone_cores: 3,
        };
        assert_eq!(layout.count(), 7);
        let cores = layout.groups(Level::Core);
        assert_eq!(written(&cores), ["0-1", "2-3", "4", "5", "6"]);
        assert_eq!(layout.place(5).core, 3);
        assert_eq!(layout.place(5).thread, 0);
    }
}
