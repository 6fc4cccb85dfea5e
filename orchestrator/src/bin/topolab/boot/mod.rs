//! `topolab boot`: one guest, to run a command in or to look at.

mod answer;
mod kernel;

use std::{
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Args;
use topolab::{
    agent_binary,
    host::Scratch,
    image::{
        ImageFile, ImageSpec,
        disk::{Base, Freshness, Recipe},
    },
    qemu::{args::fit, process::find_program},
    run::{self, Inspect, Limits, RunEvent, RunUnit, Session},
    topology::Topology,
};
use topolab_protocol::{
    settings::Settings,
    workload::{Command, Monitors, Workload},
};

use crate::{
    failure::Failure,
    folders::Folders,
    image::{self, Choice},
    interrupt, lab,
    terminal::Terminal,
    tty,
};
use answer::{answer, gdb_command, hear};
use kernel::{Wanted, kernel_image};

/// Arguments of `topolab boot`.
#[derive(Debug, Args)]
pub struct BootArgs {
    /// Topology, by name or path
    topology: String,
    /// KERNEL[+SERIES][@VARIANT], or the path of a bzImage
    ///
    /// Without it, linux-6.12, or linux-6.12-disk for an image with a disk
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<String>,
    /// What the guest runs on: an image of the library, or
    /// existing=DISK[,key=FILE][,user=NAME][,root=DEVICE][,host-key=KEY]
    #[arg(long, default_value = "initramfs", value_name = "IMAGE")]
    image: Choice,
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
    #[arg(long, value_name = "SECONDS", default_value_t = DAY)]
    timeout: u64,
    /// Keep the run's files (console, QEMU's arguments) in this folder
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Command to run in the guest; without one, a shell if there is a terminal
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Seconds of a guest that nobody ended.
const DAY: u64 = 86_400;

/// Our own failures, as `env` and `timeout` count them.
pub const FAILED: u8 = 125;
/// The command is there and cannot be started.
const NOT_EXECUTABLE: u8 = 126;
/// The command is not there.
const NOT_FOUND: u8 = 127;

/// A shell in an image that has programs of its own.
const OWN_SHELL: [&str; 3] = ["/bin/sh", "-c", "cd; exec bash -l || exec sh -l"];
/// A guest with services of its own may take so long until it greets.
const OWN_BOOT: Duration = Duration::from_secs(120);

/// Brought along for shells, as far as the host has them.
const COMPANIONS: [&str; 24] = [
    "sh", "cat", "ls", "grep", "sed", "head", "tail", "wc", "sort", "cut", "tr", "echo", "sleep",
    "date", "mkdir", "rm", "cp", "ps", "dmesg", "mount", "taskset", "chrt", "lscpu", "numactl",
];

impl BootArgs {
    /// A shell in a guest of a topology.
    pub fn shell(topology: String, image: Choice, kernel: Option<String>) -> Self {
        Self {
            topology,
            kernel,
            image,
            append: String::new(),
            bench: lab::BenchArgs::default(),
            verify: false,
            json: false,
            programs: Vec::new(),
            files: Vec::new(),
            modules: Vec::new(),
            console: false,
            gdb: false,
            keep_on_failure: false,
            dump: false,
            timeout: DAY,
            output: None,
            command: Vec::new(),
        }
    }
}

/// The kernel that is asked for, or the one that fits the image.
fn kernel_name(args: &BootArgs, recipe: &Recipe) -> String {
    let usual = match recipe.base {
        Base::Initramfs(_) => "linux-6.12",
        Base::Debian(_) | Base::Existing(_) | Base::Host => "linux-6.12-disk",
    };
    args.kernel.clone().unwrap_or_else(|| usual.into())
}

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
    let recipe = args.image.recipe()?;
    let own_space = !matches!(recipe.base, Base::Initramfs(_));
    if own_space && args.command.is_empty() {
        argv.clear();
        if interactive {
            argv.extend(OWN_SHELL.map(String::from));
        }
    }
    let mut programs = Vec::new();
    if let Some(first) = argv.first_mut()
        && !own_space
    {
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
        let name = kernel_name(args, &recipe);
        let (kernel, modules, vmlinux) = tokio::select! {
            kernel = kernel_image(&name, &wanted, &folders, terminal) => kernel?,
            () = told.told() => return Err(Failure::lab("interrupted")
                .hint("the same command goes on from what is compiled")),
        };
        let spec = ImageSpec {
            agent: agent_binary::bytes().to_vec(),
            programs,
            files: files(&args.files)?,
            modules,
        };
        let image = image::make(&recipe, spec, Freshness::Cached, &folders, terminal)?;
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
            image,
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
                boot: match (args.gdb, own_space) {
                    (true, _) => timeout,
                    (false, true) => OWN_BOOT,
                    (false, false) => Limits::default().boot,
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
            (true, true) => Some(tty::raw(terminal, "Ctrl-A x ends the guest")?),
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
