//! What the host does at the turning points of a run: before the virtual CPUs
//! start, when the guest has said hello, and around the measured window.

use std::path::PathBuf;

use topolab_protocol::observed::Observed;

use crate::{
    host::Window,
    outcome::Outcome,
    qemu::{process::Qemu, qmp::Qmp},
    store::record::Trust,
    topology::{Topology, proof},
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
    threads: Vec<u32>,
    window: Option<Window>,
}

impl Attendant {
    /// At the side of a run that has not begun.
    pub fn new(root: PathBuf, expected: Expected, trust: Trust) -> Self {
        Self {
            root,
            expected,
            trust,
            threads: Vec::new(),
            window: None,
        }
    }

    /// QEMU runs and its virtual CPUs stand still.
    ///
    /// # Errors
    /// What is wrong with the lab.
    pub async fn before_start(&mut self, _qemu: &Qemu, qmp: &Qmp) -> Result<(), LabFault> {
        let threads = qmp.vcpu_threads().await;
        let threads = threads.map_err(|error| ("qemu", error.to_string()))?;
        self.threads = threads.iter().map(|thread| thread.thread_id).collect();
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
            self.trust.run_delay_ms = end.run_delay_ms.into_iter().flatten().collect();
            self.trust.cpu_pressure = end.cpu_pressure;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_kernel_is_named_with_both_identities() {
        let mut attendant = Attendant::new(
            "/".into(),
            Expected {
                build_id: Some("aa".into()),
                ..Expected::default()
            },
            Trust::default(),
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
