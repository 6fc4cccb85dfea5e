//! Which cell is compared with which.

use std::collections::BTreeMap;

use super::{CompareError, Source};
use crate::{plan::Cell, stats::judge::CompareSpec};

/// A cell and what it is compared with.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Pair {
    /// The cell of the first source; `None`: there is nothing to compare with.
    pub base: Option<Cell>,
    /// The cell of the last source.
    pub cell: Cell,
}

/// The pairs of one campaign, and its baseline by axis.
pub(super) struct Pairs {
    pub pairs: Vec<Pair>,
    pub baseline: BTreeMap<String, String>,
}

impl Source<'_> {
    /// Planned cells, then those only found in records.
    pub(super) fn all_cells(&self) -> Vec<Cell> {
        let mut cells = self.cells.to_vec();
        let mut seen: std::collections::HashSet<&Cell> = self.cells.iter().collect();
        for record in self.records {
            if seen.insert(&record.cell) {
                cells.push(record.cell.clone());
            }
        }
        cells
    }
}

/// Every cell off the baseline with the cell on it. When all cells are on the
/// baseline (one kernel, no baseline named), each stands alone.
pub(super) fn within(source: Source<'_>, spec: &CompareSpec) -> Result<Pairs, CompareError> {
    let cells = source.all_cells();
    let Some(first) = cells.first() else {
        return Err(CompareError::NoRuns {
            source_name: source.name.into(),
        });
    };
    let mut baseline: BTreeMap<String, String> = BTreeMap::new();
    for (axis, value) in &spec.baseline {
        let mut known: Vec<String> = Vec::new();
        for cell in &cells {
            let Some(value) = cell.axis(axis) else {
                return Err(CompareError::NoAxis { axis: axis.clone() });
            };
            if !known.iter().any(|k| k == value) {
                known.push(value.to_string());
            }
        }
        if !known.contains(&value.value) {
            let (axis, value) = (axis.clone(), value.value.clone());
            return Err(CompareError::NoBaseline { axis, value, known });
        }
        baseline.insert(axis.clone(), value.value.clone());
    }
    if baseline.is_empty() {
        baseline.insert("kernels".into(), first.kernel.clone());
    }
    let base_of = |cell: &Cell| {
        baseline.iter().fold(cell.clone(), |cell, (axis, value)| {
            cell.with_axis(axis, value)
        })
    };
    let mut pairs: Vec<Pair> = cells
        .iter()
        .filter_map(|cell| {
            let base = base_of(cell);
            (base != *cell).then(|| Pair {
                base: Some(base),
                cell: cell.clone(),
            })
        })
        .collect();
    if pairs.is_empty() {
        baseline.clear();
        pairs = cells
            .into_iter()
            .map(|cell| Pair { base: None, cell })
            .collect();
    }
    Ok(Pairs { pairs, baseline })
}

/// Each cell of either campaign with the same cell of the other.
pub(super) fn between(older: Source<'_>, newer: Source<'_>) -> Result<Vec<Pair>, CompareError> {
    for source in [older, newer] {
        if source.records.is_empty() {
            return Err(CompareError::NoRuns {
                source_name: source.name.into(),
            });
        }
    }
    let mut cells = newer.all_cells();
    for cell in older.all_cells() {
        if !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    Ok(cells
        .into_iter()
        .map(|cell| Pair {
            base: Some(cell.clone()),
            cell,
        })
        .collect())
}
