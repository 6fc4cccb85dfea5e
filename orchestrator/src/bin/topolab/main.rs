//! The `topolab` command line: what was typed, then the engine, then words for
//! people. One file per verb.

mod batch;
mod bisect;
mod boot;
mod cli;
mod compare;
mod demo;
mod doctor;
mod dry_run;
mod enter;
mod extras;
mod failure;
mod folders;
mod gc;
mod history;
mod image;
mod interrupt;
mod kernel;
mod lab;
mod progress;
mod report;
mod run;
mod schema;
mod terminal;
mod topology;
mod tty;
mod until;

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
