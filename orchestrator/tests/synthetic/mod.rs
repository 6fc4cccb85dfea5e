//! Results folders without guests: values drawn from a seed, so that commands
//! which read results can be tested by themselves.

use std::{collections::BTreeMap, fs, path::Path};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use topolab::{
    document::Document,
    outcome::Outcome,
    plan::{Cell, ExperimentSpec, order},
    store::{
        CampaignMeta, KernelMeta,
        record::{Environment, FORMAT, RunRecord, Trust},
    },
};
use topolab_protocol::sample::{Better, MetricKind, Sample};

/// A campaign in memory.
pub struct Campaign {
    pub meta: CampaignMeta,
    pub records: Vec<RunRecord>,
}

/// Stands for the hash of a kernel's image.
fn image_of(kernel: &str) -> String {
    let hash = kernel.bytes().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:064x}")
}

/// About the normal distribution (Irwin and Hall: a sum of 12 uniform values).
pub fn normal(random: &mut impl Rng) -> f64 {
    (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0
}

pub fn sample(metric: &str, kind: MetricKind, unit: &str, value: f64) -> Sample {
    let better = if kind == MetricKind::Rate {
        Better::Higher
    } else {
        Better::Lower
    };
    let labels = topolab_protocol::labels::Labels::new();
    Sample {
        metric: metric.into(),
        value,
        kind,
        unit: unit.into(),
        better,
        labels,
    }
}

/// Runs every cell of an experiment in the planned order; `samples` says what a
/// run yields.
pub fn campaign(
    experiment: &str,
    seed: u64,
    mut samples: impl FnMut(&Cell, &mut ChaCha8Rng) -> Vec<Sample>,
) -> Campaign {
    let document = Document::from_text("experiment.yaml", experiment).unwrap();
    let spec = ExperimentSpec::from_document(&document).unwrap_or_else(|e| panic!("{e}"));
    let kernels: Vec<String> = spec
        .kernels
        .iter()
        .map(|kernel| kernel.value.clone())
        .collect();
    let cells = spec.cells(&kernels);
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let records = order(cells.len(), spec.rounds.value, spec.warmup, seed)
        .into_iter()
        .map(|planned| {
            let cell = cells[planned.cell].clone();
            RunRecord {
                format: FORMAT,
                index: planned.index,
                round: planned.round,
                attempt: 0,
                boot: format!("boot-{}", planned.index),
                outcome: Outcome::Completed,
                started: format!(
                    "2026-11-30T23:{:02}:{:02}Z",
                    planned.index / 60 % 60,
                    planned.index % 60
                ),
                wall_ms: 8000,
                hello_ms: Some(2800 + planned.index as u64 % 400),
                phases: vec![("boot".into(), 2900), ("scan".into(), 5000)],
                samples: samples(&cell, &mut random),
                settings: Vec::new(),
                environment: Environment {
                    host_kernel: "6.1.0-40-amd64".into(),
                    host_cpu: "AMD EPYC 7763".into(),
                    host: "bench1".into(),
                    qemu: "7.2.22".into(),
                    accel: "tcg,thread=multi".into(),
                    cpu_model: "EPYC-Milan".into(),
                    kernel_image: image_of(&cell.kernel),
                    guest_kernel: "6.12.57".into(),
                    cmdline: "console=ttyS0 nokaslr".into(),
                    ..Environment::default()
                },
                trust: Trust {
                    timing: false,
                    reasons: vec!["accelerator tcg".into()],
                    ..Trust::default()
                },
                notes: Vec::new(),
                console_tail: Vec::new(),
                cell,
            }
        })
        .collect();
    let kernels = kernels
        .into_iter()
        .map(|name| KernelMeta {
            image: image_of(&name),
            release: "6.12.57".into(),
            recompiled: if name.ends_with("@base") { 1197 } else { 3 },
            seconds: if name.ends_with("@base") { 451.0 } else { 19.2 },
            name,
            ..KernelMeta::default()
        })
        .collect();
    let meta = CampaignMeta {
        format: FORMAT,
        topolab: "0.1.0".into(),
        started: "2026-11-30T23:00:00Z".into(),
        seed,
        experiment_text: experiment.into(),
        experiment_path: "synthetic.yaml".into(),
        cells,
        rounds: spec.rounds.value,
        until_decided: None,
        looks: Vec::new(),
        kernels,
        topologies: BTreeMap::new(),
        experiment: spec,
    };
    Campaign { meta, records }
}

impl Campaign {
    /// Writes the results folder, as a campaign leaves it behind.
    pub fn write(&self, folder: &Path) {
        fs::create_dir_all(folder.join("runs")).unwrap();
        fs::write(
            folder.join("campaign.json"),
            serde_json::to_vec(&self.meta).unwrap(),
        )
        .unwrap();
        for record in &self.records {
            let run = folder
                .join("runs")
                .join(format!("{:05}-r{}", record.index, record.round));
            fs::create_dir(&run).unwrap();
            fs::write(run.join("run.json"), serde_json::to_vec(record).unwrap()).unwrap();
        }
    }
}
