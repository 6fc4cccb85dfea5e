//! What a reader should know before believing a table. Nothing here changes a
//! verdict or leaves out a value.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::DefaultHasher},
    hash::{Hash, Hasher},
};

use serde::Serialize;

use super::{MetricTable, Side, Source};
use crate::{
    plan::Cell,
    stats::{
        judge::Effect,
        rank::trend,
        shape::{outliers, two_groups},
        summary::mean,
        verdict::{Unfit, Verdict},
    },
    store::record::RunRecord,
};

/// Trends rarer than this under chance are told.
const RARE: f64 = 0.001;

/// A remark on the numbers.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "notice", rename_all = "kebab-case")]
pub enum Notice {
    /// Values far from the others of their cell. They count like all others.
    Outliers {
        /// Metric.
        metric: String,
        /// Cell.
        cell: Cell,
        /// Folder.
        source: String,
        /// Run's place in the order, and value.
        runs: Vec<(usize, f64)>,
    },
    /// Values fall into two groups, so that the mean describes none of them.
    TwoGroups {
        /// Metric.
        metric: String,
        /// Cell.
        cell: Cell,
        /// Folder.
        source: String,
        /// Number and mean of the lower group.
        lower: (usize, f64),
        /// Number and mean of the upper group.
        upper: (usize, f64),
    },
    /// Values rise or fall over the campaign, in all cells taken together.
    /// Interleaving lets all cells share it.
    Drift {
        /// Metric.
        metric: String,
        /// Folder.
        source: String,
        /// From the first third of the runs to the last, as a share of each
        /// cell's mean.
        change: f64,
        /// p-value of the trend.
        p: f64,
    },
    /// Runs of a cell yielded the very same samples to the last digit.
    Identical {
        /// Cell.
        cell: Cell,
        /// Folder.
        source: String,
        /// The runs, by place in the order.
        runs: Vec<usize>,
        /// Samples in each.
        samples: usize,
    },
    /// One boot moves the mean by more than the minimum effect.
    DominantBoot {
        /// Metric.
        metric: String,
        /// Cell.
        cell: Cell,
        /// Folder.
        source: String,
        /// The boot.
        boot: String,
        /// By how much the mean would change without it, as a share.
        change: f64,
    },
    /// Equal images differ by more than the minimum effect, which was raised to
    /// their difference for the whole table.
    NoiseFloor {
        /// Metric.
        metric: String,
        /// The minimum effect now, as a share.
        floor: f64,
    },
}

impl Notice {
    /// The folder it is about; absent when it is about the whole comparison.
    pub fn source(&self) -> Option<&str> {
        match self {
            Self::Outliers { source, .. }
            | Self::TwoGroups { source, .. }
            | Self::Drift { source, .. }
            | Self::Identical { source, .. }
            | Self::DominantBoot { source, .. } => Some(source),
            Self::NoiseFloor { .. } => None,
        }
    }
}

/// All remarks on the tables.
pub(super) fn notices(sources: &[Source<'_>], tables: &[MetricTable]) -> Vec<Notice> {
    let mut notices = Vec::new();
    for table in tables {
        for (place, source) in sources.iter().enumerate() {
            let sides = sides(table, place, sources.len());
            for (cell, side) in &sides {
                of_side(table, source.name, cell, side, &mut notices);
            }
            notices.extend(drift(table, source.name, &sides));
        }
        notices.extend(noise_floor(table));
    }
    for source in sources {
        notices.extend(identical(source));
    }
    notices
}

/// Each cell of a source once, in the order of the table.
fn sides(table: &MetricTable, source: usize, sources: usize) -> Vec<(&Cell, &Side)> {
    let mut seen: HashSet<&Cell> = HashSet::new();
    let mut sides = Vec::new();
    for row in &table.rows {
        let base = row.base_cell.as_ref().zip(row.base.as_ref());
        let both = [
            base.filter(|_| source == 0),
            Some((&row.cell, &row.new)).filter(|_| source + 1 == sources),
        ];
        for (cell, side) in both.into_iter().flatten() {
            if seen.insert(cell) {
                sides.push((cell, side));
            }
        }
    }
    sides
}

fn of_side(table: &MetricTable, source: &str, cell: &Cell, side: &Side, notices: &mut Vec<Notice>) {
    let values: Vec<f64> = side.runs.iter().map(|run| run.value).collect();
    let (metric, cell, source) = (table.metric.clone(), cell.clone(), source.to_string());
    let far = outliers(&values);
    if let Some(groups) = two_groups(&values) {
        notices.push(Notice::TwoGroups {
            metric: metric.clone(),
            cell: cell.clone(),
            source: source.clone(),
            lower: (groups.lower, groups.lower_mean),
            upper: (groups.upper, groups.upper_mean),
        });
    } else if !far.is_empty() {
        notices.push(Notice::Outliers {
            metric: metric.clone(),
            cell: cell.clone(),
            source: source.clone(),
            runs: far
                .iter()
                .map(|at| (side.runs[*at].index, values[*at]))
                .collect(),
        });
    }
    let Ok(Effect::Relative(least)) = Effect::parse(&table.min_effect) else {
        return;
    };
    let all = mean(&values);
    if !side.sample.is_clustered() || side.sample.boots().len() < 3 || all == 0.0 {
        return;
    }
    let mut boots: Vec<&str> = Vec::new();
    for run in &side.runs {
        if !boots.contains(&run.boot.as_str()) {
            boots.push(&run.boot);
        }
    }
    let without = |boot: &str| -> f64 {
        let others: Vec<f64> = side
            .runs
            .iter()
            .filter(|run| run.boot != boot)
            .map(|run| run.value)
            .collect();
        mean(&others) / all - 1.0
    };
    let most = boots
        .iter()
        .map(|boot| (*boot, without(boot)))
        .max_by(|(_, a), (_, b)| a.abs().total_cmp(&b.abs()));
    if let Some((boot, change)) = most.filter(|(_, change)| change.abs() > least) {
        notices.push(Notice::DominantBoot {
            metric,
            cell,
            source,
            boot: boot.into(),
            change,
        });
    }
}

/// Drift of a whole source: each value as a share of its cell's mean, in the
/// order the runs ran.
fn drift(table: &MetricTable, source: &str, sides: &[(&Cell, &Side)]) -> Option<Notice> {
    let mut residuals: Vec<(usize, f64)> = Vec::new();
    for (_, side) in sides {
        let Some(summary) = side
            .summary
            .filter(|summary| summary.mean != 0.0 && summary.cov.is_some_and(|cov| cov < 1.0))
        else {
            continue;
        };
        let shares = side
            .runs
            .iter()
            .map(|run| (run.index, run.value / summary.mean - 1.0));
        residuals.extend(shares);
    }
    residuals.sort_unstable_by_key(|(index, _)| *index);
    let values: Vec<f64> = residuals.into_iter().map(|(_, value)| value).collect();
    let (_, p) = trend(&values)?;
    let third = values.len() / 3;
    let change = mean(&values[values.len() - third..]) - mean(&values[..third]);
    (p < RARE).then(|| Notice::Drift {
        metric: table.metric.clone(),
        source: source.into(),
        change,
        p,
    })
}

fn noise_floor(table: &MetricTable) -> Option<Notice> {
    let Ok(Effect::Relative(least)) = Effect::parse(&table.min_effect) else {
        return None;
    };
    let floor = table
        .rows
        .iter()
        .filter(|row| {
            row.verdict
                == Some(Verdict::Invalid {
                    reason: Unfit::EqualImages,
                })
        })
        .filter_map(|row| row.change.as_ref())
        .fold(0.0f64, |floor, change| floor.max(change.value.abs()));
    (floor > least).then(|| Notice::NoiseFloor {
        metric: table.metric.clone(),
        floor,
    })
}

/// Runs whose samples are equal to the last digit. Few or zero counts repeat
/// honestly; whole runs with values that are not whole numbers, or with many
/// different ones, do not.
fn identical(source: &Source<'_>) -> Vec<Notice> {
    let mut seen: HashMap<(&Cell, u64), Vec<&RunRecord>> = HashMap::new();
    let mut order: Vec<(&Cell, u64)> = Vec::new();
    for record in source.records {
        if record.round < source.warmup || !record.outcome.has_result() {
            continue;
        }
        let values: BTreeMap<u64, ()> = record
            .samples
            .iter()
            .map(|s| (s.value.to_bits(), ()))
            .collect();
        let telling = record
            .samples
            .iter()
            .any(|sample| sample.value.fract() != 0.0);
        if !(telling && values.len() >= 2 || values.len() >= 5) {
            continue;
        }
        let mut hasher = DefaultHasher::new();
        for sample in &record.samples {
            sample.metric.hash(&mut hasher);
            sample.value.to_bits().hash(&mut hasher);
        }
        let key = (&record.cell, hasher.finish());
        let runs = seen.entry(key).or_default();
        if runs.is_empty() {
            order.push(key);
        }
        runs.push(record);
    }
    order
        .into_iter()
        .filter_map(|key| {
            let runs = &seen[&key];
            (runs.len() > 1).then(|| Notice::Identical {
                cell: key.0.clone(),
                source: source.name.into(),
                runs: runs.iter().map(|record| record.index).collect(),
                samples: runs[0].samples.len(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use topolab_protocol::sample::MetricKind;

    use super::*;
    use crate::compare::tests::*;

    fn notices_of(records: &[RunRecord]) -> Vec<Notice> {
        compared(records, &demo_spec()).notices
    }

    #[test]
    fn an_honest_campaign_has_no_notice() {
        assert_eq!(notices_of(&demo(8)), []);
    }

    #[test]
    fn a_far_value_is_flagged_and_still_counts() {
        let mut records = demo(8);
        let place = records
            .iter()
            .rposition(|r| r.cell.settings == "unpinned")
            .unwrap();
        records[place].samples[0].value = 90_000.0;
        let comparison = compared(&records, &demo_spec());
        let [Notice::Outliers { runs, .. }] = &comparison.notices[..] else {
            panic!("{:?}", comparison.notices);
        };
        assert_eq!(runs[..], [(place, 90_000.0)]);
        assert_eq!(
            comparison.tables[0].rows[1].new.summary.unwrap().max,
            90_000.0
        );
    }

    #[test]
    fn scans_that_come_or_not_are_two_groups() {
        let records = campaign(&demo_cells(), 8, |cell, round| {
            let on = (round + cell.settings.len() as u32).is_multiple_of(2);
            let value = if on {
                68_000.0 + 1000.0 * scatter(cell, round)
            } else {
                0.0
            };
            vec![measurement(
                "numa_pte_updates",
                MetricKind::Count,
                "count",
                value,
            )]
        });
        let found = notices_of(&records);
        assert_eq!(found.len(), 4, "{found:?}");
        assert!(matches!(
            found[0],
            Notice::TwoGroups {
                lower: (4, 0.0),
                upper: (4, _),
                ..
            }
        ));
    }

    #[test]
    fn a_bench_that_warms_up_drifts() {
        let mut records = demo(8);
        for record in &mut records {
            record.samples[0].value *= 1.0 + 0.01 * record.index as f64;
        }
        let found = notices_of(&records);
        let [Notice::Drift { change, .. }] = found[..] else {
            panic!("{found:?}")
        };
        assert!(change > 0.1 && change < 0.3, "{change}");
    }

    #[test]
    fn a_run_read_twice_is_found() {
        let mut records = demo(8);
        records[7].samples = records[3].samples.clone();
        let found = notices_of(&records);
        let [
            Notice::Identical {
                runs, samples: 2, ..
            },
        ] = &found[..]
        else {
            panic!("{found:?}")
        };
        assert_eq!(runs[..], [3, 7]);
    }

    #[test]
    fn one_odd_boot_is_named() {
        let mut records = demo(12);
        for record in &mut records {
            record.boot = format!("boot {}", record.round % 4);
            if record.round % 4 == 2 {
                record.samples[0].value *= 1.3;
            }
        }
        let found: Vec<Notice> = notices_of(&records)
            .into_iter()
            .filter(|notice| matches!(notice, Notice::DominantBoot { .. }))
            .collect();
        assert_eq!(found.len(), 3, "{found:?}");
        let Notice::DominantBoot { boot, change, .. } = &found[0] else {
            unreachable!()
        };
        assert_eq!(boot, "boot 2");
        assert!(*change < -0.05);
    }

    #[test]
    fn equal_images_raise_the_minimum_effect() {
        let mut cells = demo_cells();
        cells.push(cell("linux-6.12@1", "unpinned"));
        let mut records = campaign(&cells, 8, |cell, round| {
            let shift = match cell.kernel.as_str() {
                "linux-6.12@base" => 1.0,
                "linux-6.12@1" => 1.15,
                _ => 1.08,
            };
            let value = 50_000.0 * shift * (1.0 + 0.01 * scatter(cell, round));
            vec![measurement(
                "numa_pte_updates",
                MetricKind::Count,
                "count",
                value,
            )]
        });
        for record in &mut records {
            if !record.cell.kernel.ends_with("@all") {
                record.environment.kernel_image = "same".into();
            }
        }
        let comparison = compared(&records, &demo_spec());
        let [Notice::NoiseFloor { floor, .. }] = &comparison.notices[..] else {
            panic!("{:?}", comparison.notices);
        };
        assert!((floor - 0.15).abs() < 0.01);
        assert!(matches!(
            comparison.tables[0].rows[0].verdict,
            Some(Verdict::Same { .. })
        ));
    }
}
