//! The only door to the terminal. The answer goes to stdout; progress, warnings
//! and hints go to stderr. No colour and no bars when stderr is no terminal.

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};

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

    /// Writes a table, its columns two blanks apart: within the terminal's width,
    /// and with every row in one line where a program reads it.
    pub fn table(&self, mut table: Table) {
        table.load_style(presets::NOTHING).force_no_tty();
        if let Some(width) = columns() {
            // The last column's own blanks are cut off.
            table
                .set_content_arrangement(ContentArrangement::Dynamic)
                .set_width(width.saturating_add(2));
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        // The first column holds names to copy; they stay whole.
        if let Some(names) = table.column_mut(0) {
            names.set_constraint(ColumnConstraint::ContentWidth);
        }
        for line in table.lines() {
            self.answer(line.trim_end());
        }
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

/// Columns of the terminal that reads the answer.
pub fn columns() -> Option<u16> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(&stdout).ok()?;
    (size.ws_col > 0).then_some(size.ws_col)
}
