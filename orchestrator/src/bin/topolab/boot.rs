//! `topolab boot`: one guest, to run a command in or to look at.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use comfy_table::Table;
use topolab::{
    agent_binary,
    campaign::module_tree,
    host::Scratch,
    image::{self, ImageFile, ImageSpec, ModuleChoice},
    kernel::{self, Kernel, KernelRequest},
    outcome::Outcome,
    qemu::{args::fit, process::find_program},
    run::{
        self, Inspect, KernelImage, Limits, RunEvent, RunResult, RunUnit, Session, clean,
        command_line,
    },
    topology::{Topology, cmdline, proof},
};
use topolab_protocol::{
    frame::STREAM_STDERR,
    message::ExitStatus,
    settings::Settings,
    workload::{Command, Monitors, Workload},
};

use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    interrupt,
    kernel::failure as kernel_failure,
    lab,
    terminal::Terminal,
    tty,
};

/// Arguments of `topolab boot`.
#[derive(Debug, Args)]
pub struct BootArgs {
    /// Topology, by name or path
    topology: String,
    /// KERNEL[+SERIES][@VARIANT], or the path of a bzImage
    #[arg(long, default_value = "linux-6.12", value_name = "KERNEL")]
    kernel: String,
    /// Words for the kernel's command line
    #[arg(
        long,
        default_value = "",
        value_name = "WORDS",
        allow_hyphen_values = true
    )]
    append: String,
    #[command(flatten)]
    bench: lab::BenchArgs,
    /// Print what was asked of the machine, what the guest sees, and whether it is the same
    #[arg(long)]
    verify: bool,
    /// Answer of --verify as JSON
    #[arg(long, requires = "verify")]
    json: bool,
    /// Bring this program of the host along, with its libraries (can be repeated)
    #[arg(long = "with", value_name = "PROGRAM")]
    programs: Vec<String>,
    /// Bring a file along: HOST[:GUEST] (can be repeated)
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    files: Vec<String>,
    /// Load a module: one of the kernel's, or built from a folder in kernels/modules/
    /// or elsewhere (can be repeated)
    #[arg(long = "module", value_name = "NAME[=PARAMETERS]")]
    modules: Vec<String>,
    /// Show the guest's console on stderr
    #[arg(long)]
    console: bool,
    /// Wait for gdb before the guest's first instruction (adds `nokaslr`)
    #[arg(long)]
    gdb: bool,
    /// Leave a guest that panicked or hangs standing, with a gdb stub, until Ctrl-C
    #[arg(long)]
    keep_on_failure: bool,
    /// Write the memory of a guest that panicked or hangs to memory.elf, for crash or drgn
    #[arg(long, requires = "output")]
    dump: bool,
    /// End the guest after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
    timeout: u64,
    /// Keep the run's files (console, QEMU's arguments) in this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Command to run in the guest; without one, a shell if there is a terminal
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Our own failures, as `env` and `timeout` count them.
const FAILED: u8 = 125;
/// The command is there and cannot be started.
const NOT_EXECUTABLE: u8 = 126;
/// The command is not there.
const NOT_FOUND: u8 = 127;

/// Console lines shown with a failure.
const TAIL: usize = 15;

/// Brought along for shells, as far as the host has them.
const COMPANIONS: [&str; 24] = [
    "sh", "cat", "ls", "grep", "sed", "head", "tail", "wc", "sort", "cut", "tr", "echo", "sleep",
    "date", "mkdir", "rm", "cp", "ps", "dmesg", "mount", "taskset", "chrt", "lscpu", "numactl",
];

/// Does what was typed.
///
/// # Errors
/// What was wrong with the request, or with the lab.
pub fn run(args: &BootArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    match boot(args, terminal) {
        Ok(code) => Ok(code),
        // The guest's codes pass through, so ours must not look like them.
        Err(failure) if !args.command.is_empty() => {
            terminal.explain(&failure);
            Ok(ExitCode::from(FAILED))
        }
        Err(failure) => Err(failure),
    }
}

fn boot(args: &BootArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let library = lab::library();
    let found = library.topology(&args.topology);
    let topology = Topology::read(&found.map_err(Failure::request)?)?;
    let path = std::env::var("PATH").unwrap_or_default();
    let interactive = tty::is_ours() && !args.verify;
    let mut argv = args.command.clone();
    if argv.is_empty() && interactive {
        argv = vec!["sh".into()];
    }
    if argv.is_empty() && !args.verify {
        return Err(Failure::request("nothing to run in the guest")
            .hint(format_args!("topolab boot {} -- uname -a", args.topology))
            .hint(format_args!("topolab boot {} --verify", args.topology)));
    }
    let mut programs = Vec::new();
    if let Some(first) = argv.first_mut() {
        match find_program(first, &path) {
            Some(program) if program.is_file() => *first = program.to_string_lossy().into_owned(),
            _ => {
                let failure = Failure::request(format_args!(
                    "there is no program `{first}` on this host to bring into the guest"
                ));
                terminal.explain(&failure);
                return Ok(ExitCode::from(NOT_FOUND));
            }
        }
        if Path::new(first).file_name().is_some_and(|name| {
            ["sh", "bash", "dash", "zsh", "busybox"]
                .iter()
                .any(|shell| name == *shell)
        }) {
            programs.extend(
                COMPANIONS
                    .iter()
                    .filter_map(|name| find_program(name, &path)),
            );
        }
        programs.push(PathBuf::from(&*first));
    }
    for name in &args.programs {
        let program = find_program(name, &path);
        programs.push(program.ok_or_else(|| {
            Failure::request(format_args!("there is no program `{name}` to bring along"))
        })?);
    }
    let runtime = lab::runtime()?;
    runtime.block_on(async {
        let cancel = interrupt::watch(terminal)?;
        let wanted: Vec<Wanted> = args.modules.iter().map(|text| Wanted::of(text)).collect();
        let mut told = cancel.clone();
        let (kernel, modules, vmlinux) = tokio::select! {
            kernel = kernel_image(args, &wanted, &folders, terminal) => kernel?,
            () = told.told() => return Err(Failure::lab("interrupted")
                .hint("the same command goes on from what is compiled")),
        };
        let spec = ImageSpec {
            agent: agent_binary::bytes().to_vec(),
            programs,
            files: files(&args.files)?,
            modules,
        };
        let image = image::build(&spec, &folders.cache.join("images"));
        let image = image.map_err(|error| Failure::of(Kind::Request, &error))?;
        let lab = lab::open(&folders, &args.bench).await?;
        let bench = lab.bench(&topology).await;
        let bench = bench.map_err(|error| {
            Failure::lab(error).hint("--accel tcg emulates: slower, and durations say nothing")
        })?;
        if let Some(reason) = &bench.fallback {
            terminal.detail(format_args!("emulating: {reason}"));
        }
        // What cannot be made here at all is told by the run.
        let topology = match fit(&topology, &bench.args) {
            Ok(fitted) => {
                for part in &fitted.left_out {
                    terminal.say(format_args!("left out of the machine: {part}"));
                }
                fitted.topology
            }
            Err(_) => topology,
        };
        let timeout = Duration::from_secs(args.timeout);
        let unit = RunUnit {
            name: "boot".into(),
            topology,
            kernel,
            image: image.into(),
            agent_sha256: agent_binary::sha256().into(),
            append: match args.gdb {
                // Else the addresses of vmlinux are not those of the guest.
                true => format!("{} nokaslr", args.append),
                false => args.append.clone(),
            },
            settings: Settings {
                modules: wanted
                    .into_iter()
                    .map(|one| (one.name, one.parameters))
                    .collect(),
                ..Settings::default()
            },
            workload: (!argv.is_empty()).then(|| {
                Workload::Command(Command {
                    argv,
                    tty: interactive,
                    ..Command::default()
                })
            }),
            monitors: Monitors::default(),
            limits: Limits {
                phase: timeout,
                total: timeout,
                boot: match args.gdb {
                    true => timeout,
                    false => Limits::default().boot,
                },
                // A debugger stops the agent too.
                no_progress: match args.gdb {
                    true => timeout,
                    false => Limits::default().no_progress,
                },
            },
            seed: 0,
            allowed_splats: Vec::new(),
            inspect: Inspect {
                gdb: args.gdb,
                dump: args.dump,
                keep: args.keep_on_failure,
            },
        };
        let kept = match &args.output {
            Some(folder) => Kept::Folder(folder.clone()),
            None => Kept::Scratch(Scratch::new(&folders.runtime).map_err(|error| {
                let folder = folders.runtime.display();
                Failure::lab(format_args!("cannot work in {folder}: {error}"))
            })?),
        };
        let folder = std::path::absolute(kept.path()).map_err(Failure::lab)?;
        let typed = match (unit.workload.is_some(), interactive) {
            (true, true) => Some(tty::raw(terminal)?),
            (true, false) => Some((None, tty::plain())),
            (false, _) => None,
        };
        let (guard, typed) = typed.map_or((None, None), |(guard, typed)| (guard, Some(typed)));
        let show_console = args.console;
        let raw = guard.is_some();
        let symbols = vmlinux.clone();
        let mut hear = move |event: RunEvent| {
            if let RunEvent::Standing { pid, gdb } = &event {
                let command = gdb_command(symbols.as_deref(), gdb);
                terminal.warn(format_args!(
                    "the guest stands still (QEMU {pid}), Ctrl-C ends it: {command}"
                ));
            }
            hear(&event, terminal, show_console, raw);
        };
        let session = Session {
            events: &mut hear,
            cancel,
            typed,
        };
        if args.gdb {
            terminal.warn(format_args!(
                "the guest waits for: {}",
                gdb_command(vmlinux.as_deref(), &folder.join("gdb.sock"))
            ));
        }
        let result = run::execute(&unit, &bench, &folder, session).await;
        drop(guard);
        Ok(answer(args, &unit, &result, terminal))
    })
}

enum Kept {
    Folder(PathBuf),
    Scratch(Scratch),
}

impl Kept {
    fn path(&self) -> &Path {
        match self {
            Self::Folder(folder) => folder,
            Self::Scratch(folder) => folder.path(),
        }
    }
}

/// A module to be loaded in the guest.
struct Wanted {
    /// As the guest calls it.
    name: String,
    parameters: String,
    /// Where it is built, unless the kernel has it.
    folder: Option<PathBuf>,
}

impl Wanted {
    /// From `NAME`, `NAME=PARAMETERS`, or a folder in place of the name.
    fn of(text: &str) -> Self {
        let (name, parameters) = text.split_once('=').unwrap_or((text, ""));
        let name = name.trim_end_matches('/');
        let last = name.rsplit('/').next().unwrap_or(name);
        Self {
            name: last.into(),
            parameters: parameters.into(),
            folder: lab::library().module(name),
        }
    }
}

/// The kernel that was asked for, its modules that make the agent reachable or are
/// asked for, and its symbols.
async fn kernel_image(
    args: &BootArgs,
    wanted: &[Wanted],
    folders: &Folders,
    terminal: Terminal,
) -> Result<(KernelImage, Option<ModuleChoice>, Option<PathBuf>), Failure> {
    let path = Path::new(&args.kernel);
    if path.is_file() && path.extension().is_none_or(|ending| ending != "yaml") {
        if !wanted.is_empty() {
            return Err(Failure::request(
                "an image alone brings no modules; a kernel's file says where they come from",
            )
            .hint("topolab kernel list"));
        }
        let image = KernelImage::of_file(path);
        let image = image.map_err(|error| Failure::of(Kind::Request, &error))?;
        return Ok((image, None, None));
    }
    let request: KernelRequest = args.kernel.parse().map_err(Failure::request)?;
    let file = lab::library()
        .kernel(&request.kernel)
        .map_err(Failure::request)?;
    let kernel = Kernel::read(&file)?;
    let points = kernel::expand(&kernel, &request, &lab::tools()).await;
    let points = points.map_err(|error| kernel_failure(&error))?;
    let [point] = &points[..] else {
        let all: Vec<String> = points.iter().map(ToString::to_string).collect();
        return Err(Failure::request(format_args!(
            "`{}` stands for several kernels: {}",
            args.kernel,
            all.join(", ")
        )));
    };
    let builder = lab::builder(folders);
    let progress = crate::kernel::Progress::new(terminal);
    let listen = |event| progress.on(&event);
    let series = point.series.as_deref();
    let own: Vec<PathBuf> = wanted.iter().filter_map(|one| one.folder.clone()).collect();
    let building = async {
        let built = kernel::build(&builder, &kernel, series, &point.variant, &listen).await?;
        kernel::with_modules(&builder, &kernel, &built, &own, &listen).await
    };
    let built = building.await.map_err(|error| kernel_failure(&error))?;
    let request = |error| Failure::of(Kind::Request, &error);
    let modules = match module_tree(&built).map_err(request)? {
        Some(tree) => {
            let mut choice = ModuleChoice::for_agent(tree, &built.release);
            choice.on_request = wanted.iter().map(|one| one.name.clone()).collect();
            Some(choice)
        }
        // What is built in needs no file; the agent tells what is not there.
        None => None,
    };
    Ok((KernelImage::from(&built), modules, built.vmlinux.clone()))
}

/// What to paste to debug a guest.
fn gdb_command(vmlinux: Option<&Path>, socket: &Path) -> String {
    let vmlinux = vmlinux.map_or("vmlinux".into(), |path| path.display().to_string());
    format!("gdb {vmlinux} -ex 'target remote {}'", socket.display())
}

/// `HOST` goes to the same absolute path, `HOST:GUEST` elsewhere.
fn files(args: &[String]) -> Result<Vec<ImageFile>, Failure> {
    use std::os::unix::fs::PermissionsExt;
    let file = |text: &String| {
        let (source, path) = match text.split_once(':') {
            Some((source, path)) => (PathBuf::from(source), path.to_string()),
            None => {
                let path = std::path::absolute(text).map_err(Failure::request)?;
                (path.clone(), path.to_string_lossy().into_owned())
            }
        };
        let meta = fs::metadata(&source);
        let meta = meta.map_err(|error| {
            Failure::request(format_args!(
                "cannot bring {} along: {error}",
                source.display()
            ))
        })?;
        let mode = meta.permissions().mode() & 0o777;
        Ok(ImageFile { source, path, mode })
    };
    args.iter().map(file).collect()
}

fn hear(event: &RunEvent, terminal: Terminal, console: bool, raw: bool) {
    match event {
        RunEvent::Output { stream, bytes } => {
            // A terminal shows both streams of its guest alike; a reader that
            // went away is no failure of ours.
            if *stream == STREAM_STDERR && !raw {
                let _ = std::io::stderr().write_all(bytes);
            } else {
                let mut out = std::io::stdout().lock();
                let _ = out.write_all(bytes).and_then(|()| out.flush());
            }
        }
        RunEvent::Console(line) if console => {
            let end = if raw { "\r" } else { "" };
            let _ = writeln!(std::io::stderr().lock(), "{line}{end}");
        }
        RunEvent::Hello { after_ms, .. } if !raw => {
            terminal.detail(format_args!("hello after {after_ms} ms"));
        }
        RunEvent::Note(text) if !raw => terminal.detail(text),
        RunEvent::Console(_)
        | RunEvent::Hello { .. }
        | RunEvent::Note(_)
        | RunEvent::Standing { .. }
        | RunEvent::Started { .. }
        | RunEvent::Phase { .. }
        | RunEvent::Sample(_) => {}
    }
}

fn answer(args: &BootArgs, unit: &RunUnit, result: &RunResult, terminal: Terminal) -> ExitCode {
    if args.verify
        && let Some(observed) = &result.observed
    {
        let words = command_line(unit);
        let rows = proof::rows(&unit.topology, &cmdline::words(&words), observed);
        if args.json {
            terminal.json(&rows);
        } else {
            terminal.table(table(&rows));
        }
        if let Some(ms) = result.hello_ms {
            terminal.say(format_args!("start of QEMU to hello: {ms} ms"));
        }
        if rows.iter().any(|row| !row.same) {
            return ExitCode::from(1);
        }
    }
    let had_command = unit.workload.is_some();
    match (&result.exit, &result.outcome) {
        (None, Outcome::Completed) => ExitCode::SUCCESS,
        (Some(ExitStatus::Exited { code }), outcome) => {
            if let Outcome::GuestSplat { title } = outcome {
                terminal.warn(format_args!("the guest's kernel complained: {title}"));
            }
            ExitCode::from(u8::try_from(*code).unwrap_or(FAILED))
        }
        (Some(ExitStatus::Signalled { signal }), _) => {
            ExitCode::from(128 | u8::try_from(*signal).unwrap_or(0))
        }
        (Some(ExitStatus::Failed { reason }), _) => {
            terminal.explain(&Failure::new(Kind::Guest, clean(reason.as_bytes())));
            ExitCode::from(NOT_EXECUTABLE)
        }
        (None, outcome) => {
            let code = explain(outcome, result, terminal);
            if had_command {
                ExitCode::from(FAILED)
            } else {
                code
            }
        }
    }
}

fn explain(outcome: &Outcome, result: &RunResult, terminal: Terminal) -> ExitCode {
    let kind = match outcome {
        Outcome::LabFailed { .. } => Kind::Lab,
        _ => Kind::Guest,
    };
    let tail = &result.console_tail;
    if !tail.is_empty() {
        terminal.say("last console lines:");
    }
    for line in &tail[tail.len().saturating_sub(TAIL)..] {
        terminal.say(format_args!("  {line}"));
    }
    let text = format!("{}: {}", outcome.class(), outcome.detail());
    terminal.explain(&Failure::new(kind, text))
}

fn table(rows: &[proof::Row]) -> Table {
    let mut table = Table::new();
    table.set_header(["", "asked", "seen", "same?"]);
    for row in rows {
        let same = if row.same { "yes" } else { "NO" };
        table.add_row([&*row.field, &*row.asked, &*row.seen, same]);
    }
    table
}
