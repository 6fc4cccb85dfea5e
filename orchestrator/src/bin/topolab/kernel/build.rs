//! `topolab kernel build`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use comfy_table::{Table, presets};
use topolab::kernel::{self, BuiltKernel, Ccache, Kernel, KernelRef, KernelRequest};

use super::{builder, failure, find, progress::Progress, runtime};
use crate::{failure::Failure, folders::Folders, terminal::Terminal};

/// Arguments of `topolab kernel build`.
#[derive(Debug, Args)]
pub struct BuildArgs {
    /// KERNEL[+SERIES][@VARIANT]; each and prefixes stand for several variants
    #[arg(required = true, value_name = "KERNEL")]
    kernels: Vec<KernelRequest>,
    /// Also build the modules of this folder against each kernel (can be repeated)
    #[arg(long = "module", value_name = "DIR")]
    modules: Vec<PathBuf>,
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

/// Builds what was named.
pub fn run(
    folder: Option<&Path>,
    args: &BuildArgs,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
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
        let one = async {
            let series = point.series.as_deref();
            let built = kernel::build(&builder, kernel, series, &point.variant, &listen).await?;
            kernel::with_modules(&builder, kernel, &built, &args.modules, &listen).await
        };
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
