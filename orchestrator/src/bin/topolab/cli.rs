//! What can be typed.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::{
    batch, bisect, boot, compare, demo, doctor, enter, extras, failure::Failure, gc, history,
    image, kernel, report, run, schema, terminal::Terminal, topology,
};

/// A lab for Linux scheduler, mm and cgroup patches
///
/// Boots QEMU guests with the topology a bug needs, builds the kernel with and
/// without each patch of a series, runs workloads in the guests and compares
/// the whole matrix.
#[derive(Debug, Parser)]
#[command(
    name = "topolab",
    version,
    max_term_width = 100,
    propagate_version = true
)]
pub struct Cli {
    /// Drop progress and remarks; only the answer is written
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Tell more (can be repeated)
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run an experiment and compare its cells
    Run(Box<run::RunArgs>),
    /// Cancel the jobs of a submitted campaign
    Cancel(batch::CancelArgs),
    /// Carry out a unit of a submitted campaign: what a job calls
    #[command(hide = true)]
    RunCell(batch::RunCellArgs),
    /// Build what a submitted campaign needs: what a job calls
    #[command(hide = true)]
    BatchBuild(batch::BatchBuildArgs),
    /// Tell what this bench can do, and what to do about the rest
    Doctor(doctor::DoctorArgs),
    /// Find the commit or patch that changed a number, an outcome or a build
    Bisect(Box<bisect::BisectArgs>),
    /// Boot a guest and run a command in it
    Boot(boot::BootArgs),
    /// Run the main job: a kernel with and without a patch, in guests with two nodes
    Demo(demo::DemoArgs),
    /// Check and draw topologies, and print the QEMU command they lead to
    Topology(topology::TopologyArgs),
    /// Compare the cells of a campaign, or two campaigns
    Compare(compare::CompareArgs),
    /// Show one metric over many nights, and where its level changed
    History(history::HistoryArgs),
    /// Write a campaign as HTML, JUnit, KTAP, KCIDB or lines of JSON
    Report(report::ReportArgs),
    /// Open a shell in a machine that runs, or in a guest booted for it
    Shell(enter::ShellArgs),
    /// Copy files to and from a machine that runs
    Cp(enter::CpArgs),
    /// Show a guest's console and type on it
    Console(enter::ConsoleArgs),
    /// List, build and look into the guests' user spaces
    Image(image::ImageArgs),
    /// Build kernels with and without patches
    Kernel(kernel::KernelArgs),
    /// Make room in the cache
    Gc(gc::GcArgs),
    /// Print the JSON Schema of a kind of file, for editors
    Schema(schema::SchemaArgs),
    /// Print a shell completion script
    Completions(extras::CompletionsArgs),
    /// Print the manual page
    #[command(hide = true)]
    Man,
    #[command(external_subcommand)]
    Other(Vec<String>),
}

impl Cli {
    /// Does what was typed.
    ///
    /// # Errors
    /// Whatever the verb could not do, as it will be told.
    pub fn run(&self, terminal: &Terminal) -> Result<ExitCode, Failure> {
        match &self.verb {
            Verb::Run(args) => run::run(args, *terminal),
            Verb::Cancel(args) => batch::cancel(args, *terminal),
            Verb::RunCell(args) => batch::run_cell(args, *terminal),
            Verb::BatchBuild(args) => batch::build(args, *terminal),
            Verb::Doctor(args) => doctor::run(args, *terminal),
            Verb::Bisect(args) => bisect::run(args, *terminal),
            Verb::Boot(args) => boot::run(args, *terminal),
            Verb::Demo(args) => demo::run(args, *terminal),
            Verb::Topology(args) => topology::run(args, terminal),
            Verb::Compare(args) => compare::run(args, terminal),
            Verb::History(args) => history::run(args, terminal),
            Verb::Report(args) => report::run(args, terminal),
            Verb::Shell(args) => enter::shell(args, *terminal),
            Verb::Cp(args) => enter::cp(args, terminal),
            Verb::Console(args) => enter::console(args, *terminal),
            Verb::Image(args) => image::run(args, *terminal),
            Verb::Kernel(args) => kernel::run(args, terminal),
            Verb::Gc(args) => gc::run(args, terminal),
            Verb::Schema(args) => Ok(schema::run(args, terminal)),
            Verb::Completions(args) => Ok(extras::completions(args, terminal)),
            Verb::Man => extras::manual(terminal),
            Verb::Other(words) => Err(extras::no_such_verb(words)),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::Cli;

    /// clap looks at a verb only when it is typed; this looks at all of them.
    #[test]
    fn every_verb_holds_together() {
        Cli::command().debug_assert();
    }
}
