//! Tests of whole comparisons, and campaigns without guests for tests elsewhere.

use topolab_protocol::sample::Sample as Measurement;

use super::*;
use crate::{document::At, outcome::Outcome, store::record::*};

/// A campaign made of a closure: the value of `metric` by cell and round.
pub(crate) fn campaign(
    cells: &[Cell],
    rounds: u32,
    mut samples: impl FnMut(&Cell, u32) -> Vec<Measurement>,
) -> Vec<RunRecord> {
    let mut records = Vec::new();
    for round in 0..rounds {
        for cell in cells {
            let index = records.len();
            records.push(RunRecord {
                format: FORMAT,
                index,
                cell: cell.clone(),
                round,
                attempt: 0,
                boot: format!("boot-{index}"),
                outcome: Outcome::Completed,
                started: "2026-11-30T23:15:00Z".into(),
                wall_ms: 8000,
                hello_ms: Some(3000),
                phases: vec![("boot".into(), 3000), ("workload".into(), 5000)],
                samples: samples(cell, round),
                settings: Vec::new(),
                environment: Environment {
                    host_kernel: "6.12.1".into(),
                    qemu: "7.2.0".into(),
                    accel: "tcg,thread=multi".into(),
                    kernel_image: format!("image of {}", cell.kernel),
                    ..Environment::default()
                },
                trust: Trust {
                    timing: false,
                    reasons: vec!["accelerator tcg".into()],
                    ..Trust::default()
                },
                notes: Vec::new(),
                console_tail: Vec::new(),
            });
        }
    }
    records
}

pub(crate) fn measurement(metric: &str, kind: MetricKind, unit: &str, value: f64) -> Measurement {
    let better = if kind == MetricKind::Rate {
        Better::Higher
    } else {
        Better::Lower
    };
    Measurement {
        metric: metric.into(),
        value,
        kind,
        unit: unit.into(),
        better,
        labels: topolab_protocol::labels::Labels::new(),
    }
}

pub(crate) fn cell(kernel: &str, settings: &str) -> Cell {
    Cell {
        kernel: kernel.into(),
        topology: "dual-node-4".into(),
        cmdline: "default".into(),
        settings: settings.into(),
        workload: "scan".into(),
    }
}

pub(crate) fn demo_cells() -> Vec<Cell> {
    ["pinned-node0", "unpinned"]
        .iter()
        .flat_map(|settings| {
            ["linux-6.12@base", "linux-6.12+numa-scan-skip@all"]
                .map(|kernel| cell(kernel, settings))
        })
        .collect()
}

/// Scatter of a few percent that depends on nothing but its arguments.
pub(crate) fn scatter(cell: &Cell, round: u32) -> f64 {
    let mut hash = u64::from(round) + 1;
    for byte in cell.slug().bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    (hash >> 40) as f64 / f64::from(1 << 24) - 0.5
}

pub(crate) fn demo(rounds: u32) -> Vec<RunRecord> {
    campaign(&demo_cells(), rounds, |cell, round| {
        let gone = cell.kernel.ends_with("@all") && cell.settings == "pinned-node0";
        let updates = if gone {
            0.0
        } else {
            (50_000.0 * (1.0 + 0.04 * scatter(cell, round))).round()
        };
        vec![
            measurement("numa_pte_updates", MetricKind::Count, "count", updates),
            measurement(
                "passes",
                MetricKind::Rate,
                "passes/s",
                12.0 + scatter(cell, round),
            ),
        ]
    })
}

pub(crate) fn demo_spec() -> CompareSpec {
    serde_json::from_str(
        r#"{"baseline": {"kernels": "linux-6.12@base"},
            "metrics": {"numa_pte_updates": {"better": "lower", "min_effect": "5%"}, "passes": {}}}"#,
    )
    .unwrap()
}

pub(crate) fn compared(records: &[RunRecord], spec: &CompareSpec) -> Comparison {
    let source = Source {
        name: "numa-scan-20261130",
        records,
        cells: &[],
        warmup: 0,
    };
    within(
        source,
        Request {
            experiment: "numa-scan",
            spec,
            metrics: &[],
            looks: 0,
        },
    )
    .unwrap()
}

fn verdicts(table: &MetricTable) -> Vec<&Verdict> {
    table
        .rows
        .iter()
        .map(|row| row.verdict.as_ref().unwrap())
        .collect()
}

#[test]
fn the_demo_is_judged() {
    let comparison = compared(&demo(5), &demo_spec());
    let [updates, passes] = &comparison.tables[..] else {
        panic!()
    };
    assert_eq!(comparison.axes, ["settings"]);
    assert_eq!(comparison.constants["topologies"], "dual-node-4");
    assert_eq!(updates.runs, (5, 5));
    assert_eq!(
        verdicts(updates),
        [&Verdict::Better, &Verdict::Same { within: 0.05 }]
    );
    assert_eq!(updates.rows[0].change.unwrap().value, -1.0);
    for verdict in verdicts(passes) {
        let reason = "accelerator tcg".to_string();
        assert_eq!(
            *verdict,
            Verdict::Invalid {
                reason: Unfit::UntrustedTiming { reason }
            }
        );
    }
    assert!(comparison.losses.is_empty() && comparison.differences.is_empty());
}

#[test]
fn a_baseline_that_is_no_cell_is_named() {
    let mut spec = demo_spec();
    spec.baseline
        .insert("kernels".into(), At::nowhere("linux-6.13@base".into()));
    let records = demo(2);
    let source = Source {
        name: "x",
        records: &records,
        cells: &[],
        warmup: 0,
    };
    let error = within(
        source,
        Request {
            experiment: "x",
            spec: &spec,
            metrics: &[],
            looks: 0,
        },
    )
    .unwrap_err();
    insta::assert_snapshot!(error, @"no cell has kernels = `linux-6.13@base`, the baseline; there are: linux-6.12@base, linux-6.12+numa-scan-skip@all");
}

#[test]
fn equal_images_are_the_noise_floor() {
    let mut records = demo(6);
    for record in &mut records {
        record.environment.kernel_image = "same".into();
        record.samples.truncate(1);
    }
    let comparison = compared(&records, &demo_spec());
    for verdict in verdicts(&comparison.tables[0]) {
        assert_eq!(
            *verdict,
            Verdict::Invalid {
                reason: Unfit::EqualImages
            }
        );
    }
}

#[test]
fn lost_runs_are_counted_and_an_empty_side_says_why() {
    let mut records = demo(5);
    for record in &mut records {
        if record.cell.kernel.ends_with("@all") && record.cell.settings == "unpinned" {
            record.outcome = Outcome::GuestPanic {
                title: "BUG: kernel NULL pointer dereference".into(),
            };
            record.samples.clear();
        }
    }
    let comparison = compared(&records, &demo_spec());
    let reason = "5 × guest-panic: BUG: kernel NULL pointer dereference".to_string();
    let side = "new".to_string();
    assert_eq!(
        comparison.tables[0].rows[1].verdict,
        Some(Verdict::Invalid {
            reason: Unfit::NoResults { side, reason }
        })
    );
    assert_eq!(comparison.losses.len(), 1);
    assert_eq!(comparison.losses[0].others["guest-panic"], 5);
}

#[test]
fn warm_up_rounds_and_failed_tries_do_not_count() {
    let mut records = demo(6);
    let mut again = records[23].clone();
    records[23].outcome = Outcome::LabFailed {
        part: "qemu".into(),
        reason: "it left".into(),
    };
    again.attempt = 1;
    records.push(again);
    let spec = demo_spec();
    let source = Source {
        name: "x",
        records: &records,
        cells: &[],
        warmup: 1,
    };
    let comparison = within(
        source,
        Request {
            experiment: "x",
            spec: &spec,
            metrics: &[],
            looks: 0,
        },
    )
    .unwrap();
    assert_eq!(comparison.tables[0].runs, (5, 5));
    assert!(comparison.losses.is_empty());
}

#[test]
fn two_folders_are_compared_cell_by_cell() {
    let (last, mut tonight) = (demo(5), demo(7));
    for record in &mut tonight {
        record.environment.kernel_image += ", built tonight";
    }
    let spec = demo_spec();
    let older = Source {
        name: "last",
        records: &last,
        cells: &[],
        warmup: 0,
    };
    let mut cells = demo_cells();
    cells.push(cell("linux-6.12@1", "unpinned"));
    let newer = Source {
        name: "tonight",
        records: &tonight,
        cells: &cells,
        warmup: 0,
    };
    let comparison = between(
        older,
        newer,
        Request {
            experiment: "x",
            spec: &spec,
            metrics: &[],
            looks: 0,
        },
    )
    .unwrap();
    let rows = &comparison.tables[0].rows;
    assert_eq!(rows.len(), 5);
    assert_eq!(rows[0].verdict, Some(Verdict::Same { within: 0.05 }));
    assert_eq!(comparison.axes, ["kernels", "settings"]);
    let Some(Verdict::Invalid {
        reason: Unfit::NoResults { side, reason },
    }) = &rows[4].verdict
    else {
        panic!("{:?}", rows[4].verdict);
    };
    assert_eq!(
        (side.as_str(), reason.as_str()),
        ("baseline", "it was not run")
    );
}

#[test]
fn two_nights_with_the_same_image_differ_by_noise_only() {
    let (last, tonight) = (demo(5), demo(7));
    let spec = demo_spec();
    let source = |name, records| Source {
        name,
        records,
        cells: &[],
        warmup: 0,
    };
    let request = Request {
        experiment: "x",
        spec: &spec,
        metrics: &[],
        looks: 0,
    };
    let comparison = between(source("last", &last), source("tonight", &tonight), request).unwrap();
    for verdict in verdicts(&comparison.tables[0]) {
        let reason = Unfit::EqualImages;
        assert_eq!(*verdict, Verdict::Invalid { reason });
    }
}

#[test]
fn one_kernel_alone_has_values_and_no_verdict() {
    let mut records = demo(5);
    records.retain(|record| record.cell.kernel.ends_with("@base"));
    let comparison = compared(&records, &demo_spec());
    assert_eq!(comparison.tables[0].rows.len(), 2);
    assert!(
        comparison.tables[0]
            .rows
            .iter()
            .all(|row| row.verdict.is_none() && row.base.is_none())
    );
}
