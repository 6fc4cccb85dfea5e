//! One point of an experiment.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A cell: one kernel variant on one topology with one command line, one set
/// of settings and one set of workload parameters, each by its name.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cell {
    /// Such as `linux-6.12+numa-scan-skip@all`.
    pub kernel: String,
    /// Name of the topology.
    pub topology: String,
    /// Name of the extra command line.
    pub cmdline: String,
    /// Name of the settings.
    pub settings: String,
    /// Name of the workload with its parameters.
    pub workload: String,
}

impl Cell {
    /// Axis names, in the order of the fields.
    pub const AXES: [&'static str; 5] =
        ["kernels", "topologies", "cmdlines", "settings", "workloads"];

    /// The value of an axis; `None` for a name that is no axis.
    pub fn axis(&self, axis: &str) -> Option<&str> {
        match axis {
            "kernels" => Some(&self.kernel),
            "topologies" => Some(&self.topology),
            "cmdlines" => Some(&self.cmdline),
            "settings" => Some(&self.settings),
            "workloads" => Some(&self.workload),
            _ => None,
        }
    }

    /// The same cell with one axis replaced.
    pub fn with_axis(&self, axis: &str, value: &str) -> Self {
        let mut cell = self.clone();
        let field = match axis {
            "kernels" => &mut cell.kernel,
            "topologies" => &mut cell.topology,
            "cmdlines" => &mut cell.cmdline,
            "settings" => &mut cell.settings,
            _ => &mut cell.workload,
        };
        *field = value.into();
        cell
    }

    /// A name fit for a folder: letters, digits, `.`, `+`, `@`, `=`, `-`, with `,` between axes.
    pub fn slug(&self) -> String {
        let clean = |text: &str| -> String {
            text.chars()
                .map(|c| {
                    if c.is_ascii_alphanumeric() || ".+@=-_".contains(c) {
                        c
                    } else {
                        '-'
                    }
                })
                .collect()
        };
        [
            &self.kernel,
            &self.topology,
            &self.cmdline,
            &self.settings,
            &self.workload,
        ]
        .map(|part| clean(part))
        .join(",")
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} · {} · {} · {} · {}",
            self.kernel, self.topology, self.cmdline, self.settings, self.workload
        )
    }
}
