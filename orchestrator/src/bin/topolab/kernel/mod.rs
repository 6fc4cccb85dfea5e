//! `topolab kernel`: what can be built, and building it.

mod build;
mod check;
mod config;
mod import;
mod list;
mod progress;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{Args, Subcommand};
use topolab::kernel::{
    Builder, Cache, Ccache, Kernel, KernelError, ToolError, ToolchainError, Tools,
};

pub use progress::Progress;

use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    lab::runtime,
    terminal::Terminal,
};

/// Arguments of `topolab kernel`.
#[derive(Debug, Args)]
pub struct KernelArgs {
    /// Folder of the kernels' files; kernels/ here, or the checkout's, when left out
    #[arg(long = "kernels", global = true, value_name = "DIR")]
    folder: Option<PathBuf>,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show kernels, their series and patches
    List(list::ListArgs),
    /// Build a kernel, or several variants of it
    Build(build::BuildArgs),
    /// Check that each patch of a series builds on every target
    Check(check::CheckArgs),
    /// Show what a kernel is configured like, and why
    Config(config::ConfigArgs),
    /// Show what a mailbox, folder or thread holds, and keep it as a series
    Import(import::ImportArgs),
}

/// Does what was typed.
pub fn run(args: &KernelArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    match &args.verb {
        Verb::List(list) => list::run(args.folder.as_deref(), list, terminal),
        Verb::Build(build) => build::run(args.folder.as_deref(), build, terminal),
        Verb::Check(check) => check::run(args.folder.as_deref(), check, terminal),
        Verb::Config(config) => config::run(args.folder.as_deref(), config, terminal),
        Verb::Import(import) => import::run(import, terminal),
    }
}

/// Reads the kernel a person named: a file of the folder (or of the library), or a
/// path to one.
pub fn find(folder: Option<&Path>, name: &str) -> Result<Kernel, Failure> {
    let path = match folder {
        _ if name.ends_with(".yaml") => PathBuf::from(name),
        Some(folder) => folder.join(format!("{name}.yaml")),
        None => crate::lab::library()
            .kernel(name)
            .map_err(Failure::request)?,
    };
    if !path.is_file() {
        let failure = Failure::request(format_args!(
            "there is no kernel '{name}': {} does not exist",
            path.display()
        ));
        let known = files(folder)
            .iter()
            .map(|path| stem(path))
            .collect::<Vec<_>>();
        return Err(if known.is_empty() {
            failure.hint("--kernels DIR names the folder with the kernels' files")
        } else {
            failure.hint(format_args!("kernels here: {}", known.join(", ")))
        });
    }
    Ok(Kernel::read(&path)?)
}

fn stem(path: &Path) -> String {
    path.file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
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

/// The kernels' files of a folder, or of the library.
fn files(folder: Option<&Path>) -> Vec<PathBuf> {
    let Some(folder) = folder else {
        let library = crate::lab::library();
        let names = library.names("kernels");
        return names
            .iter()
            .filter_map(|name| library.kernel(name).ok())
            .collect();
    };
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|end| end == "yaml"))
        .collect();
    files.sort();
    files
}

/// Whose fault it is, and what to do next.
pub fn failure(error: &KernelError) -> Failure {
    let kind = match error {
        KernelError::Build { .. } | KernelError::Missing { .. } | KernelError::Module { .. } => {
            Kind::Build
        }
        KernelError::Io { .. } => Kind::Lab,
        _ => Kind::Request,
    };
    let failure = Failure::of(kind, error);
    missing_hint(failure, error)
}

/// Adds what to install when a program is missing.
fn missing_hint(failure: Failure, error: &(dyn std::error::Error + 'static)) -> Failure {
    match missing_program(error) {
        Some(package) => failure.hint(format_args!("apt-get install {package}")),
        None => failure,
    }
}

/// The package of a program that is not installed, wherever in the chain that is said.
fn missing_program(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(ToolError::NotInstalled { program }) = error.downcast_ref() {
            return Some(package_of(program).to_owned());
        }
        if let Some(ToolchainError::Missing { package, .. }) = error.downcast_ref() {
            return package.clone();
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
