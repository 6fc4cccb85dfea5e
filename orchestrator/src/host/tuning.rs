//! How the host is set up, as far as it disturbs measurements.

use std::{collections::BTreeMap, fs, path::Path};

use serde::Serialize;

use super::Inventory;
use crate::topology::CpuList;

/// Switches and loads of a host. `None` where it does not show them.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Tuning {
    /// Frequency governors and the CPUs they govern.
    pub governors: BTreeMap<String, CpuList>,
    /// CPUs may run faster than their nominal frequency.
    pub boost: Option<bool>,
    /// Kernel samepage merging scans memory.
    pub ksm: Option<bool>,
    /// `on`, `off`, `forceoff`, `notsupported`, `notimplemented`.
    pub smt: Option<String>,
    /// Guests may run guests (module parameter `nested`).
    pub nested: Option<bool>,
    /// This host is a guest itself.
    pub virtual_machine: bool,
    /// Processes that run or want to, averaged over a minute.
    pub load: Option<f64>,
    /// Bytes of memory that programs can still get.
    pub available: Option<u64>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Pressure accounting is there (`/proc/pressure`).
    pub pressure: bool,
    /// Run delay of threads is there (`/proc/self/schedstat`).
    pub run_delay: bool,
}

impl Tuning {
    /// Looks at the host whose `proc` and `sys` lie below `root`.
    pub fn read(root: &Path, inventory: &Inventory) -> Self {
        let text = |path: &str| {
            let text = fs::read_to_string(root.join(path)).ok()?;
            Some(text.trim().to_string())
        };
        let switch = |path: &str| Some(matches!(&*text(path)?, "1" | "Y" | "y"));
        let mut governors: BTreeMap<String, CpuList> = BTreeMap::new();
        for cpu in inventory.online.iter() {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
            if let Some(governor) = text(&path) {
                governors.entry(governor).or_default().insert(cpu);
            }
        }
        let no_turbo = switch("sys/devices/system/cpu/intel_pstate/no_turbo").map(|off| !off);
        let info = text("proc/cpuinfo").unwrap_or_default();
        let flags = info.lines().find(|line| line.starts_with("flags"));
        let memory = text("proc/meminfo").unwrap_or_default();
        let bytes = |name: &str| {
            let rest = memory.lines().find_map(|line| line.strip_prefix(name))?;
            Some(rest.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
        };
        Self {
            governors,
            boost: switch("sys/devices/system/cpu/cpufreq/boost").or(no_turbo),
            ksm: switch("sys/kernel/mm/ksm/run"),
            smt: text("sys/devices/system/cpu/smt/control"),
            nested: switch("sys/module/kvm_intel/parameters/nested")
                .or_else(|| switch("sys/module/kvm_amd/parameters/nested")),
            virtual_machine: flags
                .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
            load: text("proc/loadavg")
                .and_then(|load| load.split_whitespace().next()?.parse().ok()),
            available: bytes("MemAvailable:"),
            memory: bytes("MemTotal:"),
            pressure: root.join("proc/pressure/cpu").exists(),
            run_delay: root.join("proc/self/schedstat").exists(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::inventory::fixture;

    #[test]
    fn switches_are_read_where_they_are() {
        let host = fixture::laptop();
        for cpu in 0..8 {
            let governor = if cpu == 3 { "performance" } else { "powersave" };
            let path = format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor");
            host.write(&path, governor);
        }
        host.write("sys/devices/system/cpu/intel_pstate/no_turbo", "0");
        host.write("sys/kernel/mm/ksm/run", "0");
        host.write("sys/module/kvm_intel/parameters/nested", "Y");
        host.write(
            "proc/cpuinfo",
            "processor\t: 0\nflags\t\t: fpu hypervisor sse",
        );
        host.write("proc/loadavg", "1.25 0.50 0.25 1/100 1234");
        host.write("proc/meminfo", "MemTotal:  2048 kB\nMemAvailable:  1024 kB");
        let inventory = Inventory::read(host.path()).unwrap();
        let tuning = Tuning::read(host.path(), &inventory);
        assert_eq!(tuning.governors["powersave"].to_string(), "0-2,4-7");
        assert_eq!(tuning.boost, Some(true));
        assert_eq!(tuning.ksm, Some(false));
        assert_eq!(tuning.smt, None);
        assert_eq!(tuning.nested, Some(true));
        assert!(tuning.virtual_machine);
        assert_eq!(tuning.load, Some(1.25));
        assert_eq!(tuning.available, Some(1 << 20));
        assert!(!tuning.pressure);
    }

    #[test]
    fn a_bare_host_shows_nothing() {
        let host = fixture::Host::new("0", "0");
        let inventory = Inventory::read(host.path()).unwrap();
        assert_eq!(Tuning::read(host.path(), &inventory), Tuning::default());
    }
}
