//! Looking at a kernel's configuration: what an option became, and why.

use std::fs;
use std::path::Path;

use super::build::Builder;
use super::config::{KernelConfig, Value};
use super::configure::{Lost, Request, Wanted, read_kconfig};
use super::error::{KernelError, io_error};
use super::kconfig::{Kconfig, Why};
use super::plan::{Plan, config_error};
use super::source::Events;
use super::spec::Kernel;
use super::variant::KernelRef;
use super::workshop::{Purpose, Workshop};

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
    let plan = Plan::make(builder, kernel, reference, events).await?;
    let order = plan.order(Purpose::Configure);
    let root = builder.cache.root();
    let lock = order.lock(builder, events).await.map_err(io_error(root))?;
    let mut workshop = Workshop::open(builder, &order, lock, events)
        .await
        .map_err(io_error(root))?;
    workshop.lay(&plan.overlay).map_err(io_error(root))?;
    let log = log_of(builder, &what).map_err(io_error(root))?;
    let (config, lost) = workshop
        .configure(&plan.overlay, &what, &log)
        .await
        .map_err(|source| config_error(reference, source))?;
    let place = workshop.make.objects.join(".config");
    Ok(Configured {
        text: fs::read_to_string(&place).map_err(io_error(&place))?,
        kconfig: read_kconfig(&workshop.make.tree, plan.request.arch())
            .map_err(io_error(&place))?,
        config,
        lost,
        request: plan.request.clone(),
    })
}

fn log_of(builder: &Builder, what: &str) -> std::io::Result<std::path::PathBuf> {
    let logs = builder.cache.folder("logs");
    fs::create_dir_all(&logs)?;
    let log = logs.join(Path::new(&format!("{what}-config.log")));
    fs::write(&log, "")?;
    Ok(log)
}
