//! Reads everything a campaign names before anything is started, and tells
//! every problem at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use topolab_protocol::{settings::Settings, workload::Workload};

use super::{
    images::{OwnModule, own_modules},
    library::{Library, NotFound},
    parameters,
};
use crate::{
    document::{At, Document, Problems},
    kernel::{self, Kernel, KernelRef, KernelRequest, Tools},
    plan::{self, Cell, ExperimentSpec, PlannedRun, glob, short_name},
    topology::Topology,
};

/// What the command line may change about an experiment.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// Rounds in place of the file's.
    pub rounds: Option<u32>,
    /// Seed in place of the file's.
    pub seed: Option<u64>,
    /// Only cells of which some axis, or the whole name, fits one of these patterns.
    pub only: Vec<String>,
}

/// A campaign whose every part was read and checked.
#[derive(Debug, Clone)]
pub struct Prepared {
    /// The experiment.
    pub experiment: ExperimentSpec,
    /// Its text.
    pub text: String,
    /// Where it was read.
    pub path: PathBuf,
    /// Kernels by their name in cells, in the order of the file.
    pub kernels: Vec<(String, KernelRef, Kernel)>,
    /// Topologies and their texts by their name in cells.
    pub topologies: BTreeMap<String, (Topology, String)>,
    /// Modules of one's own that cells load or the image brings, by name.
    pub modules: Vec<OwnModule>,
    /// Cells, in the order of the file.
    pub cells: Vec<Cell>,
    /// Rounds, warm-up rounds not counted.
    pub rounds: u32,
    /// Seed of the order.
    pub seed: u64,
    /// Every run in order.
    pub order: Vec<PlannedRun>,
}

/// Why a campaign cannot be prepared.
#[derive(Debug, thiserror::Error)]
pub enum PrepareError {
    /// No such experiment.
    #[error(transparent)]
    NotFound(#[from] NotFound),
    /// Problems of one or more files.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Problems(Vec<Problems>),
    /// `--only` left nothing.
    #[error("no cell fits {patterns}; there are {cells} cells, such as: {example}")]
    NothingLeft {
        /// The patterns.
        patterns: String,
        /// How many cells there are without them.
        cells: usize,
        /// One of them.
        example: String,
    },
}

/// Reads an experiment by name or path and everything it names.
///
/// `clock_seed` is the seed when neither the file nor the command line gives one.
///
/// # Errors
/// Every problem of every file.
pub async fn prepare(
    experiment: &str,
    library: &Library,
    tools: &Tools,
    overrides: &Overrides,
    clock_seed: u64,
) -> Result<Prepared, PrepareError> {
    let path = library.experiment(experiment)?;
    let document = Document::read(&path).map_err(|p| PrepareError::Problems(vec![p]))?;
    prepare_document(&document, &path, library, tools, overrides, clock_seed).await
}

/// Prepares an experiment that was read already.
///
/// # Errors
/// Every problem of every file.
pub async fn prepare_document(
    document: &Document,
    path: &Path,
    library: &Library,
    tools: &Tools,
    overrides: &Overrides,
    clock_seed: u64,
) -> Result<Prepared, PrepareError> {
    let spec =
        ExperimentSpec::from_document(document).map_err(|p| PrepareError::Problems(vec![p]))?;
    let library = library.seen_from(path);
    let mut own = document.problems();
    let mut others = Vec::new();
    let kernels = read_kernels(&spec, &library, tools, &mut own, &mut others).await;
    let topologies = read_topologies(&spec, &library, &mut own, &mut others);
    let names: Vec<String> = kernels.iter().map(|(name, _, _)| name.clone()).collect();
    let all = spec.cells(&names);
    for (name, (topology, _)) in &topologies {
        check_sets(&spec, name, topology, &mut own);
    }
    check_parameters(document, &spec, &topologies, &all, &mut own);
    check_compare(&spec, &all, &mut own);
    let modules = own_modules(&spec, &all, &library, &mut own);
    if !own.list.is_empty() {
        own.sort();
        others.insert(0, own);
    }
    if !others.is_empty() {
        return Err(PrepareError::Problems(others));
    }
    let cells: Vec<Cell> = all
        .iter()
        .filter(|cell| wanted(cell, &overrides.only))
        .cloned()
        .collect();
    if cells.is_empty() {
        return Err(PrepareError::NothingLeft {
            patterns: overrides.only.join(", "),
            cells: all.len(),
            example: all.first().map_or_else(String::new, ToString::to_string),
        });
    }
    let rounds = overrides.rounds.unwrap_or(spec.rounds.value);
    let seed = overrides.seed.or(spec.seed).unwrap_or(clock_seed);
    let order = plan::order(cells.len(), rounds, spec.warmup, seed);
    let used: Vec<_> = kernels
        .into_iter()
        .filter(|(name, _, _)| cells.iter().any(|c| c.kernel == *name))
        .collect();
    Ok(Prepared {
        text: document.text().to_string(),
        path: path.to_path_buf(),
        kernels: used,
        topologies,
        modules,
        cells,
        rounds,
        seed,
        order,
        experiment: spec,
    })
}

impl Prepared {
    /// As many rounds in place of those planned. The order of rounds that both have
    /// is the same.
    pub fn set_rounds(&mut self, rounds: u32) {
        self.rounds = rounds;
        let warmup = self.experiment.warmup;
        self.order = plan::order(self.cells.len(), rounds, warmup, self.seed);
    }

    /// What a cell writes in the guest, with the topology's sets filled in.
    ///
    /// # Errors
    /// Never after [`prepare`], which tried every one.
    pub fn settings(&self, cell: &Cell) -> Result<Settings, plan::UnknownSet> {
        let place = format!("settings.{}", cell.settings);
        plan::fill(
            &self.experiment.settings[&cell.settings],
            &place,
            &self.sets(cell),
        )
    }

    /// What a cell runs, with the topology's sets filled in.
    ///
    /// # Errors
    /// Never after [`prepare`], which tried every one.
    pub fn workload(&self, cell: &Cell) -> Result<Workload, plan::UnknownSet> {
        let place = format!("workloads.{}", cell.workload);
        plan::fill(
            &self.experiment.workloads[&cell.workload],
            &place,
            &self.sets(cell),
        )
    }

    /// What a cell adds to the topology's command line.
    ///
    /// # Errors
    /// Never after [`prepare`], which tried every one.
    pub fn cmdline(&self, cell: &Cell) -> Result<String, plan::UnknownSet> {
        let place = format!("cmdlines.{}", cell.cmdline);
        plan::fill_text(
            &self.experiment.cmdlines[&cell.cmdline],
            &place,
            &self.sets(cell),
        )
    }

    /// A cell's topology.
    pub fn topology(&self, cell: &Cell) -> &Topology {
        &self.topologies[&cell.topology].0
    }

    /// The named CPU sets of a cell's topology, as cpulists.
    pub fn sets(&self, cell: &Cell) -> BTreeMap<String, String> {
        sets_of(self.topology(cell))
    }
}

fn sets_of(topology: &Topology) -> BTreeMap<String, String> {
    topology
        .sets
        .iter()
        .map(|(name, cpus)| (name.clone(), cpus.to_string()))
        .collect()
}

async fn read_kernels(
    spec: &ExperimentSpec,
    library: &Library,
    tools: &Tools,
    own: &mut Problems,
    others: &mut Vec<Problems>,
) -> Vec<(String, KernelRef, Kernel)> {
    let mut kernels: Vec<(String, KernelRef, Kernel)> = Vec::new();
    let mut read: BTreeMap<String, Option<Kernel>> = BTreeMap::new();
    for written in &spec.kernels {
        let request: KernelRequest = match written.value.parse() {
            Ok(request) => request,
            Err(error) => {
                own.at(written, format!("{error}"), None);
                continue;
            }
        };
        let kernel = read.entry(request.kernel.clone()).or_insert_with(|| {
            match library.kernel(&request.kernel) {
                Ok(path) => Kernel::read(&path)
                    .map_err(|problems| others.push(problems))
                    .ok(),
                Err(error) => {
                    own.at(written, error.to_string(), None);
                    None
                }
            }
        });
        let Some(kernel) = kernel else { continue };
        match kernel::expand(kernel, &request, tools).await {
            Ok(refs) => {
                for one in refs {
                    let name = one.to_string();
                    if !kernels.iter().any(|(known, _, _)| *known == name) {
                        kernels.push((name, one, kernel.clone()));
                    }
                }
            }
            Err(error) => own.at(written, super::chain(&error), None),
        }
    }
    kernels
}

fn read_topologies(
    spec: &ExperimentSpec,
    library: &Library,
    own: &mut Problems,
    others: &mut Vec<Problems>,
) -> BTreeMap<String, (Topology, String)> {
    let mut topologies = BTreeMap::new();
    for written in &spec.topologies {
        let document = match library.topology(written) {
            Ok(path) => Document::read(&path),
            Err(error) => {
                own.at(written, error.to_string(), None);
                continue;
            }
        };
        let read = document.and_then(|document| {
            let topology = Topology::from_text(document.name(), document.text())?;
            Ok((topology, document.text().to_string()))
        });
        match read {
            Ok(read) => {
                topologies.insert(short_name(written), read);
            }
            Err(problems) => others.push(problems),
        }
    }
    topologies
}

/// Every `{name}` must be a set of every topology it meets.
fn check_sets(spec: &ExperimentSpec, name: &str, topology: &Topology, own: &mut Problems) {
    let sets = sets_of(topology);
    let mut tell = |at: Option<&At<String>>, error: plan::UnknownSet| {
        let place = at.unwrap_or(&spec.name);
        own.at(place, format!("with topology `{name}`: {error}"), None);
    };
    for (key, text) in &spec.cmdlines {
        if let Err(error) = plan::fill_text(text, &format!("cmdlines.{key}"), &sets) {
            tell(Some(text), error);
        }
    }
    for (key, settings) in &spec.settings {
        if let Err(error) = plan::fill(settings, &format!("settings.{key}"), &sets) {
            tell(None, error);
        }
    }
    for (key, workload) in &spec.workloads {
        if let Err(error) = plan::fill(workload, &format!("workloads.{key}"), &sets) {
            tell(None, error);
        }
    }
}

/// Every workload must be able to work in every cell it is in.
fn check_parameters(
    document: &Document,
    spec: &ExperimentSpec,
    topologies: &BTreeMap<String, (Topology, String)>,
    cells: &[Cell],
    own: &mut Problems,
) {
    let mut told = BTreeSet::new();
    for cell in cells {
        let Some((topology, _)) = topologies.get(&cell.topology) else {
            continue;
        };
        let sets = sets_of(topology);
        let (Ok(settings), Ok(workload)) = (
            plan::fill(&spec.settings[&cell.settings], "settings", &sets),
            plan::fill(&spec.workloads[&cell.workload], "workloads", &sets),
        ) else {
            // Told with its name by `check_sets`.
            continue;
        };
        for wrong in parameters::wrong(&workload, &settings, topology) {
            if !told.insert((cell.workload.clone(), wrong.clone())) {
                continue;
            }
            let keys = [cell.workload.as_str(), workload.name()];
            let (line, column) = place_of(document, keys, &wrong.path);
            let message = format!("workload `{}`: {}", cell.workload, wrong.message);
            own.push(line, column, message, wrong.help);
        }
    }
}

/// Line and column of a workload's parameter, or of the nearest thing written
/// around it when it has its default.
fn place_of(document: &Document, workload: [&str; 2], path: &[&str]) -> (u32, u32) {
    let mut node = document.root();
    let keys = ["workloads"].iter().chain(&workload).chain(path);
    for key in keys {
        match node.get(key) {
            Some(inner) => node = inner,
            None => break,
        }
    }
    (node.line, node.column)
}

/// A baseline or gate that no cell fits would judge nothing.
fn check_compare(spec: &ExperimentSpec, cells: &[Cell], own: &mut Problems) {
    if cells.is_empty() {
        return;
    }
    for (axis, value) in &spec.compare.baseline {
        if !cells
            .iter()
            .any(|cell| cell.axis(axis) == Some(value.as_str()))
        {
            let mut known: Vec<&str> = cells.iter().filter_map(|cell| cell.axis(axis)).collect();
            known.sort_unstable();
            known.dedup();
            own.at(
                value,
                format!("the baseline `{axis}: {}` is in no cell", value.value),
                Some(format!("in this experiment: {}", known.join(", "))),
            );
        }
    }
    for (metric, wanted) in &spec.compare.metrics {
        let Some(gate) = &wanted.gate else { continue };
        let fits = |cell: &Cell| {
            gate.cells
                .iter()
                .all(|(axis, pattern)| cell.axis(axis).is_some_and(|value| glob(pattern, value)))
        };
        if !cells.iter().any(fits)
            && let Some(pattern) = gate.cells.values().next()
        {
            own.at(
                pattern,
                format!("the gate of `{metric}` fits no cell"),
                None,
            );
        }
    }
}

fn wanted(cell: &Cell, only: &[String]) -> bool {
    only.is_empty()
        || only.iter().any(|pattern| {
            glob(pattern, &cell.to_string())
                || Cell::AXES
                    .iter()
                    .any(|axis| cell.axis(axis).is_some_and(|value| glob(pattern, value)))
        })
}
