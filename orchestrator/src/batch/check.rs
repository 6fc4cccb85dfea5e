//! What of a plan the cluster cannot do, told before anything is built. Pure.

use super::{
    block::Request,
    plan::Wish,
    slurm::{Cluster, Node},
};

/// Why a cluster cannot carry out a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// No such partition.
    #[error("there is no partition `{wanted}`; there are: {}", known.join(", "))]
    NoPartition {
        /// The name.
        wanted: String,
        /// The cluster's.
        known: Vec<String>,
    },
    /// No partition was named and none is the default one.
    #[error("the cluster has no default partition; there are: {}", known.join(", "))]
    NoDefault {
        /// The cluster's.
        known: Vec<String>,
    },
    /// No node is large enough.
    #[error("a task needs {wanted} {what}; the largest node of {place} has {most}")]
    TooLarge {
        /// `CPUs` or `MiB of memory`.
        what: &'static str,
        /// What is needed.
        wanted: u64,
        /// What there is.
        most: u64,
        /// The partition or the nodes with the wanted features.
        place: String,
    },
    /// Some node has the CPUs and another the memory, none both.
    #[error("a task needs {cpus} CPUs and {memory_mib} MiB; no node of {place} has both")]
    NotBoth {
        /// CPUs needed.
        cpus: u32,
        /// Memory needed.
        memory_mib: u64,
        /// The partition.
        place: String,
    },
    /// KVM is insisted on and no node says it has it.
    #[error("no node of {place} has {wanted}; features there: {}", known.join(", "))]
    NoFeature {
        /// The partition.
        place: String,
        /// The features.
        wanted: String,
        /// Features of its nodes.
        known: Vec<String>,
    },
    /// Every node is out of service.
    #[error("every node of {place} is out of service: {}", states.join(", "))]
    AllDown {
        /// The partition.
        place: String,
        /// `node state` of each.
        states: Vec<String>,
    },
}

/// The nodes a plan may use.
///
/// # Errors
/// The partition is none.
pub fn nodes<'a>(cluster: &'a Cluster, wish: &Wish) -> Result<(String, Vec<&'a Node>), Unfit> {
    let mut known: Vec<String> = cluster
        .nodes
        .iter()
        .flat_map(|node| node.partitions.clone())
        .collect();
    known.sort();
    known.dedup();
    let wanted = match (&wish.partition, &cluster.default_partition) {
        (Some(wanted), _) => wanted,
        (None, Some(default)) => default,
        (None, None) => return Err(Unfit::NoDefault { known }),
    };
    // `a,b` lets Slurm choose.
    let names: Vec<&str> = wanted.split(',').collect();
    if let Some(unknown) = names.iter().find(|name| !known.iter().any(|k| k == *name)) {
        return Err(Unfit::NoPartition {
            wanted: (*unknown).into(),
            known,
        });
    }
    let nodes = cluster
        .nodes
        .iter()
        .filter(|node| node.partitions.iter().any(|p| names.contains(&p.as_str())))
        .collect();
    Ok((format!("partition {wanted}"), nodes))
}

/// Everything that stands against these requests.
pub fn check(cluster: &Cluster, wish: &Wish, requests: &[Request]) -> Vec<Unfit> {
    let (place, mut nodes) = match nodes(cluster, wish) {
        Ok(found) => found,
        Err(unfit) => return vec![unfit],
    };
    let mut found = Vec::new();
    if let Some(wanted) = &wish.constraint
        // What joins features is Slurm's to judge.
        && wanted.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    {
        let mut known: Vec<String> = nodes.iter().flat_map(|n| n.features.clone()).collect();
        known.sort();
        known.dedup();
        if !known.contains(wanted) {
            let wanted = wanted.clone();
            return vec![Unfit::NoFeature {
                place,
                wanted,
                known,
            }];
        }
        nodes.retain(|node| node.features.contains(wanted));
    }
    let is_down = |node: &Node| {
        ["down", "drain", "fail", "unknown"]
            .iter()
            .any(|word| node.state.starts_with(word))
    };
    if !nodes.is_empty() && nodes.iter().all(|node| is_down(node)) {
        let states = nodes
            .iter()
            .map(|node| format!("{} {}", node.name, node.state))
            .collect();
        let place = place.clone();
        found.push(Unfit::AllDown { place, states });
    }
    let cpus = requests.iter().map(|r| r.cpus).max().unwrap_or(0);
    let memory = requests.iter().map(|r| r.memory_mib).max().unwrap_or(0);
    let most_cpus = nodes.iter().map(|n| n.cpus).max().unwrap_or(0);
    let most_memory = nodes.iter().map(|n| n.memory_mib).max().unwrap_or(0);
    let mut large = false;
    for (what, wanted, most) in [
        ("CPUs", u64::from(cpus), u64::from(most_cpus)),
        ("MiB of memory", memory, most_memory),
    ] {
        if wanted > most {
            large = true;
            found.push(Unfit::TooLarge {
                what,
                wanted,
                most,
                place: place.clone(),
            });
        }
    }
    let fits = |request: &Request| {
        nodes
            .iter()
            .any(|n| n.cpus >= request.cpus && n.memory_mib >= request.memory_mib)
    };
    if !large && let Some(request) = requests.iter().find(|request| !fits(request)) {
        found.push(Unfit::NotBoth {
            cpus: request.cpus,
            memory_mib: request.memory_mib,
            place,
        });
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::plan::Limits;

    fn cluster() -> Cluster {
        let node = |name: &str, cpus, memory_mib, partition: &str| Node {
            name: name.into(),
            partitions: vec![partition.into()],
            cpus,
            memory_mib,
            state: "idle".into(),
            features: if name == "n1" {
                vec!["kvm".into()]
            } else {
                Vec::new()
            },
        };
        Cluster {
            nodes: vec![
                node("n1", 8, 4000, "lab"),
                node("n2", 4, 16_000, "lab"),
                node("n3", 64, 64_000, "big"),
            ],
            default_partition: Some("lab".into()),
            limits: Limits {
                array_size: 1001,
                jobs: 10_000,
            },
        }
    }

    fn told(wish: &Wish, cpus: u32, memory_mib: u64) -> Vec<String> {
        let request = Request {
            cpus,
            memory_mib,
            minutes: 1,
        };
        check(&cluster(), wish, &[request])
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_no_node_has_is_told_with_what_there_is() {
        let default = Wish::default();
        assert!(told(&default, 8, 4000).is_empty());
        assert_eq!(
            told(&default, 9, 20_000),
            [
                "a task needs 9 CPUs; the largest node of partition lab has 8",
                "a task needs 20000 MiB of memory; the largest node of partition lab has 16000",
            ]
        );
        assert_eq!(
            told(&default, 8, 8000),
            ["a task needs 8 CPUs and 8000 MiB; no node of partition lab has both"]
        );
        let big = Wish {
            partition: Some("big".into()),
            ..Wish::default()
        };
        assert!(told(&big, 9, 20_000).is_empty());
    }

    #[test]
    fn names_that_do_not_exist_are_told_with_those_that_do() {
        let nope = Wish {
            partition: Some("nope".into()),
            ..Wish::default()
        };
        assert_eq!(
            told(&nope, 1, 1),
            ["there is no partition `nope`; there are: big, lab"]
        );
        let feature = |constraint: &str| Wish {
            constraint: Some(constraint.into()),
            ..Wish::default()
        };
        assert_eq!(
            told(&feature("rome"), 1, 1),
            ["no node of partition lab has rome; features there: kvm"]
        );
        assert_eq!(
            told(&feature("kvm"), 1, 8000),
            ["a task needs 8000 MiB of memory; the largest node of partition lab has 4000"]
        );
        let mut down = cluster();
        for node in &mut down.nodes {
            node.state = "drained*".into();
        }
        let request = Request {
            cpus: 1,
            memory_mib: 1,
            minutes: 1,
        };
        assert_eq!(
            check(&down, &Wish::default(), &[request])[0].to_string(),
            "every node of partition lab is out of service: n1 drained*, n2 drained*"
        );
    }
}
