//! JUnit XML: one test suite per kernel with a case per cell, and one for the gates.
//!
//! | cell | JUnit |
//! |---|---|
//! | every run completed | passed |
//! | the kernel failed in some run | failure |
//! | the lab failed, or the guest was not the machine asked for | error |
//! | not testable here, or never run | skipped |
//!
//! Gates: fail → failure, refused → error, undecided → skipped.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::campaign::{Campaign, CellRuns, Class, outcome};
use crate::compare::{GateResult, GateStatus};

/// Writes the report.
///
/// # Errors
/// None in practice: the writer is memory.
pub fn render(campaign: &Campaign<'_>) -> Result<String, SerializeError> {
    let mut report = Report::new(campaign.meta.experiment.name.value.clone());
    let mut kernels: Vec<&str> = Vec::new();
    for cell in &campaign.cells {
        if !kernels.contains(&cell.cell.kernel.as_str()) {
            kernels.push(&cell.cell.kernel);
        }
    }
    for kernel in kernels {
        let mut suite = TestSuite::new(kernel);
        suite.add_property(("results", campaign.folder));
        suite.add_property(("seed", campaign.meta.seed.to_string().as_str()));
        for cell in campaign
            .cells
            .iter()
            .filter(|cell| cell.cell.kernel == kernel)
        {
            suite.add_test_case(case(campaign, cell));
        }
        report.add_test_suite(suite);
    }
    if !campaign.comparison.gates.is_empty() {
        let mut suite = TestSuite::new("gates");
        for gate in &campaign.comparison.gates {
            suite.add_test_case(gate_case(campaign, gate));
        }
        report.add_test_suite(suite);
    }
    report.to_string()
}

fn status(class: Class, message: &str) -> TestCaseStatus {
    let mut status = match class {
        Class::Pass => TestCaseStatus::success(),
        Class::Skip => TestCaseStatus::skipped(),
        Class::Error => TestCaseStatus::non_success(NonSuccessKind::Error),
        Class::Fail => TestCaseStatus::non_success(NonSuccessKind::Failure),
    };
    status.set_message(message);
    status
}

fn case(campaign: &Campaign<'_>, cell: &CellRuns<'_>) -> TestCase {
    let worst = cell.worst();
    let message = match worst {
        Some(run) => format!(
            "{} (run {}): {}",
            outcome(&run.outcome),
            run.index,
            cell.tally()
        ),
        None => cell.tally(),
    };
    let mut status = status(cell.class(), &message);
    if let Some(run) = worst {
        status.set_type(run.outcome.class());
    }
    let at = cell.cell;
    let name = format!(
        "{} · {} · {} · {}",
        at.topology, at.cmdline, at.settings, at.workload
    );
    let mut case = TestCase::new(name, status);
    case.set_classname(format!(
        "{}.{}",
        campaign.meta.experiment.name.value, at.kernel
    ));
    let wall: u64 = cell.runs.iter().map(|run| run.wall_ms).sum();
    case.set_time(Duration::from_millis(wall));
    let consoles: Vec<String> = cell
        .runs
        .iter()
        .filter(|run| !run.console_tail.is_empty())
        .map(|run| {
            format!(
                "run {}: {}\n{}",
                run.index,
                outcome(&run.outcome),
                run.console_tail.join("\n")
            )
        })
        .collect();
    if !consoles.is_empty() {
        case.set_system_out(consoles.join("\n\n"));
    }
    case
}

fn gate_case(campaign: &Campaign<'_>, gate: &GateResult) -> TestCase {
    let class = match gate.status {
        GateStatus::Pass => Class::Pass,
        GateStatus::Undecided => Class::Skip,
        GateStatus::Refused => Class::Error,
        GateStatus::Fail => Class::Fail,
    };
    let cell = gate
        .cell
        .as_ref()
        .map_or("no cell".into(), ToString::to_string);
    let mut case = TestCase::new(
        format!("{} {} · {cell}", gate.metric, gate.rule),
        status(class, &gate.reason),
    );
    case.set_classname(format!("{}.gates", campaign.meta.experiment.name.value));
    case
}
