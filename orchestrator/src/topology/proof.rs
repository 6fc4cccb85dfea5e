//! Holds what the guest reports against what was asked.
//!
//! A guest that does not see the asked machine measures something else, so
//! each difference is named and the run has no result.

mod groups;
mod nodes;

use std::fmt;

use serde::Serialize;
use topolab_protocol::observed::Observed;

use super::{CpuList, Level, Topology, cmdline};

pub use nodes::{TOLERANCE_PRESENT, TOLERANCE_TOTAL};

/// One thing that was asked, and what the guest sees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Row {
    /// What is compared, such as `node 1 cpus`.
    pub field: String,
    /// What was asked.
    pub asked: String,
    /// What the guest sees.
    pub seen: String,
    /// Whether they are the same.
    pub same: bool,
}

/// Something that was asked and is not there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// What is compared, such as `node 1 cpus`.
    pub field: String,
    /// What was asked.
    pub asked: String,
    /// What the guest sees.
    pub seen: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, asked, seen } = self;
        write!(f, "{field}: asked {asked}, seen {seen}")
    }
}

/// What the guest does not see as asked. `words` are those that were put on
/// the kernel's command line, the topology's included.
pub fn compare<S: AsRef<str>>(
    topology: &Topology,
    words: &[S],
    observed: &Observed,
) -> Vec<Difference> {
    rows(topology, words, observed)
        .into_iter()
        .filter(|row| !row.same)
        .map(|row| Difference {
            field: row.field,
            asked: row.asked,
            seen: row.seen,
        })
        .collect()
}

/// Everything that is compared, in the order of a report.
pub fn rows<S: AsRef<str>>(topology: &Topology, words: &[S], observed: &Observed) -> Vec<Row> {
    let mut proof = Proof {
        topology,
        observed,
        rows: Vec::new(),
    };
    proof.cpus();
    proof.groups();
    proof.nodes();
    proof.rankings();
    proof.words(words);
    proof.complaints();
    proof.rows
}

struct Proof<'a> {
    topology: &'a Topology,
    observed: &'a Observed,
    rows: Vec<Row>,
}

impl Proof<'_> {
    /// Adds a row whose two sides are compared as texts.
    fn texts(
        &mut self,
        field: impl Into<String>,
        asked: impl Into<String>,
        seen: impl Into<String>,
    ) {
        let (asked, seen) = (asked.into(), seen.into());
        let same = asked == seen;
        self.row(field, asked, seen, same);
    }

    /// Adds a row.
    fn row(
        &mut self,
        field: impl Into<String>,
        asked: impl Into<String>,
        seen: impl Into<String>,
        same: bool,
    ) {
        let or_none = |text: String| {
            if text.is_empty() {
                "none".to_string()
            } else {
                text
            }
        };
        self.rows.push(Row {
            field: field.into(),
            asked: or_none(asked.into()),
            seen: or_none(seen.into()),
            same,
        });
    }

    fn cpus(&mut self) {
        let all = CpuList::all(self.topology.vcpus()).to_string();
        let online = self.observed.online.clone();
        self.texts("cpus online", all.clone(), online);
        let possible = self.observed.possible.clone();
        self.texts("cpus possible", all, possible);
    }

    fn rankings(&mut self) {
        let Some(rankings) = &self.topology.preferred_cores else {
            return;
        };
        let seen: Vec<Option<u32>> = self.observed.cpus.iter().map(|c| c.ranking).collect();
        let wrong = rankings
            .iter()
            .enumerate()
            .find(|(vcpu, ranking)| seen.get(*vcpu).copied().flatten() != Some(**ranking));
        match wrong {
            None => {
                let text = groups::runs(rankings);
                self.texts("rankings", text.clone(), text);
            }
            Some(_) => {
                for (vcpu, ranking) in rankings.iter().enumerate() {
                    let seen = seen.get(vcpu).copied().flatten();
                    if seen != Some(*ranking) {
                        let seen = seen.map_or("none".to_string(), |r| r.to_string());
                        self.texts(format!("ranking of cpu {vcpu}"), ranking.to_string(), seen);
                    }
                }
            }
        }
        let switch = |on: Option<bool>| match on {
            Some(true) => "on",
            Some(false) => "off",
            None => "absent",
        };
        let itmt = switch(self.observed.itmt_enabled);
        self.texts("ITMT", "on", itmt);
        let packing = self.observed.domains.values().any(|flags| {
            flags
                .split_whitespace()
                .any(|flag| flag == "SD_ASYM_PACKING")
        });
        let seen = match (packing, self.observed.domains.is_empty()) {
            (true, _) => "SD_ASYM_PACKING".to_string(),
            (false, true) => "no domains in debugfs".to_string(),
            (false, false) => {
                let names: Vec<&str> = self.observed.domains.keys().map(String::as_str).collect();
                format!("not in {}", names.join(", "))
            }
        };
        self.texts("scheduling domains", "SD_ASYM_PACKING", seen);
    }

    fn words<S: AsRef<str>>(&mut self, words: &[S]) {
        let seen = cmdline::words(&self.observed.cmdline);
        let lost: Vec<&str> = words
            .iter()
            .map(AsRef::as_ref)
            .filter(|word| !seen.contains(word))
            .collect();
        if lost.is_empty() {
            let text = format!("{} words", words.len());
            self.texts("command line", text.clone(), text);
        }
        for word in lost {
            self.texts("command line", word, "absent");
        }
        let asked: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
        let Ok(isolation) = cmdline::isolation(&asked.join(" "), self.topology.vcpus()) else {
            // Words from outside the topology's file; the kernel's own complaint tells.
            return;
        };
        let isolated = self.observed.isolated.clone().unwrap_or_default();
        self.texts("isolated", isolation.domain.to_string(), isolated);
        // A kernel without NO_HZ_FULL has no such file, and nobody without a tick.
        let nohz_full = self.observed.nohz_full.clone().unwrap_or_default();
        self.texts("nohz_full", isolation.nohz.to_string(), nohz_full);
    }

    fn complaints(&mut self) {
        let mut complaints = self.observed.complaints.clone();
        // topology_sane() in arch/x86/kernel/smpboot.c says so; a file that means it knows.
        if !self.topology.deliberate.is_empty() {
            complaints.retain(|text| !text.contains("is not on the same node!"));
        }
        if complaints.is_empty() {
            self.texts("kernel complaints", "none", "none");
        }
        for complaint in complaints {
            self.row("kernel complaints", "none", complaint, false);
        }
    }

    /// Groups of vCPUs of a level, as asked.
    fn asked_groups(&self, level: Level) -> Vec<CpuList> {
        self.topology.cpus.groups(level)
    }
}

#[cfg(test)]
mod tests;
