//! From what was seen to the outcome of a run. Pure.

use super::{
    clocks::Clock,
    splat::{Splat, SplatKind},
};
use crate::{
    outcome::Outcome,
    qemu::{process::QemuExit, qmp::End},
};

/// Why the loop of a run stopped.
#[derive(Debug, Clone, PartialEq)]
pub enum Why {
    /// The conversation came to an end.
    Said(Outcome),
    /// The guest is what was asked, and is to be saved.
    Proved,
    /// A clock ran out.
    Clock {
        /// Which.
        clock: Clock,
        /// The phase it ran out in.
        phase: String,
        /// What to tell.
        text: String,
    },
    /// The guest panicked.
    Panicked,
    /// QEMU ended by itself.
    Ended,
    /// The agent closed its port although the guest runs.
    Deaf,
    /// A part of the lab failed.
    Lab {
        /// Which, as in [`Outcome::LabFailed`].
        part: &'static str,
        /// Why.
        reason: String,
    },
    /// The user wants to stop.
    Cancelled,
}

/// All that was seen of one run.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// Why the loop stopped.
    pub why: Why,
    /// The agent said hello and was welcomed.
    pub greeted: bool,
    /// The guest was emulated.
    pub emulated: bool,
    /// What the kernel said about itself.
    pub splats: &'a [Splat],
    /// Titles of complaints that are known and allowed (substrings).
    pub allowed: &'a [String],
    /// Whether the guest told QEMU of a panic.
    pub panicked: bool,
    /// Who ended the guest, as QEMU told it.
    pub end: Option<End>,
    /// How QEMU ended before it was asked to.
    pub exit: Option<QemuExit>,
    /// What QEMU wrote.
    pub stderr: &'a str,
}

/// The outcome of a run.
///
/// What the lab did wrong comes first, because nothing after it can be
/// believed; then the guest's own end; then what was said.
pub fn judge(facts: &Facts<'_>) -> Outcome {
    if facts.why == Why::Cancelled {
        return lab("interrupted", "stopped by the user");
    }
    if let Why::Lab { part, reason } = &facts.why {
        return lab(part, reason);
    }
    if let Some(splat) = emulator_fault(facts) {
        return lab(
            "emulator",
            &format!(
                "the emulator broke a healthy kernel ({}); `tcg,thread=single` does not",
                splat.title
            ),
        );
    }
    let panic = facts.splats.iter().find(|s| s.kind == SplatKind::Panic);
    if panic.is_some() || facts.panicked || facts.end == Some(End::Panic) {
        // What led to the panic names the bug better than the panic itself.
        let cause = facts.splats.iter().find(|s| {
            matches!(
                s.kind,
                SplatKind::Oops | SplatKind::Hang | SplatKind::Warning
            )
        });
        let title = match (cause, panic) {
            (Some(splat), _) if splat.kind == SplatKind::Oops => splat.title.clone(),
            (_, Some(splat)) => splat.title.clone(),
            (Some(splat), None) => splat.title.clone(),
            (None, None) => "panic without a console message".into(),
        };
        return if facts.greeted {
            Outcome::GuestPanic { title }
        } else {
            Outcome::BootFailed {
                reason: format!("panic: {title}"),
            }
        };
    }
    match &facts.why {
        Why::Said(outcome) => said(outcome, facts),
        Why::Proved => said(&Outcome::Completed, facts),
        Why::Clock { phase, text, .. } => timed_out(phase, text, facts),
        Why::Ended => ended(facts),
        Why::Deaf => lab(
            "agent",
            "the agent closed its port while the guest ran (was it killed?)",
        ),
        Why::Panicked | Why::Lab { .. } | Why::Cancelled => {
            unreachable!("handled before the match")
        }
    }
}

fn lab(part: &str, reason: &str) -> Outcome {
    Outcome::LabFailed {
        part: part.into(),
        reason: reason.into(),
    }
}

fn emulator_fault<'a>(facts: &Facts<'a>) -> Option<&'a Splat> {
    let mut splats = facts.splats.iter();
    splats.find(|splat| facts.emulated && splat.kind == SplatKind::Int3)
}

fn said(outcome: &Outcome, facts: &Facts<'_>) -> Outcome {
    let known = |splat: &&Splat| {
        let mut allowed = facts.allowed.iter();
        !allowed.any(|part| splat.title.contains(part.as_str()))
    };
    let splat = facts.splats.iter().find(known);
    match (outcome, splat) {
        (Outcome::Completed | Outcome::WorkloadFailed { .. }, Some(splat)) => Outcome::GuestSplat {
            title: splat.title.clone(),
        },
        _ => outcome.clone(),
    }
}

fn timed_out(phase: &str, text: &str, facts: &Facts<'_>) -> Outcome {
    if !facts.greeted {
        return Outcome::BootFailed {
            reason: text.into(),
        };
    }
    let complaint = facts.splats.iter().find(|s| s.kind <= SplatKind::Hang);
    Outcome::GuestHang {
        phase: phase.into(),
        reason: match complaint {
            Some(splat) => format!("{text} ({})", splat.title),
            None => text.into(),
        },
    }
}

fn ended(facts: &Facts<'_>) -> Outcome {
    let before = if facts.greeted {
        "before the workload ended"
    } else {
        "before the agent said hello"
    };
    match facts.end {
        Some(End::PowerOff) if facts.greeted => Outcome::WorkloadFailed {
            reason: format!("the guest powered itself off {before}"),
        },
        Some(End::PowerOff) => Outcome::BootFailed {
            reason: format!("the guest powered itself off {before}"),
        },
        // With `-no-reboot` a triple fault looks like a reboot.
        Some(End::Reboot) if facts.greeted => Outcome::GuestPanic {
            title: oops(facts)
                .unwrap_or_else(|| "reset without a message (reboot or triple fault)".into()),
        },
        Some(End::Reboot) => Outcome::BootFailed {
            reason: match oops(facts) {
                Some(title) => format!("reset after: {title}"),
                None => format!("the guest reset itself {before} (reboot or triple fault)"),
            },
        },
        Some(End::Panic | End::Host) | None => {
            let exit = facts.exit.map(|exit| exit.to_string());
            let exit = exit.unwrap_or_else(|| "no exit code".into());
            let words = facts.stderr.trim();
            let words = if words.is_empty() {
                "it wrote nothing"
            } else {
                words
            };
            lab("qemu", &format!("QEMU ended by itself ({exit}): {words}"))
        }
    }
}

fn oops(facts: &Facts<'_>) -> Option<String> {
    let mut splats = facts.splats.iter();
    let oops = splats.find(|splat| splat.kind <= SplatKind::Hang)?;
    Some(oops.title.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(why: Why) -> Facts<'static> {
        Facts {
            why,
            greeted: true,
            emulated: true,
            splats: &[],
            allowed: &[],
            panicked: false,
            end: None,
            exit: None,
            stderr: "",
        }
    }

    fn splat(kind: SplatKind, title: &str) -> Splat {
        Splat {
            kind,
            title: title.into(),
            lines: Vec::new(),
        }
    }

    fn clock(clock: Clock) -> Why {
        Why::Clock {
            clock,
            phase: "measure".into(),
            text: "too long".into(),
        }
    }

    #[test]
    fn a_completed_run_with_a_splat_is_not_completed() {
        let done = Why::Said(Outcome::Completed);
        assert_eq!(judge(&facts(done.clone())), Outcome::Completed);
        let splats = [splat(SplatKind::Warning, "WARNING in f")];
        let mut seen = facts(done);
        seen.splats = &splats;
        assert_eq!(
            judge(&seen),
            Outcome::GuestSplat {
                title: "WARNING in f".into()
            }
        );
        let allowed = ["in f".to_string()];
        seen.allowed = &allowed;
        assert_eq!(judge(&seen), Outcome::Completed);
    }

    #[test]
    fn the_emulators_fault_is_no_verdict_on_the_kernel() {
        let splats = [
            splat(SplatKind::Int3, "Oops: int3: N in f"),
            splat(SplatKind::Panic, "Kernel panic"),
        ];
        let mut seen = facts(Why::Panicked);
        seen.splats = &splats;
        assert_eq!(judge(&seen).class(), "lab-failed");
        seen.emulated = false;
        assert_eq!(judge(&seen).class(), "guest-panic");
    }

    #[test]
    fn a_panic_is_named_by_what_led_to_it() {
        let splats = [
            splat(SplatKind::Oops, "BUG: x in g"),
            splat(
                SplatKind::Panic,
                "Kernel panic - not syncing: Fatal exception",
            ),
        ];
        let mut seen = facts(Why::Panicked);
        seen.splats = &splats;
        assert_eq!(
            judge(&seen),
            Outcome::GuestPanic {
                title: "BUG: x in g".into()
            }
        );
        seen.greeted = false;
        assert_eq!(
            judge(&seen),
            Outcome::BootFailed {
                reason: "panic: BUG: x in g".into()
            }
        );
        let mut silent = facts(Why::Ended);
        silent.panicked = true;
        assert_eq!(judge(&silent).class(), "guest-panic");
    }

    #[test]
    fn clocks_before_and_after_hello() {
        let mut seen = facts(clock(Clock::Boot));
        seen.greeted = false;
        assert_eq!(
            judge(&seen),
            Outcome::BootFailed {
                reason: "too long".into()
            }
        );
        let hang = judge(&facts(clock(Clock::NoProgress)));
        assert_eq!(
            hang,
            Outcome::GuestHang {
                phase: "measure".into(),
                reason: "too long".into()
            }
        );
    }

    #[test]
    fn guests_that_end_themselves_and_qemus_that_do() {
        let mut seen = facts(Why::Ended);
        seen.end = Some(End::PowerOff);
        assert_eq!(judge(&seen).class(), "workload-failed");
        seen.end = Some(End::Reboot);
        assert_eq!(judge(&seen).class(), "guest-panic");
        seen.greeted = false;
        assert_eq!(judge(&seen).class(), "boot-failed");
        seen.end = None;
        seen.exit = Some(QemuExit::Code(1));
        seen.stderr = "qemu: no such CPU\n";
        assert_eq!(
            judge(&seen).detail(),
            "qemu: QEMU ended by itself (exit code 1): qemu: no such CPU"
        );
    }

    #[test]
    fn a_cancelled_run_is_interrupted_whatever_else_happened() {
        let splats = [splat(SplatKind::Panic, "p")];
        let mut seen = facts(Why::Cancelled);
        seen.splats = &splats;
        assert_eq!(judge(&seen).detail(), "interrupted: stopped by the user");
    }
}
