//! Shows a campaign while it runs: bars on a terminal, plain lines elsewhere,
//! one JSON object a line with `--json`.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use topolab::{event::Event, store::KernelMeta};

use crate::terminal::Terminal;

/// Plain output tells a build's progress no more often than this.
const PLAIN_STEP: Duration = Duration::from_secs(15);

/// Listens to the events of a campaign.
pub struct Progress {
    terminal: Terminal,
    style: Style,
    total: usize,
    done: usize,
    classes: BTreeMap<&'static str, usize>,
    started: Instant,
    said: Option<Instant>,
}

enum Style {
    Json,
    Plain,
    Bars {
        group: MultiProgress,
        build: Option<ProgressBar>,
        runs: Option<ProgressBar>,
    },
}

impl Progress {
    /// `json` writes events to stdout, one object a line.
    pub fn new(terminal: Terminal, json: bool) -> Self {
        let style = if json {
            Style::Json
        } else if terminal.bars() {
            Style::Bars {
                group: MultiProgress::new(),
                build: None,
                runs: None,
            }
        } else {
            Style::Plain
        };
        Self {
            terminal,
            style,
            total: 0,
            done: 0,
            classes: BTreeMap::new(),
            started: Instant::now(),
            said: None,
        }
    }

    /// Takes one event.
    pub fn on(&mut self, event: &Event) {
        self.count(event);
        match self.style {
            Style::Json => {
                if let Ok(line) = serde_json::to_string(event) {
                    self.terminal.answer(line);
                }
            }
            Style::Plain => self.plain(event),
            Style::Bars { .. } => self.bars(event),
        }
    }

    fn count(&mut self, event: &Event) {
        match event {
            Event::CampaignStarted { runs, .. } => {
                // Rounds that are added begin anew, with what there is counted.
                self.total = self.done + *runs;
                if self.done == 0 {
                    self.started = Instant::now();
                }
            }
            Event::RunEnded { outcome, .. } => {
                self.done += 1;
                *self.classes.entry(outcome.class()).or_default() += 1;
            }
            _ => {}
        }
    }

    fn plain(&mut self, event: &Event) {
        match event {
            Event::BuildProgress {
                kernel,
                step,
                done,
                of,
            } => {
                if self.said.is_some_and(|said| said.elapsed() < PLAIN_STEP) {
                    return;
                }
                self.said = Some(Instant::now());
                let of = of.map_or(String::new(), |of| format!(" of about {of}"));
                let objects = if *done > 0 {
                    format!(": {done}{of} objects")
                } else {
                    String::new()
                };
                self.terminal
                    .say(format_args!("  {kernel}: {step}{objects}"));
            }
            Event::RunPhase { .. } => {}
            _ => {
                self.said = None;
                if let Some(line) = self.line(event) {
                    self.terminal.say(line);
                }
            }
        }
    }

    /// The plain line of an event.
    fn line(&self, event: &Event) -> Option<String> {
        Some(match event {
            Event::CampaignStarted {
                name,
                folder,
                cells,
                runs,
                seed,
            } => format!(
                "{name}: {cells} cells, {runs} runs to do, seed {seed}; results in {}",
                folder.display()
            ),
            Event::BuildStarted { kernel } => format!("building {kernel}"),
            Event::BuildEnded { kernel } => built(kernel),
            Event::RunEnded {
                cell,
                round,
                attempt,
                outcome,
                wall_ms,
                hello_ms,
                ..
            } => {
                let retry = if *attempt > 0 {
                    format!(" (try {})", attempt + 1)
                } else {
                    String::new()
                };
                let hello =
                    hello_ms.map_or(String::new(), |ms| format!(", hello after {}", seconds(ms)));
                let detail = outcome.detail();
                let detail = if detail.is_empty() {
                    detail
                } else {
                    format!(": {detail}")
                };
                format!(
                    "[{}/{}] round {} · {cell}{retry} · {}{detail} ({}{hello})",
                    self.done,
                    self.total,
                    round + 1,
                    outcome.class(),
                    seconds(*wall_ms),
                )
            }
            Event::Note { text } => text.clone(),
            Event::CampaignEnded { .. }
            | Event::BuildProgress { .. }
            | Event::RunStarted { .. }
            | Event::RunPhase { .. } => {
                return None;
            }
        })
    }

    fn bars(&mut self, event: &Event) {
        let line = self.line(event);
        let total = self.total as u64;
        let classes = self
            .classes
            .iter()
            .map(|(class, n)| format!("{n} {class}"))
            .collect::<Vec<_>>()
            .join(", ");
        let Style::Bars { group, build, runs } = &mut self.style else {
            return;
        };
        match event {
            Event::BuildStarted { kernel } => {
                let bar = group
                    .add(ProgressBar::no_length().with_style(style("{msg} {spinner} {elapsed}")));
                bar.enable_steady_tick(Duration::from_millis(250));
                bar.set_message(format!("building {kernel}"));
                *build = Some(bar);
            }
            Event::BuildProgress {
                kernel,
                step,
                done,
                of,
            } => {
                if let Some(bar) = build {
                    bar.set_message(format!("{kernel}: {step}"));
                    if let Some(of) = of {
                        bar.set_length(u64::from(*of.max(done)));
                        bar.set_style(style("{msg} [{bar:30}] {pos}/{len} objects {elapsed}"));
                    }
                    bar.set_position(u64::from(*done));
                }
            }
            Event::BuildEnded { .. } => {
                if let Some(bar) = build.take() {
                    bar.finish_and_clear();
                }
                if let Some(line) = line {
                    let _ = group.println(line);
                }
            }
            Event::RunStarted { cell, .. } => {
                let bar = runs.get_or_insert_with(|| {
                    let bar = group.add(
                        ProgressBar::new(total)
                            .with_style(style("[{bar:24}] {pos}/{len} runs, {eta} left · {msg}")),
                    );
                    bar.enable_steady_tick(Duration::from_millis(250));
                    bar
                });
                bar.set_message(format!("{cell}: boot"));
            }
            Event::RunPhase { phase, .. } => {
                if let Some(bar) = runs {
                    let before = bar.message();
                    let cell = before
                        .rsplit_once(": ")
                        .map_or(before.as_str(), |(cell, _)| cell)
                        .to_string();
                    bar.set_message(format!("{cell}: {phase}"));
                }
            }
            Event::RunEnded { outcome, .. } => {
                if let Some(bar) = runs {
                    bar.inc(1);
                    bar.set_message(classes);
                }
                if let Some(line) = line.filter(|_| !outcome.has_result()) {
                    let _ = group.println(line);
                }
            }
            Event::CampaignEnded { .. } => {
                if let Some(bar) = runs.take() {
                    bar.finish_and_clear();
                }
            }
            Event::CampaignStarted { .. } | Event::Note { .. } => {
                if let Some(line) = line {
                    let _ = group.println(line);
                }
            }
        }
    }
}

/// What a build cost, in a line.
pub fn built(kernel: &KernelMeta) -> String {
    let name = &kernel.name;
    if let Some(reason) = &kernel.unavailable {
        return format!("{name}: not available: {reason}");
    }
    let how = if kernel.cached {
        "from the cache".to_string()
    } else {
        format!(
            "{} objects compiled in {:.1} s",
            kernel.recompiled, kernel.seconds
        )
    };
    let equal = kernel
        .equal_to
        .as_ref()
        .map_or(String::new(), |other| format!("; same image as {other}"));
    format!("{name}: {how}{equal}")
}

fn seconds(ms: impl std::borrow::Borrow<u64>) -> String {
    let ms = *ms.borrow();
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .expect("the template is a constant")
        .progress_chars("=> ")
}
