//! Samples of metrics.

use serde::{Deserialize, Serialize};

use crate::labels::Labels;

/// What kind of quantity a metric is. Decides whether it may be judged on an
/// untrusted bench: under emulation only counts are.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum MetricKind {
    /// How often something happened in the guest; valid on any bench.
    Count,
    /// How long something took; valid only on a trusted bench.
    Duration,
    /// Work per time; valid only on a trusted bench.
    Rate,
    /// Bytes or pages; valid on any bench.
    Size,
    /// A share of counts (0 to 1); valid on any bench.
    Ratio,
}

impl MetricKind {
    /// Whether the value depends on how fast the bench is.
    pub fn is_timing(self) -> bool {
        matches!(self, Self::Duration | Self::Rate)
    }
}

/// Which direction of a metric is good news.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Smaller is better.
    Lower,
    /// Larger is better.
    Higher,
    /// Shown, never judged as better or worse.
    Neither,
}

/// One measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    /// Name in snake_case, such as `numa_pte_updates`.
    pub metric: String,
    /// The value, in `unit`. Always finite.
    pub value: f64,
    /// What kind of quantity.
    pub kind: MetricKind,
    /// Such as `count`, `ns`, `passes/s`, `B`.
    pub unit: String,
    /// Which direction is good news.
    pub better: Better,
    /// What tells this value from others of the same metric in the same run,
    /// such as `cpu: "1"`, `interval: "3"`.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
}
