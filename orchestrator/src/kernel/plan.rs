//! Everything a variant of a kernel is made from, brought together before anything
//! is made.

use super::build::Builder;
use super::cache::sha256_parts;
use super::configure::{ConfigError, Request};
use super::error::KernelError;
use super::fetch::read_series;
use super::patch::{Overlay, Series, SeriesError};
use super::source::{self, Events, SourceTree};
use super::spec::{Kernel, Recipe};
use super::toolchain::{Compiler, Toolchain};
use super::variant::KernelRef;
use super::workshop::{Order, Purpose};

/// Source, patches, configuration and compiler of one variant.
pub(super) struct Plan {
    pub tree: SourceTree,
    pub overlay: Overlay,
    pub request: Request,
    pub toolchain: Toolchain,
    /// Content id of the source with its patches.
    pub source_id: String,
}

impl Plan {
    /// Brings them together: the source is in the cache afterwards, the patches
    /// apply, the compiler is there.
    pub async fn make(
        builder: &Builder,
        kernel: &Kernel,
        reference: &KernelRef,
        events: Events<'_>,
    ) -> Result<Self, KernelError> {
        let Recipe::Build {
            source,
            config,
            series: all,
            ..
        } = &kernel.recipe
        else {
            return Err(KernelError::NotBuilt {
                kernel: kernel.name.clone(),
            });
        };
        let Builder { cache, tools, .. } = builder;
        let request = Request::read(config, &kernel.file)
            .map_err(|source| config_error(reference, source))?;
        let series = match &reference.series {
            Some(name) => read_series(kernel.series(all, name)?, tools)
                .await
                .map_err(|source| series_error(reference, source))?,
            None => Series::default(),
        };
        reference.variant.patches(series.len())?;
        let toolchain = Toolchain::find(&config.arch, &Compiler::Gcc, tools).await?;
        let tree = source::obtain(source, cache, tools, events)
            .await
            .map_err(|source| KernelError::Source {
                kernel: kernel.name.clone(),
                source: Box::new(source),
            })?;
        let overlay = series
            .overlay(&reference.variant, |path| tree.read(path))
            .map_err(|source| series_error(reference, source))?;
        Ok(Self {
            source_id: sha256_parts([tree.id.as_bytes(), overlay.digest().as_bytes()]),
            tree,
            overlay,
            request,
            toolchain,
        })
    }

    /// The workshop for a purpose.
    pub fn order(&self, purpose: Purpose) -> Order<'_> {
        Order {
            tree: &self.tree,
            request: &self.request,
            toolchain: &self.toolchain,
            purpose,
            more: &[],
        }
    }
}

/// A configuration that cannot be made, of a reference.
pub(super) fn config_error(reference: &KernelRef, source: ConfigError) -> KernelError {
    KernelError::Config {
        what: reference.to_string(),
        source: Box::new(source),
    }
}

fn series_error(reference: &KernelRef, source: SeriesError) -> KernelError {
    KernelError::Series {
        what: reference.to_string(),
        source: Box::new(source),
    }
}
