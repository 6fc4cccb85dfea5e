//! Short names for kernels and axes in tables.

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
