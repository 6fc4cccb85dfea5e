//! The host's half of the conversation with the agent, without any socket:
//! what was heard goes in, what to do comes out.

use std::collections::BTreeMap;

use topolab_protocol::{
    PROTOCOL_VERSION,
    message::{AgentMessage, ExitStatus, HostMessage},
    observed::Observed,
    sample::Sample,
    settings::{SettingRecord, Settings},
    workload::{Monitors, Workload},
};

use super::event::RunEvent;
use crate::{
    outcome::Outcome,
    readings::{self, Readings},
};

/// Samples kept of one run. More is no measurement but a runaway agent.
pub const SAMPLES: usize = 250_000;
/// Names, units and labels of the samples kept of one run, bytes together. One
/// frame alone may hold a mebibyte of them.
pub const SAMPLE_TEXT: usize = 128 << 20;
/// Evidence kept of one run, bytes.
pub const EVIDENCE: usize = 32 << 20;
/// Standard output kept of a workload that is read from it, bytes.
pub const OUTPUT: usize = 16 << 20;
/// Pieces of evidence kept of one run; each may be a file, and empty ones cost
/// an inode all the same.
pub const PIECES: usize = 1000;
/// Notes kept of one run.
pub const NOTES: usize = 500;
/// Characters kept of a note.
const NOTE: usize = 4096;

/// What is asked of the guest.
#[derive(Debug, Clone)]
pub struct Request {
    /// Name of the run, echoed in its exit frame.
    pub run: String,
    /// What is written before the workload.
    pub settings: Settings,
    /// What runs; nothing when the guest is only looked at.
    pub workload: Option<Workload>,
    /// What is watched around it.
    pub monitors: Monitors,
    /// Named CPU sets, cpulist syntax.
    pub sets: BTreeMap<String, String>,
    /// Seed for whatever the workload draws.
    pub seed: u64,
}

/// What to do next.
#[derive(Debug, PartialEq)]
pub enum Step {
    /// Send this.
    Say(HostMessage),
    /// Tell this.
    Tell(RunEvent),
    /// A phase begins.
    Phase(String),
    /// The guest said hello: hold what it sees against what was asked, then
    /// call [`Dialogue::accept`].
    Check(Box<Observed>),
    /// The workload is about to run: measure the bench from here.
    Begin,
    /// Keep this text beside the samples, under a name that is safe for a file.
    Evidence {
        /// File name.
        name: String,
        /// Content.
        text: String,
    },
    /// What the kernel itself wrote; see [`AgentMessage::KernelLog`].
    KernelLog {
        /// Number of the oldest record that is still there.
        first: u64,
        /// Its records.
        lines: Vec<String>,
    },
    /// The run has its outcome; power the guest off.
    End(Outcome),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Hello,
    Checking,
    Applying,
    Running,
    Ended,
}

/// One conversation.
#[derive(Debug)]
pub struct Dialogue {
    request: Request,
    stage: Stage,
    /// The guest is restored: its first hello describes the machine it was
    /// saved on, so it is asked to look again.
    restored: bool,
    samples: Vec<Sample>,
    sample_text: usize,
    settings: Vec<SettingRecord>,
    notes: Vec<String>,
    evidence: usize,
    /// The workload's standard output, when samples are read from it.
    printed: Vec<u8>,
    pieces: usize,
    exit: Option<ExitStatus>,
    agent: String,
}

impl Dialogue {
    /// A conversation before its first word.
    pub fn new(request: Request) -> Self {
        Self {
            request,
            stage: Stage::Hello,
            restored: false,
            samples: Vec::new(),
            sample_text: 0,
            settings: Vec::new(),
            notes: Vec::new(),
            evidence: 0,
            printed: Vec::new(),
            pieces: 0,
            exit: None,
            agent: String::new(),
        }
    }

    /// The guest will be a restored one; see [`Dialogue::open`].
    pub fn expect_restored(&mut self) {
        self.restored = true;
    }

    /// Whether the guest is a restored one.
    pub fn is_restored(&self) -> bool {
        self.restored
    }

    /// What is said to a guest that can hear and was not heard yet.
    pub fn open(&self) -> Option<HostMessage> {
        let first = self.restored && self.stage == Stage::Hello;
        first.then_some(HostMessage::Observe)
    }

    /// The agent said something.
    pub fn hear(&mut self, message: AgentMessage) -> Vec<Step> {
        match (self.stage, message) {
            (_, AgentMessage::Heartbeat { .. } | AgentMessage::Stored { .. }) => Vec::new(),
            (
                Stage::Hello,
                AgentMessage::Hello {
                    protocol,
                    agent,
                    observed,
                    ..
                },
            ) if !self.restored => self.greeted(protocol, agent, observed),
            // It was proved to speak our protocol before it was saved.
            (Stage::Hello, AgentMessage::Observed { observed }) if self.restored => {
                self.stage = Stage::Checking;
                vec![Step::Check(observed)]
            }
            (Stage::Hello, AgentMessage::Hello { .. }) => {
                self.open().map(Step::Say).into_iter().collect()
            }
            // It repeats its hello until it hears the answer.
            (_, AgentMessage::Hello { .. }) => Vec::new(),
            (_, AgentMessage::Note { text }) => self.note(&text),
            (_, AgentMessage::Evidence { name, text }) => self.keep(&name, text),
            (_, AgentMessage::KernelLog { first, lines }) => {
                vec![Step::KernelLog { first, lines }]
            }
            (Stage::Applying, AgentMessage::Applied { records }) => {
                self.settings = records;
                self.start()
            }
            (Stage::Applying | Stage::Running, AgentMessage::NotTestable { reason }) => {
                let reason = short(&reason);
                self.end(Outcome::NotTestable { reason })
            }
            (Stage::Running, AgentMessage::Phase { name }) => vec![Step::Phase(short(&name))],
            (Stage::Running, AgentMessage::Sample(sample)) => self.sample(sample),
            (
                Stage::Running,
                AgentMessage::Exit {
                    run,
                    status,
                    samples,
                },
            ) => self.exited(&run, status, samples),
            (Stage::Ended, _) => Vec::new(),
            (_, AgentMessage::Failed { request, reason }) => {
                let reason = format!(
                    "the agent could not {}: {}",
                    short(&request),
                    short(&reason)
                );
                self.lost(reason)
            }
            (
                _,
                AgentMessage::File { .. }
                | AgentMessage::Observed { .. }
                | AgentMessage::Undone { .. }
                | AgentMessage::Bye,
            ) => Vec::new(),
            (stage, message) => {
                let what = format!("{message:?}");
                let what = what.split([' ', '(', '{']).next().unwrap_or_default();
                self.lost(format!(
                    "the agent said {what} at the wrong time ({stage:?})"
                ))
            }
        }
    }

    fn greeted(&mut self, protocol: u16, agent: String, observed: Box<Observed>) -> Vec<Step> {
        if protocol != PROTOCOL_VERSION {
            return self.lost(format!(
                "the agent speaks protocol {protocol}, this topolab speaks {PROTOCOL_VERSION}; \
                 rebuild the image with this topolab"
            ));
        }
        self.agent = agent;
        self.stage = Stage::Checking;
        vec![Step::Check(observed)]
    }

    /// The guest is what was asked: go on.
    pub fn accept(&mut self, now_ns: u64, entropy: String) -> Vec<Step> {
        let welcome = Step::Say(HostMessage::Welcome {
            protocol: PROTOCOL_VERSION,
            now_ns,
            entropy,
        });
        let mut steps = vec![welcome, Step::Phase("prepare".into())];
        if self.request.settings == Settings::default() {
            steps.extend(self.start());
        } else {
            self.stage = Stage::Applying;
            steps.push(Step::Say(HostMessage::Apply {
                settings: self.request.settings.clone(),
            }));
        }
        steps
    }

    fn start(&mut self) -> Vec<Step> {
        let Some(workload) = self.request.workload.clone() else {
            return self.end(Outcome::Completed);
        };
        self.stage = Stage::Running;
        let phase = workload.name().to_string();
        let start = HostMessage::Start {
            run: self.request.run.clone(),
            workload,
            monitors: Box::new(self.request.monitors.clone()),
            sets: self.request.sets.clone(),
            seed: self.request.seed,
        };
        vec![Step::Phase(phase), Step::Begin, Step::Say(start)]
    }

    fn sample(&mut self, sample: Sample) -> Vec<Step> {
        if self.samples.len() == SAMPLES {
            return self.lost(format!("the agent sent more than {SAMPLES} samples"));
        }
        if !sample.value.is_finite() {
            let metric = short(&sample.metric);
            return self.lost(format!("the agent sent {metric} = {}", sample.value));
        }
        let labels = sample.labels.iter();
        self.sample_text += sample.metric.len() + sample.unit.len();
        self.sample_text += labels
            .map(|(name, value)| name.len() + value.len())
            .sum::<usize>();
        if self.sample_text > SAMPLE_TEXT {
            return self.lost(format!(
                "the agent sent samples whose names and labels take more than {SAMPLE_TEXT} bytes"
            ));
        }
        self.samples.push(sample.clone());
        vec![Step::Tell(RunEvent::Sample(sample))]
    }

    /// The workload printed this on its standard output.
    pub fn printed(&mut self, bytes: &[u8]) {
        if self.request.workload.as_ref().is_some_and(readings::wanted) {
            let room = OUTPUT.saturating_sub(self.printed.len());
            self.printed.extend(&bytes[..bytes.len().min(room)]);
        }
    }

    /// Takes samples from what the workload printed. What it printed decides when
    /// it exited as if all were well, and says more than an exit code when not.
    fn read_output(&mut self, outcome: Outcome) -> (Vec<Step>, Outcome) {
        let Some(workload) = self
            .request
            .workload
            .as_ref()
            .filter(|w| readings::wanted(w))
        else {
            return (Vec::new(), outcome);
        };
        let printed = String::from_utf8_lossy(&self.printed);
        let Readings {
            mut samples,
            problem,
        } = readings::read(workload, &printed);
        samples.truncate(SAMPLES - self.samples.len());
        let steps = samples.iter().cloned().map(RunEvent::Sample);
        let steps = steps.map(Step::Tell).collect();
        self.samples.extend(samples);
        let is_test = matches!(workload, Workload::Ktap(_));
        let outcome = match problem {
            Some(problem) if is_test || outcome == Outcome::Completed => Outcome::WorkloadFailed {
                reason: short(&problem.to_string()),
            },
            _ => outcome,
        };
        (steps, outcome)
    }

    fn note(&mut self, text: &str) -> Vec<Step> {
        if self.notes.len() >= NOTES {
            return Vec::new();
        }
        let mut text = super::console::clean(text.as_bytes());
        if let Some((end, _)) = text.char_indices().nth(NOTE) {
            text.truncate(end);
            text.push('…');
        }
        self.notes.push(text.clone());
        vec![Step::Tell(RunEvent::Note(text))]
    }

    fn keep(&mut self, name: &str, text: String) -> Vec<Step> {
        self.evidence += text.len();
        self.pieces += 1;
        if self.evidence > EVIDENCE || self.pieces > PIECES {
            return self.note("more evidence than is kept; the rest was dropped");
        }
        let name = file_name(name);
        vec![Step::Evidence { name, text }]
    }

    fn exited(&mut self, run: &str, status: ExitStatus, samples: u64) -> Vec<Step> {
        if run != self.request.run {
            return self.lost(format!(
                "the agent ended run `{}`, asked was `{}`",
                short(run),
                self.request.run
            ));
        }
        if samples != self.samples.len() as u64 {
            return self.lost(format!(
                "the agent sent {samples} samples, {} arrived",
                self.samples.len()
            ));
        }
        let outcome = match &status {
            ExitStatus::Exited { code: 0 } => Outcome::Completed,
            ExitStatus::Exited { code } => Outcome::WorkloadFailed {
                reason: format!("exit code {code}"),
            },
            ExitStatus::Signalled { signal } => Outcome::WorkloadFailed {
                reason: format!("killed by signal {signal}"),
            },
            ExitStatus::Failed { reason } => Outcome::WorkloadFailed {
                reason: short(reason),
            },
        };
        self.exit = Some(status);
        let (mut steps, outcome) = self.read_output(outcome);
        steps.extend(self.end(outcome));
        steps
    }

    fn lost(&mut self, reason: String) -> Vec<Step> {
        self.end(Outcome::LabFailed {
            part: "agent".into(),
            reason,
        })
    }

    fn end(&mut self, outcome: Outcome) -> Vec<Step> {
        self.stage = Stage::Ended;
        vec![Step::End(outcome)]
    }

    /// Whether a command reads what is typed now.
    pub fn is_running(&self) -> bool {
        self.stage == Stage::Running
    }

    /// How the workload ended, when it did.
    pub fn exit(&self) -> Option<&ExitStatus> {
        self.exit.as_ref()
    }

    /// What was measured, what was set, and remarks.
    pub fn into_yield(self) -> (Vec<Sample>, Vec<SettingRecord>, Vec<String>) {
        (self.samples, self.settings, self.notes)
    }
}

/// A name that stays inside the folder it is joined to.
fn file_name(name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .take(100)
        .collect();
    match plain.trim_start_matches('.') {
        "" => "unnamed".into(),
        rest => rest.into(),
    }
}

/// The guest's words, inert and not too long.
fn short(text: &str) -> String {
    super::console::clean(text.as_bytes())
        .chars()
        .take(300)
        .collect()
}

#[cfg(test)]
mod tests {
    use topolab_protocol::{
        sample::{Better, MetricKind},
        workload::Command,
    };

    use super::*;

    fn request() -> Request {
        Request {
            run: "r1".into(),
            settings: Settings::default(),
            workload: Some(Workload::Command(Command::default())),
            monitors: Monitors::default(),
            sets: BTreeMap::new(),
            seed: 1,
        }
    }

    fn hello(protocol: u16) -> AgentMessage {
        AgentMessage::Hello {
            protocol,
            agent: "0".into(),
            uptime_ms: 1,
            observed: Box::default(),
        }
    }

    fn sample(value: f64) -> AgentMessage {
        AgentMessage::Sample(Sample {
            metric: "m".into(),
            value,
            kind: MetricKind::Count,
            unit: "count".into(),
            better: Better::Lower,
            labels: topolab_protocol::labels::Labels::new(),
        })
    }

    fn exit(run: &str, samples: u64) -> AgentMessage {
        AgentMessage::Exit {
            run: run.into(),
            status: ExitStatus::Exited { code: 0 },
            samples,
        }
    }

    /// A dialogue whose workload runs.
    fn running() -> Dialogue {
        let mut dialogue = Dialogue::new(request());
        let steps = dialogue.hear(hello(PROTOCOL_VERSION));
        assert_eq!(steps, [Step::Check(Box::default())]);
        let steps = dialogue.accept(5, "00".into());
        assert!(matches!(
            steps[0],
            Step::Say(HostMessage::Welcome { now_ns: 5, .. })
        ));
        assert_eq!(
            steps[1..4],
            [
                Step::Phase("prepare".into()),
                Step::Phase("command".into()),
                Step::Begin
            ]
        );
        assert!(matches!(steps[4], Step::Say(HostMessage::Start { .. })));
        dialogue
    }

    fn lost(steps: &[Step]) -> &str {
        match steps {
            [Step::End(Outcome::LabFailed { part, reason })] if part == "agent" => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_run_completes_with_its_samples() {
        let mut dialogue = running();
        assert_eq!(dialogue.hear(hello(PROTOCOL_VERSION)), []);
        let steps = dialogue.hear(AgentMessage::Phase {
            name: "measure".into(),
        });
        assert_eq!(steps, [Step::Phase("measure".into())]);
        assert!(matches!(
            dialogue.hear(sample(2.0))[..],
            [Step::Tell(RunEvent::Sample(_))]
        ));
        assert_eq!(
            dialogue.hear(exit("r1", 1)),
            [Step::End(Outcome::Completed)]
        );
        assert_eq!(dialogue.hear(AgentMessage::Bye), []);
        assert_eq!(dialogue.into_yield().0.len(), 1);
    }

    #[test]
    fn a_restored_guest_is_asked_to_look_again() {
        let mut dialogue = Dialogue::new(request());
        assert_eq!(dialogue.open(), None);
        dialogue.expect_restored();
        assert_eq!(dialogue.open(), Some(HostMessage::Observe));
        let steps = dialogue.hear(hello(PROTOCOL_VERSION));
        assert_eq!(steps, [Step::Say(HostMessage::Observe)]);
        let observed = Box::default();
        let steps = dialogue.hear(AgentMessage::Observed { observed });
        assert_eq!(steps, [Step::Check(Box::default())]);
    }

    #[test]
    fn settings_come_before_the_workload() {
        let mut wanted = request();
        wanted.settings.itmt = Some(true);
        let mut dialogue = Dialogue::new(wanted);
        dialogue.hear(hello(PROTOCOL_VERSION));
        let steps = dialogue.accept(0, String::new());
        assert!(matches!(
            steps.last(),
            Some(Step::Say(HostMessage::Apply { .. }))
        ));
        let steps = dialogue.hear(AgentMessage::Applied {
            records: Vec::new(),
        });
        assert!(matches!(
            steps.last(),
            Some(Step::Say(HostMessage::Start { .. }))
        ));
    }

    #[test]
    fn a_guest_that_cannot_do_it_is_not_testable() {
        let mut dialogue = running();
        let reason = "no ITMT".to_string();
        let steps = dialogue.hear(AgentMessage::NotTestable {
            reason: reason.clone(),
        });
        assert_eq!(steps, [Step::End(Outcome::NotTestable { reason })]);
    }

    #[test]
    fn exits_of_other_runs_lost_samples_and_early_exits_are_no_results() {
        assert_eq!(
            lost(&running().hear(exit("r0", 0))),
            "the agent ended run `r0`, asked was `r1`"
        );
        assert_eq!(
            lost(&running().hear(exit("r1", 3))),
            "the agent sent 3 samples, 0 arrived"
        );
        let mut early = Dialogue::new(request());
        assert_eq!(
            lost(&early.hear(exit("r1", 0))),
            "the agent said Exit at the wrong time (Hello)"
        );
        assert!(lost(&running().hear(sample(f64::NAN))).contains("NaN"));
        assert!(lost(&Dialogue::new(request()).hear(hello(99))).contains("protocol 99"));
    }

    #[test]
    fn nothing_after_the_end_changes_it() {
        let mut dialogue = running();
        dialogue.hear(exit("r1", 0));
        assert_eq!(dialogue.hear(exit("r1", 0)), []);
        assert_eq!(dialogue.hear(sample(1.0)), []);
    }

    #[test]
    fn names_of_evidence_stay_in_their_folder() {
        assert_eq!(file_name("../../etc/passwd"), "_.._etc_passwd");
        assert_eq!(file_name("stack-1.txt"), "stack-1.txt");
        assert_eq!(file_name(".."), "unnamed");
        assert_eq!(file_name("a\0b\u{202e}c"), "a_b_c");
        assert_eq!(file_name(&"x".repeat(500)).len(), 100);
    }

    #[test]
    fn evidence_and_notes_are_bounded() {
        let mut dialogue = running();
        let text = "x".repeat(EVIDENCE / 2);
        let piece = |text: &str| AgentMessage::Evidence {
            name: "a".into(),
            text: text.into(),
        };
        assert!(matches!(
            dialogue.hear(piece(&text))[..],
            [Step::Evidence { .. }]
        ));
        assert!(matches!(
            dialogue.hear(piece(&text))[..],
            [Step::Evidence { .. }]
        ));
        assert!(matches!(
            dialogue.hear(piece("y"))[..],
            [Step::Tell(RunEvent::Note(_))]
        ));
        for _ in 0..2 * NOTES {
            dialogue.hear(AgentMessage::Note { text: "n".into() });
        }
        assert_eq!(dialogue.into_yield().2.len(), NOTES);
    }

    #[test]
    fn empty_evidence_is_bounded_too_and_long_notes_are_cut() {
        let mut dialogue = running();
        let mut files = 0;
        for number in 0..2 * PIECES {
            let steps = dialogue.hear(AgentMessage::Evidence {
                name: number.to_string(),
                text: String::new(),
            });
            files += usize::from(matches!(steps[..], [Step::Evidence { .. }]));
        }
        assert_eq!(files, PIECES);
        let mut dialogue = running();
        dialogue.hear(AgentMessage::Note {
            text: "ü".repeat(1 << 19),
        });
        let notes = dialogue.into_yield().2;
        assert_eq!(notes[0].chars().count(), NOTE + 1);
    }

    #[test]
    fn samples_with_giant_labels_end_the_run() {
        let mut dialogue = running();
        let giant = "x".repeat(1 << 20);
        let mut kept = 0;
        let end = loop {
            let AgentMessage::Sample(mut sample) = sample(1.0) else {
                unreachable!("it makes samples");
            };
            sample.labels.insert("cpu", giant.as_str());
            match &dialogue.hear(AgentMessage::Sample(sample))[..] {
                [Step::End(outcome)] => break outcome.detail(),
                _ => kept += giant.len(),
            }
        };
        assert!(end.contains("take more than 134217728 bytes"), "{end}");
        assert!(kept <= SAMPLE_TEXT, "{kept}");
    }

    #[test]
    fn a_reason_from_the_guest_is_inert_and_short() {
        let mut dialogue = running();
        let reason = format!("\u{1b}[31m{}", "x".repeat(1000));
        let steps = dialogue.hear(AgentMessage::NotTestable { reason });
        let reason = "x".repeat(300);
        assert_eq!(steps, [Step::End(Outcome::NotTestable { reason })]);
    }
}
