//! From what was typed to a plan that can be carried out.

use std::path::{Path, PathBuf};

use topolab::{
    bisect::{
        History, Rules, Worse,
        git::{RangeRequest, Repository},
        guests::Trees,
        judge::Judge,
        session::{FORMAT, PatchName, Plan, Target},
    },
    campaign::{self, Overrides, PrepareError, Prepared},
    document::Document,
    kernel::{self, Kernel, Recipe, Source},
    outcome::Outcome,
    plan::{Cell, glob},
    stats::judge::Effect,
};
use topolab_protocol::sample::Better;

use super::{BisectArgs, CellArgs, SoughtArgs, words};
use crate::{
    failure::{Failure, Kind},
    lab,
    terminal::Terminal,
};

/// Smallest change of a metric worth finding when nobody says.
const USUAL_EFFECT: Effect = Effect::Relative(0.05);

/// A plan with what carrying it out needs.
pub struct Planned {
    /// The plan.
    pub plan: Plan,
    /// The experiment; absent for a script.
    pub subject: Option<Subject>,
}

/// What guests are made of.
pub struct Subject {
    /// The experiment.
    pub prepared: Prepared,
    /// Its cell.
    pub cell: Cell,
    /// How kernels are built.
    pub kernel: Kernel,
}

/// A percentage between 50 and 100, as a share.
pub fn percent(text: &str) -> Result<f64, String> {
    let bad = || format!("`{text}` is no percentage between 50 and 100, such as 99.5");
    let share = text
        .trim_end_matches('%')
        .trim()
        .parse::<f64>()
        .map_err(|_| bad())?
        / 100.0;
    if (0.5..1.0).contains(&share) {
        Ok(share)
    } else {
        Err(bad())
    }
}

/// Reads and checks everything the arguments name. Nothing is changed.
pub async fn make(args: &BisectArgs, terminal: Terminal) -> Result<Planned, Failure> {
    let subject = match &args.experiment {
        Some(experiment) => Some(subject(experiment, &args.which).await?),
        None if args.script.is_empty() => {
            return Err(Failure::request(
                "nothing says what to measure: name an experiment, or give a command",
            )
            .hint("topolab bisect --good v6.12 --bad HEAD -- ./test.sh")
            .hint("ls experiments/"));
        }
        None => None,
    };
    let judge = match &subject {
        Some(subject) => judge(args, &subject.prepared)?,
        None => Judge::Script {
            command: args.script.clone(),
        },
    };
    let target = match (&args.good, &args.bad, &args.series) {
        (Some(good), Some(bad), None) => {
            git_target(args, good, bad, subject.as_ref(), terminal).await?
        }
        (_, _, Some(series)) => series_target(series, subject.as_ref().map(|s| &s.kernel)).await?,
        _ => {
            return Err(Failure::request(
                "nothing says what to search: give both ends, or a series",
            )
            .hint("--good REF --bad REF, or --series KERNEL+SERIES"));
        }
    };
    let mut rules = judge.rules();
    change(&mut rules, args);
    Ok(Planned {
        plan: Plan {
            format: FORMAT,
            topolab: env!("CARGO_PKG_VERSION").to_owned(),
            started: jiff::Timestamp::now().to_string(),
            experiment: subject
                .as_ref()
                .map(|s| s.prepared.path.display().to_string()),
            experiment_text: subject
                .as_ref()
                .map(|s| s.prepared.text.clone())
                .unwrap_or_default(),
            cell: subject.as_ref().map(|s| s.cell.clone()),
            target,
            judge,
            rules,
        },
        subject,
    })
}

/// The plan's experiment once more, for a bisection that goes on.
pub async fn again(plan: &Plan) -> Result<Option<Subject>, Failure> {
    let (Some(path), Some(cell)) = (&plan.experiment, &plan.cell) else {
        return Ok(None);
    };
    let document = Document::from_text(path, &plan.experiment_text)?;
    let prepared = campaign::prepare_document(
        &document,
        Path::new(path),
        &lab::library(),
        &lab::tools(),
        &Overrides::default(),
        0,
    )
    .await
    .map_err(|error| told(&error))?;
    let name = match &plan.target {
        Target::Series { kernel, .. } => kernel.clone(),
        _ => kernel_of(&cell.kernel).to_owned(),
    };
    let kernel = the_kernel(&prepared, Some(&name))?;
    Ok(Some(Subject {
        prepared,
        cell: cell.clone(),
        kernel,
    }))
}

/// Where the trees of a target come from.
pub fn trees(target: &Target, subject: &Subject, copy: Option<PathBuf>) -> Trees {
    match (target, copy) {
        (Target::Series { series, .. }, _) => Trees::Variants {
            kernel: subject.kernel.clone(),
            series: series.clone(),
        },
        (_, repo) => Trees::Commits {
            kernel: subject.kernel.clone(),
            repo: repo.unwrap_or_default(),
        },
    }
}

pub async fn subject(experiment: &str, which: &CellArgs) -> Result<Subject, Failure> {
    let prepared = campaign::prepare(
        experiment,
        &lab::library(),
        &lab::tools(),
        &Overrides::default(),
        0,
    )
    .await
    .map_err(|error| told(&error))?;
    let kernel = the_kernel(&prepared, which.kernel.as_deref())?;
    let cell = the_cell(&prepared, &kernel.name, &which.cell)?;
    Ok(Subject {
        prepared,
        cell,
        kernel,
    })
}

fn kernel_of(reference: &str) -> &str {
    reference.split(['+', '@']).next().unwrap_or(reference)
}

/// The kernel whose source and configuration the trees share.
fn the_kernel(prepared: &Prepared, name: Option<&str>) -> Result<Kernel, Failure> {
    let mut known: Vec<&Kernel> = Vec::new();
    for (_, _, kernel) in &prepared.kernels {
        if !known.iter().any(|k| k.name == kernel.name) {
            known.push(kernel);
        }
    }
    let names: Vec<&str> = known.iter().map(|k| k.name.as_str()).collect();
    let chosen = match name {
        Some(name) => known.iter().find(|k| k.name == name).ok_or_else(|| {
            Failure::request(format_args!(
                "the experiment has no kernel `{name}`; it has {}",
                names.join(", ")
            ))
        })?,
        None if known.len() == 1 => &known[0],
        None => {
            return Err(Failure::request(format_args!(
                "the experiment has several kernels: {}",
                names.join(", ")
            ))
            .hint(format_args!("--kernel {}", names[0])));
        }
    };
    if !matches!(chosen.recipe, Recipe::Build { .. }) {
        return Err(Failure::request(format_args!(
            "kernel `{}` is prebuilt: there is nothing to build a commit or a patch with",
            chosen.name
        ))
        .hint("name a kernel with `source` and `config` (--kernel)"));
    }
    Ok((*chosen).clone())
}

/// The cell that is measured, whatever its kernel.
fn the_cell(prepared: &Prepared, kernel: &str, patterns: &[String]) -> Result<Cell, Failure> {
    let mut cells: Vec<Cell> = Vec::new();
    for cell in prepared
        .cells
        .iter()
        .filter(|c| kernel_of(&c.kernel) == kernel)
    {
        let neutral = cell.with_axis("kernels", &format!("{kernel}@base"));
        if !cells.contains(&neutral) {
            cells.push(neutral);
        }
    }
    let fits = |cell: &Cell, pattern: &str| {
        glob(pattern, &cell.to_string())
            || Cell::AXES[1..]
                .iter()
                .any(|axis| cell.axis(axis).is_some_and(|v| glob(pattern, v)))
    };
    let wanted: Vec<&Cell> = cells
        .iter()
        .filter(|cell| patterns.iter().all(|p| fits(cell, p)))
        .collect();
    let list = |cells: &[&Cell]| {
        cells
            .iter()
            .map(|c| {
                format!(
                    "\n  {} · {} · {} · {}",
                    c.topology, c.cmdline, c.settings, c.workload
                )
            })
            .collect::<String>()
    };
    match wanted.as_slice() {
        [only] => Ok((*only).clone()),
        [] => Err(Failure::request(format_args!(
            "no cell fits {}; there are:{}",
            patterns.join(" and "),
            list(&cells.iter().collect::<Vec<_>>())
        ))),
        several => {
            let axis = ["topologies", "cmdlines", "settings", "workloads"]
                .into_iter()
                .find(|axis| {
                    several
                        .iter()
                        .any(|c| c.axis(axis) != several[0].axis(axis))
                });
            let value = axis
                .and_then(|axis| several[0].axis(axis))
                .unwrap_or_default();
            Err(Failure::request(format_args!(
                "one cell is measured, and several fit:{}",
                list(several)
            ))
            .hint(format_args!("--cell '{value}'")))
        }
    }
}

fn judge(args: &BisectArgs, prepared: &Prepared) -> Result<Judge, Failure> {
    if let Some(judge) = without_metric(&args.sought)? {
        return Ok(judge);
    }
    let metrics = &prepared.experiment.compare.metrics;
    let metric = match &args.sought.metric {
        Some(metric) => metric.clone(),
        None if metrics.len() == 1 => metrics.keys().next().cloned().unwrap_or_default(),
        None => {
            let names: Vec<&str> = metrics.keys().map(String::as_str).collect();
            let failure = Failure::request("nothing says what is sought");
            return Err(match names.first() {
                Some(first) => failure.hint(format_args!(
                    "--metric {first} (compared in this experiment: {}), --outcome CLASS, --build or --subtest NAME",
                    names.join(", ")
                )),
                None => failure.hint("--metric NAME, --outcome CLASS, --build or --subtest NAME"),
            });
        }
    };
    let spec = metrics.get(&metric);
    let min_effect = match &args.min_effect {
        Some(text) => Effect::parse(text).map_err(Failure::request)?,
        None => spec.and_then(|s| s.min_effect).unwrap_or(USUAL_EFFECT),
    };
    let worse = match spec.and_then(|s| s.better) {
        _ if args.any_direction => None,
        Some(Better::Lower) => Some(Worse::Higher),
        Some(Better::Higher) => Some(Worse::Lower),
        Some(Better::Neither) | None => None,
    };
    Ok(Judge::Metric {
        metric,
        per_run: spec.and_then(|s| s.per_run),
        min_effect,
        worse,
    })
}

/// The judge of everything but a metric.
pub fn without_metric(sought: &SoughtArgs) -> Result<Option<Judge>, Failure> {
    if let Some(outcome) = &sought.outcome {
        let (class, title) = match outcome.split_once('=') {
            Some((class, title)) => (class, Some(title.to_owned())),
            None => (outcome.as_str(), None),
        };
        let known = sought_classes();
        if !known.contains(&class) {
            return Err(Failure::request(format_args!(
                "`{class}` is no outcome that speaks about a kernel; those are {}",
                known.join(", ")
            )));
        }
        return Ok(Some(Judge::Outcome {
            class: class.to_owned(),
            title,
        }));
    }
    if let Some(complaint) = &sought.build {
        let complaint = Some(complaint.clone()).filter(|c| !c.is_empty());
        return Ok(Some(Judge::Build { complaint }));
    }
    Ok(sought.subtest.clone().map(|name| Judge::Subtest { name }))
}

fn sought_classes() -> Vec<&'static str> {
    let none = String::new;
    [
        Outcome::WorkloadFailed { reason: none() },
        Outcome::BootFailed { reason: none() },
        Outcome::GuestPanic { title: none() },
        Outcome::GuestSplat { title: none() },
        Outcome::GuestHang {
            phase: none(),
            reason: none(),
        },
    ]
    .iter()
    .map(Outcome::class)
    .collect()
}

fn change(rules: &mut Rules, args: &BisectArgs) {
    if let Some(confidence) = args.confidence {
        rules.confidence = confidence;
    }
    if let Some(runs) = args.max_runs {
        rules.max_runs = runs;
    }
    if let Some(runs) = args.max_step_runs {
        rules.max_step_runs = runs.max(1);
    }
}

async fn git_target(
    args: &BisectArgs,
    good: &str,
    bad: &str,
    subject: Option<&Subject>,
    terminal: Terminal,
) -> Result<Target, Failure> {
    let path = args
        .repo
        .clone()
        .unwrap_or_else(|| own_repository(subject).unwrap_or_else(|| ".".into()));
    let tools = lab::tools();
    let repository = Repository::open(&path, &tools.git)
        .await
        .map_err(|e| words::range(&e))?;
    let request = RangeRequest {
        good: good.to_owned(),
        bad: bad.to_owned(),
        first_parent: args.first_parent,
        paths: args.path.clone(),
        skip: args.skip.clone(),
    };
    let range = repository
        .range(&request)
        .await
        .map_err(|e| words::range(&e))?;
    let dirty = repository
        .uncommitted()
        .await
        .map_err(|e| words::range(&e))?;
    if let Some(first) = dirty.first() {
        let more = if dirty.len() > 1 {
            format!(" and {} more", dirty.len() - 1)
        } else {
            String::new()
        };
        terminal.say(format_args!(
            "note: changes to {first}{more} are in no commit, so they are in nothing that is measured"
        ));
    }
    let repo = std::fs::canonicalize(&path).unwrap_or(path);
    Ok(Target::Git {
        repo,
        request,
        range,
    })
}

/// The repository the kernel file names, when it is on this machine.
fn own_repository(subject: Option<&Subject>) -> Option<PathBuf> {
    match &subject?.kernel.recipe {
        Recipe::Build {
            source: Source::Git { repo, .. },
            ..
        } => Some(PathBuf::from(repo)).filter(|path| path.is_dir()),
        _ => None,
    }
}

async fn series_target(written: &str, kernel: Option<&Kernel>) -> Result<Target, Failure> {
    let Some(kernel) = kernel else {
        return Err(Failure::request("a series is searched with an experiment"));
    };
    let (name, series) = written
        .split_once('+')
        .unwrap_or((kernel.name.as_str(), written));
    if name != kernel.name {
        return Err(Failure::request(format_args!(
            "the experiment builds kernel `{}`, not `{name}`",
            kernel.name
        ))
        .hint(format_args!("--kernel {name}")));
    }
    let Recipe::Build { series: all, .. } = &kernel.recipe else {
        return Err(Failure::request(format_args!(
            "kernel `{name}` is prebuilt and has no series"
        )));
    };
    let source = all.get(series).ok_or_else(|| {
        let known: Vec<&str> = all.keys().map(String::as_str).collect();
        Failure::request(format_args!(
            "kernel `{name}` has no series `{series}`; it has {}",
            known.join(", ")
        ))
    })?;
    let read = kernel::read_series(source, &lab::tools())
        .await
        .map_err(|error| Failure::of(Kind::Request, &error))?;
    let patches: Vec<PatchName> = read
        .patches
        .iter()
        .map(|patch| PatchName {
            name: patch.name(),
            subject: patch.subject.clone(),
            author: patch.author.clone(),
        })
        .collect();
    let history = History::linear((1..=patches.len()).map(|n| n.to_string()).collect())
        .map_err(Failure::request)?;
    Ok(Target::Series {
        kernel: name.to_owned(),
        series: series.to_owned(),
        patches,
        history,
    })
}

fn told(error: &PrepareError) -> Failure {
    let failure = Failure::request(error);
    match error {
        PrepareError::NotFound(_) => failure.hint("ls experiments/"),
        _ => failure,
    }
}
