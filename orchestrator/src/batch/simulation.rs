//! What a large campaign costs us, with runs that take no time. Measured, so run
//! by hand and in release:
//! `cargo test --release -p topolab --lib simulation -- --ignored --nocapture`.
//! `docs/slurm.md` keeps the figures.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::PermissionsExt,
    path::Path,
    time::{Duration, Instant},
};

use topolab_protocol::sample::{Better, MetricKind, Sample};

use super::{
    build,
    desk::Desk,
    execute,
    plan::Wish,
    slurm::Slurm,
    submit::{self, Order},
    tally::Tally,
    unit::{Stored, Unit, UnitKernel},
};
use crate::{
    campaign::{self, Library, Overrides, Prepared},
    compare::{self, Request, Source},
    kernel::Tools,
    outcome::Outcome,
    run::{Cancel, RunResult},
    store,
};

/// A controller that takes everything at once.
const CLIENT: &str = r#"#!/bin/sh
case $(basename "$0") in
scontrol) echo 'MaxArraySize            = 1001'; echo 'MaxJobCount             = 10000' ;;
sinfo) for n in $(seq 100); do echo "n$n|lab*|64|256000|idle|kvm"; done ;;
sbatch) case " $* " in *' --test-only '*) ;; *) echo 1 ;; esac ;;
esac
"#;

async fn prepared(rounds: u32) -> Prepared {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let library = Library::new(vec![checkout]);
    let tools = Tools::in_path(std::env::var_os("PATH").as_deref());
    let overrides = Overrides {
        rounds: Some(rounds),
        ..Overrides::default()
    };
    campaign::prepare("numa-scan", &library, &tools, &overrides, 1)
        .await
        .unwrap()
}

fn built(prepared: &Prepared) -> BTreeMap<String, UnitKernel> {
    let kernel = |name: &str| UnitKernel {
        image: Stored::new(Path::new("/cache/bzImage"), &format!("{:064x}", name.len())),
        user_space: Stored::new(Path::new("/cache/image"), &"0".repeat(64)),
        build_id: None,
        release: Some("6.12".into()),
        config: None,
    };
    let names = prepared.kernels.iter().map(|(name, _, _)| name);
    names.map(|name| (name.clone(), kernel(name))).collect()
}

fn result(index: usize) -> RunResult {
    let mut result = RunResult::nowhere(Outcome::Completed);
    for (place, metric) in ["numa_pte_updates", "numa_hint_faults", "passes"]
        .iter()
        .enumerate()
    {
        result.samples.push(Sample {
            metric: (*metric).into(),
            value: 1000.0 + (index * 7919 % 101 + place) as f64,
            kind: MetricKind::Count,
            unit: "count".into(),
            better: Better::Lower,
            labels: topolab_protocol::labels::Labels::new(),
        });
    }
    result.environment.kernel_image = format!("{index}");
    result
}

#[expect(clippy::print_stdout, reason = "the figures are what it is run for")]
/// A campaign of `4 × rounds` runs from its plan to its comparison.
async fn simulate(rounds: u32) -> (usize, Duration, Duration) {
    let parent = tempfile::tempdir().unwrap();
    let clients = parent.path().join("bin");
    fs::create_dir(&clients).unwrap();
    for name in ["scontrol", "sinfo", "sbatch", "squeue", "scancel"] {
        fs::write(clients.join(name), CLIENT).unwrap();
        fs::set_permissions(clients.join(name), fs::Permissions::from_mode(0o755)).unwrap();
    }
    let results = parent.path().join("results");
    let prepared = prepared(rounds).await;
    let order = Order {
        wish: Wish::default(),
        rounds_per_task: None,
        housekeeping: 1,
        topolab: "/shared/topolab".into(),
        cache: parent.path().join("cache"),
        library: Vec::new(),
    };
    let began = Instant::now();
    let slurm = Slurm::find(clients.as_os_str()).unwrap();
    let cluster = slurm.cluster().unwrap();
    let plan = submit::plan(&prepared, &results, &order, &cluster).unwrap();
    submit::rehearse(&slurm, &cluster, &plan, &results).unwrap();
    drop(submit::lay_out(&prepared, &results, "0", &plan).unwrap());
    assert!(
        submit::submit_all(&slurm, &plan, &results)
            .unwrap()
            .is_none()
    );
    let submitting = began.elapsed();
    let tasks: usize = plan.arrays.iter().map(|array| array.blocks.len()).sum();

    let (desk, kernels) = (Desk::of(&results), built(&prepared));
    let began = Instant::now();
    for (number, array) in plan.arrays.iter().enumerate() {
        for (task, block) in array.blocks.iter().enumerate() {
            let unit = build::unit(&prepared, &plan, *block, &kernels);
            desk.write_unit(number, task, &unit).unwrap();
        }
    }
    let writing = began.elapsed();
    let began = Instant::now();
    for (number, array) in plan.arrays.iter().enumerate() {
        for task in 0..array.blocks.len() {
            let unit = Unit::read(&desk.unit(number, task)).unwrap();
            let mut one = async |run: crate::plan::PlannedRun, _: &Path| result(run.index);
            let cancel = Cancel::never();
            let done = execute::runs(&unit, &results, &cancel, &mut one, &mut |_, _, _| {})
                .await
                .unwrap();
            assert_eq!(done.done, unit.runs.len());
        }
    }
    let running = began.elapsed();
    let began = Instant::now();
    let mut tally = Tally::of(&results).unwrap();
    tally.look(&mut |_| {}).unwrap();
    assert_eq!(tally.completed(), prepared.order.len());
    let looking = began.elapsed();
    let began = Instant::now();
    let read = store::load(&results).unwrap();
    let source = Source {
        name: "r",
        records: &read.records,
        cells: &read.meta.cells,
        warmup: 0,
    };
    let request = Request {
        experiment: "numa-scan",
        spec: &prepared.experiment.compare,
        metrics: &[],
        looks: 0,
    };
    let comparison = compare::within(source, request).unwrap();
    assert_eq!(
        comparison.tables[0].runs,
        (rounds as usize, rounds as usize)
    );
    let indices: BTreeSet<usize> = read.records.iter().map(|record| record.index).collect();
    assert_eq!(indices.len(), read.records.len());
    let runs = prepared.order.len();
    println!(
        "{runs} runs in {tasks} tasks of {} arrays: submitted in {submitting:.1?}, units written in {writing:.1?}, \
         {:.2?} of ours a run, one look in {looking:.1?}, read and compared in {:.1?}",
        plan.arrays.len(),
        running / u32::try_from(runs).unwrap(),
        began.elapsed(),
    );
    (runs, submitting, running)
}

#[tokio::test]
async fn a_small_campaign_is_whole() {
    let (runs, ..) = simulate(5).await;
    assert_eq!(runs, 20);
}

#[tokio::test]
#[ignore = "measures; needs --release and a quiet machine"]
async fn twenty_thousand_runs_cost_little() {
    let (runs, submitting, running) = simulate(5000).await;
    assert_eq!(runs, 20_000);
    assert!(submitting < Duration::from_secs(60));
    assert!(running / 20_000 < Duration::from_millis(50));
}
