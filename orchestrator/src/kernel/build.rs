//! From a kernel and a variant to an image in the cache.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::built::{BuildEvent, BuiltKernel};
use super::cache::{Cache, sha256_parts};
use super::config::{KernelConfig, Value};
use super::configure::ConfigError;
use super::diagnostics::{self, Diagnostic, Severity};
use super::error::{KernelError, io_error};
use super::fetch::read_series;
use super::make::compiled;
use super::patch::Overlay;
use super::plan::{Plan, config_error};
use super::prebuilt;
use super::record::{Kept, Made};
use super::source::Events;
use super::spec::{Kernel, Recipe, SeriesSource};
use super::tools::Tools;
use super::variant::{KernelRef, KernelRequest, Variant};
use super::workshop::{Purpose, Workshop};

/// Raised when what is kept in `built/` or how it is made changes its meaning.
const FORMAT: &str = "1";

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
        Recipe::Build { .. } => {
            let job = Job {
                builder,
                kernel,
                reference,
                events,
            };
            job.run().await
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
            read_series(kernel.series(&all, name)?, tools)
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

impl Kernel {
    /// One of its series by name.
    pub(super) fn series<'a>(
        &self,
        all: &'a BTreeMap<String, SeriesSource>,
        name: &str,
    ) -> Result<&'a SeriesSource, KernelError> {
        all.get(name).ok_or_else(|| KernelError::NoSeries {
            kernel: self.name.clone(),
            series: name.to_owned(),
            known: all.keys().cloned().collect(),
        })
    }
}

struct Job<'a> {
    builder: &'a Builder,
    kernel: &'a Kernel,
    reference: KernelRef,
    events: Events<'a>,
}

impl Job<'_> {
    async fn run(&self) -> Result<BuiltKernel, KernelError> {
        let started = Instant::now();
        let cache = &self.builder.cache;
        let plan = Plan::make(self.builder, self.kernel, &self.reference, self.events).await?;
        let arch = plan.request.arch();
        let digest = plan.request.digest();
        let parts = [
            FORMAT,
            &plan.source_id,
            &digest,
            &plan.toolchain.id,
            &arch.0,
        ];
        let key = sha256_parts(parts.map(str::as_bytes));
        let entry = cache.entry("built", &key[..32]);
        if let Some(kept) = Kept::find(&entry) {
            return Ok(self.answer(&kept, started, true));
        }
        let order = plan.order(Purpose::Build);
        let lock = order
            .lock(self.builder, self.events)
            .await
            .map_err(io_error(cache.root()))?;
        // Whoever was waited for may have built just this.
        if let Some(kept) = Kept::find(&entry) {
            return Ok(self.answer(&kept, started, true));
        }
        let mut workshop = Workshop::open(self.builder, &order, lock, self.events)
            .await
            .map_err(io_error(cache.root()))?;
        let log = self.log(&order.key()).map_err(io_error(cache.root()))?;
        let (config, recompiled) = self.make(&mut workshop, &plan.overlay, &log).await?;
        let modules = if config.options().any(|(_, value)| *value == Value::Module) {
            Some(self.modules(&workshop, &log).await?)
        } else {
            None
        };
        let made = Made {
            reference: &self.reference,
            objects: workshop.work.objects(),
            image: arch.image(),
            source_id: &plan.source_id,
            compiler: &plan.toolchain.id,
            modules,
            recompiled,
            seconds: started.elapsed().as_secs_f64(),
            log,
        };
        let kept = made.keep(cache, &entry)?;
        Ok(self.answer(&kept, started, false))
    }

    /// Makes the kernel's modules and installs them into a folder of the workshop.
    async fn modules(&self, workshop: &Workshop<'_>, log: &Path) -> Result<PathBuf, KernelError> {
        let make = &workshop.make;
        let place = workshop.folder().join("installed");
        if place.exists() {
            fs::remove_dir_all(&place).map_err(io_error(&place))?;
        }
        let install = format!("INSTALL_MOD_PATH={}", place.display());
        for arguments in [
            &["modules"][..],
            // Which module needs which is told later, by whoever reads the folder.
            &[
                "modules_install",
                "INSTALL_MOD_STRIP=1",
                "DEPMOD=true",
                &install,
            ],
        ] {
            let ended = make
                .run(arguments, log, |_, _| {})
                .await
                .map_err(io_error(&make.tools.make))?;
            if !ended.status.success() {
                return Err(self.build_error(log));
            }
        }
        Ok(place)
    }

    /// Makes the image; returns the configuration and how many objects were compiled.
    async fn make(
        &self,
        workshop: &mut Workshop<'_>,
        overlay: &Overlay,
        log: &Path,
    ) -> Result<(KernelConfig, u32), KernelError> {
        let what = self.reference.to_string();
        let folder = workshop.folder().to_owned();
        workshop.lay(overlay).map_err(io_error(&folder))?;
        let (config, lost) = workshop
            .configure(overlay, &what, log)
            .await
            .map_err(|source| config_error(&self.reference, source))?;
        if !lost.is_empty() {
            return Err(config_error(&self.reference, ConfigError::Lost { lost }));
        }
        let make = &workshop.make;
        let program = &make.tools.make;
        let targets = [make.arch.image_target()];
        // A dry run counts what a first build compiles. For a later one it would cost
        // more than the count is worth.
        let expected = if make.objects.join("vmlinux").is_file() {
            None
        } else {
            make.dry_count(&targets, log)
                .await
                .map_err(io_error(program))?
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
            .run(&targets, log, |line, done| {
                if let Some(object) = compiled(line) {
                    (self.events)(compiling(done, object));
                } else if !linking && line.starts_with("  LD      vmlinux") {
                    linking = true;
                    (self.events)(BuildEvent::Linking { what: what.clone() });
                }
            })
            .await
            .map_err(io_error(program))?;
        if ended.status.success() {
            Ok((config, ended.objects))
        } else {
            Err(self.build_error(log))
        }
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
    fn log(&self, key: &str) -> io::Result<PathBuf> {
        let logs = self.builder.cache.folder("logs");
        fs::create_dir_all(&logs)?;
        let log = logs.join(format!("{}-{key}.log", self.reference));
        fs::write(&log, "")?;
        Ok(log)
    }

    fn build_error(&self, log: &Path) -> KernelError {
        let text = fs::read(log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        if text.contains("No space left on device") {
            return KernelError::Io {
                path: self.builder.cache.root().to_owned(),
                source: io::ErrorKind::StorageFull.into(),
            };
        }
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
            log: log.to_owned(),
        }
    }
}
