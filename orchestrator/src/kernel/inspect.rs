//! Looking at a kernel's configuration: what an option became, and why.

use std::fs;
use std::path::Path;

use super::build::Builder;
use super::config::{KernelConfig, Value};
use super::configure::{Lost, Request, Wanted, read_kconfig};
use super::error::{KernelError, io_error};
use super::fetch::read_series;
use super::kconfig::{Kconfig, Why};
use super::patch::Series;
use super::source::{self, Events};
use super::spec::{Kernel, Recipe};
use super::toolchain::{Compiler, Toolchain};
use super::variant::KernelRef;
use super::workshop::{Order, Purpose, Workshop};

/// A configuration as it came out.
#[derive(Debug)]
pub struct Configured {
    /// The final options.
    pub config: KernelConfig,
    /// The `.config` itself.
    pub text: String,
    /// Options that were asked for and got lost.
    pub lost: Vec<Lost>,
    request: Request,
    kconfig: Kconfig,
}

/// An option, and all that is known of how it came to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OptionStory {
    /// The option, without `CONFIG_`.
    pub option: String,
    /// Its final value.
    pub value: Value,
    /// Where it was asked for, the last place winning.
    pub asked: Vec<Wanted>,
    /// Where Kconfig defines it, and what keeps it off (or on).
    pub why: Why,
}

impl Configured {
    /// The story of an option.
    pub fn story(&self, option: &str) -> OptionStory {
        let option = option.strip_prefix("CONFIG_").unwrap_or(option);
        let value = self.config.get(option).cloned().unwrap_or(Value::No);
        let opposite = match value {
            Value::No => Value::Yes,
            _ => Value::No,
        };
        OptionStory {
            option: option.to_owned(),
            asked: self.request.asked(option),
            why: self.kconfig.why(option, &opposite, &self.config),
            value,
        }
    }
}

/// Configures a kernel without building it, in a tree of its own.
///
/// # Errors
/// The kernel is prebuilt, its source or series cannot be had, or make fails. An
/// option that got lost is no error here.
pub async fn configure(
    builder: &Builder,
    kernel: &Kernel,
    reference: &KernelRef,
    events: Events<'_>,
) -> Result<Configured, KernelError> {
    let what = reference.to_string();
    let Recipe::Build {
        source,
        config,
        series,
        ..
    } = &kernel.recipe
    else {
        return Err(KernelError::NotBuilt {
            kernel: kernel.name.clone(),
        });
    };
    let config_error = |source| KernelError::Config {
        what: what.clone(),
        source: Box::new(source),
    };
    let series_error = |source| KernelError::Series {
        what: what.clone(),
        source: Box::new(source),
    };
    let request = Request::read(config, &kernel.file).map_err(config_error)?;
    let series = match &reference.series {
        Some(name) => read_series(kernel.series(series, name)?, &builder.tools)
            .await
            .map_err(series_error)?,
        None => Series::default(),
    };
    let toolchain = Toolchain::find(&config.arch, &Compiler::Gcc, &builder.tools).await?;
    let tree = source::obtain(source, &builder.cache, &builder.tools, events)
        .await
        .map_err(|source| KernelError::Source {
            kernel: kernel.name.clone(),
            source: Box::new(source),
        })?;
    let overlay = series
        .overlay(&reference.variant, |path| tree.read(path))
        .map_err(series_error)?;
    let order = Order {
        tree: &tree,
        request: &request,
        toolchain: &toolchain,
        purpose: Purpose::Configure,
        more: &[],
    };
    let root = builder.cache.root();
    let lock = order.lock(builder, events).await.map_err(io_error(root))?;
    let mut workshop = Workshop::open(builder, &order, lock, events)
        .await
        .map_err(io_error(root))?;
    workshop.lay(&overlay).map_err(io_error(root))?;
    let log = log_of(builder, &what).map_err(io_error(root))?;
    let (config, lost) = workshop
        .configure(&overlay, &what, &log)
        .await
        .map_err(config_error)?;
    let place = workshop.make.objects.join(".config");
    Ok(Configured {
        text: fs::read_to_string(&place).map_err(io_error(&place))?,
        kconfig: read_kconfig(&workshop.make.tree, request.arch()).map_err(io_error(&place))?,
        config,
        lost,
        request,
    })
}

fn log_of(builder: &Builder, what: &str) -> std::io::Result<std::path::PathBuf> {
    let logs = builder.cache.folder("logs");
    fs::create_dir_all(&logs)?;
    let log = logs.join(Path::new(&format!("{what}-config.log")));
    fs::write(&log, "")?;
    Ok(log)
}
