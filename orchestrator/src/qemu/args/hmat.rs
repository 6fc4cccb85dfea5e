//! Heterogeneous memory: latencies, bandwidths and memory-side caches.

use super::{Args, Value};
use crate::topology::{Associativity, Topology, WritePolicy, size::MIB};

/// Adds the table. QEMU wants latencies and bandwidths before caches.
pub(super) fn add(args: &mut Args, topology: &Topology) {
    let Some(hmat) = &topology.hmat else {
        return;
    };
    for path in &hmat.paths {
        let lb = |kind: &str| {
            Value::new("hmat-lb")
                .set("initiator", path.initiator)
                .set("target", path.target)
                .set("hierarchy", "memory")
                .set("data-type", kind)
        };
        args.add("-numa", lb("access-latency").set("latency", path.latency));
        let bandwidth = format!("{}M", path.bandwidth / MIB);
        args.add("-numa", lb("access-bandwidth").set("bandwidth", bandwidth));
    }
    for cache in &hmat.caches {
        let associativity = match cache.associativity {
            Associativity::None => "none",
            Associativity::Direct => "direct",
            Associativity::Complex => "complex",
        };
        let policy = match cache.policy {
            WritePolicy::None => "none",
            WritePolicy::WriteBack => "write-back",
            WritePolicy::WriteThrough => "write-through",
        };
        let value = Value::new("hmat-cache")
            .set("node-id", cache.node)
            .set("size", format!("{}K", cache.size / 1024))
            .set("level", cache.level)
            .set("associativity", associativity)
            .set("policy", policy)
            .set("line", cache.line);
        args.add("-numa", value);
    }
}
