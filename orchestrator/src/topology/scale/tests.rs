use std::path::{Path, PathBuf};

use super::{ScaleError, Scaled, scale};
use crate::{
    document::Document,
    topology::{Topology, size::GIB},
};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../topologies/{name}.yaml"))
}

fn scaled(name: &str, cpus: u32, memory: Option<u64>) -> Result<Scaled, ScaleError> {
    scale(&Document::read(&file(name)).unwrap(), cpus, memory)
}

#[test]
fn a_server_becomes_a_laptop() {
    let scaled = scaled("epyc-192", 8, Some(2 * GIB)).unwrap();
    insta::assert_snapshot!(scaled.text);
    assert_eq!(scaled.topology.memory(), 2 * GIB);
}

/// The library ships the scaled machine; it is what the command writes today.
#[test]
fn the_shipped_scaled_machine_is_up_to_date() {
    let shipped = std::fs::read_to_string(file("epyc-192-scaled")).unwrap();
    assert_eq!(scaled("epyc-192", 8, Some(2 * GIB)).unwrap().text, shipped);
}

#[test]
fn rankings_keep_their_order_and_their_extremes() {
    let scaled = scaled("ryzen-preferred", 8, None).unwrap();
    let rankings = scaled.topology.preferred_cores.unwrap();
    assert_eq!(rankings, [166, 166, 181, 181, 231, 231, 221, 221]);
}

#[test]
fn a_hybrid_processor_keeps_both_kinds() {
    let scaled = scaled("hybrid-4p8e", 8, None).unwrap();
    insta::assert_snapshot!(scaled.text);
}

#[test]
fn far_memory_stays_far() {
    let scaled = scaled("cpuless-cxl", 2, Some(GIB)).unwrap();
    assert_eq!(
        scaled.topology.distances,
        Topology::read(&file("cpuless-cxl")).unwrap().distances
    );
    insta::assert_snapshot!(scaled.text);
}

#[test]
fn levels_go_only_when_they_must() {
    let four = scaled("dies-and-clusters", 4, None).unwrap();
    assert_eq!(four.topology.cpus.clusters, 2);
    let two = scaled("dies-and-clusters", 2, None).unwrap();
    assert_eq!((two.topology.cpus.clusters, two.topology.cpus.dies), (1, 2));
    assert_eq!(two.notes, ["2 clusters per die became one"]);
}

#[test]
fn what_cannot_be_done_is_told() {
    let error = |result: Result<Scaled, ScaleError>| result.unwrap_err().to_string();
    assert_eq!(
        error(scaled("quad-node-ring", 2, None)),
        "2 vCPUs are too few for 4 sockets and 4 nodes with CPUs; at least 4 are needed"
    );
    assert_eq!(
        error(scaled("quad-node-ring", 4, Some(GIB / 4))),
        "256M of memory are too little for 4 nodes; at least 512M are needed"
    );
    assert_eq!(
        error(scaled("smp-4", 8, None)),
        "smp-4 has 4 vCPUs already, which are no more than 8"
    );
    let text = "{name: a, cpus: {cores: 8}, memory: 1G, cmdline: irqaffinity=0 nohz_full=6-7}";
    let unsound = scale(&Document::from_text("a.yaml", text).unwrap(), 4, None);
    insta::assert_snapshot!(error(unsound));
}

/// Every machine of the library, to every size: sound, or told why not.
#[test]
fn whatever_comes_out_is_sound() {
    let folder = file("x").parent().unwrap().to_path_buf();
    for entry in std::fs::read_dir(folder).unwrap() {
        let document = Document::read(&entry.unwrap().path()).unwrap();
        let old = crate::topology::check::check(&document).unwrap();
        for cpus in [1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 64] {
            let Ok(scaled) = scale(&document, cpus, None) else {
                continue;
            };
            let small = &scaled.topology;
            assert!(small.vcpus() <= cpus);
            assert_eq!(small.nodes.len(), old.nodes.len());
            for (old, small) in old.nodes.iter().zip(&small.nodes) {
                assert_eq!(old.cpus.is_empty(), small.cpus.is_empty());
            }
            assert!(small.sets.values().all(|cpus| !cpus.is_empty()));
        }
    }
}
