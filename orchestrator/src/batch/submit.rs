//! From a prepared campaign to jobs that wait.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::{
    block::{self, Block, Cut, Request},
    check::{self, Unfit},
    desk::{Desk, Plan, Submission},
    plan::{self, Wish},
    script::Site,
    slurm::{Cluster, Slurm, SlurmError},
};
use crate::{
    campaign::{self, Prepared},
    store::{ResultsFolder, StoreError},
};

/// How a campaign is submitted.
#[derive(Debug, Clone)]
pub struct Order {
    /// What is asked of the batch system.
    pub wish: Wish,
    /// Rounds one task does, when the user chose them.
    pub rounds_per_task: Option<u32>,
    /// Host CPUs beside the guest's.
    pub housekeeping: u32,
    /// This program.
    pub topolab: PathBuf,
    /// The cache.
    pub cache: PathBuf,
    /// Folders with kernels, topologies and experiments.
    pub library: Vec<PathBuf>,
}

/// Why a campaign is not submitted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Slurm said no.
    #[error(transparent)]
    Slurm(#[from] SlurmError),
    /// The results folder.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The cluster cannot do it.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Unfit(Vec<Unfit>),
    /// A script cannot be written.
    #[error("{path}: cannot write the script")]
    Script {
        /// The file.
        path: PathBuf,
        /// The system's words.
        #[source]
        source: io::Error,
    },
}

/// CPUs a build job asks for when nobody says: beyond them a lean kernel builds
/// hardly faster, its last steps being serial.
const BUILD_CPUS: u32 = 16;
/// Memory of a build job: the link of a kernel with debug information.
const BUILD_MIB: u64 = 4096;
/// A job that builds several kernels with a distribution's configuration.
const BUILD_MINUTES: u64 = 12 * 60;

/// Works out the jobs of a campaign.
///
/// # Errors
/// The partition is none.
pub fn plan(
    prepared: &Prepared,
    results: &Path,
    order: &Order,
    cluster: &Cluster,
) -> Result<Plan, SubmitError> {
    let (_, nodes) =
        check::nodes(cluster, &order.wish).map_err(|unfit| SubmitError::Unfit(vec![unfit]))?;
    let most = nodes.iter().map(|node| node.cpus).max().unwrap_or(1);
    let mut wish = order.wish.clone();
    if wish.build_cpus == 0 {
        wish.build_cpus = most.clamp(1, BUILD_CPUS);
    }
    let blocks = cut(prepared, order, cluster.limits);
    let id = format!("{:x}", Sha256::digest(results.to_string_lossy().as_bytes()));
    Ok(Plan {
        id: format!("topolab-{}-{}", prepared.seed, &id[..10]),
        topolab: order.topolab.clone(),
        cache: order.cache.clone(),
        library: order.library.clone(),
        arrays: plan::arrays(&blocks, cluster.limits),
        limits: cluster.limits,
        blocks,
        wish,
    })
}

fn cut(prepared: &Prepared, order: &Order, limits: plan::Limits) -> Vec<Block> {
    let spec = &prepared.experiment;
    let mut varied: Vec<&str> = spec.compare.baseline.keys().map(String::as_str).collect();
    if varied.is_empty() {
        varied.push("kernels");
    }
    let groups = block::groups(&prepared.cells, &varied);
    let count = groups.iter().max().map_or(0, |most| most + 1);
    let rounds = prepared.rounds + spec.warmup;
    let cut = Cut {
        rounds: plan::rounds_per_task(count, rounds, order.rounds_per_task, limits),
        housekeeping: order.housekeeping,
        run_seconds: spec.limits.total.ceil() as u64,
    };
    let size = |cell: usize| block::size(prepared.topology(&prepared.cells[cell]));
    block::blocks(&prepared.order, &groups, size, cut)
}

/// What the build job asks for.
fn build_request(plan: &Plan) -> Request {
    Request {
        cpus: plan.wish.build_cpus,
        memory_mib: BUILD_MIB,
        minutes: BUILD_MINUTES,
    }
}

fn site<'a>(plan: &'a Plan, results: &'a Path) -> Site<'a> {
    Site {
        topolab: &plan.topolab,
        cache: &plan.cache,
        results,
        id: &plan.id,
        wish: &plan.wish,
    }
}

/// Asks the cluster whether it would take every kind of job. Nothing is built,
/// submitted or left behind.
///
/// # Errors
/// What it would not take.
pub fn rehearse(
    slurm: &Slurm,
    cluster: &Cluster,
    plan: &Plan,
    results: &Path,
) -> Result<(), SubmitError> {
    let mut requests: Vec<Request> = plan.arrays.iter().map(|array| array.request).collect();
    requests.dedup();
    requests.push(build_request(plan));
    let unfit = check::check(cluster, &plan.wish, &requests);
    if !unfit.is_empty() {
        return Err(SubmitError::Unfit(unfit));
    }
    let scratch = fs::create_dir_all(&plan.cache).and_then(|()| tempfile::tempdir_in(&plan.cache));
    let folder = scratch.map_err(|source| SubmitError::Script {
        path: plan.cache.clone(),
        source,
    })?;
    let site = site(plan, results);
    let mut seen = Vec::new();
    for (number, array) in plan.arrays.iter().enumerate() {
        if seen.contains(&array.request) {
            continue;
        }
        seen.push(array.request);
        let tasks: Vec<usize> = (0..array.blocks.len()).collect();
        let file = folder.path().join(format!("a{number}.sh"));
        write_script(&file, &site.array(number, array, &tasks, 0))?;
        slurm.test(&file, &plan.wish.sbatch_args)?;
    }
    let file = folder.path().join("build.sh");
    write_script(&file, &site.build(build_request(plan), 0))?;
    slurm.test(&file, &plan.wish.sbatch_args)?;
    Ok(())
}

/// Makes the results folder of a campaign that will run elsewhere.
///
/// # Errors
/// It exists or cannot be made.
pub fn lay_out(
    prepared: &Prepared,
    results: &Path,
    version: &str,
    plan: &Plan,
) -> Result<ResultsFolder, StoreError> {
    let folder = ResultsFolder::create(results, &campaign::meta_of(prepared, version))?;
    Desk::of(results).lay_out(plan)?;
    Ok(folder)
}

/// What is submitted, and what waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Job<'a> {
    /// The build.
    Build,
    /// Tasks of an array.
    Tasks {
        /// Its number.
        array: usize,
        /// Which of them.
        tasks: &'a [usize],
        /// Job that must have ended well.
        after: Option<&'a str>,
        /// Nodes that may not do it.
        not_on: &'a [String],
    },
}

/// Submits one job and notes it before and after, so that whoever comes next
/// knows its name even when this process dies in between.
///
/// # Errors
/// It was not taken.
pub fn submit(
    slurm: &Slurm,
    plan: &Plan,
    results: &Path,
    job: &Job<'_>,
) -> Result<String, SubmitError> {
    let desk = Desk::of(results);
    let site = site(plan, results);
    let which = match job {
        Job::Build => None,
        Job::Tasks { array, .. } => Some(*array),
    };
    let before = desk.submissions()?;
    let number = before.iter().filter(|one| one.array == which).count();
    let number = u32::try_from(number).unwrap_or(u32::MAX);
    let (name, script, after, tasks) = match job {
        Job::Build => {
            let script = site.build(build_request(plan), number);
            (site.build_name(number), script, None, Vec::new())
        }
        Job::Tasks {
            array,
            tasks,
            after,
            ..
        } => {
            let script = site.array(*array, &plan.arrays[*array], tasks, number);
            (
                site.array_name(*array, number),
                script,
                *after,
                tasks.to_vec(),
            )
        }
    };
    let file = results.join("batch/log").join(format!("{name}.sh"));
    write_script(&file, &script)?;
    let mut submission = Submission {
        name,
        job: None,
        array: which,
        tasks,
    };
    desk.note(&submission)?;
    let mut args = plan.wish.sbatch_args.clone();
    if let Job::Tasks { not_on, .. } = job
        && !not_on.is_empty()
    {
        args.push(format!("--exclude={}", not_on.join(",")));
    }
    let number = slurm.submit(&file, after, &args)?;
    submission.job = Some(number.clone());
    desk.note(&submission)?;
    Ok(number)
}

/// Submits a whole campaign: the build, and every array after it. When the
/// cluster is full, the rest is left for whoever watches.
///
/// # Errors
/// Not even the build was taken, or an array was refused for good.
pub fn submit_all(
    slurm: &Slurm,
    plan: &Plan,
    results: &Path,
) -> Result<Option<SlurmError>, SubmitError> {
    let build = submit(slurm, plan, results, &Job::Build)?;
    for (array, what) in plan.arrays.iter().enumerate() {
        let tasks: Vec<usize> = (0..what.blocks.len()).collect();
        let job = Job::Tasks {
            array,
            tasks: &tasks,
            after: Some(&build),
            not_on: &[],
        };
        match submit(slurm, plan, results, &job) {
            Ok(_) => {}
            Err(SubmitError::Slurm(
                error @ (SlurmError::Full { .. } | SlurmError::Unreachable { .. }),
            )) => return Ok(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

fn write_script(path: &Path, text: &str) -> Result<(), SubmitError> {
    fs::write(path, text).map_err(|source| SubmitError::Script {
        path: path.into(),
        source,
    })
}
