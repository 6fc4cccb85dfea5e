//! The only door to the terminal. The answer goes to stdout; progress, warnings
//! and hints go to stderr. No colour and no bars when stderr is no terminal.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

use crate::failure::Failure;

/// Where words go, and how many.
#[derive(Debug, Clone, Copy)]
pub struct Terminal {
    quiet: bool,
    verbose: u8,
    bars: bool,
}

impl Terminal {
    /// `quiet` drops progress and remarks; `verbose` adds detail.
    pub fn new(quiet: bool, verbose: u8) -> Self {
        let bars = std::io::stderr().is_terminal()
            && !quiet
            && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        Self {
            quiet,
            verbose,
            bars,
        }
    }

    /// Writes the answer. A reader that went away is no failure of ours.
    pub fn answer(&self, text: impl std::fmt::Display) {
        let _ = writeln!(std::io::stdout().lock(), "{text}");
    }

    /// Writes the answer as one JSON document.
    pub fn json(&self, value: &impl serde::Serialize) {
        match serde_json::to_string_pretty(value) {
            Ok(text) => self.answer(text),
            Err(error) => self.warn(format_args!(
                "an answer could not be written as JSON: {error}"
            )),
        }
    }

    /// Writes one JSON document in one line.
    pub fn line(&self, value: &impl serde::Serialize) {
        match serde_json::to_string(value) {
            Ok(text) => self.answer(text),
            Err(error) => self.warn(format_args!(
                "an answer could not be written as JSON: {error}"
            )),
        }
    }

    /// Progress or a remark; dropped by `--quiet`.
    pub fn say(&self, text: impl std::fmt::Display) {
        if !self.quiet {
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// Detail for `-v`.
    pub fn detail(&self, text: impl std::fmt::Display) {
        if self.verbose > 0 {
            let _ = writeln!(std::io::stderr().lock(), "{text}");
        }
    }

    /// Something the reader should know even when quiet.
    pub fn warn(&self, text: impl std::fmt::Display) {
        let _ = writeln!(std::io::stderr().lock(), "warning: {text}");
    }

    /// Whether progress bars may be drawn on stderr.
    pub fn bars(&self) -> bool {
        self.bars
    }

    /// Tells a failure and gives its exit code.
    pub fn explain(&self, failure: &Failure) -> ExitCode {
        let mut out = std::io::stderr().lock();
        if failure.message.starts_with("error:") {
            let _ = writeln!(out, "{}", failure.message);
        } else {
            let _ = writeln!(out, "error: {}", failure.message);
        }
        for (number, cause) in failure.causes.iter().enumerate() {
            let _ = writeln!(out, "  {}: {cause}", number + 1);
        }
        for hint in &failure.hints {
            let _ = writeln!(out, "hint: {hint}");
        }
        ExitCode::from(failure.kind.exit_code())
    }
}
