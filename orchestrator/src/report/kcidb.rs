//! KCIDB, version 5.3: a checkout per kernel source, a build per kernel and
//! variant, a test per run, per metric of a cell, and per gate.
//!
//! | outcome | status |
//! |---|---|
//! | completed | `DONE` |
//! | the kernel failed | `FAIL` |
//! | the guest is not the machine asked for | `ERROR` |
//! | the lab failed | `MISS` |
//! | not testable here | `SKIP` |

use serde_json::{Value, json};

use super::campaign::{Campaign, Class, class, outcome};
use crate::{
    compare::GateStatus,
    outcome::Outcome,
    plan::Cell,
    stats::verdict::Verdict,
    store::{KernelMeta, record::RunRecord},
};

/// Longest excerpt of a console that is sent along, characters.
const EXCERPT: usize = 16_384;

/// The report as one JSON document. `origin` is the name the sender has with
/// KCIDB: lower-case letters, digits and `_`.
pub fn document(campaign: &Campaign<'_>, origin: &str) -> Value {
    let sender = Sender { origin, campaign };
    let kernels = &campaign.meta.kernels;
    let mut sources: Vec<&str> = kernels
        .iter()
        .map(|kernel| source_of(&kernel.name))
        .collect();
    sources.sort_unstable();
    sources.dedup();
    let checkouts: Vec<Value> = sources
        .iter()
        .map(|source| {
            json!({
                "id": sender.id(source),
                "origin": origin,
                "tree_name": source,
                "comment": text(&campaign.meta.experiment.about),
                "start_time": campaign.meta.started,
                "valid": true,
            })
        })
        .collect();
    let builds: Vec<Value> = kernels.iter().map(|kernel| sender.build(kernel)).collect();
    let mut tests: Vec<Value> = campaign.runs().map(|run| sender.run(run)).collect();
    tests.extend(sender.metrics());
    tests.extend(sender.gates());
    json!({
        "version": {"major": 5, "minor": 3},
        "checkouts": checkouts,
        "builds": builds,
        "tests": tests,
    })
}

struct Sender<'a> {
    origin: &'a str,
    campaign: &'a Campaign<'a>,
}

impl Sender<'_> {
    fn id(&self, rest: &str) -> String {
        format!(
            "{}:{}/{}",
            self.origin,
            text(self.campaign.folder),
            text(rest)
        )
    }

    fn build(&self, kernel: &KernelMeta) -> Value {
        json!({
            "id": self.id(&kernel.name),
            "checkout_id": self.id(source_of(&kernel.name)),
            "origin": self.origin,
            "architecture": "x86_64",
            "comment": text(kernel.unavailable.as_deref().unwrap_or(&kernel.name)),
            "duration": kernel.seconds,
            "status": if kernel.unavailable.is_some() { "FAIL" } else { "PASS" },
            "misc": {
                "image_sha256": kernel.image,
                "build_id": kernel.build_id,
                "release": kernel.release,
                "config_sha256": kernel.config,
                "objects_compiled": kernel.recompiled,
                "equal_to": kernel.equal_to,
            },
        })
    }

    fn run(&self, run: &RunRecord) -> Value {
        let status = match (class(&run.outcome), &run.outcome) {
            (Class::Pass, _) => "DONE",
            (Class::Fail, _) => "FAIL",
            (Class::Skip, _) => "SKIP",
            (Class::Error, Outcome::LabFailed { .. }) => "MISS",
            (Class::Error, _) => "ERROR",
        };
        let mut test = self.test(&run.cell, &[], &format!("run/{}", run.index), status);
        test["comment"] = text(&outcome(&run.outcome)).into();
        test["start_time"] = run.started.clone().into();
        test["duration"] = (run.wall_ms as f64 / 1000.0).into();
        test["environment"] = json!({
            "comment": text(&format!("{} on {}, {}", run.cell.topology, run.environment.host, run.environment.accel)),
            "misc": {
                "topology": run.cell.topology,
                "cmdline": run.environment.cmdline,
                "settings": run.cell.settings,
                "qemu": run.environment.qemu,
                "host_kernel": run.environment.host_kernel,
                "timing_trusted": run.trust.timing,
            },
        });
        if !run.console_tail.is_empty() {
            let lines = run.console_tail.join("\n");
            let skip = lines.chars().count().saturating_sub(EXCERPT);
            test["log_excerpt"] = text(&lines.chars().skip(skip).collect::<String>()).into();
        }
        test
    }

    fn metrics(&self) -> Vec<Value> {
        let mut tests = Vec::new();
        for table in &self.campaign.comparison.tables {
            for row in &table.rows {
                let Some(summary) = &row.new.summary else {
                    continue;
                };
                let id = format!("metric/{}/{}", table.metric, row.cell.slug());
                let mut test = self.test(&row.cell, &[&table.metric], &id, "DONE");
                test["number"] = json!({"value": summary.mean, "unit": text(&table.unit)});
                test["misc"] = json!({
                    "runs": summary.n,
                    "cov": summary.cov,
                    "median": summary.median,
                    "baseline": row.base_cell.as_ref().map(|cell| &cell.kernel),
                    "baseline_mean": row.base.as_ref().and_then(|base| base.summary).map(|s| s.mean),
                    "change": row.change,
                    "verdict": row.verdict.as_ref().filter(|v| !matches!(v, Verdict::Invalid { .. })),
                });
                tests.push(test);
            }
        }
        tests
    }

    fn gates(&self) -> Vec<Value> {
        let gates = self.campaign.comparison.gates.iter().enumerate();
        gates
            .filter_map(|(number, gate)| {
                let cell = gate.cell.as_ref()?;
                let status = match gate.status {
                    GateStatus::Pass => "PASS",
                    GateStatus::Fail => "FAIL",
                    GateStatus::Refused => "ERROR",
                    GateStatus::Undecided => "SKIP",
                };
                let path = [gate.metric.as_str(), "gate"];
                let mut test = self.test(cell, &path, &format!("gate/{number}"), status);
                test["comment"] = text(&format!("{}: {}", gate.rule, gate.reason)).into();
                Some(test)
            })
            .collect()
    }

    fn test(&self, cell: &Cell, more: &[&str], id: &str, status: &str) -> Value {
        let name = &self.campaign.meta.experiment.name.value;
        let mut path = vec![
            "topolab",
            name,
            &cell.topology,
            &cell.settings,
            &cell.workload,
        ];
        path.extend(more);
        let path: Vec<String> = path.into_iter().map(node).collect();
        json!({
            "id": self.id(id),
            "build_id": self.id(&cell.kernel),
            "origin": self.origin,
            "path": path.join("."),
            "status": status,
        })
    }
}

/// The kernel's name without series and variant.
fn source_of(kernel: &str) -> &str {
    kernel.split(['+', '@']).next().unwrap_or(kernel)
}

/// A node of a path: letters, digits, `_` and `-`, at least one.
fn node(name: &str) -> String {
    let name: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "_-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect();
    if name.is_empty() { "_".into() } else { name }
}

/// Text without NUL.
fn text(text: &str) -> String {
    text.replace('\0', "")
}
