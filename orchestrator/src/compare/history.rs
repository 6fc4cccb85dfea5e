//! One metric over many nights, and where its level changed.

use serde::Serialize;
use topolab_protocol::sample::{Better, MetricKind};

use super::{Source, values::Values};
use crate::{
    plan::Cell,
    stats::{change_point::change_points, judge::CompareSpec, summary::Summary},
};

/// Chance of a false change of level that is accepted at each split.
const ALPHA: f64 = 0.01;

/// A campaign in a row of campaigns.
#[derive(Debug, Clone, Copy)]
pub struct NightSource<'a> {
    /// Its runs.
    pub source: Source<'a>,
    /// When it began, RFC 3339.
    pub started: &'a str,
}

/// The history of a cell.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct History {
    /// The metric.
    pub metric: String,
    /// Its unit.
    pub unit: String,
    /// Its kind.
    pub kind: MetricKind,
    /// Which direction is good news.
    pub better: Better,
    /// The cell.
    pub cell: Cell,
    /// The nights, oldest first; those without a value among them.
    pub nights: Vec<Night>,
    /// Changes of level.
    pub changes: Vec<LevelChange>,
}

/// One night.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Night {
    /// Name of the folder.
    pub name: String,
    /// When it began, RFC 3339.
    pub started: String,
    /// Over its runs; absent when none yielded a value.
    pub summary: Option<Summary>,
    /// Why there is no value.
    pub why_empty: String,
    /// Its timing cannot be trusted, and the metric is one.
    pub untrusted: bool,
    /// SHA-256 of its kernel image, when its runs agree on it.
    pub image: Option<String>,
}

/// A change of level.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LevelChange {
    /// Place of the first night of the new level.
    pub at: usize,
    /// Mean of the nights before, back to the last change.
    pub before: f64,
    /// Mean of the nights from there on.
    pub after: f64,
    /// p-value.
    pub p: f64,
    /// `better` or `worse`; absent where no direction is, or where timing cannot
    /// be trusted.
    pub verdict: Option<&'static str>,
}

/// Histories of all cells that have a value in some night, in the order of the
/// newest night that has them.
pub fn histories(nights: &[NightSource<'_>], metric: &str, spec: &CompareSpec) -> Vec<History> {
    let mut order: Vec<NightSource<'_>> = nights.to_vec();
    order.sort_by(|a, b| a.started.cmp(b.started));
    let values: Vec<Values> = order
        .iter()
        .map(|night| Values::of(night.source, spec))
        .collect();
    let Some(meta) = values.iter().rev().find_map(|values| values.meta(metric)) else {
        return Vec::new();
    };
    let better = spec.metric(metric).better.unwrap_or(meta.better);
    let mut cells: Vec<Cell> = Vec::new();
    for night in order.iter().rev() {
        for cell in night.source.all_cells() {
            if !cells.contains(&cell) {
                cells.push(cell);
            }
        }
    }
    cells
        .into_iter()
        .filter_map(|cell| {
            let nights: Vec<Night> = order
                .iter()
                .zip(&values)
                .map(|(night, values)| {
                    let side = values.side(metric, &cell);
                    Night {
                        name: night.source.name.into(),
                        started: night.started.into(),
                        summary: side.summary,
                        why_empty: side.why_empty(),
                        untrusted: meta.kind.is_timing() && !side.untrusted.is_empty(),
                        image: side.image,
                    }
                })
                .collect();
            let changes = changes(&nights, better, spec.seed);
            nights
                .iter()
                .any(|night| night.summary.is_some())
                .then(|| History {
                    metric: metric.into(),
                    unit: meta.unit.clone(),
                    kind: meta.kind,
                    better,
                    cell,
                    nights,
                    changes,
                })
        })
        .collect()
}

fn changes(nights: &[Night], better: Better, seed: u64) -> Vec<LevelChange> {
    let (places, means): (Vec<usize>, Vec<f64>) = nights
        .iter()
        .enumerate()
        .filter_map(|(place, night)| Some((place, night.summary?.mean)))
        .unzip();
    let untrusted = nights.iter().any(|night| night.untrusted);
    change_points(&means, ALPHA, seed)
        .into_iter()
        .map(|point| LevelChange {
            at: places[point.at],
            before: point.before,
            after: point.after,
            p: point.p,
            verdict: match (better, point.after > point.before) {
                _ if untrusted => None,
                (Better::Lower, true) | (Better::Higher, false) => Some("worse"),
                (Better::Lower, false) | (Better::Higher, true) => Some("better"),
                (Better::Neither, _) => None,
            },
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        compare::tests::{campaign, demo_cells, demo_spec, measurement, scatter},
        outcome::Outcome,
        store::record::RunRecord,
    };

    #[test]
    fn the_night_a_level_changed_is_named() {
        let nights: Vec<Vec<RunRecord>> = (0..12)
            .map(|night| {
                let mut records = campaign(&demo_cells(), 4, |cell, round| {
                    let shift = if night >= 7 && cell.settings == "unpinned" {
                        1.2
                    } else {
                        1.0
                    };
                    let value = 50_000.0 * shift * (1.0 + 0.03 * scatter(cell, round + 4 * night));
                    vec![measurement(
                        "numa_pte_updates",
                        MetricKind::Count,
                        "count",
                        value,
                    )]
                });
                if night == 3 {
                    for record in &mut records {
                        record.outcome = Outcome::LabFailed {
                            part: "disk".into(),
                            reason: "full".into(),
                        };
                    }
                }
                records
            })
            .collect();
        let names: Vec<(String, String)> = (0..12)
            .map(|night| {
                (
                    format!("night-{night}"),
                    format!("2026-11-{:02}T23:00:00Z", night + 1),
                )
            })
            .collect();
        let mut sources: Vec<NightSource> = nights
            .iter()
            .zip(&names)
            .map(|(records, (name, started))| NightSource {
                source: Source {
                    name,
                    records,
                    cells: &[],
                    warmup: 0,
                },
                started,
            })
            .collect();
        sources.reverse();
        let histories = histories(&sources, "numa_pte_updates", &demo_spec());
        assert_eq!(histories.len(), 4);
        for history in &histories {
            assert_eq!(history.nights[0].name, "night-0");
            assert_eq!(history.nights[3].why_empty, "4 × lab-failed: disk: full");
            let at: Vec<usize> = history.changes.iter().map(|change| change.at).collect();
            if history.cell.settings == "unpinned" {
                assert_eq!(at, [7]);
                assert_eq!(history.changes[0].verdict, Some("worse"));
            } else {
                assert_eq!(at, [] as [usize; 0]);
            }
        }
        assert!(super::histories(&sources, "nothing", &demo_spec()).is_empty());
    }
}
