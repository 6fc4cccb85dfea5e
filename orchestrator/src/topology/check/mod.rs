//! Proves a file consistent. Every contradiction is told, with its line, the
//! numbers that disagree and what to write instead.

mod cpus;
mod distances;
mod hmat;
mod nodes;
mod pairs;
mod rankings;
mod sharing;
mod words;

use std::collections::BTreeMap;

use super::{
    CpuList, CpuModel, MemoryBacking, PinPolicy, Topology,
    size::{self, Size, SizeError},
    spec::{Pin, Spec},
};
use crate::document::{At, Document, Problems};

/// A file and what was found wrong with it so far.
struct Checker<'a> {
    document: &'a Document,
    problems: Problems,
}

/// Checks a document.
///
/// # Errors
/// Everything that is wrong with it.
pub fn check(document: &Document) -> Result<Topology, Problems> {
    let parsed = document.parse::<Spec>()?;
    let mut checker = Checker {
        document,
        problems: parsed.problems,
    };
    let topology = checker.topology(&parsed.value);
    let problems = checker.problems;
    match topology {
        Some(topology) => problems.into_result(topology),
        None => Err(problems
            .into_result(())
            .expect_err("a topology that was not made has a problem")),
    }
}

impl Checker<'_> {
    /// `None` only after a problem was told.
    fn topology(&mut self, spec: &Spec) -> Option<Topology> {
        self.name(&spec.name);
        let cpus = self.cpus(&spec.cpus, spec.hybrid.as_ref());
        let nodes = self.nodes(spec, cpus.as_ref());
        let node_count = spec.nodes.as_ref().map_or(1, |nodes| nodes.len());
        let distances = self.distances(spec, node_count);
        let pin = self.pin(spec.pin.as_ref(), cpus.as_ref().map(|c| c.count()));
        let cpu = self.cpu_model(spec);
        let memory_backing = self.backing(spec);
        let hmat = self.hmat(spec, nodes.as_deref());
        let cpus = cpus?;
        let caches = self.caches(spec, &cpus);
        let sets = self.sets(spec, cpus.count());
        let preferred_cores = self.preferred_cores(spec, &cpus);
        let cmdline = self.cmdline(spec, &sets, &cpus);
        let nodes = nodes?;
        self.sharing(spec, &cpus, &caches, &nodes);
        Some(Topology {
            name: spec.name.value.clone(),
            cpus,
            nodes,
            distances,
            hmat,
            caches,
            sets,
            cmdline,
            preferred_cores,
            pin,
            cpu,
            memory_backing,
            deliberate: spec.deliberate.iter().map(|o| o.value).collect(),
            optional: spec.optional.iter().map(|o| o.value).collect(),
        })
    }

    fn problem<T>(
        &mut self,
        place: &At<T>,
        message: impl Into<String>,
        help: impl Into<Option<String>>,
    ) {
        self.problems.at(place, message, help);
    }

    fn name(&mut self, name: &At<String>) {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.starts_with('.') || !name.chars().all(fits) {
            let clean: String = name
                .trim_start_matches('.')
                .chars()
                .map(|c| if fits(c) { c } else { '-' })
                .collect();
            let help = (!clean.is_empty()).then(|| format!("write `name: {clean}`"));
            self.problem(
                name,
                format!("the name `{}` is no file name", name.value),
                help.or(Some("use letters, digits, `-`, `_` and `.`".into())),
            );
        }
    }

    /// Reads a size; what is wrong with it is told.
    fn size(&mut self, text: &At<String>) -> Option<u64> {
        match size::parse(text) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                let help = match &error {
                    SizeError::NoUnit { text } => format!("write `{text}M` or `{text}G`"),
                    SizeError::Syntax { .. } => {
                        "K, M, G and T are powers of 1024; a fraction must leave whole bytes".into()
                    }
                };
                self.problem(text, error.to_string(), help);
                None
            }
        }
    }

    /// Reads a list of vCPUs; what is wrong with it is told.
    fn cpu_list(&mut self, text: &At<String>, count: u32) -> Option<CpuList> {
        match CpuList::parse(text, count) {
            Ok(list) => Some(list),
            Err(error) => {
                self.problem(text, error.to_string(), machine_has(count));
                None
            }
        }
    }

    fn pin(&mut self, pin: Option<&At<Pin>>, count: Option<u32>) -> PinPolicy {
        let Some(pin) = pin else {
            return PinPolicy::Auto;
        };
        let map = match &pin.value {
            Pin::Rule(rule) => return (*rule).into(),
            Pin::Map(map) => map,
        };
        let mut pairs = Vec::new();
        let mut taken: BTreeMap<u32, String> = BTreeMap::new();
        for (guest, host) in map {
            let place = self.key_in("pin", guest).unwrap_or(At {
                value: (),
                line: pin.line,
                column: pin.column,
            });
            let at = |text: &String| At {
                value: text.clone(),
                line: place.line,
                column: place.column,
            };
            let vcpus = count.and_then(|count| self.cpu_list(&at(guest), count));
            let cpus = match host.to_string().parse::<CpuList>() {
                Ok(list) => Some(list),
                Err(error) => {
                    self.problem(&place, format!("host CPUs: {error}"), None);
                    None
                }
            };
            let (Some(vcpus), Some(cpus)) = (vcpus, cpus) else {
                continue;
            };
            if cpus.is_empty() || vcpus.is_empty() {
                let message = format!("`{guest}: {host}` pins nothing, or to nothing");
                self.problem(
                    &place,
                    message,
                    "name at least one CPU on both sides".to_string(),
                );
            }
            for vcpu in vcpus.iter() {
                if let Some(before) = taken.insert(vcpu, guest.clone()) {
                    let message = format!("vCPU {vcpu} is pinned by `{before}` and by `{guest}`");
                    self.problem(&place, message, "name each vCPU once".to_string());
                    break;
                }
            }
            pairs.push((vcpus, cpus));
        }
        PinPolicy::Map(pairs)
    }

    fn cpu_model(&mut self, spec: &Spec) -> CpuModel {
        let Some(cpu) = &spec.cpu else {
            return CpuModel::default();
        };
        let bad =
            |text: &str| text.is_empty() || text.contains(|c: char| c == ',' || c.is_whitespace());
        if let Some(model) = cpu.model.as_ref().filter(|m| bad(m)) {
            self.problem(
                model,
                format!("`{}` is no CPU model", model.value),
                "`qemu-system-x86_64 -cpu help` lists them; flags go into `flags:`".to_string(),
            );
        }
        for flag in &cpu.flags {
            let named = flag.starts_with(['+', '-']) || flag.contains('=');
            if bad(flag) || !named {
                let help = match bad(flag) {
                    true => "a flag has no blanks and no commas; write one per entry".to_string(),
                    false => format!("write `+{0}` or `-{0}`", flag.value),
                };
                self.problem(flag, format!("`{}` is no CPU flag", flag.value), help);
            }
        }
        CpuModel {
            model: cpu.model.as_ref().map(|m| m.value.clone()),
            flags: cpu.flags.iter().map(|f| f.value.clone()).collect(),
        }
    }

    fn backing(&mut self, spec: &Spec) -> MemoryBacking {
        let Some(backing) = &spec.memory_backing else {
            return MemoryBacking::default();
        };
        let hugepages = backing.hugepages.as_ref().and_then(|text| {
            let bytes = self.size(text)?;
            if bytes != 2 * size::MIB && bytes != size::GIB {
                let message = format!("x86 has no huge pages of {}", Size(bytes));
                self.problem(text, message, "write `2M` or `1G`".to_string());
                return None;
            }
            Some(bytes)
        });
        MemoryBacking {
            hugepages,
            prealloc: backing.prealloc,
        }
    }

    /// Position of a key of a top-level map.
    fn key_in(&self, map: &str, key: &str) -> Option<At<()>> {
        use crate::document::node::Value;
        let Value::Map(entries) = &self.document.root().get(map)?.value else {
            return None;
        };
        let (key, _) = entries.iter().find(|(k, _)| k.text == key)?;
        Some(At {
            value: (),
            line: key.line,
            column: key.column,
        })
    }
}

/// Which CPUs there are, for advice.
fn machine_has(count: u32) -> String {
    match count {
        1 => "the machine has CPU 0 alone".into(),
        _ => format!("the machine has CPUs 0-{}", count - 1),
    }
}

/// `CPU 3` or `CPUs 3-4`.
fn named(cpus: &CpuList) -> String {
    match cpus.len() {
        1 => format!("CPU {cpus}"),
        _ => format!("CPUs {cpus}"),
    }
}

/// `is` or `are`.
fn is_are(cpus: &CpuList) -> &'static str {
    if cpus.len() == 1 { "is" } else { "are" }
}

#[cfg(test)]
mod tests;
