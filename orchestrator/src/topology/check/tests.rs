use std::path::Path;

use crate::topology::Topology;

/// Every file of `broken/` is refused, in exactly these words.
#[test]
fn every_broken_file_is_refused_in_full() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/topology/check/broken");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let name = file.file_name().unwrap().to_str().unwrap().to_string();
        let text = std::fs::read_to_string(&file).unwrap();
        let problems = match Topology::from_text(&name, &text) {
            Ok(topology) => panic!("{name} was accepted: {topology:?}"),
            Err(problems) => problems,
        };
        assert!(
            problems.list.iter().all(|p| p.line > 0),
            "{name}: {problems}"
        );
        insta::assert_snapshot!(name.trim_end_matches(".yaml"), problems);
    }
}

/// What a file may do when it says that it means it.
#[test]
fn deliberate_oddities_are_accepted() {
    for text in [
        "{name: a, cpus: {cores: 4}, nodes: [{cpus: 0-1, memory: 1G}, {cpus: 2-3, memory: 1G}], deliberate: [llc-spans-nodes]}",
        "{name: a, cpus: {sockets: 2, threads: 2}, nodes: [{cpus: \"0,2\", memory: 1G}, {cpus: \"1,3\", memory: 1G}], deliberate: [core-spans-nodes, llc-spans-nodes]}",
        "{name: a, cpus: {sockets: 2}, nodes: [{cpus: 0}, {cpus: 1, memory: 1G}], deliberate: [memoryless-boot-node]}",
    ] {
        let topology = Topology::from_text("t.yaml", text);
        assert!(topology.is_ok(), "{}", topology.unwrap_err());
    }
}

/// CPUs are spread over nodes that name none.
#[test]
fn nodes_without_lists_share_the_cpus() {
    let text =
        "{name: a, cpus: {sockets: 2, cores: 2, threads: 2}, nodes: [{memory: 1G}, {memory: 1G}]}";
    let topology = Topology::from_text("t.yaml", text).unwrap();
    let lists: Vec<String> = topology.nodes.iter().map(|n| n.cpus.to_string()).collect();
    assert_eq!(lists, ["0-3", "4-7"]);
}
