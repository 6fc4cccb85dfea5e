//! Finished images in the cache: kept whole, found again, and noticed when damaged.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::built::BuiltKernel;
use super::cache::{Cache, read_json, sha256_file, write_json};
use super::error::{KernelError, io_error};
use super::identity;
use super::variant::KernelRef;
use super::worktree::copy_tree;

/// A finished image in the cache.
#[derive(Debug)]
pub(super) struct Kept {
    entry: PathBuf,
    /// What is known of it.
    pub record: Record,
}

/// What is kept beside a finished image.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    image: KeptFile,
    config: KeptFile,
    vmlinux: KeptFile,
    build_id: Option<String>,
    release: String,
    source_id: String,
    compiler: String,
    /// Objects that were compiled for it.
    pub recompiled: u32,
    seconds: f64,
    /// True when `modules/` beside it holds the kernel's modules.
    #[serde(default)]
    modules: bool,
    /// Log of the build.
    pub log: PathBuf,
}

/// A file in the same folder as the record.
#[derive(Debug, Serialize, Deserialize)]
struct KeptFile {
    name: String,
    bytes: u64,
    sha256: String,
}

/// What a successful make left, and what it was made from.
pub(super) struct Made<'a> {
    pub reference: &'a KernelRef,
    pub objects: PathBuf,
    /// Path of the image below the objects.
    pub image: String,
    /// Folder with `lib/modules`, if the kernel has modules.
    pub modules: Option<PathBuf>,
    pub source_id: &'a str,
    pub compiler: &'a str,
    pub recompiled: u32,
    pub seconds: f64,
    pub log: PathBuf,
}

impl Kept {
    /// A finished image, if there is one and it is what it was. The uncompressed
    /// kernel is only looked at by its size: it is large, and nothing boots it.
    pub fn find(entry: &Path) -> Option<Self> {
        let record: Record = read_json(&entry.join("record.json"))?;
        let same_sum = |file: &KeptFile| matches!(sha256_file(&entry.join(&file.name)), Ok(sum) if sum == file.sha256);
        let same_size = |file: &KeptFile| matches!(fs::metadata(entry.join(&file.name)), Ok(m) if m.len() == file.bytes);
        let whole =
            same_size(&record.vmlinux) && same_sum(&record.image) && same_sum(&record.config);
        if !whole {
            return None;
        }
        Cache::touch(entry);
        Some(Self {
            entry: entry.to_owned(),
            record,
        })
    }

    /// As the kernel of a reference.
    pub fn kernel(&self, reference: &KernelRef, cached: bool) -> BuiltKernel {
        let Record {
            image,
            config,
            vmlinux,
            ..
        } = &self.record;
        BuiltKernel {
            kernel: reference.kernel.clone(),
            series: reference.series.clone(),
            variant: reference.variant.clone(),
            image: self.entry.join(&image.name),
            image_sha256: image.sha256.clone(),
            build_id: self.record.build_id.clone(),
            release: self.record.release.clone(),
            config: Some(self.entry.join(&config.name)),
            config_sha256: Some(config.sha256.clone()),
            vmlinux: Some(self.entry.join(&vmlinux.name)),
            modules: self.record.modules.then(|| self.entry.join("modules")),
            source_id: self.record.source_id.clone(),
            compiler: self.record.compiler.clone(),
            recompiled: self.record.recompiled,
            seconds: self.record.seconds,
            cached,
        }
    }
}

impl Made<'_> {
    /// Copies what matters into the cache.
    pub fn keep(self, cache: &Cache, entry: &Path) -> Result<Kept, KernelError> {
        let release_file = self.objects.join("include/config/kernel.release");
        let image = self.objects.join(&self.image);
        let vmlinux = self.objects.join("vmlinux");
        for path in [&image, &vmlinux, &release_file] {
            if !path.is_file() {
                return Err(KernelError::Missing {
                    what: self.reference.to_string(),
                    path: path.clone(),
                    log: self.log,
                });
            }
        }
        let scratch = cache.scratch("built").map_err(io_error(entry))?;
        let keep = |from: &Path, name: &str| -> Result<KeptFile, KernelError> {
            let to = scratch.path().join(name);
            let bytes = fs::copy(from, &to).map_err(io_error(&to))?;
            Ok(KeptFile {
                name: name.to_owned(),
                bytes,
                sha256: sha256_file(&to).map_err(io_error(&to))?,
            })
        };
        if let Some(modules) = &self.modules {
            let to = scratch.path().join("modules");
            copy_tree(modules, &to).map_err(io_error(&to))?;
        }
        let record = Record {
            image: keep(&image, "bzImage")?,
            config: keep(&self.objects.join(".config"), "config")?,
            vmlinux: keep(&vmlinux, "vmlinux")?,
            build_id: identity::build_id(&vmlinux).map_err(io_error(&vmlinux))?,
            release: fs::read_to_string(&release_file)
                .map_err(io_error(&release_file))?
                .trim()
                .to_owned(),
            source_id: self.source_id.to_owned(),
            compiler: self.compiler.to_owned(),
            recompiled: self.recompiled,
            seconds: self.seconds,
            modules: self.modules.is_some(),
            log: self.log,
        };
        let place = scratch.path().join("record.json");
        write_json(&place, &record).map_err(io_error(&place))?;
        cache.keep(scratch, entry).map_err(io_error(entry))?;
        Ok(Kept {
            entry: entry.to_owned(),
            record,
        })
    }
}
