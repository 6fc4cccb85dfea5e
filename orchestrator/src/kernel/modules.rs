//! Kernel modules that are not part of a kernel's tree: built against a variant, or
//! against the headers package of a distribution's kernel, and put where depmod and
//! the image look for them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::build::Builder;
use super::built::BuiltKernel;
use super::cache::{Cache, read_json, sha256_file, sha256_parts, write_json};
use super::configure::ConfigError;
use super::diagnostics::{self, Diagnostic, Severity};
use super::error::{KernelError, io_error};
use super::make::Make;
use super::package::{self, PackageError};
use super::plan::{Plan, config_error};
use super::source::Events;
use super::spec::{Arch, Kernel, Recipe};
use super::tools::{command, output};
use super::variant::KernelRef;
use super::workshop::{Purpose, Workshop};
use super::worktree::copy_tree;

/// Raised when what is kept changes its meaning.
const FORMAT: &str = "1";

/// What is remembered beside a set of modules.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    release: String,
    /// Path below `lib/modules/RELEASE` and SHA-256 of each module built here.
    modules: Vec<(PathBuf, String)>,
}

/// Builds modules for a kernel that is built, and returns it with the folder that
/// holds them and the kernel's own. Each of `folders` has a `Kbuild` or `Makefile`
/// naming `obj-m`; it is copied, not built in.
///
/// # Errors
/// The kernel takes no modules, its headers cannot be had, a module does not compile,
/// or it uses symbols the kernel does not export (all are named).
pub async fn with_modules(
    builder: &Builder,
    kernel: &Kernel,
    built: &BuiltKernel,
    folders: &[PathBuf],
    events: Events<'_>,
) -> Result<BuiltKernel, KernelError> {
    if folders.is_empty() {
        return Ok(built.clone());
    }
    let mut parts = vec![
        FORMAT.to_owned(),
        built.image_sha256.clone(),
        built.config_sha256.clone().unwrap_or_default(),
    ];
    for folder in folders {
        parts.push(digest(folder).map_err(io_error(folder))?);
    }
    let key = sha256_parts(parts.iter().map(String::as_bytes));
    let entry = builder.cache.entry("modules", &key[..32]);
    if !is_whole(&entry) {
        let kit = Kit {
            builder,
            built,
            folders,
        };
        match &kernel.recipe {
            Recipe::Build { .. } => kit.against_tree(kernel, &entry, events).await?,
            Recipe::Package { .. } => kit.against_headers(&entry, events).await?,
            Recipe::Image { .. } => {
                return Err(KernelError::NoHeaders {
                    kernel: kernel.name.clone(),
                    source: None,
                });
            }
        }
    }
    Cache::touch(&entry);
    Ok(BuiltKernel {
        modules: Some(entry),
        ..built.clone()
    })
}

/// True when every module is there and is what it was.
fn is_whole(entry: &Path) -> bool {
    read_json::<Record>(&entry.join("record.json")).is_some_and(|record| {
        let root = entry.join("lib/modules").join(&record.release);
        record
            .modules
            .iter()
            .all(|(path, sum)| matches!(sha256_file(&root.join(path)), Ok(found) if found == *sum))
    })
}

struct Kit<'a> {
    builder: &'a Builder,
    built: &'a BuiltKernel,
    folders: &'a [PathBuf],
}

impl Kit<'_> {
    fn what(&self) -> String {
        KernelRef {
            kernel: self.built.kernel.clone(),
            series: self.built.series.clone(),
            variant: self.built.variant.clone(),
        }
        .to_string()
    }

    /// Builds in the tree of the variant, brought to its state again if another
    /// variant was built since.
    async fn against_tree(
        &self,
        kernel: &Kernel,
        entry: &Path,
        events: Events<'_>,
    ) -> Result<(), KernelError> {
        let reference: KernelRef = self.what().parse()?;
        let plan = Plan::make(self.builder, kernel, &reference, events).await?;
        let order = plan.order(Purpose::Build);
        let root = self.builder.cache.root();
        let lock = order
            .lock(self.builder, events)
            .await
            .map_err(io_error(root))?;
        let mut workshop = Workshop::open(self.builder, &order, lock, events)
            .await
            .map_err(io_error(root))?;
        workshop.lay(&plan.overlay).map_err(io_error(root))?;
        let log = self.log()?;
        let (config, lost) = workshop
            .configure(&plan.overlay, &reference.to_string(), &log)
            .await
            .map_err(|source| config_error(&reference, source))?;
        if !lost.is_empty() {
            return Err(config_error(&reference, ConfigError::Lost { lost }));
        }
        if !config.is_on("MODULES") {
            return Err(KernelError::TakesNoModules {
                what: reference.to_string(),
            });
        }
        let make = &workshop.make;
        // The list of exported symbols comes with the modules.
        let targets = [make.arch.image_target(), "modules"];
        self.run(make, &targets, None, &log).await?;
        let scratch = self
            .builder
            .cache
            .scratch("modules")
            .map_err(io_error(entry))?;
        let install = format!("INSTALL_MOD_PATH={}", scratch.path().display());
        let more = [
            "modules_install",
            "INSTALL_MOD_STRIP=1",
            "DEPMOD=true",
            &install,
        ];
        self.run(make, &more, None, &log).await?;
        let place = workshop.folder().join("modules");
        let modules = self.compile(make, &place, &log).await?;
        self.keep(scratch, &modules, entry).await
    }

    /// Builds against `linux-headers-RELEASE`, unpacked with what it depends on.
    async fn against_headers(&self, entry: &Path, events: Events<'_>) -> Result<(), KernelError> {
        let tree = self.headers(events).await?;
        let make = Make {
            tools: &self.builder.tools,
            objects: tree.clone(),
            tree,
            arch: Arch::default(),
            variables: Vec::new(),
            front: None,
            jobs: self.builder.jobs,
        };
        let scratch = self
            .builder
            .cache
            .scratch("modules")
            .map_err(io_error(entry))?;
        let release = Path::new("lib/modules").join(&self.built.release);
        if let Some(own) = &self.built.modules {
            copy_tree(&own.join(&release), &scratch.path().join(&release))
                .map_err(io_error(entry))?;
        }
        let log = self.log()?;
        let place = scratch.path().join("build");
        let modules = self.compile(&make, &place, &log).await?;
        self.keep(scratch, &modules, entry).await
    }

    /// The folder to build in: the headers of the release, with those of all
    /// flavours and kbuild's programs beside them as if installed.
    async fn headers(&self, events: Events<'_>) -> Result<PathBuf, KernelError> {
        let cache = &self.builder.cache;
        let name = format!("linux-headers-{}", self.built.release);
        let no_headers = |source: PackageError| KernelError::NoHeaders {
            kernel: self.built.kernel.clone(),
            source: Some(Box::new(source)),
        };
        let entry = cache.entry("headers", &self.built.release);
        let tree = entry.join("usr/src").join(&name);
        let _lock = cache
            .lock("headers", &self.built.release, |_| {})
            .await
            .map_err(io_error(&entry))?;
        if tree.join("Makefile").is_file() {
            return Ok(tree);
        }
        let scratch = cache.scratch("headers").map_err(io_error(&entry))?;
        let mut wanted = vec![name.clone()];
        let mut done = Vec::new();
        while let Some(package) = wanted.pop() {
            let unpacked = package::unpack(&package, cache, &self.builder.tools, events)
                .await
                .map_err(no_headers)?;
            copy_tree(&unpacked.root, scratch.path()).map_err(io_error(&entry))?;
            done.push(package);
            wanted.extend(unpacked.depends.into_iter().filter(|name| {
                let part = ["linux-headers-", "linux-kbuild-"]
                    .iter()
                    .any(|start| name.starts_with(start));
                part && !done.contains(name)
            }));
        }
        // The Makefile includes the common one by the path it has when installed.
        let makefile = scratch.path().join("usr/src").join(&name).join("Makefile");
        let text = fs::read_to_string(&makefile).map_err(io_error(&makefile))?;
        let moved = text.replace("/usr/src/", &format!("{}/usr/src/", entry.display()));
        // A file of its own: the one there is a link to the unpacked package's.
        fs::remove_file(&makefile).map_err(io_error(&makefile))?;
        fs::write(&makefile, moved).map_err(io_error(&makefile))?;
        cache.keep(scratch, &entry).map_err(io_error(&entry))?;
        Ok(tree)
    }

    /// Compiles copies of the module folders below `place`.
    async fn compile(
        &self,
        make: &Make<'_>,
        place: &Path,
        log: &Path,
    ) -> Result<Vec<PathBuf>, KernelError> {
        if place.exists() {
            fs::remove_dir_all(place).map_err(io_error(place))?;
        }
        let mut modules = Vec::new();
        for folder in self.folders {
            let name = folder.file_name().unwrap_or_default();
            let copy = place.join(name);
            copy_contents(folder, &copy).map_err(io_error(&copy))?;
            let outside = format!("M={}", copy.display());
            self.run(make, &[&outside, "modules"], Some(folder), log)
                .await?;
            let mut found: Vec<PathBuf> = WalkDir::new(&copy)
                .into_iter()
                .filter_map(|entry| Some(entry.ok()?.into_path()))
                .filter(|path| path.extension().is_some_and(|end| end == "ko"))
                .collect();
            found.sort();
            if found.is_empty() {
                return Err(KernelError::NoModule {
                    folder: folder.clone(),
                });
            }
            modules.extend(found);
        }
        Ok(modules)
    }

    /// Runs make; its complaints become the error. `module` is the folder it is about.
    async fn run(
        &self,
        make: &Make<'_>,
        arguments: &[&str],
        module: Option<&Path>,
        log: &Path,
    ) -> Result<(), KernelError> {
        let mut said = String::new();
        let ended = make
            .run(arguments, log, |line, _| {
                said.push_str(line);
                said.push('\n');
            })
            .await
            .map_err(io_error(&make.tools.make))?;
        if ended.status.success() {
            return Ok(());
        }
        let errors: Vec<Diagnostic> = diagnostics::read(&said)
            .into_iter()
            .filter(|one| one.severity == Severity::Error)
            .collect();
        Err(match module {
            Some(module) => KernelError::Module {
                module: module.to_owned(),
                what: self.what(),
                errors,
                log: log.to_owned(),
            },
            None => KernelError::Build {
                what: self.what(),
                first: Box::new(errors.into_iter().next().unwrap_or_else(|| {
                    Diagnostic {
                        severity: Severity::Error,
                        file: None,
                        line: None,
                        column: None,
                        message: said
                            .lines()
                            .last()
                            .unwrap_or("make said nothing")
                            .to_owned(),
                        function: None,
                        context: Vec::new(),
                    }
                })),
                log: log.to_owned(),
            },
        })
    }

    /// Puts the modules into `extra/` beside the kernel's own and lists what needs
    /// what, if depmod is there; whoever reads the folder can do without.
    async fn keep(
        &self,
        scratch: tempfile::TempDir,
        modules: &[PathBuf],
        entry: &Path,
    ) -> Result<(), KernelError> {
        let release = &self.built.release;
        let root = scratch.path().join("lib/modules").join(release);
        let extra = root.join("extra");
        fs::create_dir_all(&extra).map_err(io_error(&extra))?;
        let mut record = Record {
            release: release.clone(),
            modules: Vec::new(),
        };
        for module in modules {
            let name = module.file_name().unwrap_or_default();
            let place = extra.join(name);
            fs::copy(module, &place).map_err(io_error(&place))?;
            let sum = sha256_file(&place).map_err(io_error(&place))?;
            record.modules.push((Path::new("extra").join(name), sum));
        }
        let build = scratch.path().join("build");
        if build.exists() {
            fs::remove_dir_all(&build).map_err(io_error(&build))?;
        }
        // A list from before these modules were there would hide them.
        let list = root.join("modules.dep");
        if list.exists() {
            fs::remove_file(&list).map_err(io_error(&list))?;
        }
        let mut depmod = command(&self.builder.tools.depmod);
        depmod
            .arg("--basedir")
            .arg(scratch.path())
            .arg(release)
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
        drop(output(&mut depmod).await);
        let place = scratch.path().join("record.json");
        write_json(&place, &record).map_err(io_error(&place))?;
        self.builder
            .cache
            .keep(scratch, entry)
            .map_err(io_error(entry))
    }

    fn log(&self) -> Result<PathBuf, KernelError> {
        let logs = self.builder.cache.folder("logs");
        let log = logs.join(format!("{}-modules.log", self.what()));
        fs::create_dir_all(&logs).map_err(io_error(&logs))?;
        fs::write(&log, "").map_err(io_error(&log))?;
        Ok(log)
    }
}

/// SHA-256 over names and contents of a folder's files.
fn digest(folder: &Path) -> io::Result<String> {
    let mut parts = Vec::new();
    for entry in WalkDir::new(folder).sort_by_file_name() {
        let entry = entry?;
        if entry.file_type().is_file() {
            let inside = entry.path().strip_prefix(folder).unwrap_or(entry.path());
            parts.push(inside.as_os_str().as_encoded_bytes().to_vec());
            parts.push(fs::read(entry.path())?);
        }
    }
    Ok(sha256_parts(parts.iter().map(Vec::as_slice)))
}

/// Copies a folder's files: make writes beside them, and links would share that.
fn copy_contents(from: &Path, to: &Path) -> io::Result<()> {
    for entry in WalkDir::new(from) {
        let entry = entry?;
        let place = to.join(entry.path().strip_prefix(from).unwrap_or(entry.path()));
        if entry.file_type().is_dir() {
            fs::create_dir_all(&place)?;
        } else {
            fs::copy(entry.path(), &place)?;
        }
    }
    Ok(())
}
