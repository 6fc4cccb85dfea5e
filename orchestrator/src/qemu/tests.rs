//! The whole command line of every topology in the library.

use std::path::Path;

use super::args::{Accel, BOOT_WORDS, Bench, Capabilities, Chardev, Devices, TcgThread, build};
use crate::topology::Topology;

fn command(topology: &Topology) -> String {
    let bench = Bench {
        accel: Accel::Tcg {
            thread: TcgThread::Single,
        },
        capabilities: Capabilities::default(),
        cpu_model: None,
        host_nodes: Vec::new(),
    };
    let devices = Devices {
        kernel: "/cache/bzImage".into(),
        initrd: Some("/cache/initramfs".into()),
        append: format!("{} {}", BOOT_WORDS, topology.cmdline),
        control: Chardev::Inherited(100),
        agent: Chardev::Inherited(101),
        console: Chardev::Inherited(102),
        ..Devices::default()
    };
    let mut lines = String::new();
    for arg in build(topology, &bench, &devices) {
        lines.push(if arg.starts_with('-') { '\n' } else { ' ' });
        lines.push_str(&arg);
    }
    lines
}

#[test]
fn every_shipped_topology_has_its_command_line() {
    let library = Path::new(env!("CARGO_MANIFEST_DIR")).join("../topologies");
    let mut files: Vec<_> = std::fs::read_dir(library)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(!files.is_empty());
    for file in files {
        let topology = Topology::read(&file).unwrap_or_else(|problems| panic!("{problems}"));
        assert_eq!(file.file_stem().unwrap().to_str(), Some(&*topology.name));
        insta::assert_snapshot!(topology.name.clone(), command(&topology));
    }
}
