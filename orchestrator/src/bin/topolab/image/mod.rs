//! `topolab image`: guests' user spaces, listed, built and looked into.

mod choice;
mod failure;
mod list;

use std::{path::PathBuf, process::ExitCode, time::Instant};

use clap::{Args, Subcommand};
use topolab::{
    agent_binary,
    image::{
        ImageSpec, UserSpace,
        disk::{Base, Freshness, Recipe, Tools},
        ready::{self, Workbench},
    },
    qemu::process::find_program,
    run::QEMU,
};

pub use choice::{Choice, logins};
pub use failure::failure;

use crate::{boot, failure::Failure, folders::Folders, terminal::Terminal};

/// Arguments of `topolab image`.
#[derive(Debug, Args)]
pub struct ImageArgs {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// List the images of the library and what is built of them
    List(list::ListArgs),
    /// Build an image, or find it in the cache
    Build(BuildArgs),
    /// Boot a small guest from an image and open a shell in it
    Shell(ShellArgs),
}

#[derive(Debug, Args)]
struct BuildArgs {
    /// Image, by name or path, or existing=DISK
    image: Choice,
    /// Ask the mirror again although the cache has a tree of packages
    #[arg(long)]
    fresh: bool,
    /// Write the list of installed packages here, for `recorded:` in the recipe
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct ShellArgs {
    /// Image, by name or path, or existing=DISK
    image: Choice,
    /// Topology of the guest
    #[arg(long, default_value = "smp-4", value_name = "TOPOLOGY")]
    topology: String,
    /// KERNEL[+SERIES][@VARIANT], or the path of a bzImage
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<String>,
}

/// Does what was typed.
pub fn run(args: &ImageArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    match &args.verb {
        Verb::List(args) => list::run(args, &terminal),
        Verb::Build(args) => build(args, terminal),
        Verb::Shell(args) => {
            let boot = boot::BootArgs::shell(
                args.topology.clone(),
                args.image.clone(),
                args.kernel.clone(),
            );
            boot::run(&boot, terminal)
        }
    }
}

fn build(args: &BuildArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let recipe = args.image.recipe()?;
    let begin = Instant::now();
    let freshness = if args.fresh {
        Freshness::Fresh
    } else {
        Freshness::Cached
    };
    let parts = ImageSpec {
        agent: agent_binary::bytes().to_vec(),
        ..ImageSpec::default()
    };
    let space = make(&recipe, parts, freshness, &folders, terminal)?;
    let packages = match &recipe.base {
        Base::Debian(debian) => Some(list::packages(debian, &folders)?),
        _ => None,
    };
    if let Some(file) = &args.record {
        let Some(packages) = &packages else {
            return Err(Failure::request(format_args!(
                "an image of kind `{}` has no packages to record",
                recipe.base.kind()
            )));
        };
        std::fs::write(file, packages).map_err(|error| {
            Failure::request(format_args!("cannot write {}: {error}", file.display()))
        })?;
    }
    let path = list::file(&space);
    if args.json {
        terminal.json(&serde_json::json!({
            "name": recipe.name,
            "kind": recipe.base.kind(),
            "path": path,
            "sha256": space.sha256,
            "seconds": begin.elapsed().as_secs_f64(),
        }));
    } else {
        terminal.answer(path.map_or_else(String::new, |path| path.display().to_string()));
        terminal.say(format_args!("sha256 {}", space.sha256));
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a user space and tells its progress.
pub fn make(
    recipe: &Recipe,
    parts: ImageSpec,
    freshness: Freshness,
    folders: &Folders,
    terminal: Terminal,
) -> Result<UserSpace, Failure> {
    let path = std::env::var("PATH").unwrap_or_default();
    let tools = Tools::new(&path);
    let qemu = find_program(QEMU, &path).unwrap_or_else(|| PathBuf::from(QEMU));
    let logins = logins();
    let bench = Workbench {
        cache: &folders.cache,
        tools: &tools,
        qemu: &qemu,
        logins: &logins,
        freshness,
    };
    let mut told = false;
    let mut say = |line: &str| {
        if !std::mem::replace(&mut told, true) {
            terminal.say(format_args!("building the image `{}`", recipe.name));
        }
        terminal.detail(line);
    };
    ready::user_space(&recipe.base, parts, &bench, &mut say).map_err(|error| failure(&error))
}
