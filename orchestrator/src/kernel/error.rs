//! Why a kernel cannot be had.

use std::io;
use std::path::{Path, PathBuf};

use super::configure::ConfigError;
use super::diagnostics::Diagnostic;
use super::package::PackageError;
use super::patch::SeriesError;
use super::source::SourceError;
use super::toolchain::ToolchainError;
use super::variant::{Variant, VariantError};

/// A kernel that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The kernel has no series of that name.
    #[error("kernel '{kernel}' has no series '{series}'{}", listing(.known))]
    NoSeries {
        /// The kernel.
        kernel: String,
        /// The name asked for.
        series: String,
        /// The names it has.
        known: Vec<String>,
    },
    /// A prebuilt kernel carries no patches.
    #[error("kernel '{kernel}' is prebuilt: it has the variant base and no other, not '{variant}'")]
    Prebuilt {
        /// The kernel.
        kernel: String,
        /// What was asked for.
        variant: Variant,
    },
    /// Only a kernel that is built here can be configured or checked.
    #[error("kernel '{kernel}' is prebuilt: it is neither configured nor compiled here")]
    NotBuilt {
        /// The kernel.
        kernel: String,
    },
    /// The variant does not fit the series.
    #[error(transparent)]
    Variant(#[from] VariantError),
    /// The series cannot be read, or does not apply.
    #[error("'{what}' cannot be made from its patches")]
    Series {
        /// The reference.
        what: String,
        /// Why.
        source: Box<SeriesError>,
    },
    /// The source cannot be had.
    #[error("the source of '{kernel}' cannot be had")]
    Source {
        /// The kernel.
        kernel: String,
        /// Why.
        source: Box<SourceError>,
    },
    /// The package cannot be had.
    #[error("the package of '{kernel}' cannot be had")]
    Package {
        /// The kernel.
        kernel: String,
        /// Why.
        source: Box<PackageError>,
    },
    /// The package holds no kernel.
    #[error("package '{package}' holds no kernel image (boot/vmlinuz-*, lib/modules/*/vmlinuz)")]
    NoImage {
        /// The package.
        package: String,
    },
    /// The image is none.
    #[error("{path} is not a bzImage")]
    NotABzImage {
        /// The file.
        path: PathBuf,
    },
    /// The configuration cannot be made, or is not what was asked for.
    #[error("'{what}' cannot be configured")]
    Config {
        /// The reference.
        what: String,
        /// Why.
        source: Box<ConfigError>,
    },
    /// The compiler cannot be used.
    #[error("the compiler cannot be used")]
    Compiler(#[from] ToolchainError),
    /// The compiler or linker refuses.
    #[error("'{what}' does not build: {first}\nthe whole output is in {log}")]
    Build {
        /// The reference.
        what: String,
        /// The first complaint.
        first: Box<Diagnostic>,
        /// The log.
        log: PathBuf,
    },
    /// A module does not build.
    #[error("module {module} does not build for '{what}':{}\nthe whole output is in {log}", lines(.errors))]
    Module {
        /// Its folder.
        module: PathBuf,
        /// The kernel's reference.
        what: String,
        /// The complaints, unresolved symbols among them.
        errors: Vec<Diagnostic>,
        /// The log.
        log: PathBuf,
    },
    /// A module's folder yields none.
    #[error("{folder} yields no module: its Kbuild names none in obj-m")]
    NoModule {
        /// The folder.
        folder: PathBuf,
    },
    /// The kernel cannot load modules.
    #[error("'{what}' takes no modules: CONFIG_MODULES is off")]
    TakesNoModules {
        /// The reference.
        what: String,
    },
    /// There is nothing to build modules against.
    #[error("modules cannot be built for '{kernel}': its headers cannot be had")]
    NoHeaders {
        /// The kernel.
        kernel: String,
        /// Why; nothing for an image without a package.
        source: Option<Box<PackageError>>,
    },
    /// make says all is well, but a file is not there.
    #[error("the build of '{what}' left no {path}; its output is in {log}")]
    Missing {
        /// The reference.
        what: String,
        /// The file.
        path: PathBuf,
        /// The log.
        log: PathBuf,
    },
    /// A file or folder cannot be used.
    #[error("{path} cannot be used")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn lines(errors: &[Diagnostic]) -> String {
    errors.iter().map(|one| format!("\n  {one}")).collect()
}

fn listing(names: &[String]) -> String {
    if names.is_empty() {
        "; it has none".to_owned()
    } else {
        format!("; it has {}", names.join(", "))
    }
}

/// Names the path an operation failed on.
pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> KernelError + use<> {
    let path = path.to_owned();
    move |source| KernelError::Io { path, source }
}
