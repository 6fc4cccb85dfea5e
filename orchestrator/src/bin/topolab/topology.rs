//! `topolab topology`: check, draw, and print what QEMU is told.

mod pins;

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use topolab::{
    document::{Document, Problems},
    qemu::{
        acpi,
        args::{Accel, BOOT_WORDS, Bench, Capabilities, Chardev, Devices, TcgThread, build, fit},
    },
    topology::{
        Topology, draw,
        scale::{self, ScaleError},
    },
};

use crate::{failure::Failure, terminal::Terminal};

/// Arguments of `topolab topology`.
#[derive(Debug, Args)]
pub struct TopologyArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Check topology files and tell everything that is wrong with them
    Check(CheckArgs),
    /// Draw a topology
    Show(ShowArgs),
    /// Print the QEMU command a topology leads to
    Qemu(QemuArgs),
    /// Show which host CPU each vCPU would get here
    Pins(pins::PinsArgs),
    /// Write the same machine, small enough for this bench
    Scale(ScaleArgs),
}

#[derive(Debug, Args)]
struct ScaleArgs {
    /// A topology file, or a name in ./topologies
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Most vCPUs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    cpus: u32,
    /// Memory of all nodes together, such as 4G [default: as in the file]
    #[arg(long, value_name = "SIZE", value_parser = memory_size)]
    memory: Option<u64>,
    /// Write the file here and not to stdout
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn memory_size(text: &str) -> Result<u64, topolab::topology::size::SizeError> {
    topolab::topology::size::parse(text)
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// Topology files, or names in ./topologies
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// Topology files, or names in ./topologies
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Draw as SVG
    #[arg(long, conflicts_with = "json")]
    svg: bool,
    /// Columns to draw in [default: the terminal's, at most 100]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(20..=1000))]
    width: Option<u16>,
    /// Answer with the checked topology in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct QemuArgs {
    /// A topology file, or a name in ./topologies
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// What runs the guest's code
    #[arg(long, value_enum, default_value_t = AccelArg::Tcg)]
    accel: AccelArg,
    /// Kernel image to name in the command
    #[arg(long, value_name = "IMAGE", default_value = "bzImage")]
    kernel: String,
    /// Initial RAM file system to name in the command
    #[arg(long, value_name = "FILE")]
    initrd: Option<String>,
    /// More words for the kernel's command line
    #[arg(long, value_name = "WORDS", default_value = "")]
    append: String,
    /// Write the ACPI table with the rankings here, and name it in the command
    #[arg(long, value_name = "FILE", default_value = "ssdt.aml")]
    acpi: String,
    /// Answer with the arguments in JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AccelArg {
    /// The host's processor
    Kvm,
    /// QEMU's emulator
    Tcg,
}

/// What [`Capabilities::default`] stands for.
const OLDEST_QEMU: &str = "7.2";

/// Does what was typed after `topolab topology`.
///
/// # Errors
/// A file is wrong or missing.
pub fn run(args: &TopologyArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    match &args.verb {
        Verb::Check(args) => check(args, terminal),
        Verb::Show(args) => show(args, terminal),
        Verb::Qemu(args) => qemu(args, terminal),
        Verb::Pins(args) => pins::run(args, terminal),
        Verb::Scale(args) => scaled(args, terminal),
    }
}

/// One file as `check --json` answers for it.
#[derive(Debug, Serialize)]
struct Answer {
    file: String,
    topology: Option<Topology>,
    problems: Vec<Told>,
}

#[derive(Debug, Serialize)]
struct Told {
    line: u32,
    column: u32,
    message: String,
    help: Option<String>,
}

fn check(args: &CheckArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut answers = Vec::new();
    let mut refused = Vec::new();
    for file in &args.files {
        let file = resolve(file)?;
        let (topology, problems) = match Topology::read(&file) {
            Ok(topology) => (Some(topology), None),
            Err(problems) => (None, Some(problems)),
        };
        if let Some(topology) = topology.as_ref().filter(|_| !args.json) {
            terminal.answer(format_args!(
                "{}: {} is sound: {} vCPU{} in {} node{}, {}",
                file.display(),
                topology.name,
                topology.vcpus(),
                if topology.vcpus() == 1 { "" } else { "s" },
                topology.nodes.len(),
                if topology.nodes.len() == 1 { "" } else { "s" },
                topolab::topology::size::Size(topology.memory()),
            ));
        }
        answers.push(Answer {
            file: file.display().to_string(),
            topology,
            problems: problems.as_ref().map(told).unwrap_or_default(),
        });
        refused.extend(problems.map(|p| p.to_string()));
    }
    if args.json {
        terminal.json(&answers);
        return Ok(match refused.is_empty() {
            true => ExitCode::SUCCESS,
            false => ExitCode::from(2),
        });
    }
    if refused.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::request(refused.join("\n")))
}

fn told(problems: &Problems) -> Vec<Told> {
    problems
        .list
        .iter()
        .map(|problem| Told {
            line: problem.line,
            column: problem.column,
            message: problem.message.clone(),
            help: problem.help.clone(),
        })
        .collect()
}

fn show(args: &ShowArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let mut topologies = Vec::new();
    for file in &args.files {
        topologies.push(Topology::read(&resolve(file)?)?);
    }
    if args.json {
        terminal.json(&topologies);
        return Ok(ExitCode::SUCCESS);
    }
    let width = args.width.map_or_else(columns, usize::from);
    for (index, topology) in topologies.iter().enumerate() {
        if index > 0 {
            terminal.answer("");
        }
        if args.svg {
            terminal.answer(draw::svg(topology));
        } else {
            terminal.answer(draw::text(topology, width));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Width of the terminal the answer goes to, at most 100.
fn columns() -> usize {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return 100;
    }
    match rustix::termios::tcgetwinsize(&stdout) {
        Ok(size) if size.ws_col >= 20 => usize::from(size.ws_col).min(100),
        _ => 100,
    }
}

fn qemu(args: &QemuArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let topology = Topology::read(&resolve(&args.file)?)?;
    let bench = Bench {
        accel: match args.accel {
            AccelArg::Kvm => Accel::Kvm,
            AccelArg::Tcg => Accel::Tcg {
                thread: TcgThread::Single,
            },
        },
        capabilities: Capabilities::default(),
        cpu_model: None,
        host_nodes: Vec::new(),
    };
    let words = [BOOT_WORDS, &topology.cmdline, &args.append];
    let words: Vec<&str> = words.into_iter().filter(|w| !w.is_empty()).collect();
    let table = acpi::ssdt(&topology);
    let devices = Devices {
        kernel: args.kernel.clone(),
        initrd: args.initrd.clone(),
        append: words.join(" "),
        control: Chardev::Socket("qmp.sock".into()),
        agent: Chardev::Socket("agent.sock".into()),
        console: Chardev::Terminal,
        acpi_tables: table.iter().map(|_| args.acpi.clone()).collect(),
        ..Devices::default()
    };
    if let Some(table) = table {
        std::fs::write(&args.acpi, table)
            .map_err(|e| Failure::request(format_args!("cannot write {}: {e}", args.acpi)))?;
        terminal.say(format_args!(
            "the ACPI table with the rankings is in {}",
            args.acpi
        ));
    }
    // No QEMU is asked here, so the command may be one for newer ones alone.
    let needs = match fit(&topology, &bench) {
        Ok(fitted) => fitted.left_out,
        Err(reasons) => reasons,
    };
    for need in needs {
        terminal.say(format_args!(
            "QEMU {OLDEST_QEMU} cannot do all of this command: {need}"
        ));
    }
    let arguments = build(&topology, &bench, &devices);
    if args.json {
        terminal.json(&arguments);
        return Ok(ExitCode::SUCCESS);
    }
    let mut command = String::from("qemu-system-x86_64");
    for argument in &arguments {
        command.push_str(if argument.starts_with('-') {
            " \\\n  "
        } else {
            " "
        });
        command.push_str(&quoted(argument));
    }
    terminal.answer(command);
    Ok(ExitCode::SUCCESS)
}

fn scaled(args: &ScaleArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let document = Document::read(&resolve(&args.file)?)?;
    let scaled = scale::scale(&document, args.cpus, args.memory).map_err(|error| match error {
        ScaleError::File(problems) => Failure::from(problems),
        ScaleError::TooFew { least, .. } => {
            let again = format!(
                "topolab topology scale {} --cpus {least}",
                args.file.display()
            );
            Failure::request(error).hint(again)
        }
        error => Failure::request(error),
    })?;
    for note in &scaled.notes {
        terminal.say(format_args!("not kept: {note}"));
    }
    match &args.output {
        None => terminal.answer(scaled.text.trim_end()),
        Some(file) => std::fs::write(file, &scaled.text)
            .map_err(|e| Failure::request(format_args!("cannot write {}: {e}", file.display())))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Quotes an argument for a POSIX shell where it needs it.
fn quoted(argument: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=,./:+@%".contains(c);
    if !argument.is_empty() && argument.chars().all(plain) {
        return argument.to_string();
    }
    format!("'{}'", argument.replace('\'', r"'\''"))
}

/// A file as named, or the file of that name in `./topologies`.
fn resolve(file: &Path) -> Result<PathBuf, Failure> {
    if file.exists() {
        return Ok(file.to_path_buf());
    }
    let named = PathBuf::from(format!("topologies/{}.yaml", file.display()));
    if named.exists() {
        return Ok(named);
    }
    let failure = Failure::request(format_args!(
        "there is neither {} nor {}",
        file.display(),
        named.display()
    ));
    Err(failure.hint("topolab topology check topologies/*.yaml"))
}
