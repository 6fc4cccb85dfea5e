//! Trees as kernels: built, booted, and asked.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use super::drive::{Ready, Run, Tree};
use super::git::short;
use super::judge::Measurement;
use crate::campaign::{Single, chain};
use crate::kernel::{
    self, BuildEvent, Builder, BuiltKernel, Kernel, KernelError, Recipe, Source, Variant,
};
use crate::run::Cancel;
use crate::store::record::Environment;

/// Where the trees of a bisection come from.
#[derive(Debug, Clone)]
pub enum Trees {
    /// Commits of a repository, built as this kernel is.
    Commits {
        /// Says how a commit is configured; its own source and series are not used.
        kernel: Kernel,
        /// The repository.
        repo: PathBuf,
    },
    /// Variants of a series of this kernel.
    Variants {
        /// The kernel.
        kernel: Kernel,
        /// Its series.
        series: String,
    },
}

/// Builds trees and runs a cell with them.
pub struct GuestLab<'a> {
    /// Where they come from.
    pub trees: Trees,
    /// Builds them.
    pub builder: &'a Builder,
    /// Runs them; absent when only builds are judged.
    pub single: Option<Single>,
    /// Where runs keep their files.
    pub runs: PathBuf,
    /// Ends a running guest in an orderly way.
    pub cancel: Cancel,
    /// Listens to builds.
    pub tell: &'a (dyn Fn(BuildEvent) + Send + Sync),
    /// Kernels that are ready.
    pub built: RefCell<HashMap<String, BuiltKernel>>,
    /// Number of the next run's folder; [`next_index`] tells the first.
    pub count: Cell<usize>,
    /// What the last run ran on.
    pub environment: RefCell<Option<Environment>>,
    /// Metrics that depend on how fast the bench is, with why some run of this
    /// bench could not carry them.
    pub untrusted: RefCell<BTreeMap<String, String>>,
}

impl GuestLab<'_> {
    /// Builds a tree.
    pub async fn ready(&self, tree: &Tree) -> Ready {
        match self.build(&tree.name).await {
            Ok(built) => {
                let image = Some(built.image_sha256.clone());
                self.built.borrow_mut().insert(tree.name.clone(), built);
                Ready::Yes { image }
            }
            Err(error) if is_of_the_tree(&error) => Ready::Broken {
                complaint: complaint(&error),
            },
            Err(error) => Ready::LabFailed {
                reason: chain(&error),
            },
        }
    }

    async fn build(&self, name: &str) -> Result<BuiltKernel, KernelError> {
        match &self.trees {
            Trees::Commits { kernel, repo } => {
                let mut at_commit = kernel.clone();
                if let Recipe::Build { source, series, .. } = &mut at_commit.recipe {
                    *source = Source::Git {
                        repo: repo.display().to_string(),
                        reference: name.to_owned(),
                    };
                    series.clear();
                }
                let base = Variant::Base;
                let built = kernel::build(self.builder, &at_commit, None, &base, self.tell).await?;
                self.with_modules(&at_commit, built).await
            }
            Trees::Variants { kernel, series } => {
                let variant: Variant = name.parse()?;
                let series = Some(series.as_str());
                let built =
                    kernel::build(self.builder, kernel, series, &variant, self.tell).await?;
                self.with_modules(kernel, built).await
            }
        }
    }

    /// Modules that the runs load are built for each tree.
    async fn with_modules(
        &self,
        kernel: &Kernel,
        built: BuiltKernel,
    ) -> Result<BuiltKernel, KernelError> {
        match &self.single {
            Some(single) => {
                let folders = single.module_folders();
                kernel::with_modules(self.builder, kernel, &built, folders, self.tell).await
            }
            None => Ok(built),
        }
    }

    /// Runs a tree that was built.
    pub async fn run(&self, tree: &Tree, number: u32) -> Run {
        let failed = |reason: String| Run {
            measurement: Measurement::LabFailed { reason },
            folder: None,
        };
        let built = self.built.borrow().get(&tree.name).cloned();
        let (Some(single), Some(built)) = (&self.single, built) else {
            return failed(format!("{} was not built", tree.name));
        };
        let index = self.count.get();
        self.count.set(index + 1);
        let name = format!(
            "{index:05}-{}-{number}",
            short(&tree.name).replace("..", "-")
        );
        let folder = self.runs.join(&name);
        let kernel = match &self.trees {
            Trees::Commits { kernel, .. } => format!("{}@{}", kernel.name, short(&tree.name)),
            Trees::Variants { kernel, series } => format!("{}+{series}@{}", kernel.name, tree.name),
        };
        match single
            .run(&built, &kernel, index, &folder, self.cancel.clone())
            .await
        {
            Ok(record) => {
                if !record.trust.timing {
                    let reasons = record.trust.reasons.join(", ");
                    let timed = record.samples.iter().filter(|s| s.kind.is_timing());
                    self.untrusted
                        .borrow_mut()
                        .extend(timed.map(|s| (s.metric.clone(), reasons.clone())));
                }
                *self.environment.borrow_mut() = Some(record.environment);
                // A run without a workload leaves no output.
                let output = std::fs::read(folder.join("output.log")).unwrap_or_default();
                Run {
                    measurement: Measurement::Ran {
                        outcome: record.outcome,
                        samples: record.samples,
                        output: String::from_utf8_lossy(&output).into_owned(),
                    },
                    folder: Some(name),
                }
            }
            Err(error) => failed(chain(&error)),
        }
    }
}

/// The first number that no folder in `runs` begins with, whatever ended there
/// before it was finished.
pub fn next_index(runs: &Path) -> usize {
    let Ok(entries) = std::fs::read_dir(runs) else {
        return 0;
    };
    entries
        .filter_map(|entry| {
            let name = entry.ok()?.file_name().into_string().ok()?;
            name.split('-').next()?.parse::<usize>().ok()
        })
        .max()
        .map_or(0, |last| last + 1)
}

/// Whether a kernel cannot be had because of what its tree holds, rather than
/// because of the lab.
fn is_of_the_tree(error: &KernelError) -> bool {
    matches!(
        error,
        KernelError::Build { .. }
            | KernelError::Module { .. }
            | KernelError::Series { .. }
            | KernelError::Config { .. }
            | KernelError::Missing { .. }
    )
}

fn complaint(error: &KernelError) -> String {
    match error {
        KernelError::Build { first, .. } => first.to_string(),
        other => chain(other),
    }
}
