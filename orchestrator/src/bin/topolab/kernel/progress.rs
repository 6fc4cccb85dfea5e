//! A build while it runs: a bar on a terminal, plain lines elsewhere.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use indicatif::{ProgressBar, ProgressStyle};
use topolab::kernel::BuildEvent;

use crate::terminal::Terminal;

/// Shows a build: a bar on a terminal, plain lines elsewhere.
pub struct Progress {
    terminal: Terminal,
    bar: Option<ProgressBar>,
    said: Mutex<Instant>,
}

/// Plain output tells progress no more often than this.
const PLAIN_STEP: Duration = Duration::from_secs(15);

impl Progress {
    /// Shows nothing yet.
    pub fn new(terminal: Terminal) -> Self {
        let bar = terminal.bars().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self {
            terminal,
            bar,
            said: Mutex::new(Instant::now()),
        }
    }

    /// Shows what the build tells.
    pub fn on(&self, event: &BuildEvent) {
        let line = match event {
            BuildEvent::Compiling {
                what,
                done,
                expected,
                object,
            } => {
                self.compiling(what, *done, *expected, object);
                return;
            }
            BuildEvent::Fetching { what } => format!("fetching {what}"),
            BuildEvent::Unpacking { what } => format!("unpacking {what}"),
            BuildEvent::Waiting { lock } => {
                format!(
                    "another process is building this; waiting for {}",
                    lock.display()
                )
            }
            BuildEvent::Configuring { what } => format!("{what}: configuring"),
            BuildEvent::Linking { what } => format!("{what}: linking"),
            BuildEvent::Built {
                what,
                recompiled,
                seconds,
                cached,
                log,
            } => {
                if let Some(log) = log {
                    self.terminal
                        .detail(format_args!("{what}: log in {}", log.display()));
                }
                if *cached {
                    format!("{what}: in the cache")
                } else {
                    format!("{what}: {recompiled} objects compiled, {seconds:.1} s")
                }
            }
        };
        match &self.bar {
            Some(bar) => {
                bar.set_style(ProgressStyle::default_spinner());
                bar.set_message(line.clone());
                if matches!(event, BuildEvent::Built { .. }) {
                    bar.suspend(|| self.terminal.say(line));
                }
            }
            None => self.terminal.say(line),
        }
    }

    fn compiling(&self, what: &str, done: u32, expected: Option<u32>, object: &str) {
        match (&self.bar, expected) {
            (Some(bar), Some(expected)) => {
                let style =
                    ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} objects {eta}");
                bar.set_style(style.expect("the template is fixed"));
                bar.set_length(expected.into());
                bar.set_position(done.into());
                bar.set_message(what.to_owned());
            }
            (Some(bar), None) => {
                bar.set_style(ProgressStyle::default_spinner());
                bar.set_message(format!("{what}: {done} objects, {object}"));
            }
            (None, _) => {
                let mut said = self.said.lock().expect("nobody panics holding it");
                if done > 0 && said.elapsed() >= PLAIN_STEP {
                    *said = Instant::now();
                    let of = expected.map_or(String::new(), |n| format!(" of about {n}"));
                    self.terminal
                        .say(format_args!("{what}: {done}{of} objects"));
                }
            }
        }
    }
}
