//! The host's CPUs, cores, caches and nodes, from sysfs and procfs.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::Serialize;

use crate::topology::{CpuList, MAX_CPUS};

/// What the host has, and what of it this process may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Inventory {
    /// CPUs that run.
    pub online: CpuList,
    /// CPUs this process may run on: its affinity within its cpuset.
    pub allowed: CpuList,
    /// One entry per online CPU, ascending.
    pub cpus: Vec<HostCpu>,
    /// NUMA nodes, ascending. A host that shows none counts as one node.
    pub nodes: Vec<HostNode>,
}

/// An online CPU of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostCpu {
    /// Its number.
    pub cpu: u32,
    /// Socket.
    pub package: u32,
    /// Its hardware threads, itself included.
    pub siblings: CpuList,
    /// CPUs that share its last-level cache, itself included.
    pub llc: CpuList,
    /// Its node.
    pub node: u32,
    /// What kind of core it is.
    pub kind: CoreKind,
}

/// Kinds of cores on one processor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CoreKind {
    /// All cores alike, or a fast one of a hybrid processor.
    Performance,
    /// A slow one of a hybrid processor.
    Efficient,
}

/// A NUMA node of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HostNode {
    /// Its number.
    pub node: u32,
    /// Its online CPUs.
    pub cpus: CpuList,
    /// Bytes of memory.
    pub memory: u64,
    /// Bytes of memory nobody uses.
    pub free: u64,
    /// Free huge pages by their size in bytes.
    pub hugepages: BTreeMap<u64, u64>,
}

/// Why the host could not be looked at.
#[derive(Debug, thiserror::Error)]
pub enum InventoryError {
    /// A file that every Linux host has is not there.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A file holds something else than a list of CPUs.
    #[error("`{}` holds `{text}`, which is no list of CPUs", path.display())]
    List {
        /// The file.
        path: PathBuf,
        /// Its content.
        text: String,
    },
}

impl Inventory {
    /// Looks at the host whose `proc` and `sys` lie below `root`.
    ///
    /// # Errors
    /// When the list of online CPUs cannot be read. Everything else has a
    /// sensible default: containers hide a lot.
    pub fn read(root: &Path) -> Result<Self, InventoryError> {
        let system = root.join("sys/devices/system");
        let online = list(&system.join("cpu/online"))?;
        let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
        let allowed = status
            .lines()
            .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
            .and_then(|text| CpuList::parse(text.trim(), MAX_CPUS).ok())
            .map_or_else(|| online.clone(), |allowed| allowed.and(&online));
        let nodes = nodes(&system, &online);
        // Intel's hybrid processors register one PMU per kind of core.
        let efficient = list(&root.join("sys/devices/cpu_atom/cpus")).unwrap_or_default();
        let cpus = online
            .iter()
            .map(|cpu| {
                let folder = system.join(format!("cpu/cpu{cpu}"));
                let alone = CpuList::from_iter([cpu]);
                let siblings = list(&folder.join("topology/thread_siblings_list"));
                HostCpu {
                    cpu,
                    package: number(&folder.join("topology/physical_package_id")).unwrap_or(0),
                    siblings: siblings.unwrap_or_else(|_| alone.clone()).and(&online),
                    llc: last_level_cache(&folder).unwrap_or(alone).and(&online),
                    node: nodes
                        .iter()
                        .find(|node| node.cpus.contains(cpu))
                        .map_or(0, |node| node.node),
                    kind: if efficient.contains(cpu) {
                        CoreKind::Efficient
                    } else {
                        CoreKind::Performance
                    },
                }
            })
            .collect();
        Ok(Self {
            online,
            allowed,
            cpus,
            nodes,
        })
    }

    /// A CPU by its number.
    pub fn cpu(&self, cpu: u32) -> Option<&HostCpu> {
        self.cpus.iter().find(|host| host.cpu == cpu)
    }

    /// All hardware threads of the cores that these CPUs belong to.
    pub fn whole_cores(&self, cpus: &CpuList) -> CpuList {
        let cores = cpus.iter().filter_map(|cpu| self.cpu(cpu));
        cores.fold(cpus.clone(), |all, host| all.or(&host.siblings))
    }

    /// Hardware threads of the widest core: 1 without SMT.
    pub fn threads_per_core(&self) -> u32 {
        self.cpus
            .iter()
            .map(|cpu| cpu.siblings.len())
            .max()
            .unwrap_or(1)
    }

    /// Whether the processor has cores of two kinds.
    pub fn is_hybrid(&self) -> bool {
        let efficient = |cpu: &HostCpu| cpu.kind == CoreKind::Efficient;
        self.cpus.iter().any(efficient) && !self.cpus.iter().all(efficient)
    }
}

/// `shared_cpu_list` of the deepest data or unified cache.
fn last_level_cache(cpu: &Path) -> Option<CpuList> {
    let caches = fs::read_dir(cpu.join("cache")).ok()?.flatten();
    let deepest = caches
        .filter_map(|entry| {
            let folder = entry.path();
            let kind = fs::read_to_string(folder.join("type")).ok()?;
            let level = number(&folder.join("level"))?;
            (kind.trim() != "Instruction").then_some((level, folder))
        })
        .max()?;
    list(&deepest.1.join("shared_cpu_list")).ok()
}

fn nodes(system: &Path, online: &CpuList) -> Vec<HostNode> {
    let entries = fs::read_dir(system.join("node"))
        .into_iter()
        .flatten()
        .flatten();
    let mut nodes: Vec<HostNode> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let node: u32 = name.strip_prefix("node")?.parse().ok()?;
            let folder = entry.path();
            let meminfo = fs::read_to_string(folder.join("meminfo")).unwrap_or_default();
            Some(HostNode {
                node,
                cpus: list(&folder.join("cpulist"))
                    .unwrap_or_default()
                    .and(online),
                memory: meminfo_bytes(&meminfo, "MemTotal:"),
                free: meminfo_bytes(&meminfo, "MemFree:"),
                hugepages: hugepages(&folder.join("hugepages")),
            })
        })
        .collect();
    nodes.sort_by_key(|node| node.node);
    if nodes.is_empty() {
        nodes.push(HostNode {
            node: 0,
            cpus: online.clone(),
            memory: 0,
            free: 0,
            hugepages: BTreeMap::new(),
        });
    }
    nodes
}

/// A line such as `Node 0 MemTotal:  1024 kB`.
fn meminfo_bytes(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.split_once(name));
    let kib = line.and_then(|(_, rest)| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn hugepages(folder: &Path) -> BTreeMap<u64, u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let kib: u64 = name
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            let free = fs::read_to_string(entry.path().join("free_hugepages")).ok()?;
            Some((kib * 1024, free.trim().parse().ok()?))
        })
        .collect()
}

fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn list(path: &Path) -> Result<CpuList, InventoryError> {
    let text = fs::read_to_string(path).map_err(|source| InventoryError::Read {
        path: path.into(),
        source,
    })?;
    let text = text.trim();
    if text.is_empty() {
        return Ok(CpuList::new());
    }
    CpuList::parse(text, MAX_CPUS).map_err(|_| InventoryError::List {
        path: path.into(),
        text: text.into(),
    })
}

#[cfg(test)]
pub(super) mod fixture {
    //! Folders of files that stand for hosts.

    use std::{fs, path::Path};

    /// A host being written down.
    pub struct Host {
        pub root: tempfile::TempDir,
    }

    impl Host {
        pub fn new(online: &str, allowed: &str) -> Self {
            let host = Self {
                root: tempfile::tempdir().unwrap(),
            };
            host.write("sys/devices/system/cpu/online", online);
            let status = format!("Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t{allowed}\n");
            host.write("proc/self/status", &status);
            host
        }

        pub fn path(&self) -> &Path {
            self.root.path()
        }

        pub fn write(&self, file: &str, text: &str) {
            let path = self.root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }

        /// A CPU with its package, siblings and the CPUs behind its L3.
        pub fn cpu(&self, cpu: u32, package: u32, siblings: &str, llc: &str) {
            let folder = format!("sys/devices/system/cpu/cpu{cpu}");
            self.write(
                &format!("{folder}/topology/physical_package_id"),
                &package.to_string(),
            );
            self.write(&format!("{folder}/topology/thread_siblings_list"), siblings);
            for (index, level, kind, shared) in [
                (0, 1, "Data", siblings),
                (1, 1, "Instruction", siblings),
                (2, 2, "Unified", siblings),
                (3, 3, "Unified", llc),
            ] {
                let cache = format!("{folder}/cache/index{index}");
                self.write(&format!("{cache}/level"), &level.to_string());
                self.write(&format!("{cache}/type"), kind);
                self.write(&format!("{cache}/shared_cpu_list"), shared);
            }
        }

        pub fn node(&self, node: u32, cpus: &str, gib: u64) {
            let folder = format!("sys/devices/system/node/node{node}");
            self.write(&format!("{folder}/cpulist"), cpus);
            let kib = gib << 20;
            let meminfo = format!(
                "Node {node} MemTotal:       {kib} kB\nNode {node} MemFree:        {} kB",
                kib / 2
            );
            self.write(&format!("{folder}/meminfo"), &meminfo);
        }
    }

    /// A laptop: 4 cores with 2 threads each (0 and 4, 1 and 5, …), one node.
    pub fn laptop() -> Host {
        let host = Host::new("0-7", "0-7");
        for cpu in 0..8 {
            let first = cpu % 4;
            host.cpu(cpu, 0, &format!("{first},{}", first + 4), "0-7");
        }
        host.node(0, "0-7", 16);
        host
    }

    /// A hybrid laptop: 2 performance cores with 2 threads (0-1, 2-3), 4
    /// efficient cores (4-7).
    pub fn hybrid() -> Host {
        let host = Host::new("0-7", "0-7");
        for cpu in 0..4 {
            let first = cpu / 2 * 2;
            host.cpu(cpu, 0, &format!("{first}-{}", first + 1), "0-7");
        }
        for cpu in 4..8 {
            host.cpu(cpu, 0, &cpu.to_string(), "0-7");
        }
        host.write("sys/devices/cpu_core/cpus", "0-3");
        host.write("sys/devices/cpu_atom/cpus", "4-7");
        host.node(0, "0-7", 32);
        host
    }

    /// A server: 2 sockets and nodes, 4 cores with 2 threads in each, CPU 3
    /// (and with it a thread of a core of the first socket) offline.
    pub fn server() -> Host {
        let host = Host::new("0-2,4-15", "0-2,4-15");
        for cpu in (0..16).filter(|cpu| *cpu != 3) {
            let first = cpu % 8;
            let siblings = match first {
                3 => "11".to_string(),
                _ => format!("{first},{}", first + 8),
            };
            let package = first / 4;
            let llc = if package == 0 {
                "0-2,8-11"
            } else {
                "4-7,12-15"
            };
            host.cpu(cpu, package, &siblings, llc);
        }
        host.node(0, "0-2,8-11", 64);
        host.node(1, "4-7,12-15", 64);
        host.write(
            "sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages",
            "512",
        );
        host
    }

    /// A container on the laptop that may use two threads of different cores.
    pub fn container() -> Host {
        let host = laptop();
        host.write("proc/self/status", "Cpus_allowed_list:\t1-2");
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(host: &fixture::Host) -> Inventory {
        Inventory::read(host.path()).unwrap()
    }

    #[test]
    fn a_laptop() {
        let host = read(&fixture::laptop());
        assert_eq!(host.cpus.len(), 8);
        assert_eq!(host.cpu(5).unwrap().siblings.to_string(), "1,5");
        assert_eq!(host.cpu(5).unwrap().llc.to_string(), "0-7");
        assert_eq!(host.threads_per_core(), 2);
        assert_eq!(host.nodes.len(), 1);
        assert_eq!(host.nodes[0].memory, 16 << 30);
        assert_eq!(host.nodes[0].free, 8 << 30);
        assert!(!host.is_hybrid());
        assert_eq!(
            host.whole_cores(&CpuList::from_iter([1, 6])).to_string(),
            "1-2,5-6"
        );
    }

    #[test]
    fn a_hybrid_laptop() {
        let host = read(&fixture::hybrid());
        assert!(host.is_hybrid());
        assert_eq!(host.cpu(3).unwrap().kind, CoreKind::Performance);
        assert_eq!(host.cpu(4).unwrap().kind, CoreKind::Efficient);
    }

    #[test]
    fn a_server_with_an_offline_cpu() {
        let host = read(&fixture::server());
        assert_eq!(host.online.to_string(), "0-2,4-15");
        assert!(host.cpu(3).is_none());
        assert_eq!(host.cpu(11).unwrap().siblings.to_string(), "11");
        assert_eq!(host.cpu(12).unwrap().node, 1);
        assert_eq!(host.nodes[1].hugepages[&(2 << 20)], 512);
    }

    #[test]
    fn a_container_may_use_part_of_the_host() {
        let host = read(&fixture::container());
        assert_eq!(host.allowed.to_string(), "1-2");
        assert_eq!(host.online.to_string(), "0-7");
    }

    #[test]
    fn a_host_that_hides_its_sysfs_has_cpus_all_the_same() {
        let bare = fixture::Host::new("0-1", "0-1");
        let host = read(&bare);
        assert_eq!(host.cpu(1).unwrap().siblings.to_string(), "1");
        assert_eq!(host.nodes[0].cpus.to_string(), "0-1");
        let nothing = tempfile::tempdir().unwrap();
        let error = Inventory::read(nothing.path()).unwrap_err().to_string();
        assert!(error.ends_with("cpu/online`"), "{error}");
    }

    #[test]
    fn the_host_of_this_test_can_be_read() {
        let host = Inventory::read(Path::new("/")).unwrap();
        assert!(!host.allowed.is_empty());
        assert!(host.allowed.is_subset(&host.online));
    }
}
