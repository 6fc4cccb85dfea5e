use std::path::Path;

use super::{svg, text};
use crate::topology::Topology;

fn library() -> Vec<Topology> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
        .iter()
        .map(|file| Topology::read(file).unwrap_or_else(|problems| panic!("{problems}")))
        .collect()
}

#[test]
fn every_shipped_topology_has_its_drawing() {
    for topology in library() {
        insta::assert_snapshot!(topology.name.clone(), text(&topology, 100));
    }
}

#[test]
fn drawings_fit() {
    for topology in library() {
        for width in [80, 100] {
            let drawing = text(&topology, width);
            let words_fit = topology
                .cmdline
                .split(' ')
                .all(|word| word.len() + 12 < width);
            let widest = drawing
                .lines()
                .map(|line| line.chars().count())
                .max()
                .unwrap();
            assert!(
                !words_fit || widest <= width,
                "{widest} > {width}:\n{drawing}"
            );
        }
    }
}

#[test]
fn svg_holds_every_cpu_of_a_small_machine() {
    for topology in library().into_iter().filter(|t| t.vcpus() <= 64) {
        let drawing = svg(&topology);
        assert!(drawing.starts_with("<svg xmlns"), "{drawing}");
        for cpu in 0..topology.vcpus() {
            assert!(
                drawing.contains(&format!(">{cpu}</text>")),
                "{}: {cpu}",
                topology.name
            );
        }
    }
}
