//! Kernels: where the source comes from, how it is configured, which patches it
//! carries, and the image that comes out.
//!
//! A [`Kernel`] is what a YAML in `kernels/` says, checked. Together with a
//! [`Variant`] of one of its series it becomes a [`BuiltKernel`]: an image in the
//! cache, named by the content of everything that went into it.

mod built;
mod config;
mod spec;
mod variant;

pub use built::{BuildEvent, BuiltKernel};
pub use config::{KernelConfig, Setting, SettingError, Value, read_settings};
pub use spec::{Arch, ConfigBase, ConfigRequest, Kernel, Recipe, SeriesSource, Source};
pub use variant::{KernelRef, KernelRequest, Selection, Variant, VariantError};
