//! What the host does at the turning points of a run: before the virtual CPUs
//! start, when the guest has said hello, and around the measured window.

use std::path::PathBuf;

use topolab_protocol::observed::Observed;

use super::pinning::Pinning;
use crate::{
    host::{Window, WindowEnd},
    outcome::Outcome,
    qemu::{process::Qemu, qmp::Qmp},
    store::record::Trust,
    topology::{Topology, needs, proof},
};

/// What the guest must turn out to be.
#[derive(Debug, Clone, Default)]
pub struct Expected {
    /// Build id of the kernel, when it is known.
    pub build_id: Option<String>,
    /// Release of the kernel, when it is known.
    pub release: Option<String>,
    /// The machine; nothing when only the kernel matters.
    pub topology: Option<Topology>,
    /// Every word that was put on the kernel's command line.
    pub words: Vec<String>,
}

impl Expected {
    /// Why this is not the kernel that was meant.
    fn wrong_identity(&self, observed: &Observed) -> Option<String> {
        let differs = |what: &str, asked: &Option<String>, seen: &str| {
            let asked = asked.as_deref().filter(|asked| *asked != seen)?;
            Some(format!(
                "the guest runs another kernel: {what} {seen}, asked was {asked}"
            ))
        };
        differs("build id", &self.build_id, &observed.build_id)
            .or_else(|| differs("release", &self.release, &observed.kernel_release))
    }
}

/// What is wrong with the lab: the part as in [`Outcome::LabFailed`] and why.
pub type LabFault = (&'static str, String);

/// The host at the side of one run.
#[derive(Debug)]
pub struct Attendant {
    /// Folder with `proc` and `sys`; `/` but for tests.
    pub root: PathBuf,
    /// What the guest must turn out to be.
    pub expected: Expected,
    /// Whether durations may be judged, as far as it is known.
    pub trust: Trust,
    pinning: Option<Pinning>,
    threads: Vec<u32>,
    window: Option<Window>,
}

/// A vCPU that waited for a host CPU for more than this share of the window was
/// disturbed.
const DELAY_SHARE: f64 = 0.02;
/// A host on which tasks waited for a CPU for more than this share of the
/// window was busy with other things.
const PRESSURE: f64 = 0.10;

impl Attendant {
    /// At the side of a run that has not begun.
    pub(super) fn new(
        root: PathBuf,
        expected: Expected,
        trust: Trust,
        pinning: Option<Pinning>,
    ) -> Self {
        Self {
            root,
            expected,
            trust,
            pinning,
            threads: Vec::new(),
            window: None,
        }
    }

    /// QEMU runs and its virtual CPUs stand still.
    ///
    /// # Errors
    /// What is wrong with the lab.
    pub async fn before_start(&mut self, qemu: &Qemu, qmp: &Qmp) -> Result<(), LabFault> {
        let threads = qmp.vcpu_threads().await;
        let threads = threads.map_err(|error| ("qemu", error.to_string()))?;
        self.threads = threads.iter().map(|thread| thread.thread_id).collect();
        if let Some(pinning) = &self.pinning {
            let bound = pinning.apply(&self.root, qemu.pid(), &threads);
            let bound = bound.map_err(|error| ("pin", error.to_string()))?;
            self.trust.pins = bound.into_iter().collect();
        }
        Ok(())
    }

    /// The guest said hello. Gives the outcome when it is not what was asked.
    pub fn check(&mut self, observed: &Observed) -> Option<Outcome> {
        if let Some(reason) = self.expected.wrong_identity(observed) {
            return Some(Outcome::LabFailed {
                part: "identity".into(),
                reason,
            });
        }
        let topology = self.expected.topology.as_ref()?;
        if let Some(reason) = needs::not_testable(topology, observed) {
            return Some(Outcome::NotTestable { reason });
        }
        let differences = proof::compare(topology, &self.expected.words, observed);
        (!differences.is_empty()).then(|| Outcome::WrongTopology {
            differences: differences.iter().map(ToString::to_string).collect(),
        })
    }

    /// The workload begins.
    pub fn begin(&mut self, qemu: &Qemu) {
        // Under `tcg,thread=single` all virtual CPUs share one thread.
        self.window = Some(Window::open(&self.root, qemu.pid(), self.threads.clone()));
    }

    /// The workload ended, well or not.
    pub fn end(&mut self) {
        if let Some(window) = self.window.take() {
            let end = window.close();
            self.judge_window(&end);
            self.trust.run_delay_ms = end.run_delay_ms.into_iter().flatten().collect();
            self.trust.cpu_pressure = end.cpu_pressure;
        }
    }

    /// Adds what the window says against judging durations.
    fn judge_window(&mut self, end: &WindowEnd) {
        let allowed = end.seconds * 1e3 * DELAY_SHARE;
        let mut reasons = Vec::new();
        // Without figures, so that many runs share a reason; `run_delay_ms` and
        // `cpu_pressure` keep the figures of each.
        let disturbed = end
            .run_delay_ms
            .iter()
            .flatten()
            .any(|delay| *delay > allowed);
        if disturbed {
            reasons.push(format!(
                "vCPUs waited for host CPUs for more than {:.0} % of the window",
                DELAY_SHARE * 100.0
            ));
        }
        if end.cpu_pressure.is_some_and(|pressure| pressure > PRESSURE) {
            reasons.push(format!(
                "the host was short of CPUs for more than {:.0} % of the window",
                PRESSURE * 100.0
            ));
        }
        self.trust.timing &= reasons.is_empty();
        self.trust.reasons.extend(reasons);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disturbed_window_is_not_trusted_and_says_why() {
        let trust = Trust {
            timing: true,
            ..Trust::default()
        };
        let mut attendant = Attendant::new("/".into(), Expected::default(), trust, None);
        let mut end = WindowEnd {
            seconds: 2.0,
            run_delay_ms: vec![Some(39.0), None],
            cpu_pressure: Some(0.05),
        };
        attendant.judge_window(&end);
        assert!(attendant.trust.timing);
        end.run_delay_ms[0] = Some(100.0);
        end.cpu_pressure = Some(0.5);
        attendant.judge_window(&end);
        assert!(!attendant.trust.timing);
        assert_eq!(
            attendant.trust.reasons,
            [
                "vCPUs waited for host CPUs for more than 2 % of the window",
                "the host was short of CPUs for more than 10 % of the window"
            ]
        );
    }

    #[test]
    fn another_kernel_is_named_with_both_identities() {
        let mut attendant = Attendant::new(
            "/".into(),
            Expected {
                build_id: Some("aa".into()),
                ..Expected::default()
            },
            Trust::default(),
            None,
        );
        let mut observed = Observed {
            build_id: "bb".into(),
            ..Observed::default()
        };
        assert_eq!(
            attendant.check(&observed).unwrap().detail(),
            "identity: the guest runs another kernel: build id bb, asked was aa"
        );
        observed.build_id = "aa".into();
        assert_eq!(attendant.check(&observed), None);
    }
}
