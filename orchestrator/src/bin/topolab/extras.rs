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

/// Tells the verb that was probably meant.
pub fn no_such_verb(words: &[String]) -> Failure {
    let verb = words.first().map_or("", String::as_str);
    let command = Cli::command();
    let nearest = command
        .get_subcommands()
        .map(|known| known.get_name())
        .min_by_key(|known| strsim::damerau_levenshtein(known, verb));
    let failure = Failure::request(format_args!("there is no command `{verb}`"));
    match nearest {
        Some(known) if strsim::damerau_levenshtein(known, verb) <= 2 => {
            failure.hint(format_args!("did you mean `topolab {known}`?"))
        }
        _ => failure.hint("topolab --help"),
    }
}
