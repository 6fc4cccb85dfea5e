//! The campaign of the main job.

use topolab_protocol::sample::MetricKind;

use crate::synthetic::{Campaign, campaign, normal, sample};

/// The experiment of the README, on a bench whose timing cannot be trusted.
pub const NUMA_SCAN: &str = "\
name: numa-scan
kernels: [linux-6.12@base, linux-6.12+numa-scan-skip@all]
topologies: [dual-node-4]
settings:
  pinned-node0: {cgroups: {work: {cpuset.mems: '0'}}, sysctl: {kernel.numa_balancing: 1}}
  unpinned: {sysctl: {kernel.numa_balancing: 1}}
workloads:
  scan: {numa-scan: {memory: 256M, seconds: 5, cgroup: work}}
rounds: 6
compare:
  baseline: {kernels: linux-6.12@base}
  metrics:
    numa_pte_updates: {better: lower, min_effect: 5%, gate: {must_be: 0, where: {kernels: '*@all', settings: pinned-node0}}}
    passes: {}
";

/// The campaign of [`NUMA_SCAN`]: the patched kernel does not scan pinned memory.
pub fn numa_scan(seed: u64) -> Campaign {
    campaign(NUMA_SCAN, seed, |cell, random| {
        let gone = cell.kernel.ends_with("@all") && cell.settings == "pinned-node0";
        let updates = if gone {
            0.0
        } else {
            (50_000.0 * (1.0 + 0.03 * normal(random))).round()
        };
        let passes = 12.0 * (1.0 + 0.1 * normal(random));
        vec![
            sample("numa_pte_updates", MetricKind::Count, "count", updates),
            sample("passes", MetricKind::Rate, "passes/s", passes),
        ]
    })
}
