//! Distances between nodes, as ACPI's SLIT holds them.

use std::collections::BTreeMap;

use super::Checker;
use crate::{
    document::{At, node::Value},
    topology::{
        LOCAL_DISTANCE, UNREACHABLE,
        spec::{Distances, Spec},
    },
};

impl Checker<'_> {
    /// The whole matrix; `None` when there is none, or it makes no sense.
    pub(super) fn distances(&mut self, spec: &Spec, nodes: usize) -> Option<Vec<Vec<u8>>> {
        let written = spec.distances.as_ref()?;
        let before = self.problems.list.len();
        let matrix = match &written.value {
            Distances::Matrix(rows) => self.rows(written, rows, nodes, spec.asymmetric)?,
            Distances::Pairs(pairs) => self.pairs(written, pairs, nodes, spec.asymmetric)?,
        };
        (self.problems.list.len() == before).then_some(matrix)
    }

    fn rows(
        &mut self,
        written: &At<Distances>,
        rows: &[Vec<u32>],
        nodes: usize,
        asymmetric: bool,
    ) -> Option<Vec<Vec<u8>>> {
        let mut square = rows.len() == nodes;
        if !square {
            let message = format!(
                "the distances have {} rows, but there are {nodes} nodes",
                rows.len()
            );
            self.problem(written, message, "write one row per node".to_string());
        }
        for (row, values) in rows.iter().enumerate() {
            if values.len() != nodes {
                let message = format!(
                    "the row of node {row} has {} distances, but there are {nodes} nodes",
                    values.len()
                );
                let place = self.cell(row, None).unwrap_or(nowhere(written));
                self.problem(&place, message, "write one distance per node".to_string());
                square = false;
            }
        }
        if !square {
            return None;
        }
        for (from, values) in rows.iter().enumerate() {
            for (to, &value) in values.iter().enumerate() {
                let place = self.cell(from, Some(to)).unwrap_or(nowhere(written));
                self.distance(&place, from, to, value);
                // Each pair is told once, at the later of its two places.
                if to < from && !asymmetric && rows[to][from] != value {
                    let there = rows[to][from];
                    let message = format!(
                        "the distance from node {from} to {to} is {value}, but from {to} to {from} it is {there}"
                    );
                    let help = format!("write {there} here, or add `asymmetric: true`");
                    self.problem(&place, message, help);
                }
            }
        }
        Some(
            rows.iter()
                .map(|row| row.iter().map(|v| narrow(*v)).collect())
                .collect(),
        )
    }

    fn pairs(
        &mut self,
        written: &At<Distances>,
        pairs: &BTreeMap<String, u32>,
        nodes: usize,
        asymmetric: bool,
    ) -> Option<Vec<Vec<u8>>> {
        let mut matrix: Vec<Vec<Option<u32>>> = (0..nodes)
            .map(|from| (0..nodes).map(|to| (from == to).then_some(10)).collect())
            .collect();
        for (key, &value) in pairs {
            let place = self.key_in("distances", key).unwrap_or(nowhere(written));
            let ends = key
                .split_once('-')
                .and_then(|(a, b)| Some((a.trim().parse::<usize>().ok()?, b.trim().parse().ok()?)));
            let Some((from, to)) = ends else {
                let message = format!("`{key}` is no pair of nodes");
                self.problem(&place, message, "write pairs like `0-1: 21`".to_string());
                continue;
            };
            if let Some(beyond) = [from, to].into_iter().find(|n| *n >= nodes) {
                let message = format!(
                    "`{key}` names node {beyond}, but the last node is {}",
                    nodes - 1
                );
                self.problem(&place, message, None);
                continue;
            }
            self.distance(&place, from, to, value);
            if from == to {
                continue;
            }
            if !asymmetric {
                if let Some(there) = matrix[from][to].filter(|there| *there != value) {
                    let message = format!(
                        "the distance of nodes {from} and {to} is {value} here and {there} in `{to}-{from}`"
                    );
                    let help = "give it once, or add `asymmetric: true`".to_string();
                    self.problem(&place, message, help);
                }
                matrix[to][from] = Some(value);
            }
            matrix[from][to] = Some(value);
        }
        let mut missing = Vec::new();
        for (from, row) in matrix.iter().enumerate() {
            for (to, distance) in row.iter().enumerate() {
                if distance.is_none() && (asymmetric || from < to) {
                    missing.push(format!("{from}-{to}"));
                }
            }
        }
        if !missing.is_empty() {
            let message = format!("the distances of {} are missing", missing.join(", "));
            let help = format!("add `{}: 20`; none is guessed", missing.join(": 20, "));
            self.problem(written, message, help);
        }
        Some(
            matrix
                .into_iter()
                .map(|row| row.into_iter().map(|v| narrow(v.unwrap_or(20))).collect())
                .collect(),
        )
    }

    /// One distance by itself.
    fn distance(&mut self, place: &At<()>, from: usize, to: usize, value: u32) {
        let local = u32::from(LOCAL_DISTANCE);
        if from == to {
            if value != local {
                let message = format!("the distance from node {from} to itself is {value}");
                self.problem(place, message, format!("ACPI says {local}"));
            }
            return;
        }
        if value <= local {
            // slit_valid() in drivers/acpi/numa/srat.c.
            let message = format!("the distance from node {from} to node {to} is {value}");
            let help = "at 10 or less the kernel throws the whole table away; write 11 or more";
            self.problem(place, message, help.to_string());
        }
        if value > u32::from(UNREACHABLE) {
            let message = format!("the distance from node {from} to node {to} is {value}");
            let help = "the most is 254; 255 means that it cannot be reached".to_string();
            self.problem(place, message, help);
        }
    }

    /// Position of a row of the matrix, or of a value in it.
    fn cell(&self, row: usize, column: Option<usize>) -> Option<At<()>> {
        let Value::List(rows) = &self.document.root().get("distances")?.value else {
            return None;
        };
        let mut node = rows.get(row)?;
        if let Some(column) = column {
            let Value::List(values) = &node.value else {
                return None;
            };
            node = values.get(column)?;
        }
        Some(At {
            value: (),
            line: node.line,
            column: node.column,
        })
    }
}

fn nowhere<T>(place: &At<T>) -> At<()> {
    At {
        value: (),
        line: place.line,
        column: place.column,
    }
}

/// Values out of range were told; the matrix is thrown away then.
fn narrow(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(UNREACHABLE)
}
