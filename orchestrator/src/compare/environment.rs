//! What compared runs differ in beside what the experiment varies.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::{Source, nodes, pairs::Pair};
use crate::{plan::Cell, stats::judge::CompareSpec, store::record::Environment};

/// A field of the environment in which compared runs differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name of the field, as `allow_differences` takes it.
    pub field: String,
    /// Values on the baseline's side.
    pub base: Vec<String>,
    /// Values on the other side.
    pub new: Vec<String>,
    /// Rows of every table that it touches.
    pub rows: Vec<usize>,
    /// The experiment allows it by name.
    pub allowed: bool,
}

/// All differences, each once with the number of comparisons it touches.
pub(super) fn differences(
    sources: &[Source<'_>],
    pairs: &[Pair],
    spec: &CompareSpec,
) -> Vec<Difference> {
    let seen: Vec<BTreeMap<&Cell, Fields>> = sources.iter().map(fields_by_cell).collect();
    let (older, newer) = (&seen[0], &seen[seen.len() - 1]);
    let rounds = nodes_by_round(&sources[0]);
    let mut found: BTreeMap<(String, Vec<String>, Vec<String>), Vec<usize>> = BTreeMap::new();
    for (row, pair) in pairs.iter().enumerate() {
        let Some(base_cell) = &pair.base else {
            continue;
        };
        let (Some(base), Some(new)) = (older.get(base_cell), newer.get(&pair.cell)) else {
            continue;
        };
        // Between two folders a round of one says nothing of a round of the other.
        let blocked = sources.len() == 1
            && rounds
                .get(base_cell)
                .zip(rounds.get(&pair.cell))
                .is_some_and(|(base, new)| nodes::is_blocked(base, new));
        let names: BTreeSet<&String> = base.keys().chain(new.keys()).collect();
        for name in names {
            if is_varied(name, base_cell, &pair.cell, sources.len() > 1)
                || (name == "host" && blocked)
            {
                continue;
            }
            let values = |side: &Fields| {
                side.get(name)
                    .cloned()
                    .unwrap_or_else(|| [String::new()].into())
            };
            let (base, new) = (values(base), values(new));
            if base != new || base.len() > 1 {
                let key = (
                    name.clone(),
                    base.into_iter().collect(),
                    new.into_iter().collect(),
                );
                found.entry(key).or_default().push(row);
            }
        }
    }
    found
        .into_iter()
        .map(|((field, base, new), rows)| Difference {
            allowed: spec
                .allow_differences
                .iter()
                .any(|name| name.value == field),
            field,
            base,
            new,
            rows,
        })
        .collect()
}

type Fields = BTreeMap<String, BTreeSet<String>>;

/// The node of each round of each cell.
fn nodes_by_round<'a>(source: &Source<'a>) -> BTreeMap<&'a Cell, BTreeMap<u32, String>> {
    let mut found: BTreeMap<&Cell, BTreeMap<u32, String>> = BTreeMap::new();
    for record in source.records {
        if record.round >= source.warmup && record.outcome.has_result() {
            let rounds = found.entry(&record.cell).or_default();
            rounds.insert(record.round, record.environment.host.clone());
        }
    }
    found
}

fn fields_by_cell<'a>(source: &Source<'a>) -> BTreeMap<&'a Cell, Fields> {
    let mut cells: BTreeMap<&Cell, Fields> = BTreeMap::new();
    for record in source.records {
        if record.round < source.warmup || !record.outcome.has_result() {
            continue;
        }
        let fields = cells.entry(&record.cell).or_default();
        for (name, value) in fields_of(&record.environment) {
            let values = fields.entry(name.to_string()).or_default();
            if !values.contains(value) {
                values.insert(value.to_string());
            }
        }
    }
    cells
}

/// Fields of an environment by name.
pub fn fields_of(environment: &Environment) -> Vec<(&str, &str)> {
    let Environment {
        host_kernel,
        host_cpu,
        microcode,
        host,
        qemu,
        accel,
        cpu_model,
        agent,
        kernel_image,
        build_id,
        guest_kernel,
        kernel_config,
        cmdline,
        image,
        more,
    } = environment;
    let mut fields: Vec<(&str, &str)> = vec![
        ("host_kernel", host_kernel),
        ("host_cpu", host_cpu),
        ("microcode", microcode),
        ("host", host),
        ("qemu", qemu),
        ("accel", accel),
        ("cpu_model", cpu_model),
        ("agent", agent),
        ("kernel_image", kernel_image),
        ("build_id", build_id),
        ("guest_kernel", guest_kernel),
        ("kernel_config", kernel_config),
        ("cmdline", cmdline),
        ("image", image),
    ];
    fields.extend(
        more.iter()
            .map(|(name, value)| (name.as_str(), value.as_str())),
    );
    fields
}

/// Whether the experiment itself makes this field differ between these cells.
/// Two folders are compared to see what another kernel does.
fn is_varied(field: &str, base: &Cell, new: &Cell, two_folders: bool) -> bool {
    let kernels = two_folders || base.kernel != new.kernel;
    let source_of = |kernel: &str| kernel.split(['+', '@']).next().map(str::to_owned);
    match field {
        "kernel_image" | "build_id" | "guest_kernel" => kernels,
        // Variants of one kernel share its configuration.
        "kernel_config" => source_of(&base.kernel) != source_of(&new.kernel),
        // Modules built with a kernel lie in the image.
        "image" => kernels || base.workload != new.workload,
        "cmdline" => base.cmdline != new.cmdline || base.topology != new.topology,
        "cpu_model" => base.topology != new.topology,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{compared, demo, demo_spec};
    use crate::document::At;

    #[test]
    fn another_host_kernel_is_shown_and_can_be_allowed_by_name() {
        let mut records = demo(4);
        for record in &mut records {
            if record.cell.kernel.ends_with("@all") {
                record.environment.host_kernel = "6.12.2".into();
            }
        }
        let mut spec = demo_spec();
        let found = compared(&records, &spec).differences;
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].field.as_str(), found[0].rows.len()),
            ("host_kernel", 2)
        );
        assert_eq!(
            (&found[0].base[0][..], &found[0].new[0][..]),
            ("6.12.1", "6.12.2")
        );
        assert!(!found[0].allowed);
        spec.allow_differences
            .push(At::nowhere("host_kernel".into()));
        assert!(compared(&records, &spec).differences[0].allowed);
    }

    #[test]
    fn a_bench_that_changes_within_a_cell_is_a_difference() {
        let mut records = demo(4);
        records[12].environment.qemu = "8.0.0".into();
        let found = compared(&records, &demo_spec()).differences;
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].base, ["7.2.0", "8.0.0"]);
    }

    #[test]
    fn variants_share_a_configuration_but_not_an_image() {
        let mut records = demo(4);
        for record in &mut records {
            record.environment.kernel_config = format!("config of {}", record.cell.kernel);
            record.environment.image = format!("image for {}", record.cell.kernel);
        }
        let found = compared(&records, &demo_spec()).differences;
        let fields: Vec<&str> = found.iter().map(|d| d.field.as_str()).collect();
        assert_eq!(fields, ["kernel_config"]);
    }
}
