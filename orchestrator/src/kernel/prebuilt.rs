//! Kernels that are built already: an image on this machine, or a distribution's
//! package.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::build::Builder;
use super::built::{BuildEvent, BuiltKernel};
use super::cache::sha256_file;
use super::error::{KernelError, io_error};
use super::identity::{bzimage_build_id, bzimage_release};
use super::package::{self, Unpacked};
use super::spec::{Kernel, Recipe};
use super::variant::Variant;

/// How often a package that only depends on the real one is followed.
const META_DEPTH: usize = 3;

/// An image, its `.config` and its modules' root, as found.
struct Found {
    image: PathBuf,
    config: Option<PathBuf>,
    modules: Option<PathBuf>,
}

/// Brings a prebuilt kernel into the cache.
pub(super) async fn get(
    builder: &Builder,
    kernel: &Kernel,
    events: &(dyn Fn(BuildEvent) + Send + Sync),
) -> Result<BuiltKernel, KernelError> {
    let found = match &kernel.recipe {
        Recipe::Image { image, config } => Found {
            image: image.clone(),
            config: config.clone().or_else(|| config_beside(image)),
            modules: None,
        },
        Recipe::Package { pattern } => from_package(builder, kernel, pattern, events).await?,
        Recipe::Build { .. } => unreachable!("a kernel to build is not prebuilt"),
    };
    let bytes = fs::read(&found.image).map_err(io_error(&found.image))?;
    let Some(release) = bzimage_release(&bytes) else {
        return Err(KernelError::NotABzImage { path: found.image });
    };
    let sha256 = sha256_file(&found.image).map_err(io_error(&found.image))?;
    // A copy, so that a run is not changed by whoever builds the next image there.
    let entry = builder.cache.entry("images", &sha256[..32]);
    let image = entry.join("bzImage");
    if !matches!(sha256_file(&image), Ok(kept) if kept == sha256) {
        let keep = || -> io::Result<()> {
            let scratch = builder.cache.scratch("images")?;
            fs::write(scratch.path().join("bzImage"), &bytes)?;
            builder.cache.keep(scratch, &entry)
        };
        keep().map_err(io_error(&entry))?;
    }
    let config_sha256 = match &found.config {
        Some(path) => Some(sha256_file(path).map_err(io_error(path))?),
        None => None,
    };
    Ok(BuiltKernel {
        kernel: kernel.name.clone(),
        series: None,
        variant: Variant::Base,
        image,
        source_id: format!("image:{sha256}"),
        image_sha256: sha256,
        build_id: bzimage_build_id(&bytes).await,
        release,
        config: found.config,
        config_sha256,
        vmlinux: None,
        modules: found.modules,
        compiler: String::new(),
        recompiled: 0,
        seconds: 0.0,
        cached: true,
    })
}

/// `.config` of an image in a build tree, `config-X` beside a `vmlinuz-X`.
fn config_beside(image: &Path) -> Option<PathBuf> {
    let folder = image.parent()?;
    let name = image.file_name()?.to_string_lossy();
    let mut candidates = vec![folder.join("config"), folder.join("../../../.config")];
    if let Some(version) = name.strip_prefix("vmlinuz-") {
        candidates.insert(0, folder.join(format!("config-{version}")));
    }
    candidates.into_iter().find(|path| path.is_file())
}

async fn from_package(
    builder: &Builder,
    kernel: &Kernel,
    pattern: &str,
    events: &(dyn Fn(BuildEvent) + Send + Sync),
) -> Result<Found, KernelError> {
    let mut name = pattern.to_owned();
    for _ in 0..META_DEPTH {
        let unpacked = package::unpack(&name, &builder.cache, &builder.tools, events)
            .await
            .map_err(|source| KernelError::Package {
                kernel: kernel.name.clone(),
                source: Box::new(source),
            })?;
        if let Some(found) = kernel_in(&unpacked.root) {
            return Ok(found);
        }
        match next(&unpacked) {
            Some(next) => name = next,
            None => {
                return Err(KernelError::NoImage {
                    package: unpacked.file_name,
                });
            }
        }
    }
    Err(KernelError::NoImage { package: name })
}

/// What a package without a kernel depends on that may have one.
fn next(unpacked: &Unpacked) -> Option<String> {
    let mut depends = unpacked.depends.iter();
    depends
        .find(|name| name.starts_with("linux-image-") || name.starts_with("kernel-core"))
        .cloned()
}

/// Debian and Ubuntu keep kernels in boot/, Fedora beside the modules.
fn kernel_in(root: &Path) -> Option<Found> {
    let first = |folder: PathBuf, prefix: &str| -> Option<PathBuf> {
        let mut names: Vec<PathBuf> = fs::read_dir(folder)
            .ok()?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(prefix)
            })
            .collect();
        names.sort();
        names.into_iter().next()
    };
    let modules_root = [root.to_owned(), root.join("usr")]
        .into_iter()
        .find(|root| root.join("lib/modules").is_dir());
    let in_modules = |name: &str| {
        let release = first(modules_root.as_ref()?.join("lib/modules"), "")?;
        Some(release.join(name)).filter(|path| path.is_file())
    };
    let image = first(root.join("boot"), "vmlinuz-").or_else(|| in_modules("vmlinuz"))?;
    Some(Found {
        config: first(root.join("boot"), "config-").or_else(|| in_modules("config")),
        image,
        modules: modules_root,
    })
}
