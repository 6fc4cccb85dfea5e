//! What the build job of a campaign does: kernels, their images, then the units.

use std::{collections::BTreeMap, path::Path};

use super::{
    desk::{Desk, Plan},
    unit::{UNIT_FORMAT, Unit, UnitCell, UnitKernel},
};
use crate::{
    agent_binary,
    campaign::{self, CampaignError, Prepared},
    event::Event,
    kernel::Builder,
    store,
};

/// Builds what a submitted campaign needs and writes its units. What is in the
/// cache already costs nothing; of several jobs that want one kernel, one builds it.
///
/// # Errors
/// A kernel or the image that cannot be made; it is noted for those who wait.
pub async fn build(
    prepared: &Prepared,
    builder: &Builder,
    results: &Path,
    tell: &dyn Fn(Event),
) -> Result<(), CampaignError> {
    let desk = Desk::of(results);
    desk.note_build(None)?;
    let outcome = build_all(prepared, builder, results, &desk, tell).await;
    if let Err(error) = &outcome {
        desk.note_build(Some(&campaign::chain(error)))?;
    }
    outcome
}

async fn build_all(
    prepared: &Prepared,
    builder: &Builder,
    results: &Path,
    desk: &Desk,
    tell: &dyn Fn(Event),
) -> Result<(), CampaignError> {
    let plan = desk.plan()?;
    let kernels = campaign::build_kernels(prepared, builder, tell).await?;
    let mut ready = BTreeMap::new();
    for (name, built) in &kernels.built {
        let image = campaign::images::build(prepared, name, built, &plan.cache)?;
        ready.insert(name.clone(), UnitKernel::new(built, &image));
    }
    let mut meta = store::read_meta(results)?;
    meta.kernels.clone_from(&kernels.meta);
    store::save_meta(results, &meta)?;
    for (number, array) in plan.arrays.iter().enumerate() {
        for (task, block) in array.blocks.iter().enumerate() {
            let unit = unit(prepared, &plan, *block, &ready);
            desk.write_unit(number, task, &unit)?;
        }
    }
    desk.note_built()?;
    Ok(())
}

/// The unit of a block. Runs of cells without a kernel are left out.
pub fn unit(
    prepared: &Prepared,
    plan: &Plan,
    number: usize,
    kernels: &BTreeMap<String, UnitKernel>,
) -> Unit {
    let block = &plan.blocks[number];
    let filled = "every `{name}` was tried when the campaign was prepared";
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    let mut unit = Unit {
        format: UNIT_FORMAT,
        block: number,
        group: block.group,
        seed: prepared.seed,
        agent_sha256: agent_binary::sha256().to_string(),
        topologies: BTreeMap::new(),
        kernels: BTreeMap::new(),
        cells: Vec::new(),
        runs: Vec::new(),
        limits: prepared.experiment.limits.clone(),
        monitors: prepared.experiment.monitors.clone(),
        allowed_splats: prepared.experiment.allowed_splats.clone(),
        accel: plan.wish.accel,
        bench: prepared.experiment.bench.clone(),
        mix_nodes: plan.wish.mix_nodes,
    };
    for index in &block.runs {
        let mut run = prepared.order[*index];
        let cell = &prepared.cells[run.cell];
        let Some(kernel) = kernels.get(&cell.kernel) else {
            continue;
        };
        let place = *places.entry(run.cell).or_insert_with(|| {
            let (_, text) = &prepared.topologies[&cell.topology];
            unit.topologies.insert(cell.topology.clone(), text.clone());
            unit.kernels.insert(cell.kernel.clone(), kernel.clone());
            unit.cells.push(UnitCell {
                cell: cell.clone(),
                append: prepared.cmdline(cell).expect(filled),
                settings: prepared.settings(cell).expect(filled),
                workload: prepared.workload(cell).expect(filled),
            });
            unit.cells.len() - 1
        });
        run.cell = place;
        unit.runs.push(run);
    }
    unit
}
