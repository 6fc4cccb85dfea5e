//! Running a check.

use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use super::super::build::Builder;
use super::super::built::BuildEvent;
use super::super::cache::{read_json, sha256_parts, write_json};
use super::super::configure::{ConfigError, Request};
use super::super::diagnostics::{Diagnostic, Severity};
use super::super::error::{KernelError, io_error};
use super::super::fetch::read_series;
use super::super::make::compiled;
use super::super::patch::{Overlay, Patch, Series};
use super::super::source::{self, Events, SourceTree};
use super::super::spec::{Kernel, Recipe};
use super::super::toolchain::Toolchain;
use super::super::variant::Variant;
use super::super::workshop::{Order, Purpose, Workshop};
use super::checkpatch;
use super::compare::{Finding, around, introduced};
use super::seen::standing;
use super::target::TargetSpec;
use super::{Cell, CheckReport, PatchReport, Status, TargetReport};

/// Raised when the meaning of a kept answer changes.
const FORMAT: &str = "1";

/// What to check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckRequest {
    /// Name of the series.
    pub series: String,
    /// Targets; the kernel's own choice when empty.
    pub targets: Vec<TargetSpec>,
    /// `W=` level of warnings (`1`, `12`), if more than the usual are wanted.
    pub warnings: Option<String>,
    /// Run sparse too (`C=1`).
    pub sparse: bool,
    /// Ask checkpatch.pl.
    pub checkpatch: bool,
    /// Stop after the first patch that breaks a build.
    pub first_bad: bool,
}

/// What a tree said in one state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Said {
    failed: bool,
    diagnostics: Vec<Diagnostic>,
    recompiled: u32,
    seconds: f64,
}

/// One target with its tree.
struct Bench<'a> {
    target: TargetSpec,
    toolchain: &'a Toolchain,
    request: &'a Request,
    workshop: Workshop<'a>,
    report: TargetReport,
    /// What it said before the patch at hand.
    before: Said,
    /// The patch that broke it; 0 for the kernel without the series.
    broken_since: Option<u32>,
}

/// A compiler and a configuration, or why the target cannot be tested.
type Ready = Result<(Toolchain, Request), String>;

/// Checks each prefix of a series on each target.
///
/// # Errors
/// The kernel is prebuilt, or its source or series cannot be had. What happens on a
/// target is in the report.
pub async fn check(
    builder: &Builder,
    kernel: &Kernel,
    request: &CheckRequest,
    events: &(dyn Fn(BuildEvent) + Send + Sync),
) -> Result<CheckReport, KernelError> {
    let Recipe::Build {
        source,
        config,
        series: all,
        check: own_targets,
    } = &kernel.recipe
    else {
        return Err(KernelError::NotBuilt {
            kernel: kernel.name.clone(),
        });
    };
    let what = format!("{}+{}", kernel.name, request.series);
    let series_error = |source| KernelError::Series {
        what: what.clone(),
        source: Box::new(source),
    };
    let series = read_series(kernel.series(all, &request.series)?, &builder.tools)
        .await
        .map_err(series_error)?;
    let targets = if request.targets.is_empty() {
        own_targets
    } else {
        &request.targets
    };
    let tree = source::obtain(source, &builder.cache, &builder.tools, events)
        .await
        .map_err(|source| KernelError::Source {
            kernel: kernel.name.clone(),
            source: Box::new(source),
        })?;
    let mut more = Vec::new();
    more.extend(request.warnings.as_ref().map(|level| format!("W={level}")));
    more.extend(request.sparse.then(|| "C=1".to_owned()));

    // Everything that can be said before the first build.
    let mut prepared: Vec<(TargetSpec, Ready)> = Vec::new();
    for target in targets {
        let ready = async {
            let toolchain = Toolchain::find(&target.arch, &target.compiler, &builder.tools)
                .await
                .map_err(|error| error.to_string())?;
            let request = Request::read(&target.request(config), &kernel.file)
                .map_err(|error| error.to_string())?;
            Ok((toolchain, request))
        };
        prepared.push((target.clone(), ready.await));
    }
    let check = Check {
        builder,
        what: &what,
        tree: &tree,
        series: &series,
        more: &more,
        events,
    };
    let mut lanes: Vec<Result<Bench<'_>, TargetReport>> = Vec::new();
    for (target, ready) in &prepared {
        let lane = match ready {
            Ok((toolchain, request)) => check.open(target, toolchain, request).await?,
            Err(reason) => Err(not_tested(target, "", reason.clone())),
        };
        lanes.push(lane);
    }
    let mut patches = Vec::new();
    for number in 1..=series.len() {
        let patch = &series.patches[index(number)];
        let overlay = series.overlay(&Variant::Prefix(number), |path| tree.read(path));
        let mut cells = Vec::new();
        for lane in &mut lanes {
            cells.push(match (lane, &overlay) {
                (Ok(bench), Ok(overlay)) => check.cell(bench, number, patch, overlay).await?,
                (Ok(bench), Err(error)) => Cell::empty(
                    &bench.target.to_string(),
                    Status::NotApplicable {
                        reason: error.to_string(),
                    },
                ),
                (Err(report), _) => Cell::empty(
                    &report.target,
                    Status::NotTested {
                        reason: report.not_tested.clone().unwrap_or_default(),
                    },
                ),
            });
        }
        let style = if request.checkpatch {
            checkpatch::ask(&tree.path, patch)
                .await
                .map_err(io_error(&tree.path))?
        } else {
            None
        };
        patches.push(PatchReport {
            number,
            subject: patch.subject.clone(),
            signed_off: patch.signed_off(),
            checkpatch: style,
            cells,
        });
        let last = patches.last().expect("one was just added");
        if request.first_bad && !last.bisects() {
            break;
        }
    }
    Ok(CheckReport {
        kernel: kernel.name.clone(),
        series: request.series.clone(),
        targets: lanes
            .into_iter()
            .map(|lane| match lane {
                Ok(bench) => bench.report,
                Err(report) => report,
            })
            .collect(),
        patches,
    })
}

struct Check<'a> {
    builder: &'a Builder,
    what: &'a str,
    tree: &'a SourceTree,
    series: &'a Series,
    more: &'a [String],
    events: Events<'a>,
}

impl<'a> Check<'a> {
    /// Opens a target's tree and looks at the kernel without the series. The report
    /// alone when the target cannot be tested.
    async fn open(
        &self,
        target: &TargetSpec,
        toolchain: &'a Toolchain,
        request: &'a Request,
    ) -> Result<Result<Bench<'a>, TargetReport>, KernelError> {
        let root = self.builder.cache.root();
        let order = Order {
            tree: self.tree,
            request,
            toolchain,
            purpose: Purpose::Check,
            more: self.more,
        };
        let lock = order
            .lock(self.builder, self.events)
            .await
            .map_err(io_error(root))?;
        let workshop = Workshop::open(self.builder, &order, lock, self.events)
            .await
            .map_err(io_error(root))?;
        let mut bench = Bench {
            target: target.clone(),
            toolchain,
            request,
            workshop,
            report: not_tested(target, &toolchain.id, String::new()),
            before: Said::default(),
            broken_since: None,
        };
        bench.report.not_tested = None;
        match self.said(&mut bench, 0, &Overlay::default()).await? {
            Err(reason) => {
                bench.report.not_tested = Some(reason);
                Ok(Err(bench.report))
            }
            Ok(said) => {
                let count = |severity| {
                    let all = said.diagnostics.iter();
                    let many = all.filter(|one| one.severity == severity).count();
                    u32::try_from(many).unwrap_or(u32::MAX)
                };
                bench.report.base_errors = count(Severity::Error);
                bench.report.base_warnings = count(Severity::Warning);
                bench.report.seconds = said.seconds;
                bench.broken_since = said.failed.then_some(0);
                bench.before = said;
                Ok(Ok(bench))
            }
        }
    }

    /// One patch on one target.
    async fn cell(
        &self,
        bench: &mut Bench<'a>,
        number: u32,
        patch: &Patch,
        overlay: &Overlay,
    ) -> Result<Cell, KernelError> {
        let target = bench.target.to_string();
        let said = match self.said(bench, number, overlay).await? {
            Ok(said) => said,
            Err(reason) => return Ok(Cell::empty(&target, Status::NotTested { reason })),
        };
        let new = introduced(&bench.before.diagnostics, &said.diagnostics);
        let gone = introduced(&said.diagnostics, &bench.before.diagnostics);
        let is_error = |one: &&Diagnostic| one.severity == Severity::Error;
        let touched = |one: &&Diagnostic| {
            let file = one.file.as_deref().unwrap_or_default();
            patch.touches().any(|path| path == file)
        };
        let finding = |one: &Diagnostic| Finding {
            source: self.source_of(overlay, one),
            diagnostic: one.clone(),
        };
        let errors: Vec<Finding> = new.iter().copied().filter(is_error).map(finding).collect();
        let warnings = new
            .iter()
            .copied()
            .filter(|one| !is_error(one) && touched(one))
            .map(finding)
            .collect();
        let status = match (said.failed, bench.broken_since) {
            (false, _) => Status::Ok,
            (true, Some(since)) if errors.is_empty() => Status::StillBroken { since },
            (true, _) => Status::Broken,
        };
        match status {
            Status::Ok => bench.broken_since = None,
            Status::Broken if bench.broken_since.is_none() => bench.broken_since = Some(number),
            _ => {}
        }
        let healed = gone.into_iter().filter(|one| is_error(one)).count();
        let cell = Cell {
            reproduce: self.reproduce(bench, number, &errors),
            target,
            status,
            errors,
            warnings,
            healed: u32::try_from(healed).unwrap_or(u32::MAX),
            recompiled: said.recompiled,
            seconds: said.seconds,
            log: Some(self.log(bench)).filter(|log| log.is_file()),
        };
        bench.before = said;
        Ok(cell)
    }

    /// What the tree says with an overlay: kept from an earlier time, or made. An
    /// inner error is the reason for which the target cannot be tested.
    async fn said(
        &self,
        bench: &mut Bench<'a>,
        number: u32,
        overlay: &Overlay,
    ) -> Result<Result<Said, String>, KernelError> {
        let started = Instant::now();
        let digests = [overlay.digest(), bench.request.digest()];
        let mut parts = vec![FORMAT, &self.tree.id, &digests[0], &digests[1]];
        parts.extend([bench.toolchain.id.as_str(), &bench.target.arch.0]);
        parts.extend(self.more.iter().map(String::as_str));
        let key = sha256_parts(parts.into_iter().map(str::as_bytes));
        let folder = self.builder.cache.folder("checks");
        fs::create_dir_all(&folder).map_err(io_error(&folder))?;
        let kept = folder.join(format!("{}.json", &key[..32]));
        if let Some(said) = read_json::<Said>(&kept) {
            return Ok(Ok(said));
        }
        let log = self.log(bench);
        let variant = match number {
            0 => Variant::Base,
            number => Variant::Prefix(number),
        };
        let what = format!("{}@{variant} on {}", self.what, bench.target);
        bench.workshop.lay(overlay).map_err(io_error(&folder))?;
        match bench.workshop.configure(overlay, &what, &log).await {
            Ok((_, lost)) if lost.is_empty() => {}
            Ok((_, lost)) => return Ok(Err(ConfigError::Lost { lost }.to_string())),
            Err(error) => return Ok(Err(error.to_string())),
        }
        let make = &bench.workshop.make;
        // Everything that fails shall be seen, and whose words are whose.
        let mut arguments = vec!["--keep-going", "--output-sync=target"];
        arguments.push(make.arch.image_target());
        let ended = make
            .run(&arguments, &log, |line, done| {
                if let Some(object) = compiled(line) {
                    (self.events)(BuildEvent::Compiling {
                        what: what.clone(),
                        done,
                        expected: None,
                        object: object.to_owned(),
                    });
                }
            })
            .await
            .map_err(io_error(&make.tools.make))?;
        let text = fs::read(&log).map_err(io_error(&log))?;
        let said = Said {
            failed: !ended.status.success(),
            diagnostics: standing(&String::from_utf8_lossy(&text)),
            recompiled: ended.objects,
            seconds: started.elapsed().as_secs_f64(),
        };
        write_json(&kept, &said).map_err(io_error(&kept))?;
        (self.events)(BuildEvent::Built {
            what,
            recompiled: said.recompiled,
            seconds: said.seconds,
            cached: false,
            log: Some(log),
        });
        Ok(Ok(said))
    }

    /// The log of everything that was made in a target's tree.
    fn log(&self, bench: &Bench<'_>) -> PathBuf {
        bench.workshop.folder().join("check.log")
    }

    /// The code around a complaint, in the tree with an overlay. Nothing for a file
    /// that is made during the build.
    fn source_of(&self, overlay: &Overlay, one: &Diagnostic) -> Vec<String> {
        let (Some(file), Some(line)) = (&one.file, one.line) else {
            return Vec::new();
        };
        let content = match overlay.files.get(file) {
            Some(change) => change.content.clone(),
            // An unreadable file is no reason to keep the complaint back.
            None => self.tree.read(file).unwrap_or_default(),
        };
        content.map_or(Vec::new(), |bytes| {
            around(&String::from_utf8_lossy(&bytes), line)
        })
    }

    /// What a person types, in a tree with the patches, to see the errors.
    fn reproduce(&self, bench: &Bench<'_>, number: u32, errors: &[Finding]) -> Vec<String> {
        if errors.is_empty() {
            return Vec::new();
        }
        let mut variables = vec![format!("ARCH={}", bench.target.arch.0)];
        variables.extend(bench.toolchain.variables.iter().cloned());
        variables.extend(self.more.iter().cloned());
        let variables = variables.join(" ");
        let mut objects: Vec<String> = errors
            .iter()
            .filter_map(|finding| finding.diagnostic.file.as_deref()?.strip_suffix(".c"))
            .map(|stem| format!("{stem}.o"))
            .collect();
        objects.dedup();
        let goal = if objects.is_empty() {
            bench.target.arch.image_target().to_owned()
        } else {
            objects.join(" ")
        };
        let fragment = bench.workshop.make.objects.join(".topolab-fragment");
        let patches = self.series.patches[..index(number) + 1]
            .iter()
            .map(Patch::name)
            .collect::<Vec<_>>();
        vec![
            format!("git am {}", patches.join(" ")),
            bench.target.configure_command(&variables, &fragment),
            format!("make {variables} {goal}"),
        ]
    }
}

impl Cell {
    /// One without a build.
    fn empty(target: &str, status: Status) -> Self {
        Self {
            target: target.to_owned(),
            status,
            errors: Vec::new(),
            warnings: Vec::new(),
            healed: 0,
            recompiled: 0,
            seconds: 0.0,
            reproduce: Vec::new(),
            log: None,
        }
    }
}

fn not_tested(target: &TargetSpec, compiler: &str, reason: String) -> TargetReport {
    TargetReport {
        target: target.to_string(),
        compiler: compiler.to_owned(),
        not_tested: Some(reason),
        base_errors: 0,
        base_warnings: 0,
        seconds: 0.0,
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number - 1).expect("a patch number fits usize")
}
