//! A place where a kernel is configured and built: one copy of the source with its
//! objects, for one configuration and compiler, held by one process at a time.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::build::{Builder, Ccache};
use super::built::BuildEvent;
use super::cache::{Cache, Lock, sha256_parts};
use super::config::KernelConfig;
use super::configure::{ConfigError, Lost, Request};
use super::make::Make;
use super::patch::Overlay;
use super::source::{Events, SourceTree};
use super::toolchain::Toolchain;
use super::worktree::WorkTree;

/// What a workshop is for. Each purpose has trees of its own: what a check has seen
/// of an object must have been seen in its own tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Images to boot.
    Build,
    /// Looking at a configuration without disturbing the objects of a build.
    Configure,
    /// Looking for complaints of the compiler.
    Check,
}

/// What a workshop is made for.
#[derive(Debug)]
pub(super) struct Order<'a> {
    pub tree: &'a SourceTree,
    pub request: &'a Request,
    pub toolchain: &'a Toolchain,
    pub purpose: Purpose,
    /// More variables for make (`W=1`).
    pub more: &'a [String],
}

/// The place, held.
pub(super) struct Workshop<'a> {
    /// How make is called.
    pub make: Make<'a>,
    /// Source and objects.
    pub work: WorkTree,
    folder: PathBuf,
    tree: &'a SourceTree,
    request: &'a Request,
    events: Events<'a>,
    _lock: Lock,
}

impl Order<'_> {
    /// The first half of a workshop's name: objects can be built upon within it.
    fn family(&self) -> String {
        let mut parts = vec![
            self.tree.lineage.as_bytes(),
            self.toolchain.id.as_bytes(),
            self.request.arch().0.as_bytes(),
        ];
        let purpose = format!("{:?}", self.purpose);
        if self.purpose != Purpose::Build {
            parts.push(purpose.as_bytes());
        }
        parts.extend(self.more.iter().map(String::as_bytes));
        sha256_parts(parts)[..12].to_owned()
    }

    /// The workshop's name.
    pub fn key(&self) -> String {
        format!("{}-{}", self.family(), &self.request.digest()[..12])
    }

    /// Takes the workshop's lock, waiting for another process.
    pub async fn lock(&self, builder: &Builder, events: Events<'_>) -> io::Result<Lock> {
        builder
            .cache
            .lock("work", &self.key(), |lock| {
                events(BuildEvent::Waiting { lock: lock.into() });
            })
            .await
    }
}

impl<'a> Workshop<'a> {
    /// Opens the workshop whose lock is held, making it if it is not there.
    pub async fn open(
        builder: &'a Builder,
        order: &Order<'a>,
        lock: Lock,
        events: Events<'a>,
    ) -> io::Result<Self> {
        let folder = builder.cache.entry("work", &order.key());
        adopt(builder, &folder, &order.family())?;
        let work = WorkTree::open(&folder, order.tree).await?;
        Cache::touch(&folder);
        let mut variables = order.toolchain.variables.clone();
        variables.extend(order.more.iter().cloned());
        Ok(Self {
            make: Make {
                tools: &builder.tools,
                tree: work.path(),
                objects: work.objects(),
                arch: order.request.arch().clone(),
                variables,
                front: ccache_front(builder, order.toolchain, &folder)?,
                jobs: builder.jobs,
            },
            work,
            folder,
            tree: order.tree,
            request: order.request,
            events,
            _lock: lock,
        })
    }

    /// The workshop's folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Makes the tree the source with the overlay.
    pub fn lay(&mut self, overlay: &Overlay) -> io::Result<()> {
        self.work.lay(self.tree, overlay).map(drop)
    }

    /// Makes `.config` unless the present one was made from the same things, and
    /// holds it against the request. An option that is asked for and lost is not an
    /// error here; a configuration that lost one is made again the next time.
    pub async fn configure(
        &mut self,
        overlay: &Overlay,
        what: &str,
        log: &Path,
    ) -> Result<(KernelConfig, Vec<Lost>), ConfigError> {
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source| ConfigError::Io { path, source }
        };
        let kconfig_files = overlay.files.iter().filter(|(path, _)| {
            let name = path.rsplit('/').next().unwrap_or(path);
            name.starts_with("Kconfig") || name.ends_with("defconfig")
        });
        let kconfig_overlay = Overlay {
            files: kconfig_files
                .map(|(path, change)| (path.clone(), change.clone()))
                .collect(),
        };
        let made_from = sha256_parts([
            self.tree.id.as_bytes(),
            self.request.digest().as_bytes(),
            kconfig_overlay.digest().as_bytes(),
        ]);
        let place = self.make.objects.join(".config");
        if self.work.state().configured.as_ref() == Some(&made_from)
            && let Ok(text) = fs::read_to_string(&place)
        {
            return Ok((KernelConfig::parse(&text), Vec::new()));
        }
        (self.events)(BuildEvent::Configuring {
            what: what.to_owned(),
        });
        let config = self.request.make(&self.make, log).await?;
        let lost = self
            .request
            .lost(&config, &self.make.tree)
            .map_err(io_error(&self.make.tree))?;
        if lost.is_empty() {
            self.work.state().configured = Some(made_from);
            self.work.save().map_err(io_error(&self.folder))?;
        }
        Ok((config, lost))
    }
}

/// For a configuration that was never built, starts from the objects of the tree of
/// the same family that was used last.
fn adopt(builder: &Builder, folder: &Path, family: &str) -> io::Result<()> {
    let cache = &builder.cache;
    if folder.exists() {
        return Ok(());
    }
    let mut donors: Vec<(SystemTime, String)> = Vec::new();
    for entry in fs::read_dir(cache.folder("work")).into_iter().flatten() {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let state = entry.path().join("state.json");
        if let (true, Ok(metadata)) = (name.starts_with(family), fs::metadata(state)) {
            donors.push((metadata.modified()?, name));
        }
    }
    donors.sort();
    for (_, name) in donors.iter().rev() {
        if let Some(_lock) = cache.try_lock("work", name)? {
            return WorkTree::adopt(folder, &cache.entry("work", name));
        }
    }
    Ok(())
}

/// A folder where the compiler's name is a link to ccache, which finds the real one
/// behind it. The compiler's name in kbuild's commands stays the same with and
/// without, so that changing between them recompiles nothing.
fn ccache_front(
    builder: &Builder,
    toolchain: &Toolchain,
    folder: &Path,
) -> io::Result<Option<PathBuf>> {
    let (Ccache::Use, Some(ccache)) = (builder.ccache, &builder.tools.ccache) else {
        return Ok(None);
    };
    if toolchain.program.components().count() > 1 {
        return Ok(None);
    }
    let front = folder.join("ccache");
    fs::create_dir_all(&front)?;
    let link = front.join(&toolchain.program);
    if fs::read_link(&link).ok().as_ref() != Some(ccache) {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(ccache, &link)?;
    }
    Ok(Some(front))
}
