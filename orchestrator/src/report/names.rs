//! Short names for kernels, cells and axes.

use crate::{compare::Comparison, plan::Cell};

/// A kernel's parts: `linux-6.12+rt-push@all` → (`linux-6.12`, `rt-push`, `all`).
fn parts(kernel: &str) -> [&str; 3] {
    let (rest, variant) = kernel.split_once('@').unwrap_or((kernel, ""));
    let (name, series) = rest.split_once('+').unwrap_or((rest, ""));
    [name, series, variant]
}

/// Shortest names that still tell these kernels apart, in the order given: the
/// variant alone, the series with it, or the whole name.
pub fn short_kernels(kernels: &[&str]) -> Vec<String> {
    let distinct = |names: &[String]| {
        let set: std::collections::HashSet<&String> = names.iter().collect();
        let kernels: std::collections::HashSet<&&str> = kernels.iter().collect();
        set.len() == kernels.len() && names.iter().all(|name| !name.is_empty())
    };
    let variants: Vec<String> = kernels.iter().map(|k| parts(k)[2].to_string()).collect();
    if distinct(&variants) {
        return variants;
    }
    let with_series: Vec<String> = kernels
        .iter()
        .map(|kernel| match parts(kernel) {
            [_, "", variant] => variant.to_string(),
            [_, series, ""] => series.to_string(),
            [_, series, variant] => format!("{series}@{variant}"),
        })
        .collect();
    if distinct(&with_series) {
        return with_series;
    }
    kernels.iter().map(|kernel| (*kernel).to_string()).collect()
}

/// How the cells and kernels of a comparison are called: by what tells them apart.
#[derive(Debug, Clone)]
pub struct Names<'a> {
    /// Heading of the baseline's column.
    pub base: String,
    /// Heading of the other column when it holds more than one kernel.
    pub new: String,
    /// Heading of the other column when it holds one kernel.
    pub column: Option<String>,
    axes: &'a [String],
    kernels: Vec<&'a str>,
    short: Vec<String>,
}

impl<'a> Names<'a> {
    /// Looks at everything that is compared.
    pub fn of(comparison: &'a Comparison) -> Self {
        let rows = comparison
            .tables
            .first()
            .map_or(&[][..], |table| &table.rows);
        let bases = rows.iter().filter_map(|row| row.base_cell.as_ref());
        let mut kernels: Vec<&str> = Vec::new();
        for cell in bases.chain(rows.iter().map(|row| &row.cell)) {
            if !kernels.contains(&cell.kernel.as_str()) {
                kernels.push(&cell.kernel);
            }
        }
        let short = short_kernels(&kernels);
        let (mut base, mut new, mut column) = ("baseline".to_string(), "new".to_string(), None);
        if let [older, newer] = &comparison.sources[..] {
            (base, new) = (older.clone(), newer.clone());
        } else if comparison.baseline.is_empty() {
            new = "value".into();
        } else if comparison.baseline.len() == 1 && comparison.baseline.contains_key("kernels") {
            base = short.first().cloned().unwrap_or(base);
            column = (short.len() == 2).then(|| short[1].clone());
        }
        Self {
            base,
            new,
            column,
            axes: &comparison.axes,
            kernels,
            short,
        }
    }

    /// A kernel.
    pub fn kernel(&self, kernel: &str) -> String {
        self.kernels
            .iter()
            .position(|known| *known == kernel)
            .map_or_else(|| kernel.to_string(), |place| self.short[place].clone())
    }

    /// A cell: its kernel when there are several, and every other axis that varies.
    pub fn cell(&self, cell: &Cell) -> String {
        let mut parts: Vec<String> = Vec::new();
        if self.kernels.len() > 1 {
            parts.push(self.kernel(&cell.kernel));
        }
        let axes = self.axes.iter().filter(|axis| *axis != "kernels");
        parts.extend(axes.filter_map(|axis| cell.axis(axis)).map(String::from));
        if parts.is_empty() {
            parts.push(self.kernel(&cell.kernel));
        }
        parts.join(" · ")
    }
}

/// Heading of an axis' column.
pub fn axis_heading(axis: &str) -> &str {
    match axis {
        "kernels" => "kernel",
        "topologies" => "topology",
        "cmdlines" => "cmdline",
        "workloads" => "workload",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_short_as_they_can_be() {
        assert_eq!(
            short_kernels(&["linux-6.12@base", "linux-6.12+numa@all"]),
            ["base", "all"]
        );
        assert_eq!(
            short_kernels(&[
                "linux-6.12@base",
                "linux-6.12+numa@all",
                "linux-6.12+rt@all"
            ]),
            ["base", "numa@all", "rt@all"]
        );
        assert_eq!(
            short_kernels(&["linux-6.12@base", "linux-6.13@base"]),
            ["linux-6.12@base", "linux-6.13@base"]
        );
        assert_eq!(short_kernels(&["debian"]), ["debian"]);
        assert_eq!(short_kernels(&["a@base", "a@base"]), ["base", "base"]);
    }
}
