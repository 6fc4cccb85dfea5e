//! How long the runs of a plan will take, from runs like them and from what
//! their workloads say.

use serde::Serialize;
use topolab_protocol::workload::Workload;

use super::Cell;
use crate::{stats::summary::median, store::record::RunRecord};

/// What an estimate rests on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// Earlier runs of the cell.
    Cell,
    /// Earlier runs of other cells with its workload.
    Workload,
    /// The time its workload was told to take, and a boot.
    Told,
}

/// Seconds that are taken for a boot and an end when nothing is known: a lean
/// kernel, emulated.
const BOOT: f64 = 4.0;

/// Seconds of one run of `cell`, start and end of the guest included. Nothing when
/// no run like it is among the earlier ones and its workload does not tell.
pub fn seconds(cell: &Cell, workload: &Workload, earlier: &[RunRecord]) -> Option<(f64, Basis)> {
    let like = |fits: &dyn Fn(&Cell) -> bool| {
        let runs = earlier
            .iter()
            .filter(|run| run.outcome.has_result() && fits(&run.cell));
        let walls: Vec<f64> = runs.map(|run| run.wall_ms as f64 / 1000.0).collect();
        median(&walls)
    };
    // Kernels change from night to night and hardly change how long runs take.
    let same = |other: &Cell| {
        let kernel = other.kernel.clone();
        let cell = Cell {
            kernel,
            ..cell.clone()
        };
        cell == *other
    };
    if let Some(wall) = like(&same) {
        return Some((wall, Basis::Cell));
    }
    if let Some(wall) = like(&|other| other.workload == cell.workload) {
        return Some((wall, Basis::Workload));
    }
    let work = match workload {
        Workload::NumaScan(scan) => scan.seconds,
        Workload::ItmtStall(stall) => stall.seconds,
        Workload::RtPushIpi(push) => f64::from(push.intervals) * push.interval_seconds,
        Workload::LruDrain(_) | Workload::Command(_) | Workload::Script(_) | Workload::Ktap(_) => {
            return None;
        }
    };
    Some((BOOT + work, Basis::Told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Outcome;
    use topolab_protocol::workload::{Command, NumaScan};

    fn cell(kernel: &str, settings: &str, workload: &str) -> Cell {
        Cell {
            kernel: kernel.into(),
            topology: "t".into(),
            cmdline: "default".into(),
            settings: settings.into(),
            workload: workload.into(),
        }
    }

    fn run(cell: Cell, seconds: u64, outcome: Outcome) -> RunRecord {
        RunRecord {
            format: crate::store::record::FORMAT,
            index: 0,
            cell,
            round: 0,
            attempt: 0,
            boot: String::new(),
            outcome,
            started: String::new(),
            wall_ms: seconds * 1000,
            hello_ms: None,
            phases: Vec::new(),
            samples: Vec::new(),
            settings: Vec::new(),
            environment: crate::store::record::Environment::default(),
            trust: crate::store::record::Trust::default(),
            notes: Vec::new(),
            console_tail: Vec::new(),
        }
    }

    #[test]
    fn the_nearest_runs_tell() {
        let scan = Workload::NumaScan(NumaScan {
            seconds: 8.0,
            ..NumaScan::default()
        });
        let boring = Workload::Command(Command::default());
        let hang = Outcome::GuestHang {
            phase: "measure".into(),
            reason: String::new(),
        };
        let earlier = [
            run(cell("a", "x", "scan"), 10, Outcome::Completed),
            run(cell("b", "x", "scan"), 12, Outcome::Completed),
            run(cell("b", "x", "scan"), 11, Outcome::Completed),
            run(cell("b", "y", "scan"), 30, Outcome::Completed),
            run(cell("b", "x", "scan"), 900, hang),
        ];
        let of = |settings: &str, workload: &str, kind: &Workload| {
            seconds(&cell("c", settings, workload), kind, &earlier)
        };
        assert_eq!(of("x", "scan", &scan), Some((11.0, Basis::Cell)));
        assert_eq!(of("z", "scan", &scan), Some((11.5, Basis::Workload)));
        assert_eq!(of("z", "other", &scan), Some((12.0, Basis::Told)));
        assert_eq!(of("z", "other", &boring), None);
    }
}
