//! `topolab completions` and the manual page.

use std::process::ExitCode;

use clap::{Args, CommandFactory};

use crate::{cli::Cli, failure::Failure, terminal::Terminal};

/// Arguments of `topolab completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell to write for
    shell: clap_complete::Shell,
}

/// Writes a completion script.
pub fn completions(args: &CompletionsArgs, terminal: &Terminal) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "topolab", &mut script);
    terminal.answer(String::from_utf8_lossy(&script).trim_end());
    ExitCode::SUCCESS
}

/// Writes the manual page.
pub fn manual(terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut page = Vec::new();
    clap_mangen::Man::new(Cli::command())
        .render(&mut page)
        .map_err(Failure::lab)?;
    terminal.answer(String::from_utf8_lossy(&page).trim_end());
    Ok(ExitCode::SUCCESS)
}
