//! One cell whose kernel changes from run to run: what a bisection measures.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{CampaignError, Prepared, bench_of, benches, builds::Kernels, images, record, unit};
use crate::{
    event::Event,
    kernel::BuiltKernel,
    plan::{Cell, PlannedRun},
    run::{self, Bench, Cancel, Lab, Session},
    store::{record::RunRecord, write_durably},
};

/// A cell that is ready to be run with any kernel.
#[derive(Debug, Clone)]
pub struct Single {
    prepared: Prepared,
    cache: PathBuf,
    modules: Vec<PathBuf>,
    bench: Bench,
}

impl Single {
    /// Looks at the bench. `prepared` need not hold
    /// the kernels that will be run.
    ///
    /// # Errors
    /// The bench cannot run the cell's topology.
    pub async fn open(
        prepared: &Prepared,
        cell: &Cell,
        lab: &Lab,
        cache: &Path,
        tell: &dyn Fn(Event),
    ) -> Result<Self, CampaignError> {
        let mut prepared = prepared.clone();
        prepared.cells = vec![cell.clone()];
        prepared.topologies.retain(|name, _| *name == cell.topology);
        let bench = benches(&prepared, lab, tell).await?[&cell.topology].clone();
        Ok(Self {
            modules: prepared.module_folders(&cell.kernel),
            cache: cache.to_owned(),
            prepared,
            bench,
        })
    }

    /// Folders of modules that every kernel to be run must have been given.
    pub fn module_folders(&self) -> &[PathBuf] {
        &self.modules
    }

    /// Runs the cell once. `index` tells runs apart, `name` is the kernel's in the
    /// record, `folder` must not exist or be empty; `run.json` is written there last.
    ///
    /// # Errors
    /// The image could not be made, or the record could not be written.
    pub async fn run(
        &self,
        kernel: &BuiltKernel,
        name: &str,
        index: usize,
        folder: &Path,
        cancel: Cancel,
    ) -> Result<RunRecord, CampaignError> {
        let mut prepared = self.prepared.clone();
        name.clone_into(&mut prepared.cells[0].kernel);
        let image = images::build(&prepared, name, kernel, &self.cache)?;
        let kernels = Kernels {
            built: BTreeMap::from([(name.to_owned(), kernel.clone())]),
            meta: Vec::new(),
        };
        let planned = PlannedRun {
            index,
            cell: 0,
            round: 0,
            warmup: false,
        };
        let unit = unit(&prepared, &kernels, &image, planned);
        let bench = bench_of(&prepared, &self.bench, &unit);
        let started = jiff::Timestamp::now().to_string();
        let session = Session {
            events: &mut |_| {},
            cancel,
            typed: None,
        };
        let result = run::execute(&unit, &bench, folder, session).await;
        let record = record(&prepared, planned, 0, started, result);
        write_durably(&folder.join("run.json"), &record)?;
        Ok(record)
    }
}
