//! The `topolab` command line: what was typed, then the engine, then words for
//! people. One file per verb.

mod cli;
mod compare;
mod failure;
mod folders;
mod terminal;

mod extras;
mod kernel;
mod topology;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    let terminal = terminal::Terminal::new(cli.quiet, cli.verbose);
    match cli.run(&terminal) {
        Ok(code) => code,
        Err(failure) => terminal.explain(&failure),
    }
}
