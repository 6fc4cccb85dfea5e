//! `topolab kernel`: what can be built, and building it.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Mutex,
    time::{Duration, Instant},
};

use clap::{Args, Subcommand};
use comfy_table::{Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use topolab::kernel::{
    self, BuildEvent, Builder, BuiltKernel, Cache, Ccache, Kernel, KernelError, KernelRef,
    KernelRequest, Recipe, ToolError, Tools,
};

use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    terminal::Terminal,
};

/// Arguments of `topolab kernel`.
#[derive(Debug, Args)]
pub struct KernelArgs {
    /// Folder of the kernels' files
    #[arg(
        long = "kernels",
        global = true,
        default_value = "kernels",
        value_name = "DIR"
    )]
    folder: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show kernels, their series and patches
    List(ListArgs),
    /// Build a kernel, or several variants of it
    Build(BuildArgs),
}

#[derive(Debug, Args)]
struct ListArgs {
    /// Kernels to show; all when none is named
    #[arg(value_name = "KERNEL")]
    names: Vec<String>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct BuildArgs {
    /// KERNEL[+SERIES][@VARIANT]; each and prefixes stand for several variants
    #[arg(required = true, value_name = "KERNEL")]
    kernels: Vec<KernelRequest>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
    /// Processes at once; all CPUs when left out
    #[arg(short, long, value_name = "N")]
    jobs: Option<u32>,
    /// Do not use ccache even if it is installed
    #[arg(long, env = "TOPOLAB_NO_CCACHE", value_parser = clap::builder::FalseyValueParser::new())]
    no_ccache: bool,
}

/// Does what was typed.
pub fn run(args: &KernelArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    match &args.verb {
        Verb::List(list) => show(&args.folder, list, terminal),
        Verb::Build(build) => build_all(&args.folder, build, terminal),
    }
}

/// Reads the kernel a person named: a file in the folder, or a path to one.
pub fn find(folder: &Path, name: &str) -> Result<Kernel, Failure> {
    let path = if name.ends_with(".yaml") {
        PathBuf::from(name)
    } else {
        folder.join(format!("{name}.yaml"))
    };
    if !path.is_file() {
        let known: Vec<String> = files(folder)
            .iter()
            .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
            .collect();
        let failure = Failure::request(format_args!(
            "there is no kernel '{name}': {} does not exist",
            path.display()
        ));
        return Err(if known.is_empty() {
            failure.hint("--kernels DIR names the folder with the kernels' files")
        } else {
            failure.hint(format_args!("kernels here: {}", known.join(", ")))
        });
    }
    Ok(Kernel::read(&path)?)
}

/// What builds kernels in the user's cache.
pub fn builder(folders: &Folders, jobs: Option<u32>, ccache: Ccache) -> Builder {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Builder {
        cache: Cache::inside(&folders.cache),
        tools: Tools::in_path(std::env::var_os("PATH").as_deref()),
        jobs: jobs.unwrap_or(u32::try_from(cpus).unwrap_or(1)),
        ccache,
    }
}

fn runtime() -> Result<tokio::runtime::Runtime, Failure> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(Failure::lab)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    files.sort();
    files
}

fn show(folder: &Path, args: &ListArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let kernels: Vec<Kernel> = if args.names.is_empty() {
        files(folder)
            .iter()
            .map(|path| Kernel::read(path))
            .collect::<Result<_, _>>()?
    } else {
        args.names
            .iter()
            .map(|name| find(folder, name))
            .collect::<Result<_, _>>()?
    };
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["kernel", "patch", "subject", "changes"]);
    let runtime = runtime()?;
    let tools = Tools::in_path(std::env::var_os("PATH").as_deref());
    let mut answer = Vec::new();
    for kernel in &kernels {
        table.add_row([
            format!("{}@base", kernel.name),
            String::new(),
            origin(kernel),
        ]);
        let Recipe::Build { series, .. } = &kernel.recipe else {
            answer.push(serde_json::json!({"kernel": kernel.name, "series": {}}));
            continue;
        };
        let mut all = serde_json::Map::new();
        for (name, source) in series {
            let read = runtime
                .block_on(kernel::read_series(source, &tools))
                .map_err(|error| Failure::of(Kind::Request, &error))?;
            let mut patches = Vec::new();
            for (number, patch) in (1..).zip(&read.patches) {
                let mut touches: Vec<&str> = patch.touches().collect();
                touches.dedup();
                table.add_row([
                    format!("{}+{name}@{number}", kernel.name),
                    format!("{number}/{}", read.len()),
                    patch.subject.clone(),
                    touches.join(" "),
                ]);
                patches.push(serde_json::json!({
                    "number": number,
                    "subject": patch.subject,
                    "author": patch.author,
                    "files": touches,
                }));
            }
            all.insert(name.clone(), patches.into());
        }
        answer.push(serde_json::json!({"kernel": kernel.name, "series": all}));
    }
    if args.json {
        terminal.json(&answer);
    } else {
        terminal.answer(table);
    }
    Ok(ExitCode::SUCCESS)
}

fn origin(kernel: &Kernel) -> String {
    match &kernel.recipe {
        Recipe::Image { image, .. } => format!("image {}", image.display()),
        Recipe::Package { pattern } => format!("package {pattern}"),
        Recipe::Build { source, .. } => match source {
            kernel::Source::Package { pattern } => format!("source package {pattern}"),
            kernel::Source::Tarball { path, .. } => format!("source {}", path.display()),
            kernel::Source::Folder { path } => format!("source in {}", path.display()),
            kernel::Source::Git { repo, reference } => format!("{reference} of {repo}"),
        },
    }
}

fn build_all(folder: &Path, args: &BuildArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let ccache = if args.no_ccache {
        Ccache::Leave
    } else {
        Ccache::Use
    };
    let builder = builder(&folders, args.jobs, ccache);
    let runtime = runtime()?;
    // Everything is read before anything is built.
    let mut points: Vec<(Kernel, KernelRef)> = Vec::new();
    for request in &args.kernels {
        let kernel = find(folder, &request.kernel)?;
        let expanded = runtime
            .block_on(kernel::expand(&kernel, request, &builder.tools))
            .map_err(|error| failure(&error))?;
        for point in expanded {
            points.push((kernel.clone(), point));
        }
    }
    let progress = Progress::new(*terminal);
    let mut built: Vec<BuiltKernel> = Vec::new();
    for (kernel, point) in &points {
        let listen = |event| progress.on(&event);
        let one = kernel::build(
            &builder,
            kernel,
            point.series.as_deref(),
            &point.variant,
            &listen,
        );
        let one = runtime.block_on(async {
            tokio::select! {
                one = one => one.map_err(|error| failure(&error)),
                _ = tokio::signal::ctrl_c() => Err(Failure::lab("interrupted")
                    .hint("the same command goes on from what is compiled")),
            }
        })?;
        built.push(one);
    }
    if args.json {
        terminal.json(&built);
    } else {
        terminal.answer(table(&points, &built));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(points: &[(Kernel, KernelRef)], built: &[BuiltKernel]) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_header(["kernel", "objects", "seconds", "build id", "image"]);
    for ((_, point), one) in points.iter().zip(built) {
        let note = if one.cached { " (cached)" } else { "" };
        table.add_row([
            point.to_string(),
            one.recompiled.to_string(),
            format!("{:.1}{note}", one.seconds),
            one.build_id
                .as_deref()
                .unwrap_or("-")
                .chars()
                .take(12)
                .collect(),
            one.image.display().to_string(),
        ]);
    }
    table
}

/// Whose fault it is, and what to do next.
pub fn failure(error: &KernelError) -> Failure {
    let kind = match error {
        KernelError::Build { .. } | KernelError::Missing { .. } => Kind::Build,
        KernelError::Io { .. } => Kind::Lab,
        _ => Kind::Request,
    };
    let failure = Failure::of(kind, error);
    match missing_program(error) {
        Some(program) => failure.hint(format_args!(
            "install it: apt-get install {}",
            package_of(program)
        )),
        None => failure,
    }
}

/// The program that is not installed, wherever in the chain that is said.
fn missing_program(error: &KernelError) -> Option<&str> {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(ToolError::NotInstalled { program }) = error.downcast_ref() {
            return Some(program);
        }
        next = error.source();
    }
    None
}

fn package_of(program: &str) -> &str {
    let name = program.rsplit('/').next().unwrap_or(program);
    match name {
        "dpkg-deb" => "dpkg",
        "apt-get" | "apt-cache" => "apt",
        name => name,
    }
}

/// Shows a build: a bar on a terminal, plain lines elsewhere.
pub struct Progress {
    terminal: Terminal,
    bar: Option<ProgressBar>,
    said: Mutex<Instant>,
}

/// Plain output tells progress no more often than this.
const PLAIN_STEP: Duration = Duration::from_secs(15);

impl Progress {
    /// Shows nothing yet.
    pub fn new(terminal: Terminal) -> Self {
        let bar = terminal.bars().then(|| {
            let bar = ProgressBar::new_spinner();
            bar.enable_steady_tick(Duration::from_millis(250));
            bar
        });
        Self {
            terminal,
            bar,
            said: Mutex::new(Instant::now()),
        }
    }

    /// Shows what the build tells.
    pub fn on(&self, event: &BuildEvent) {
        let line = match event {
            BuildEvent::Compiling {
                what,
                done,
                expected,
                object,
            } => {
                self.compiling(what, *done, *expected, object);
                return;
            }
            BuildEvent::Fetching { what } => format!("fetching {what}"),
            BuildEvent::Unpacking { what } => format!("unpacking {what}"),
            BuildEvent::Waiting { lock } => {
                format!(
                    "another process is building this; waiting for {}",
                    lock.display()
                )
            }
            BuildEvent::Configuring { what } => format!("{what}: configuring"),
            BuildEvent::Linking { what } => format!("{what}: linking"),
            BuildEvent::Built {
                what,
                recompiled,
                seconds,
                cached,
                log,
            } => {
                if let Some(log) = log {
                    self.terminal
                        .detail(format_args!("{what}: log in {}", log.display()));
                }
                if *cached {
                    format!("{what}: in the cache")
                } else {
                    format!("{what}: {recompiled} objects compiled, {seconds:.1} s")
                }
            }
        };
        match &self.bar {
            Some(bar) => {
                bar.set_style(ProgressStyle::default_spinner());
                bar.set_message(line.clone());
                if matches!(event, BuildEvent::Built { .. }) {
                    bar.suspend(|| self.terminal.say(line));
                }
            }
            None => self.terminal.say(line),
        }
    }

    fn compiling(&self, what: &str, done: u32, expected: Option<u32>, object: &str) {
        match (&self.bar, expected) {
            (Some(bar), Some(expected)) => {
                let style =
                    ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} objects {eta}");
                bar.set_style(style.expect("the template is fixed"));
                bar.set_length(expected.into());
                bar.set_position(done.into());
                bar.set_message(what.to_owned());
            }
            (Some(bar), None) => {
                bar.set_style(ProgressStyle::default_spinner());
                bar.set_message(format!("{what}: {done} objects, {object}"));
            }
            (None, _) => {
                let mut said = self.said.lock().expect("nobody panics holding it");
                if done > 0 && said.elapsed() >= PLAIN_STEP {
                    *said = Instant::now();
                    let of = expected.map_or(String::new(), |n| format!(" of about {n}"));
                    self.terminal
                        .say(format_args!("{what}: {done}{of} objects"));
                }
            }
        }
    }
}
