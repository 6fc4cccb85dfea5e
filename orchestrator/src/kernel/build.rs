//! From a kernel and a variant to an image in the cache.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::built::{BuildEvent, BuiltKernel};
use super::cache::{Cache, sha256_parts};
use super::configure::{ConfigError, Request};
use super::diagnostics::{self, Diagnostic, Severity};
use super::error::{KernelError, io_error};
use super::make::{Make, compiled};
use super::patch::{Overlay, Series, SeriesError};
use super::prebuilt;
use super::record::{Kept, Made};
use super::source::{self, Events, SourceTree};
use super::spec::{ConfigRequest, Kernel, Recipe, SeriesSource, Source};
use super::tools::{Tools, command, output};
use super::variant::{KernelRef, KernelRequest, Variant};
use super::worktree::WorkTree;

/// Raised when what is kept in `built/` or how it is made changes its meaning.
const FORMAT: &str = "1";

/// What make is asked for.
const TARGETS: &[&str] = &["bzImage"];

/// Where and with what kernels are built.
#[derive(Debug, Clone)]
pub struct Builder {
    /// Where things are kept.
    pub cache: Cache,
    /// Programs.
    pub tools: Tools,
    /// Processes at once.
    pub jobs: u32,
    /// Whether to put ccache, if there is one, in front of the compiler.
    pub ccache: Ccache,
}

/// Whether ccache is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ccache {
    /// If it is installed.
    Use,
    /// Even if it is installed, it is not used.
    Leave,
}

/// Gets a kernel: from the cache if it is there, else by building it.
///
/// Waits for another process that builds in the same tree. Dropping the future
/// stops make; the next call goes on from what is compiled.
///
/// # Errors
/// See [`KernelError`]. Nothing half-built is ever returned or kept.
pub async fn build(
    builder: &Builder,
    kernel: &Kernel,
    series: Option<&str>,
    variant: &Variant,
    events: &(dyn Fn(BuildEvent) + Send + Sync),
) -> Result<BuiltKernel, KernelError> {
    let reference = KernelRef {
        kernel: kernel.name.clone(),
        series: series.map(str::to_owned),
        variant: variant.clone(),
    };
    match &kernel.recipe {
        Recipe::Build {
            source,
            config,
            series: all,
        } => {
            let series = match series {
                Some(name) => Some(all.get(name).ok_or_else(|| KernelError::NoSeries {
                    kernel: kernel.name.clone(),
                    series: name.to_owned(),
                    known: all.keys().cloned().collect(),
                })?),
                None => None,
            };
            let job = Job {
                builder,
                kernel,
                reference,
                events,
            };
            job.run(source, config, series).await
        }
        Recipe::Image { .. } | Recipe::Package { .. } => {
            if *variant != Variant::Base {
                return Err(KernelError::Prebuilt {
                    kernel: kernel.name.clone(),
                    variant: variant.clone(),
                });
            }
            prebuilt::get(builder, kernel, events).await
        }
    }
}

/// The points a request stands for.
///
/// # Errors
/// The kernel has no such series, the series cannot be read, or it is too short.
pub async fn expand(
    kernel: &Kernel,
    request: &KernelRequest,
    tools: &Tools,
) -> Result<Vec<KernelRef>, KernelError> {
    let len = match (&request.series, &kernel.recipe) {
        (None, _) => 0,
        (Some(name), recipe) => {
            let all = match recipe {
                Recipe::Build { series, .. } => series.clone(),
                _ => BTreeMap::new(),
            };
            let source = all.get(name).ok_or_else(|| KernelError::NoSeries {
                kernel: kernel.name.clone(),
                series: name.clone(),
                known: all.keys().cloned().collect(),
            })?;
            read_series(source, tools)
                .await
                .map_err(|source| KernelError::Series {
                    what: request.to_string(),
                    source: Box::new(source),
                })?
                .len()
        }
    };
    Ok(request.expand(len)?)
}

/// Reads one of a kernel's series.
///
/// # Errors
/// It cannot be read, or holds no patches.
pub async fn read_series(source: &SeriesSource, tools: &Tools) -> Result<Series, SeriesError> {
    match source {
        SeriesSource::Path(path) => Series::read_folder(path),
        SeriesSource::GitRange { repo, range } => {
            let patches = source::patches_of_range(repo, range, tools).await?;
            Series::of_mails(patches)
        }
    }
}

/// First line of `CC --version`.
async fn compiler_id(tools: &Tools) -> Result<String, KernelError> {
    let said = output(command(&tools.cc).arg("--version"))
        .await
        .map_err(KernelError::Compiler)?;
    let said = String::from_utf8_lossy(&said);
    Ok(said.lines().next().unwrap_or_default().trim().to_owned())
}

struct Job<'a> {
    builder: &'a Builder,
    kernel: &'a Kernel,
    reference: KernelRef,
    events: Events<'a>,
}

impl Job<'_> {
    async fn run(
        &self,
        source: &Source,
        config: &ConfigRequest,
        series: Option<&SeriesSource>,
    ) -> Result<BuiltKernel, KernelError> {
        let started = Instant::now();
        let Builder { cache, tools, .. } = self.builder;
        let request =
            Request::read(config, &self.kernel.file).map_err(|source| self.config_error(source))?;
        let series = match series {
            Some(series) => read_series(series, tools)
                .await
                .map_err(|source| self.series_error(source))?,
            None => Series::default(),
        };
        self.reference.variant.patches(series.len())?;
        let tree = source::obtain(source, cache, tools, self.events)
            .await
            .map_err(|source| KernelError::Source {
                kernel: self.kernel.name.clone(),
                source: Box::new(source),
            })?;
        let overlay = series
            .overlay(&self.reference.variant, |path| tree.read(path))
            .map_err(|source| self.series_error(source))?;
        let compiler = compiler_id(tools).await?;
        let config_digest = request.digest();
        let source_id = sha256_parts([tree.id.as_bytes(), overlay.digest().as_bytes()]);
        let key = sha256_parts(
            [
                FORMAT,
                &source_id,
                &config_digest,
                &compiler,
                &config.arch.0,
            ]
            .map(str::as_bytes),
        );
        let entry = cache.entry("built", &key[..32]);
        if let Some(kept) = Kept::find(&entry) {
            return Ok(self.answer(&kept, started, true));
        }
        let work_key = &sha256_parts(
            [
                tree.lineage.as_str(),
                &config_digest,
                &compiler,
                &config.arch.0,
            ]
            .map(str::as_bytes),
        )[..16];
        let folder = cache.entry("work", work_key);
        let _lock = cache
            .lock("work", work_key, |lock| {
                (self.events)(BuildEvent::Waiting { lock: lock.into() });
            })
            .await
            .map_err(io_error(&folder))?;
        // Whoever was waited for may have built just this.
        if let Some(kept) = Kept::find(&entry) {
            return Ok(self.answer(&kept, started, true));
        }
        let inputs = Inputs {
            tree: &tree,
            overlay: &overlay,
            request: &request,
            config,
            source_id,
            config_digest,
            compiler,
        };
        self.make(&folder, &inputs, &entry, started).await
    }

    /// Builds in the work tree whose lock is held, and keeps the result.
    async fn make(
        &self,
        folder: &Path,
        inputs: &Inputs<'_>,
        entry: &Path,
        started: Instant,
    ) -> Result<BuiltKernel, KernelError> {
        let what = self.reference.to_string();
        let Builder { cache, tools, .. } = self.builder;
        let log = self.log(folder).map_err(io_error(folder))?;
        let mut work = WorkTree::open(folder, inputs.tree)
            .await
            .map_err(io_error(folder))?;
        work.lay(inputs.tree, inputs.overlay)
            .map_err(io_error(folder))?;
        let make = Make {
            tools,
            tree: work.path(),
            objects: work.objects(),
            arch: inputs.config.arch.clone(),
            cross: None,
            front: self.ccache_front(folder).map_err(io_error(folder))?,
            jobs: self.builder.jobs,
        };
        self.configure(&mut work, &make, inputs, &log).await?;
        // A dry run counts what a first build compiles. For a later one it would cost
        // more than the count is worth.
        let expected = if work.objects().join("vmlinux").is_file() {
            None
        } else {
            make.dry_count(TARGETS, &log)
                .await
                .map_err(io_error(&tools.make))?
        };
        let compiling = |done, object: &str| BuildEvent::Compiling {
            what: what.clone(),
            done,
            expected,
            object: object.to_owned(),
        };
        (self.events)(compiling(0, ""));
        let mut linking = false;
        let ended = make
            .run(TARGETS, &log, |line, done| {
                if let Some(object) = compiled(line) {
                    (self.events)(compiling(done, object));
                } else if !linking && line.starts_with("  LD      vmlinux") {
                    linking = true;
                    (self.events)(BuildEvent::Linking { what: what.clone() });
                }
            })
            .await
            .map_err(io_error(&tools.make))?;
        if !ended.status.success() {
            return Err(self.build_error(log));
        }
        let made = Made {
            reference: &self.reference,
            objects: work.objects(),
            source_id: &inputs.source_id,
            compiler: &inputs.compiler,
            recompiled: ended.objects,
            seconds: started.elapsed().as_secs_f64(),
            log,
        };
        let kept = made.keep(cache, entry)?;
        Ok(self.answer(&kept, started, false))
    }

    /// Makes `.config` unless the present one was made from the same things.
    async fn configure(
        &self,
        work: &mut WorkTree,
        make: &Make<'_>,
        inputs: &Inputs<'_>,
        log: &Path,
    ) -> Result<(), KernelError> {
        let kconfig_files = inputs.overlay.files.iter().filter(|(path, _)| {
            let name = path.rsplit('/').next().unwrap_or(path);
            name.starts_with("Kconfig") || name.ends_with("defconfig")
        });
        let kconfig_overlay = Overlay {
            files: kconfig_files
                .map(|(path, change)| (path.clone(), change.clone()))
                .collect(),
        };
        let made_from = sha256_parts([
            inputs.tree.id.as_bytes(),
            inputs.config_digest.as_bytes(),
            kconfig_overlay.digest().as_bytes(),
        ]);
        let present = work.state().configured.as_ref() == Some(&made_from);
        if present && make.objects.join(".config").is_file() {
            return Ok(());
        }
        (self.events)(BuildEvent::Configuring {
            what: self.reference.to_string(),
        });
        let config = inputs
            .request
            .make(make, log)
            .await
            .map_err(|source| self.config_error(source))?;
        let lost = inputs
            .request
            .lost(&config, &make.tree)
            .map_err(io_error(&make.tree))?;
        if !lost.is_empty() {
            return Err(self.config_error(ConfigError::Lost { lost }));
        }
        work.state().configured = Some(made_from);
        work.save().map_err(io_error(&make.tree))
    }

    /// A folder where the compiler's name is a link to ccache, which finds the real
    /// one behind it. The compiler's name in kbuild's commands stays the same with
    /// and without, so that changing between them recompiles nothing.
    fn ccache_front(&self, folder: &Path) -> io::Result<Option<PathBuf>> {
        let Builder { tools, ccache, .. } = self.builder;
        let (Ccache::Use, Some(program)) = (ccache, &tools.ccache) else {
            return Ok(None);
        };
        let front = folder.join("ccache");
        fs::create_dir_all(&front)?;
        if tools.cc.components().count() > 1 {
            return Ok(None);
        }
        let link = front.join(&tools.cc);
        if fs::read_link(&link).ok().as_ref() != Some(program) {
            let _ = fs::remove_file(&link);
            std::os::unix::fs::symlink(program, &link)?;
        }
        Ok(Some(front))
    }

    /// The kernel a kept build stands for.
    fn answer(&self, kept: &Kept, started: Instant, cached: bool) -> BuiltKernel {
        (self.events)(BuildEvent::Built {
            what: self.reference.to_string(),
            recompiled: if cached { 0 } else { kept.record.recompiled },
            seconds: started.elapsed().as_secs_f64(),
            cached,
            log: Some(kept.record.log.clone()),
        });
        kept.kernel(&self.reference, cached)
    }

    /// An empty log for this build.
    fn log(&self, folder: &Path) -> io::Result<PathBuf> {
        let logs = self.builder.cache.folder("logs");
        fs::create_dir_all(&logs)?;
        let key = folder.file_name().unwrap_or_default().to_string_lossy();
        let log = logs.join(format!("{}-{key}.log", self.reference));
        fs::write(&log, "")?;
        Ok(log)
    }

    fn build_error(&self, log: PathBuf) -> KernelError {
        let text = fs::read(&log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let first = diagnostics::read(&text)
            .into_iter()
            .find(|one| one.severity == Severity::Error)
            .unwrap_or(Diagnostic {
                severity: Severity::Error,
                file: None,
                line: None,
                column: None,
                message: text
                    .lines()
                    .last()
                    .unwrap_or("make said nothing")
                    .to_owned(),
                function: None,
                context: Vec::new(),
            });
        KernelError::Build {
            what: self.reference.to_string(),
            first: Box::new(first),
            log,
        }
    }

    fn config_error(&self, source: ConfigError) -> KernelError {
        KernelError::Config {
            what: self.reference.to_string(),
            source: Box::new(source),
        }
    }

    fn series_error(&self, source: SeriesError) -> KernelError {
        KernelError::Series {
            what: self.reference.to_string(),
            source: Box::new(source),
        }
    }
}

/// What a build is made from.
struct Inputs<'a> {
    tree: &'a SourceTree,
    overlay: &'a Overlay,
    request: &'a Request,
    config: &'a ConfigRequest,
    source_id: String,
    config_digest: String,
    compiler: String,
}
