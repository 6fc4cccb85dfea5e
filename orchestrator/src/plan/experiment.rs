//! Experiment files: what the user wrote, then what was checked.

use std::path::Path;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use topolab_protocol::{
    settings::Settings,
    workload::{Monitors, Workload},
};

use super::Cell;
use crate::{
    document::{At, Document, Problems},
    stats::judge::CompareSpec,
    topology::{PinPolicy, spec::Pin},
};

/// An experiment as it is written: names of kernels × topologies × command
/// lines × settings × workloads, how often, and what to compare.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ExperimentSpec {
    /// Name; also the first part of the results folder's name.
    pub name: At<String>,
    /// What it shows, from where, what was scaled down and why that is fair.
    #[serde(default)]
    pub about: String,
    /// Kernels: `KERNEL[+SERIES]@VARIANT`; `each` and `prefixes` stand for several variants.
    pub kernels: Vec<At<String>>,
    /// Topologies by name or path.
    pub topologies: Vec<At<String>>,
    /// Words added to the topology's own command line, by name.
    #[serde(default = "default_cmdlines")]
    pub cmdlines: IndexMap<String, At<String>>,
    /// What is written in the guest before the workload, by name.
    #[serde(default = "default_settings")]
    pub settings: IndexMap<String, Settings>,
    /// What runs, by name.
    pub workloads: IndexMap<String, Workload>,
    /// What is watched around every workload.
    #[serde(default)]
    pub monitors: Monitors,
    /// Runs of every cell.
    #[serde(default = "default_rounds")]
    pub rounds: At<u32>,
    /// Rounds before those, kept but not judged.
    #[serde(default)]
    pub warmup: u32,
    /// Seed of the order; absent: from the clock, and printed.
    #[serde(default)]
    pub seed: Option<u64>,
    /// A guest of its own for each run, or guests restored from a saved one.
    #[serde(default)]
    pub boot: Boot,
    /// With `boot: warm`: how many guests are booted and saved for each kernel, topology
    /// and command line. Rounds take turns with them; cells that differ only in settings
    /// or workload share them.
    #[serde(default = "default_boots")]
    pub boots: u32,
    /// Only cells that match one of these rules (axis to pattern; `*` and `?`).
    #[serde(default)]
    pub include: Vec<IndexMap<String, At<String>>>,
    /// No cell that matches one of these rules.
    #[serde(default)]
    pub exclude: Vec<IndexMap<String, At<String>>>,
    /// Clocks and retries.
    #[serde(default)]
    pub limits: Limits,
    /// How the guests run.
    #[serde(default)]
    pub bench: BenchSpec,
    /// Programs and files that go into the guest.
    #[serde(default)]
    pub image: ImageSpec,
    /// Complaints of the kernel that are known and do not spoil a run, as parts of their titles.
    #[serde(default)]
    pub allowed_splats: Vec<String>,
    /// What is compared with what.
    #[serde(default)]
    pub compare: CompareSpec,
}

/// Whether runs share a boot.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Boot {
    /// Every run boots a guest.
    #[default]
    Fresh,
    /// Runs are restored from guests saved after hello and proof.
    Warm,
}

/// Clocks of a run, seconds, and how failures of the lab are met.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct Limits {
    /// Start of QEMU to the agent's hello; emulation multiplies it by 4.
    pub boot: f64,
    /// Longest silence of the agent.
    pub no_progress: f64,
    /// Longest single phase of the workload.
    pub phase: f64,
    /// The whole run.
    pub total: f64,
    /// Tries of a run whose lab failed.
    pub tries: u32,
    /// A cell that failed this often in a row is not tried again.
    pub give_up_after: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            boot: 30.0,
            no_progress: 60.0,
            phase: 600.0,
            total: 900.0,
            tries: 3,
            give_up_after: 3,
        }
    }
}

/// How the guests run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct BenchSpec {
    /// `auto`, `kvm` or `tcg`; the command line's `--accel` goes before it.
    pub accel: Option<Accel>,
    /// `single` or `multi`: threads of the emulator; `single` where settings
    /// patch kernel text at run time.
    pub tcg_thread: Option<Thread>,
    /// `refuse` or `allow` more vCPUs than host CPUs. Left out: refused under KVM,
    /// where durations are judged; allowed, and marked, where guests are emulated.
    pub overcommit: Option<Overcommit>,
    /// Where vCPUs run on the host, in place of what the topologies say: `auto`,
    /// `paired`, `none`, or a map like `{0-3: 2-5}`; `--pin` goes before it.
    pub pin: Option<At<Pin>>,
}

impl BenchSpec {
    /// Where vCPUs run, if this says so. A checked experiment has no other kind.
    pub fn pin_policy(&self) -> Option<PinPolicy> {
        PinPolicy::try_from(&self.pin.as_ref()?.value).ok()
    }

    /// What to do with more vCPUs than host CPUs. Unless the file says so, a crowd
    /// is refused where its durations would be judged.
    pub fn crowds(&self, accel: crate::qemu::args::Accel) -> crate::run::Overcommit {
        use crate::qemu::args::Accel;
        match (self.overcommit, accel) {
            (Some(wish), _) => wish.into(),
            (None, Accel::Kvm) => crate::run::Overcommit::Refuse,
            (None, Accel::Tcg { .. }) => crate::run::Overcommit::Allow,
        }
    }
}

/// What to do when there are more vCPUs than host CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Overcommit {
    /// Run; durations are marked and not judged.
    Allow,
    /// Do not run.
    Refuse,
}

impl From<Overcommit> for crate::run::Overcommit {
    fn from(wish: Overcommit) -> Self {
        match wish {
            Overcommit::Allow => Self::Allow,
            Overcommit::Refuse => Self::Refuse,
        }
    }
}

/// What runs the guests' processors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Accel {
    /// KVM where it works, else emulation.
    Auto,
    /// KVM or nothing.
    Kvm,
    /// Emulation.
    Tcg,
}

impl From<Accel> for crate::qemu::accel::Wish {
    fn from(accel: Accel) -> Self {
        match accel {
            Accel::Auto => Self::Auto,
            Accel::Kvm => Self::Kvm,
            Accel::Tcg => Self::Tcg,
        }
    }
}

/// Threads of the emulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Thread {
    /// All vCPUs take turns in one thread.
    Single,
    /// A thread per vCPU.
    Multi,
}

impl From<Thread> for crate::qemu::args::TcgThread {
    fn from(thread: Thread) -> Self {
        match thread {
            Thread::Single => Self::Single,
            Thread::Multi => Self::Multi,
        }
    }
}

/// Programs and files that go into the guest's initramfs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(deny_unknown_fields)]
pub struct ImageSpec {
    /// Programs of the host, by name or path; their shared libraries come along.
    pub binaries: Vec<String>,
    /// Files: path in the guest to path on the host.
    pub files: IndexMap<String, String>,
    /// Modules to bring along with what they need: names of the kernel's, or of
    /// folders in `kernels/modules/`, or paths of such folders, which are built for each
    /// kernel. Those that `settings` load come along by themselves.
    pub modules: Vec<At<String>>,
}

fn default_cmdlines() -> IndexMap<String, At<String>> {
    IndexMap::from([("default".to_string(), At::nowhere(String::new()))])
}

fn default_settings() -> IndexMap<String, Settings> {
    IndexMap::from([("default".to_string(), Settings::default())])
}

fn default_rounds() -> At<u32> {
    At::nowhere(5)
}

/// The fewest with which the test of "nothing changed" leaves room for correction
/// over several comparisons: 2 of 252 deals of 5 boots against 5 are as extreme.
fn default_boots() -> u32 {
    5
}

impl Limits {
    /// The clocks of one run.
    pub fn clocks(&self) -> crate::run::Limits {
        let seconds = |s: f64| std::time::Duration::try_from_secs_f64(s).unwrap_or_default();
        crate::run::Limits {
            boot: seconds(self.boot),
            no_progress: seconds(self.no_progress),
            phase: seconds(self.phase),
            total: seconds(self.total),
        }
    }
}

impl ExperimentSpec {
    /// Reads and checks an experiment file, without looking at other files.
    ///
    /// # Errors
    /// Every problem of the file.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        Self::from_document(&Document::read(path)?)
    }

    /// Reads and checks an experiment.
    ///
    /// # Errors
    /// Every problem of the document.
    pub fn from_document(document: &Document) -> Result<Self, Problems> {
        let parsed = document.parse::<Self>()?;
        let mut problems = parsed.problems;
        parsed.value.check(&mut problems);
        problems.into_result(parsed.value)
    }

    fn check(&self, problems: &mut Problems) {
        let name_is_plain = !self.name.is_empty()
            && self
                .name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        if !name_is_plain {
            problems.at(
                &self.name,
                format!("the name `{}` cannot be a folder's", self.name.value),
                Some("use letters, digits, `-`, `_` and `.`".into()),
            );
        }
        if self.rounds.value == 0 {
            problems.at(
                &self.rounds,
                "0 rounds would measure nothing",
                Some("rounds: 5".into()),
            );
        }
        for (what, list) in [("kernels", &self.kernels), ("topologies", &self.topologies)] {
            if list.is_empty() {
                problems.at(
                    &self.name,
                    format!("`{what}` is empty: there is no cell to run"),
                    None,
                );
            }
            for (index, item) in list.iter().enumerate() {
                if list[..index].iter().any(|other| other.value == item.value) {
                    problems.at(
                        item,
                        format!("`{}` stands twice in `{what}`", item.value),
                        None,
                    );
                }
            }
        }
        if self.workloads.is_empty() || self.settings.is_empty() || self.cmdlines.is_empty() {
            problems.at(
                &self.name,
                "`workloads`, `settings` and `cmdlines` each need an entry when they are written",
                None,
            );
        }
        for rule in self.include.iter().chain(&self.exclude) {
            for (axis, pattern) in rule {
                if !Cell::AXES.contains(&axis.as_str()) {
                    problems.at(
                        pattern,
                        format!("`{axis}` is no axis"),
                        Some(format!("axes: {}", Cell::AXES.join(", "))),
                    );
                }
            }
        }
        if let Some(pin) = &self.bench.pin
            && let Err(error) = PinPolicy::try_from(&pin.value)
        {
            let help = "write `auto`, `paired`, `none`, or a map like `{0-3: 2-5}`";
            problems.at(pin, error.to_string(), Some(help.into()));
        }
        self.compare.check(problems);
    }

    /// Every cell, in the order of the file, `kernels` being the expanded list.
    pub fn cells(&self, kernels: &[String]) -> Vec<Cell> {
        let mut cells = Vec::new();
        for topology in &self.topologies {
            for cmdline in self.cmdlines.keys() {
                for settings in self.settings.keys() {
                    for workload in self.workloads.keys() {
                        for kernel in kernels {
                            let cell = Cell {
                                kernel: kernel.clone(),
                                topology: short_name(topology),
                                cmdline: cmdline.clone(),
                                settings: settings.clone(),
                                workload: workload.clone(),
                            };
                            if self.wants(&cell) {
                                cells.push(cell);
                            }
                        }
                    }
                }
            }
        }
        cells
    }

    fn wants(&self, cell: &Cell) -> bool {
        let matches = |rule: &IndexMap<String, At<String>>| {
            rule.iter()
                .all(|(axis, pattern)| cell.axis(axis).is_some_and(|value| glob(pattern, value)))
        };
        (self.include.is_empty() || self.include.iter().any(matches))
            && !self.exclude.iter().any(matches)
    }
}

/// The name of a topology written as a name or a path.
pub fn short_name(topology: &str) -> String {
    Path::new(topology)
        .file_name()
        .and_then(|name| name.to_str())
        .map_or(topology, |name| name.strip_suffix(".yaml").unwrap_or(name))
        .to_string()
}

/// Whether `text` fits `pattern`, in which `*` stands for anything and `?` for
/// one character.
pub fn glob(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    let mut star = None;
    while t < text.len() {
        if p < pattern.len() && (pattern[p] == '?' || pattern[p] == text[t]) && pattern[p] != '*' {
            p += 1;
            t += 1;
        } else if p < pattern.len() && pattern[p] == '*' {
            star = Some((p, t));
            p += 1;
        } else if let Some((at, matched)) = star {
            star = Some((at, matched + 1));
            p = at + 1;
            t = matched + 1;
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        qemu::args::{Accel as Runs, TcgThread},
        run,
    };

    fn with_bench(bench: &str) -> Result<ExperimentSpec, String> {
        let text = format!(
            "name: e\nkernels: [k]\ntopologies: [t]\nworkloads: {{w: {{command: {{argv: [\"true\"]}}}}}}\nbench: {bench}\n"
        );
        let document = Document::from_text("e.yaml", &text).map_err(|p| p.to_string())?;
        ExperimentSpec::from_document(&document).map_err(|p| p.to_string())
    }

    #[test]
    fn a_crowd_is_refused_where_durations_are_judged_unless_the_file_allows_it() {
        let emulated = Runs::Tcg {
            thread: TcgThread::Single,
        };
        let silent = with_bench("{}").unwrap().bench;
        assert_eq!(silent.crowds(Runs::Kvm), run::Overcommit::Refuse);
        assert_eq!(silent.crowds(emulated), run::Overcommit::Allow);
        let allows = with_bench("{overcommit: allow}").unwrap().bench;
        assert_eq!(allows.crowds(Runs::Kvm), run::Overcommit::Allow);
        let refuses = with_bench("{overcommit: refuse}").unwrap().bench;
        assert_eq!(refuses.crowds(emulated), run::Overcommit::Refuse);
        let error = with_bench("{overcommit: maybe}").unwrap_err();
        assert!(error.contains("maybe"), "{error}");
    }

    #[test]
    fn pins_of_an_experiment_are_read_or_refused() {
        let rule = with_bench("{pin: paired}").unwrap().bench;
        assert_eq!(rule.pin_policy(), Some(PinPolicy::Paired));
        let map = with_bench("{pin: {0-1: 2-3}}").unwrap().bench;
        assert_eq!(map.pin_policy(), Some("0-1=2-3".parse().unwrap()));
        assert_eq!(with_bench("{}").unwrap().bench.pin_policy(), None);
        let error = with_bench("{pin: {0-1: 2, 1: 3}}").unwrap_err();
        assert!(error.contains("vCPUs 1 are pinned twice"), "{error}");
    }
}
