//! Tables of values for pairs of nodes: distances, latencies, bandwidths.

use std::collections::BTreeMap;

use super::Checker;
use crate::{
    document::{
        At,
        node::{Node, Value},
    },
    topology::spec::Table,
};

/// A table in its file.
pub(super) struct Pairs<'a, T> {
    /// Keys that lead to it, such as `hmat`, `latency`.
    pub path: &'a [&'a str],
    /// What it holds, for messages: `distance`.
    pub what: &'a str,
    /// As written.
    pub written: &'a At<Table<T>>,
    /// Nodes that have a row in a matrix.
    pub from: &'a [usize],
    /// How many nodes there are.
    pub nodes: usize,
}

/// A value and where it stands.
pub(super) type Entry<T> = (T, At<()>);

impl Checker<'_> {
    /// Values by pair of nodes, each with its place; what has no sense as a
    /// table is told. `None`: a matrix of another shape.
    pub(super) fn pairs<T: Clone>(
        &mut self,
        table: &Pairs<'_, T>,
    ) -> Option<BTreeMap<(usize, usize), Entry<T>>> {
        match &table.written.value {
            Table::Matrix(rows) => self.matrix(table, rows),
            Table::Pairs(pairs) => Some(self.named_pairs(table, pairs)),
        }
    }

    fn matrix<T: Clone>(
        &mut self,
        table: &Pairs<'_, T>,
        rows: &[Vec<T>],
    ) -> Option<BTreeMap<(usize, usize), Entry<T>>> {
        let Pairs {
            what, from, nodes, ..
        } = *table;
        let node = self.at_path(table.path);
        let whole = place_of(node).unwrap_or(here(table.written));
        let cell = |row: usize, column: Option<usize>| {
            let mut node = child(node?, row)?;
            if let Some(column) = column {
                node = child(node, column)?;
            }
            place_of(Some(node))
        };
        let mut problems = Vec::new();
        if rows.len() != from.len() {
            let of = match from.len() == nodes {
                true => format!("{nodes} nodes"),
                false => format!("{} nodes with CPUs", from.len()),
            };
            let message = format!(
                "the {what} table has {} rows, but there are {of}",
                rows.len()
            );
            let help = match from.len() == nodes {
                true => "write one row per node",
                false => "write one row per node with CPUs",
            };
            problems.push((whole, message, help));
        }
        for (row, values) in rows.iter().enumerate() {
            if values.len() != nodes {
                let message = format!(
                    "row {row} of the {what} table has {} values, but there are {nodes} nodes",
                    values.len()
                );
                let place = cell(row, None).unwrap_or(whole);
                problems.push((place, message, "write one value per node"));
            }
        }
        if problems.is_empty() {
            let mut entries = BTreeMap::new();
            for (row, (values, from)) in rows.iter().zip(from).enumerate() {
                for (to, value) in values.iter().enumerate() {
                    let place = cell(row, Some(to)).unwrap_or(whole);
                    entries.insert((*from, to), (value.clone(), place));
                }
            }
            return Some(entries);
        }
        for (place, message, help) in problems {
            self.problem(&place, message, help.to_string());
        }
        None
    }

    fn named_pairs<T: Clone>(
        &mut self,
        table: &Pairs<'_, T>,
        pairs: &BTreeMap<String, T>,
    ) -> BTreeMap<(usize, usize), Entry<T>> {
        let mut entries = BTreeMap::new();
        for (key, value) in pairs {
            let place = self
                .at_path(table.path)
                .and_then(|node| key_place(node, key))
                .unwrap_or(here(table.written));
            let ends = key
                .split_once('-')
                .and_then(|(a, b)| Some((a.trim().parse::<usize>().ok()?, b.trim().parse().ok()?)));
            let Some((from, to)) = ends else {
                let message = format!("`{key}` is no pair of nodes");
                self.problem(&place, message, "write pairs like `0-1`".to_string());
                continue;
            };
            if let Some(beyond) = [from, to].into_iter().find(|n| *n >= table.nodes) {
                let last = table.nodes - 1;
                let message = format!("`{key}` names node {beyond}, but the last node is {last}");
                self.problem(&place, message, None);
                continue;
            }
            entries.insert((from, to), (value.clone(), place));
        }
        entries
    }

    fn at_path(&self, path: &[&str]) -> Option<&Node> {
        let mut node = self.document.root();
        for key in path {
            node = node.get(key)?;
        }
        Some(node)
    }
}

fn child(node: &Node, index: usize) -> Option<&Node> {
    match &node.value {
        Value::List(items) => items.get(index),
        _ => None,
    }
}

fn key_place(node: &Node, key: &str) -> Option<At<()>> {
    let Value::Map(entries) = &node.value else {
        return None;
    };
    let (key, _) = entries.iter().find(|(k, _)| k.text == key)?;
    Some(At {
        value: (),
        line: key.line,
        column: key.column,
    })
}

fn place_of(node: Option<&Node>) -> Option<At<()>> {
    node.map(|node| At {
        value: (),
        line: node.line,
        column: node.column,
    })
}

/// The place of a value, without the value.
pub(super) fn here<T>(place: &At<T>) -> At<()> {
    At {
        value: (),
        line: place.line,
        column: place.column,
    }
}
