//! Kernels: where the source comes from, how it is configured, which patches it
//! carries, and the image that comes out.
//!
//! A [`Kernel`] is what a YAML in `kernels/` says, checked. Together with a
//! [`Variant`] of one of its series it becomes a [`BuiltKernel`]: an image in the
//! cache, named by the content of everything that went into it.

mod build;
mod built;
mod cache;
mod config;
mod configure;
pub mod diagnostics;
mod error;
mod file;
mod identity;
pub mod kconfig;
mod make;
mod package;
pub mod patch;
mod prebuilt;
mod record;
mod source;
mod spec;
mod tools;
mod variant;
mod worktree;

pub use build::{Builder, Ccache, build, expand, read_series};
pub use built::{BuildEvent, BuiltKernel};
pub use cache::{Cache, Lock};
pub use config::{KernelConfig, Setting, SettingError, Value, read_settings};
pub use configure::{ConfigError, Lost, Wanted};
pub use error::KernelError;
pub use file::{
    ConfigSpec, GitSeriesSpec, GitSpec, KernelSpec, SeriesSpec, SourceSpec, TarballSpec,
};
pub use package::PackageError;
pub(crate) use source::git_command;
pub use source::{GitError, SourceError};
pub use spec::{Arch, ConfigBase, ConfigRequest, Kernel, Recipe, SeriesSource, Source};
pub(crate) use tools::output;
pub use tools::{ToolError, Tools};
pub use variant::{KernelRef, KernelRequest, Selection, Variant, VariantError};
