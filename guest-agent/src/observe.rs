//! What the guest sees of itself, read from sysfs and procfs below a given
//! root folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use topolab_protocol::observed::{CpuView, MemorySideCache, NodeView, Observed};

use crate::cpulist;
use crate::kmsg;

/// Looks at the machine whose files lie below `root` (`/` for the real one).
/// What is not there stays absent.
pub fn observe(root: &Path) -> Observed {
    let system = root.join("sys/devices/system");
    let cpu = system.join("cpu");
    let online = text(&cpu.join("online")).unwrap_or_default();
    Observed {
        kernel_release: text(&root.join("proc/sys/kernel/osrelease")).unwrap_or_default(),
        build_id: fs::read(root.join("sys/kernel/notes"))
            .ok()
            .and_then(|notes| build_id(&notes))
            .unwrap_or_default(),
        cmdline: text(&root.join("proc/cmdline")).unwrap_or_default(),
        possible: text(&cpu.join("possible")).unwrap_or_default(),
        cpus: numbers(&online).map(|n| cpu_view(&cpu, n)).collect(),
        online,
        nodes: nodes(
            &system.join("node"),
            text(&root.join("proc/zoneinfo")).as_deref(),
        ),
        isolated: text(&cpu.join("isolated")),
        nohz_full: text(&cpu.join("nohz_full")).map(no_null),
        itmt_enabled: itmt_files(root)
            .iter()
            .find_map(|file| text(file))
            .map(|on| matches!(on.as_str(), "1" | "Y")),
        prefcore: text(&cpu.join("amd_pstate/prefcore")),
        amd_pstate: text(&cpu.join("amd_pstate/status")),
        domains: domains(&root.join("sys/kernel/debug/sched/domains/cpu0")),
        mem_total: text(&root.join("proc/meminfo"))
            .and_then(|info| mem_total(&info))
            .unwrap_or_default(),
        complaints: complaints(root),
        cpu_model: text(&root.join("proc/cpuinfo"))
            .map(|info| cpu_model(&info))
            .unwrap_or_default(),
        clocksource: text(&system.join("clocksource/clocksource0/current_clocksource"))
            .unwrap_or_default(),
    }
}

/// Where kernels have the ITMT switch: the sysctl, and since 6.15 debugfs.
pub fn itmt_files(root: &Path) -> [PathBuf; 2] {
    [
        root.join("proc/sys/kernel/sched_itmt_enabled"),
        root.join("sys/kernel/debug/x86/sched_itmt_enabled"),
    ]
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim_end().to_string())
}

fn value<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.trim().parse().ok()
}

/// An empty mask prints as `(null)` in `nohz_full` on kernels where it was
/// never allocated, with blanks before it when there are many CPUs.
fn no_null(list: String) -> String {
    if list.trim() == "(null)" {
        String::new()
    } else {
        list
    }
}

fn numbers(list: &str) -> impl Iterator<Item = u32> {
    cpulist::parse(list)
        .unwrap_or_default()
        .into_iter()
        .map(|n| u32::try_from(n).expect("cpulist::parse bounds its numbers"))
}

fn cpu_view(cpus: &Path, cpu: u32) -> CpuView {
    let folder = cpus.join(format!("cpu{cpu}"));
    let topology = |name: &str| folder.join("topology").join(name);
    let cpufreq = |name: &str| folder.join("cpufreq").join(name);
    let (llc_level, llc) = last_level_cache(&folder.join("cache")).unzip();
    CpuView {
        cpu,
        package: value(&topology("physical_package_id")),
        die: value(&topology("die_id")),
        cluster: value(&topology("cluster_id")),
        core: value(&topology("core_id")),
        smt_siblings: text(&topology("thread_siblings_list")),
        die_siblings: text(&topology("die_cpus_list")),
        cluster_siblings: text(&topology("cluster_cpus_list")),
        package_siblings: text(&topology("package_cpus_list")),
        llc,
        llc_level,
        ranking: value(&cpufreq("amd_pstate_prefcore_ranking")),
        highest_perf: value(&cpufreq("amd_pstate_highest_perf")),
        governor: text(&cpufreq("scaling_governor")),
    }
}

fn last_level_cache(caches: &Path) -> Option<(u32, String)> {
    let indexes = fs::read_dir(caches).ok()?.flatten();
    indexes
        .map(|entry| entry.path())
        .filter(|index| text(&index.join("type")).as_deref() == Some("Unified"))
        .filter_map(|index| {
            let shared = text(&index.join("shared_cpu_list"))?;
            Some((value(&index.join("level"))?, shared))
        })
        .max_by_key(|(level, _)| *level)
}

fn nodes(folder: &Path, zones: Option<&str>) -> Vec<NodeView> {
    let online = text(&folder.join("online")).unwrap_or_default();
    numbers(&online)
        .map(|node| node_view(folder, node, zones))
        .collect()
}

fn node_view(nodes: &Path, node: u32, zones: Option<&str>) -> NodeView {
    let folder = nodes.join(format!("node{node}"));
    let distances = text(&folder.join("distance")).unwrap_or_default();
    let access = folder.join("access0/initiators");
    let attributes = [
        "read_bandwidth",
        "read_latency",
        "write_bandwidth",
        "write_latency",
    ];
    let access0 = attributes
        .into_iter()
        .filter_map(|name| Some((name.to_string(), value(&access.join(name))?)))
        .collect();
    let mut initiators0: Vec<u32> = children(&access)
        .filter_map(|name| name.strip_prefix("node")?.parse().ok())
        .collect();
    initiators0.sort_unstable();
    let caches = folder.join("memory_side_cache");
    let mut memory_caches: Vec<MemorySideCache> = children(&caches)
        .filter_map(|name| {
            let level = name.strip_prefix("index")?.parse().ok()?;
            let size = value(&caches.join(&name).join("size"))?;
            Some(MemorySideCache { level, size })
        })
        .collect();
    memory_caches.sort_by_key(|cache| cache.level);
    NodeView {
        node,
        cpus: text(&folder.join("cpulist")).unwrap_or_default(),
        mem_total: text(&folder.join("meminfo"))
            .and_then(|info| mem_total(&info))
            .unwrap_or_default(),
        mem_present: zones.map(|zones| present(zones, node)),
        distances: distances
            .split_whitespace()
            .filter_map(|distance| distance.parse().ok())
            .collect(),
        access0,
        initiators0,
        memory_caches,
    }
}

fn children(folder: &Path) -> impl Iterator<Item = String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// `MemTotal` in bytes from `/proc/meminfo` or a node's `meminfo`.
fn mem_total(info: &str) -> Option<u64> {
    let (_, rest) = info.split_once("MemTotal:")?;
    let kib: u64 = rest.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Bytes present in the zones of a node, from `/proc/zoneinfo`: a line
/// `Node N, zone NAME` before each zone, and `present PAGES` within it.
fn present(zones: &str, node: u32) -> u64 {
    let mut pages = 0;
    let mut here = false;
    for line in zones.lines() {
        if let Some(rest) = line.strip_prefix("Node ") {
            let number = rest.split(',').next().and_then(|n| n.trim().parse().ok());
            here = number == Some(node);
        } else if let Some(count) = line.trim().strip_prefix("present ")
            && here
        {
            pages += count.trim().parse().unwrap_or(0);
        }
    }
    pages * rustix::param::page_size() as u64
}

/// Vendor and model of the first CPU of `/proc/cpuinfo`.
fn cpu_model(info: &str) -> String {
    let field = |name: &str| {
        info.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key.trim() == name).then(|| value.trim())
        })
    };
    let parts: Vec<&str> = [field("vendor_id"), field("model name")]
        .into_iter()
        .flatten()
        .collect();
    parts.join(" ")
}

fn domains(cpu: &Path) -> BTreeMap<String, String> {
    children(cpu)
        .filter(|name| name.starts_with("domain"))
        .filter_map(|name| {
            let folder = cpu.join(name);
            Some((text(&folder.join("name"))?, text(&folder.join("flags"))?))
        })
        .collect()
}

/// The GNU build id in a series of ELF notes (`elf(5)`, "Notes"): three 32-bit
/// words (sizes of name and descriptor, type), then both, each padded to four bytes.
fn build_id(mut notes: &[u8]) -> Option<String> {
    const NT_GNU_BUILD_ID: u32 = 3;
    loop {
        let word = |at: usize| {
            let word = notes.get(at..at + 4)?;
            Some(u32::from_ne_bytes(word.try_into().expect("four bytes")))
        };
        let (name_size, size, kind) = (word(0)?, word(4)?, word(8)?);
        let name_size = usize::try_from(name_size).ok()?;
        let size = usize::try_from(size).ok()?;
        let start = 12usize.checked_add(name_size.checked_next_multiple_of(4)?)?;
        let name = notes.get(12..12usize.checked_add(name_size)?)?;
        let id = notes.get(start..start.checked_add(size)?)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            return Some(id.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = notes.get(start.checked_add(size.checked_next_multiple_of(4)?)?..)?;
    }
}

/// Parts of kernel messages that say the topology is not what the firmware
/// tables claim, or that a part of it is ignored. From Linux 6.12:
/// `kernel/sched/topology.c`, `kernel/sched/isolation.c`,
/// `arch/x86/kernel/smpboot.c`, `arch/x86/kernel/cpu/topology*.c`,
/// `arch/x86/mm/srat.c`, `drivers/acpi/numa/srat.c`, `mm/numa_memblks.c`,
/// `drivers/base/cacheinfo.c`.
const COMPLAINTS: &[&str] = &[
    "BUG: arch topology borken",
    "domain not a subset of the",
    "Failed to find a NUMA topology type",
    "ERROR: Invalid distance value range",
    "ERROR: domain->",
    "ERROR: groups don't span",
    "ERROR: parent span is not a superset",
    "is not on the same node!",
    "SLIT table looks invalid",
    "SRAT: SRAT not used",
    "SRAT: Too many proximity domains",
    "SRAT: Failed to add memblk",
    "SRAT: Unexpected header length",
    "skipped apicid that is too big",
    "rejecting NUMA config",
    "node ids are out of bound",
    "invalid distance parameter",
    "Warning: invalid memblk node",
    "too many memblk ranges",
    "APIC ID mismatch",
    "Topology domain",
    "do_boot_cpu failed",
    "CPU limit of",
    "possible CPUs exceed the limit of",
    "Unable to detect cache hierarchy",
    "Housekeeping: ",
    "isolcpus: Invalid flag",
    "isolcpus: Skipped unknown flag",
];

fn complaints(root: &Path) -> Vec<String> {
    let Ok(mut log) = kmsg::Reader::open(root) else {
        return Vec::new();
    };
    let records = log.records().into_iter();
    records
        .filter(|record| record.by_kernel() && complains(&record.text))
        .map(|record| record.text)
        .collect()
}

fn complains(message: &str) -> bool {
    COMPLAINTS.iter().any(|part| message.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn note(name: &[u8], kind: u32, descriptor: &[u8]) -> Vec<u8> {
        let mut note = Vec::new();
        for word in [name.len() as u32, descriptor.len() as u32, kind] {
            note.extend(word.to_ne_bytes());
        }
        for part in [name, descriptor] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn the_build_id_is_found_among_other_notes() {
        let mut notes = note(b"Xen\0", 3, &[1, 2, 3]);
        notes.extend(note(b"GNU\0", 3, &[0xde, 0xad, 0x00, 0x0f]));
        assert_eq!(build_id(&notes).as_deref(), Some("dead000f"));
        for cut in 0..notes.len() {
            assert_eq!(build_id(&notes[..cut]), None, "cut at {cut}");
        }
        assert_eq!(build_id(&[0xff; 64]), None);
    }

    #[test]
    fn an_empty_machine_is_all_absent() {
        let root = fixture(&[]);
        assert_eq!(observe(root.path()), Observed::default());
    }

    #[test]
    fn a_machine_is_read_whole() {
        let cpu = "sys/devices/system/cpu";
        let node = "sys/devices/system/node";
        let mut files = vec![
            ("proc/sys/kernel/osrelease".into(), "6.12.1\n"),
            ("proc/cmdline".into(), "console=ttyS0 isolcpus=1\n"),
            (
                "proc/meminfo".into(),
                "MemTotal:        1024 kB\nMemFree: 1 kB\n",
            ),
            (
                "proc/cpuinfo".into(),
                "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\n\nprocessor\t: 1\nvendor_id\t: Other\n",
            ),
            ("proc/sys/kernel/sched_itmt_enabled".into(), "1\n"),
            (format!("{cpu}/online"), "0-1\n"),
            (format!("{cpu}/possible"), "0-3\n"),
            (format!("{cpu}/isolated"), "1\n"),
            (format!("{cpu}/nohz_full"), "  (null)\n"),
            (
                "proc/zoneinfo".into(),
                "Node 0, zone      DMA\n  pages free     7\n        spanned  500\n        present  100\n\
                 Node 0, zone   Normal\n        present  200\n\
                 Node 1, zone   Normal\n        present  900\n",
            ),
            (format!("{node}/online"), "0\n"),
            (format!("{node}/node0/cpulist"), "0-1\n"),
            (format!("{node}/node0/distance"), "10\n"),
            (
                format!("{node}/node0/meminfo"),
                "Node 0 MemTotal:  512 kB\n",
            ),
            (
                format!("{node}/node0/access0/initiators/read_latency"),
                "100\n",
            ),
            (format!("{node}/node0/access0/initiators/node0/x"), ""),
            (
                format!("{node}/node0/memory_side_cache/index1/size"),
                "4096\n",
            ),
            (
                "sys/kernel/debug/sched/domains/cpu0/domain0/name".into(),
                "MC\n",
            ),
            (
                "sys/kernel/debug/sched/domains/cpu0/domain0/flags".into(),
                "SD_BALANCE_NEWIDLE SD_ASYM_PACKING \n",
            ),
        ];
        for (level, kind, index) in [("1", "Data", 0), ("2", "Unified", 1), ("3", "Unified", 2)] {
            let cache = format!("{cpu}/cpu0/cache/index{index}");
            files.push((format!("{cache}/level"), level));
            files.push((format!("{cache}/type"), kind));
            files.push((format!("{cache}/shared_cpu_list"), "0-1\n"));
        }
        files.push((format!("{cpu}/cpu0/topology/core_id"), "0\n"));
        files.push((format!("{cpu}/cpu0/topology/die_id"), "-1\n"));
        files.push((
            format!("{cpu}/cpu0/cpufreq/amd_pstate_prefcore_ranking"),
            "166\n",
        ));
        let files: Vec<(&str, &str)> = files
            .iter()
            .map(|(p, c): &(String, _)| (&**p, *c))
            .collect();
        let root = fixture(&files);
        let seen = observe(root.path());
        assert_eq!(seen.kernel_release, "6.12.1");
        assert_eq!(seen.cmdline, "console=ttyS0 isolcpus=1");
        assert_eq!(
            (seen.online.as_str(), seen.possible.as_str()),
            ("0-1", "0-3")
        );
        assert_eq!(seen.mem_total, 1024 * 1024);
        assert_eq!(seen.cpu_model, "AuthenticAMD AMD EPYC");
        assert_eq!(seen.itmt_enabled, Some(true));
        assert_eq!(seen.isolated.as_deref(), Some("1"));
        assert_eq!(seen.nohz_full.as_deref(), Some(""));
        assert_eq!(seen.domains["MC"], "SD_BALANCE_NEWIDLE SD_ASYM_PACKING");
        let first = &seen.cpus[0];
        assert_eq!((first.core, first.die), (Some(0), Some(-1)));
        assert_eq!(
            (first.llc_level, first.llc.as_deref()),
            (Some(3), Some("0-1"))
        );
        assert_eq!(first.ranking, Some(166));
        assert_eq!(seen.cpus[1].cpu, 1);
        let node = &seen.nodes[0];
        assert_eq!(
            (node.mem_total, node.distances.as_slice()),
            (512 * 1024, &[10][..])
        );
        assert_eq!(node.access0["read_latency"], 100);
        assert_eq!(node.initiators0, [0]);
        let cache = MemorySideCache {
            level: 1,
            size: 4096,
        };
        assert_eq!(node.memory_caches, [cache]);
        assert_eq!(node.mem_present, Some(300 * 4096));
    }

    #[test]
    fn complaints_are_recognised() {
        for line in [
            "BUG: arch topology borken",
            "     the MC domain not a subset of the PKG domain",
            "sched: CPU #4's llc-sibling CPU #0 is not on the same node! [node: 1 != 0]. Ignoring dependency.",
            "isolcpus: Skipped unknown flag nohzz",
        ] {
            assert!(complains(line), "{line}");
        }
        for line in [
            "SRAT: PXM 0 -> APIC 0x00 -> Node 0",
            "CPU topo: Max. logical packages:   2",
            "Faking a node at [mem 0x0-0x3fffffff]",
        ] {
            assert!(!complains(line), "{line}");
        }
    }
}
