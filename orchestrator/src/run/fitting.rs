//! Whether this bench and this kernel can show the topology at all, told before
//! anything starts.

use super::{RunUnit, lab::Bench};
use crate::{kernel::KernelConfig, outcome::Outcome, qemu::args, topology::needs};

/// A run as this bench can make it.
#[derive(Debug, Clone)]
pub(super) struct Fitting {
    /// The run, its topology without the parts that QEMU cannot make.
    pub unit: RunUnit,
    /// What was left out.
    pub notes: Vec<String>,
}

/// Leaves out the optional parts of the topology that this QEMU cannot make.
/// `config` is the kernel's configuration, when there is one.
///
/// # Errors
/// The outcome when the bench or the kernel cannot show the topology.
pub(super) fn fit(
    unit: &RunUnit,
    bench: &Bench,
    config: Option<&KernelConfig>,
) -> Result<Fitting, Outcome> {
    let not_testable = |reasons: Vec<String>| Outcome::NotTestable {
        reason: reasons.join("; "),
    };
    let fitted = args::fit(&unit.topology, &bench.args).map_err(not_testable)?;
    if let Some(config) = config {
        let value = |option: &str| config.get(option).map(ToString::to_string);
        let lacking = needs::lacking(&fitted.topology, value);
        if !lacking.is_empty() {
            return Err(not_testable(lacking));
        }
    }
    let notes = fitted.left_out.iter();
    Ok(Fitting {
        notes: notes
            .map(|part| format!("left out of the machine: {part}"))
            .collect(),
        unit: RunUnit {
            topology: fitted.topology,
            ..unit.clone()
        },
    })
}
