//! Nodes as blocks: what a campaign that ran on several hosts says of a change.
//!
//! Where each round of both sides was done on one host, hosts may differ and the
//! sides may still be compared: what a host adds to both is taken off before
//! testing (aligned observations, Hodges and Lehmann, "Rank methods for combination
//! of independent experiments in analysis of variance", Annals of Mathematical
//! Statistics 33, 1962). Means of the sides and their difference stay as they are.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::values::Side;
use crate::stats::{
    Sample,
    summary::{mean, variance},
};

/// What one node says.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NodeChange {
    /// The node.
    pub node: String,
    /// Runs of each side on it.
    pub runs: usize,
    /// Mean of the baseline on it.
    pub base: f64,
    /// Mean of the other side on it.
    pub new: f64,
}

/// Whether both sides of every round were done on one node: rounds of either side
/// with their node. Rounds that a side lacks do not count against it.
pub(super) fn is_blocked(base: &BTreeMap<u32, String>, new: &BTreeMap<u32, String>) -> bool {
    base.iter()
        .all(|(round, node)| new.get(round).is_none_or(|other| other == node))
}

/// Takes off what nodes add to both sides, and tells what each says by itself.
/// Nothing happens on one node, or where the sides are not blocked and balanced.
pub(super) fn align(base: &mut Side, new: &mut Side) -> Vec<NodeChange> {
    let rounds = |side: &Side| -> BTreeMap<u32, String> {
        let runs = side.runs.iter();
        runs.map(|run| (run.round, run.host.clone())).collect()
    };
    if !is_blocked(&rounds(base), &rounds(new)) {
        return Vec::new();
    }
    let values = |side: &Side, node: &str| -> Vec<f64> {
        let runs = side.runs.iter().filter(|run| run.host == node);
        runs.map(|run| run.value).collect()
    };
    let names: BTreeSet<&String> = base
        .runs
        .iter()
        .chain(&new.runs)
        .map(|run| &run.host)
        .collect();
    let mut nodes = Vec::new();
    for node in &names {
        let (older, newer) = (values(base, node), values(new, node));
        if older.len() != newer.len() {
            return Vec::new();
        }
        nodes.push(NodeChange {
            node: (*node).clone(),
            runs: older.len(),
            base: mean(&older),
            new: mean(&newer),
        });
    }
    let total = base.runs.len() + new.runs.len();
    if nodes.len() < 2 || total <= nodes.len() + 1 {
        return Vec::new();
    }
    let all: Vec<f64> = base
        .runs
        .iter()
        .chain(&new.runs)
        .map(|run| run.value)
        .collect();
    let grand = mean(&all);
    let offsets: BTreeMap<&str, f64> = nodes
        .iter()
        .map(|node| (node.node.as_str(), (node.base + node.new) / 2.0 - grand))
        .collect();
    // Every node costs a degree of freedom, which the scatter that is left must
    // not gain by.
    let stretch = ((total - 2) as f64 / (total - nodes.len() - 1) as f64).sqrt();
    let aligned = [&*base, &*new].map(|side| {
        let center = mean(&side.runs.iter().map(|run| run.value).collect::<Vec<_>>());
        Sample::by_boot(side.runs.iter().map(|run| {
            let aligned = run.value - offsets[run.host.as_str()];
            (run.boot.as_str(), center + (aligned - center) * stretch)
        }))
    });
    // What nodes multiply, such as a count that one side does not have at all, is
    // not theirs to add; leaving it in is the cautious side.
    let scatter = |sample: &Sample| variance(&sample.units());
    if scatter(&aligned[0]) < scatter(&base.sample) && scatter(&aligned[1]) < scatter(&new.sample) {
        [base.sample, new.sample] = aligned;
    }
    nodes
}

#[cfg(test)]
mod tests {
    use super::super::tests::{compared, demo, demo_spec};
    use crate::{stats::verdict::Verdict, store::record::RunRecord};

    /// Rounds on two nodes by turns, of which one counts a lot more.
    fn on_two_nodes(factor: f64) -> Vec<RunRecord> {
        let mut records = demo(8);
        for record in &mut records {
            let second = record.round % 2 == 1;
            record.environment.host = if second { "n2" } else { "n1" }.into();
            for sample in &mut record.samples {
                let gone = record.cell.kernel.ends_with("@all");
                let offset = if second { 90_000.0 } else { 0.0 };
                sample.value =
                    (50_000.0 + sample.value / 50.0) * if gone { factor } else { 1.0 } + offset;
            }
        }
        records
    }

    #[test]
    fn what_a_node_adds_to_both_sides_hides_no_change() {
        let records = on_two_nodes(0.8);
        let comparison = compared(&records, &demo_spec());
        assert_eq!(comparison.differences, []);
        let row = &comparison.tables[0].rows[1];
        assert_eq!(row.verdict, Some(Verdict::Better));
        let nodes: Vec<&str> = row.nodes.iter().map(|node| node.node.as_str()).collect();
        assert_eq!(nodes, ["n1", "n2"]);
        assert!(row.nodes[1].base > row.nodes[0].base + 80_000.0);
    }

    #[test]
    fn what_is_gone_on_every_node_is_told_as_on_one() {
        let mut records = on_two_nodes(1.0);
        for record in &mut records {
            let gone = record.cell.kernel.ends_with("@all");
            for sample in &mut record.samples {
                sample.value = if gone { 0.0 } else { sample.value };
            }
        }
        let row = &compared(&records, &demo_spec()).tables[0].rows[1];
        assert_eq!(row.change.unwrap().value, -1.0);
        assert_eq!(row.verdict, Some(Verdict::Better));
    }

    #[test]
    fn sides_on_different_nodes_are_a_difference() {
        let mut records = on_two_nodes(1.0);
        for record in &mut records {
            if record.cell.kernel.ends_with("@all") {
                record.environment.host = "n3".into();
            }
        }
        let comparison = compared(&records, &demo_spec());
        assert_eq!(comparison.differences[0].field, "host");
        assert!(comparison.tables[0].rows[1].nodes.is_empty());
    }
}
