//! Distances between nodes, as ACPI's SLIT holds them.

use super::{
    Checker,
    pairs::{Pairs, here},
};
use crate::{
    document::At,
    topology::{LOCAL_DISTANCE, UNREACHABLE, spec::Spec},
};

impl Checker<'_> {
    /// The whole matrix; `None` when there is none, or it makes no sense.
    pub(super) fn distances(&mut self, spec: &Spec, nodes: usize) -> Option<Vec<Vec<u8>>> {
        let written = spec.distances.as_ref()?;
        let before = self.problems.list.len();
        let all: Vec<usize> = (0..nodes).collect();
        let table = self.pairs(&Pairs {
            path: &["distances"],
            what: "distance",
            written,
            from: &all,
            nodes,
        })?;
        let mut matrix: Vec<Vec<Option<u32>>> = (0..nodes)
            .map(|from| (0..nodes).map(|to| (from == to).then_some(10)).collect())
            .collect();
        for ((from, to), (value, place)) in &table {
            let (from, to, value) = (*from, *to, *value);
            self.distance(place, from, to, value);
            // Both ways of a pair must agree; it is told once, at the later place.
            let back = table.get(&(to, from)).map(|(back, _)| *back);
            if let Some(back) = back
                && !spec.asymmetric
                && to < from
                && back != value
            {
                let message = format!(
                    "the distance from node {from} to {to} is {value}, but from {to} to {from} it is {back}"
                );
                let help = format!("write {back} here, or add `asymmetric: true`");
                self.problem(place, message, help);
            }
            matrix[from][to] = Some(value);
            if !spec.asymmetric && back.is_none() {
                matrix[to][from] = Some(value);
            }
        }
        self.complete(&here(written), &matrix, spec.asymmetric);
        if self.problems.list.len() > before {
            return None;
        }
        let rows = matrix.into_iter();
        Some(
            rows.map(|row| row.into_iter().flatten().map(narrow).collect())
                .collect(),
        )
    }

    /// Tells which pairs are missing; none is guessed.
    fn complete(&mut self, place: &At<()>, matrix: &[Vec<Option<u32>>], asymmetric: bool) {
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
            self.problem(place, message, help);
        }
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
}

/// Values out of range were told; the matrix is thrown away then.
fn narrow(value: u32) -> u8 {
    u8::try_from(value).unwrap_or(UNREACHABLE)
}
