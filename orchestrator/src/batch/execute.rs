//! Carries out a unit: its runs, one after the other, each durable by itself.

use std::path::Path;

use super::{
    desk::Desk,
    publish::{Put, Shelf, State},
    unit::{Unit, UnitError},
};
use crate::{
    campaign::record_of,
    outcome::Outcome,
    plan::PlannedRun,
    qemu::accel::KvmError,
    run::{Bench, Cancel, Lab, RunResult, Session, execute},
    store::StoreError,
};

/// What became of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Done {
    /// Runs done now.
    pub done: usize,
    /// Runs that were there before.
    pub found: usize,
    /// Runs that were done elsewhere at the same time.
    pub superfluous: usize,
    /// Runs of cells that no try can help.
    pub given_up: usize,
}

/// Why a unit is not done. Its runs that ended are kept.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// What it names is not there.
    #[error(transparent)]
    Unit(#[from] UnitError),
    /// The results folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The accelerator that was insisted on does not work on this node.
    #[error("node {node} cannot run these guests")]
    Bench {
        /// The node.
        node: String,
        /// Why.
        #[source]
        source: KvmError,
    },
    /// The node is unlike those that the group's other runs were done on.
    #[error("node {node} is `{here}`, the runs it would be compared with were done on `{there}`")]
    OtherBench {
        /// The node.
        node: String,
        /// What it is like.
        here: String,
        /// What the others are like.
        there: String,
    },
    /// It was told to stop.
    #[error("told to stop after {done} runs")]
    Interrupted {
        /// Runs done.
        done: usize,
    },
}

/// Where a unit is carried out.
pub struct Place<'a> {
    /// The cache of this node.
    pub cache: &'a Path,
    /// QEMU and the host.
    pub lab: &'a Lab,
    /// Name of the node.
    pub node: &'a str,
    /// Ends the running guest; its run is as if it had never begun.
    pub cancel: Cancel,
}

/// What two nodes must agree on before their runs may be compared.
pub fn bench_class(bench: &Bench, qemu: &str) -> String {
    let identity = &bench.identity;
    [
        &*identity.cpu,
        &format!("microcode {}", identity.microcode),
        &identity.kernel,
        &format!("qemu {qemu}"),
        &bench.args.accel.to_string(),
    ]
    .join(", ")
}

/// Carries out a unit of the campaign in `results`.
///
/// # Errors
/// Something stands against it on this node.
pub async fn carry_out(
    unit: &Unit,
    results: &Path,
    place: Place<'_>,
    tell: &mut dyn FnMut(PlannedRun, u32, &Outcome),
) -> Result<Done, ExecuteError> {
    let files = unit.fetch(place.cache)?;
    let cancel = place.cancel.clone();
    let mut benches: Vec<Option<Bench>> = vec![None; unit.cells.len()];
    for run in &unit.runs {
        let slot = &mut benches[run.cell];
        if slot.is_some() {
            continue;
        }
        let mut bench = place
            .lab
            .bench(unit.topology(*run, &files))
            .await
            .map_err(|source| ExecuteError::Bench {
                node: place.node.into(),
                source,
            })?;
        // Nodes of one host, as in tests, or in containers, share its name.
        bench.identity.host = place.node.into();
        let as_unit = unit.run_unit(*run, &files);
        *slot = Some(crate::campaign::bench_for(&unit.bench, &bench, &as_unit));
    }
    let desk = Desk::of(results);
    if let Some(bench) = benches.iter().flatten().next()
        && !unit.mix_nodes
    {
        let here = bench_class(bench, &place.lab.about().version);
        let there = desk.claim(unit.group, &here)?;
        if here != there {
            desk.note_elsewhere(unit.group, place.node)?;
            return Err(ExecuteError::OtherBench {
                node: place.node.into(),
                here,
                there,
            });
        }
    }
    let mut one = async |run: PlannedRun, folder: &Path| {
        let bench = benches[run.cell].as_ref().expect("made for every cell");
        let session = Session {
            events: &mut |_| {},
            cancel: cancel.clone(),
            typed: None,
        };
        execute(&unit.run_unit(run, &files), bench, folder, session).await
    };
    runs(unit, results, &place.cancel, &mut one, tell).await
}

/// Does the runs of a unit that are still open, whatever a run is.
///
/// # Errors
/// The results folder said no, or it was told to stop.
pub async fn runs(
    unit: &Unit,
    results: &Path,
    cancel: &Cancel,
    run_one: &mut impl AsyncFnMut(PlannedRun, &Path) -> RunResult,
    tell: &mut dyn FnMut(PlannedRun, u32, &Outcome),
) -> Result<Done, ExecuteError> {
    let (desk, shelf) = (Desk::of(results), Shelf::of(results));
    let mut done = Done::default();
    for run in &unit.runs {
        let cell = &unit.cell(*run).cell;
        let slug = cell.slug();
        if desk.has_given_up(&slug) {
            done.given_up += 1;
            continue;
        }
        let mut found = true;
        while let State::Open { attempt } = shelf.state(*run, cell, unit.limits.tries)? {
            found = false;
            let folder = shelf.begin(*run)?;
            let started = jiff::Timestamp::now().to_string();
            let result = run_one(*run, &folder).await;
            if cancel.is_told() && !result.outcome.has_result() {
                shelf.abandon(&folder);
                return Err(ExecuteError::Interrupted { done: done.done });
            }
            let record = record_of(cell, *run, attempt, started, result);
            match shelf.put(&folder, &record)? {
                Put::Kept => tell(*run, attempt, &record.outcome),
                Put::Superfluous => {
                    done.superfluous += 1;
                    continue;
                }
            }
            if matches!(
                record.outcome,
                Outcome::NotTestable { .. } | Outcome::WrongTopology { .. }
            ) {
                desk.give_up(&slug, &record.outcome.detail())?;
            }
            if !record.outcome.is_retryable() || attempt + 1 >= unit.limits.tries {
                done.done += 1;
            }
            if cancel.is_told() {
                return Err(ExecuteError::Interrupted { done: done.done });
            }
        }
        done.found += usize::from(found);
    }
    Ok(done)
}
