//! Kernels: where the source comes from, how it is configured, which patches it
//! carries, and the image that comes out.
//!
//! A [`Kernel`] is what a YAML in `kernels/` says, checked. Together with a
//! [`Variant`] of one of its series it becomes a [`BuiltKernel`]: an image in the
//! cache, named by the content of everything that went into it.

mod build;
mod built;
mod cache;
pub mod check;
mod config;
mod configure;
pub mod diagnostics;
mod error;
mod fetch;
mod file;
pub mod gc;
mod identity;
mod inspect;
pub mod kconfig;
mod make;
mod modules;
mod order;
mod package;
pub mod patch;
mod plan;
mod prebuilt;
mod record;
mod source;
mod spec;
mod toolchain;
mod tools;
mod variant;
mod workshop;
mod worktree;

pub use build::{Builder, Ccache, build, expand};
pub use built::{BuildEvent, BuiltKernel};
pub use cache::{Cache, Lock};
pub use config::{KernelConfig, Setting, SettingError, Value, read_settings};
pub use configure::{ConfigError, Lost, Wanted};
pub use error::KernelError;
pub use fetch::{fetch_series, read_series};
pub use file::{
    ConfigSpec, GitSeriesSpec, GitSpec, KernelSpec, SeriesSpec, SourceSpec, TarballSpec,
};
pub use inspect::{Configured, OptionStory, configure};
pub use modules::with_modules;
pub use order::order;
pub use package::PackageError;
pub(crate) use source::git_command;
pub use source::{GitError, SourceError};
pub use spec::{Arch, ConfigBase, ConfigRequest, Kernel, Recipe, SeriesSource, Source};
pub use toolchain::{Compiler, ToolchainError};
pub(crate) use tools::output;
pub use tools::{ToolError, Tools};
pub use variant::{KernelRef, KernelRequest, Selection, Variant, VariantError};
