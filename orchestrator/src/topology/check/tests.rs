use crate::topology::Topology;

fn refused(text: &str) -> String {
    Topology::from_text("t.yaml", text)
        .map(|t| format!("accepted: {}", t.name))
        .unwrap_or_else(|problems| problems.to_string())
}

#[test]
fn everything_wrong_is_told_at_once() {
    insta::assert_snapshot!(refused(
        "name: a b
cpus: {sockets: 2, cores: 4, threads: 2, count: 8, nodes: 2}
memory: 4G
nodes:
  - {cpus: 0-8, memory: 1G}
  - {cpus: 8-15, memory: 2}
distances: [[10, 21], [31, 11]]
sets: {isolated: 12-20}
cmdline: isolcpus={isolatd} nohz_full={hk nosmt
preferred_cores: [1, 2, 300]
pin: {0-3: x}
"
    ));
}
