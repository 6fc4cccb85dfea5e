//! `topolab schema`: JSON Schemas for editors.

use std::process::ExitCode;

use clap::{Args, ValueEnum};
use topolab::plan::ExperimentSpec;

use crate::terminal::Terminal;

/// Arguments of `topolab schema`.
#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Kind of file
    kind: Kind,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    Topology,
    Kernel,
    Experiment,
    Image,
}

/// Prints a schema.
pub fn run(args: &SchemaArgs, terminal: &Terminal) -> ExitCode {
    let schema = match args.kind {
        Kind::Topology => schemars::schema_for!(topolab::topology::spec::Spec),
        Kind::Kernel => schemars::schema_for!(topolab::kernel::KernelSpec),
        Kind::Image => schemars::schema_for!(topolab::image::disk::spec::Spec),
        Kind::Experiment => schemars::schema_for!(ExperimentSpec),
    };
    terminal.json(&schema);
    ExitCode::SUCCESS
}
