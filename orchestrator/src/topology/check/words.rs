//! Named sets, and the words of the kernel's command line.

use std::collections::BTreeMap;

use super::{Checker, machine_has};
use crate::{
    document::At,
    topology::{
        CpuLayout, CpuList,
        cmdline::{self, FillError},
        spec::Spec,
    },
};

impl Checker<'_> {
    /// The named sets that make sense.
    pub(super) fn sets(&mut self, spec: &Spec, count: u32) -> BTreeMap<String, CpuList> {
        let mut sets = BTreeMap::new();
        for (name, text) in &spec.sets {
            if name.is_empty()
                || !name
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
            {
                let message = format!("the set's name `{name}` does not fit between braces");
                let help = "use letters, digits, `-` and `_`".to_string();
                self.problem(text, message, help);
            }
            let Some(cpus) = self.cpu_list(text, count) else {
                // A set that exists is not also "unknown" in the command line.
                sets.insert(name.clone(), CpuList::new());
                continue;
            };
            if cpus.is_empty() {
                let message = format!("the set `{name}` is empty");
                self.problem(text, message, machine_has(count));
            }
            sets.insert(name.clone(), cpus);
        }
        sets
    }

    /// The command line with the sets filled in.
    pub(super) fn cmdline(
        &mut self,
        spec: &Spec,
        sets: &BTreeMap<String, CpuList>,
        cpus: &CpuLayout,
    ) -> String {
        let count = cpus.count();
        let Some(written) = &spec.cmdline else {
            return added(spec, "").join(" ");
        };
        let filled = match cmdline::fill(written, sets) {
            Ok(filled) => filled,
            Err(errors) => {
                for error in errors {
                    let (word, help) = match &error {
                        FillError::Unknown { name } => (format!("{{{name}}}"), known(name, sets)),
                        FillError::Brace { near } => {
                            (near.clone(), "write `{name}` for the CPUs of a set".into())
                        }
                    };
                    let place = self.word(written, &word);
                    self.problem(&place, error.to_string(), help);
                }
                return String::new();
            }
        };
        self.isolation(written, &filled, count);
        self.limits(written, &filled, cpus);
        self.amd_pstate(spec, written, &filled);
        let own = added(spec, &filled);
        let words = cmdline::words(&filled).into_iter().chain(own);
        words.collect::<Vec<_>>().join(" ")
    }

    /// Only these modes of the driver make the kernel use rankings in a guest:
    /// `active` fails to register without real CPPC registers.
    fn amd_pstate(&mut self, spec: &Spec, written: &At<String>, filled: &str) {
        let Some(mode) = cmdline::value(filled, "amd_pstate") else {
            return;
        };
        if !added(spec, "").is_empty() && !["guided", "passive"].contains(&mode) {
            let place = self.word(written, "amd_pstate");
            let message =
                format!("`amd_pstate={mode}` leaves the kernel without rankings in a guest");
            let help = "write `amd_pstate=guided`, or leave the word out".to_string();
            self.problem(&place, message, help);
        }
    }

    fn isolation(&mut self, written: &At<String>, filled: &str, count: u32) {
        let isolation = match cmdline::isolation(filled, count) {
            Ok(isolation) => isolation,
            Err((word, error)) => {
                let name = word.split('=').next().unwrap_or(&word);
                let place = self.word(written, name);
                self.problem(&place, format!("`{word}`: {error}"), machine_has(count));
                return;
            }
        };
        for (name, cpus) in [
            ("isolcpus", &isolation.domain),
            ("nohz_full", &isolation.nohz),
        ] {
            if cpus.len() == count {
                let place = self.word(written, name);
                let message = format!("`{name}` takes all {count} CPUs");
                self.problem(
                    &place,
                    message,
                    "leave at least one for housekeeping".to_string(),
                );
            }
        }
        // housekeeping_setup() refuses the later of the two words.
        let flagged = cmdline::value(filled, "isolcpus").filter(|v| v.contains("nohz,"));
        if flagged.is_some() && cmdline::value(filled, "nohz_full").is_some() {
            let by_flag = cmdline::words(filled)
                .into_iter()
                .rfind(|word| word.starts_with("isolcpus="))
                .and_then(|word| cmdline::isolation(word, count).ok())
                .map(|it| it.nohz)
                .unwrap_or_default();
            if by_flag != isolation.nohz {
                let place = self.word(written, "nohz_full");
                let message = format!(
                    "`nohz_full` is {}, but `isolcpus=nohz,` is {by_flag}",
                    isolation.nohz
                );
                let help =
                    "the kernel ignores the second of them unless they are equal".to_string();
                self.problem(&place, message, help);
            }
        }
    }

    /// Words that would give the guest fewer CPUs or nodes than the file says.
    fn limits(&mut self, written: &At<String>, filled: &str, cpus: &CpuLayout) {
        let count = cpus.count();
        for name in ["nr_cpus", "maxcpus", "possible_cpus"] {
            let limit = cmdline::value(filled, name).and_then(|v| v.parse::<u32>().ok());
            if let Some(limit) = limit.filter(|limit| *limit < count) {
                let place = self.word(written, name);
                let message = format!("`{name}={limit}`, but the machine has {count} CPUs");
                let help = "leave the word out, and describe the smaller machine".to_string();
                self.problem(&place, message, help);
            }
        }
        for word in cmdline::words(filled) {
            let hides = match word {
                "numa=off" | "acpi=off" | "noacpi" => true,
                "nosmp" | "noapic" | "nolapic" => count > 1,
                "nosmt" | "nosmt=force" => cpus.threads > 1,
                _ => false,
            };
            if hides {
                let place = self.word(written, word);
                let message = format!("`{word}` hides the machine that the file describes");
                self.problem(&place, message, "leave it out".to_string());
            }
        }
    }

    /// Where a word stands in the value, which may go over several lines.
    fn word(&self, value: &At<String>, word: &str) -> At<()> {
        let first = value.line.max(1);
        let lines = self
            .document
            .text()
            .lines()
            .enumerate()
            .skip(first as usize - 1);
        for (index, line) in lines {
            let from = if index + 1 == first as usize {
                let before = line.chars().take(value.column.saturating_sub(1) as usize);
                before.map(char::len_utf8).sum()
            } else {
                0
            };
            if let Some(at) = line[from..].find(word) {
                let column = line[..from + at].chars().count() + 1;
                return At {
                    value: (),
                    line: u32::try_from(index + 1).unwrap_or(value.line),
                    column: u32::try_from(column).unwrap_or(value.column),
                };
            }
        }
        At {
            value: (),
            line: value.line,
            column: value.column,
        }
    }
}

/// Words that rankings need and the file does not give: the driver that reads
/// them, a governor that starts no threads of its own, and the scheduler's
/// domains in debugfs, where the proof looks for `SD_ASYM_PACKING`.
fn added(spec: &Spec, filled: &str) -> Vec<&'static str> {
    if spec.preferred_cores.is_none() && spec.hybrid.is_none() {
        return Vec::new();
    }
    let mut words = Vec::new();
    if cmdline::value(filled, "amd_pstate").is_none() {
        words.push("amd_pstate=guided");
    }
    if cmdline::value(filled, "cpufreq.default_governor").is_none() {
        words.push("cpufreq.default_governor=performance");
    }
    if !cmdline::words(filled).contains(&"sched_verbose") {
        words.push("sched_verbose");
    }
    words
}

/// Which sets there are, the nearest first.
fn known(name: &str, sets: &BTreeMap<String, CpuList>) -> String {
    let nearest = sets
        .keys()
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .min()
        .filter(|(distance, known)| *distance <= known.len().max(name.len()).div_ceil(3));
    match nearest {
        Some((_, known)) => format!("did you mean `{{{known}}}`?"),
        None if sets.is_empty() => format!("write `sets: {{{name}: 4-7}}`"),
        None => {
            let all: Vec<&str> = sets.keys().map(String::as_str).collect();
            format!("the sets are: {}", all.join(", "))
        }
    }
}
