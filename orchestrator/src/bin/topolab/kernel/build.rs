//! `topolab kernel build`.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use comfy_table::{CellAlignment, Table};
use topolab::kernel::{
    self, Builder, BuiltKernel, Ccache, Kernel, KernelError, KernelRef, KernelRequest,
};

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
        points.extend(expanded.into_iter().map(|point| (kernel.clone(), point)));
    }
    let progress = Progress::new(*terminal);
    let listen = |event| progress.on(&event);
    let mut rows: Vec<Option<Row>> = points.iter().map(|_| None).collect();
    for index in runtime.block_on(schedule(&points, &builder)) {
        let (kernel, point) = &points[index];
        let one = async {
            let series = point.series.as_deref();
            let built = kernel::build(&builder, kernel, series, &point.variant, &listen).await?;
            kernel::with_modules(&builder, kernel, &built, &args.modules, &listen).await
        };
        let result = runtime.block_on(async {
            tokio::select! {
                one = one => Ok(one),
                _ = tokio::signal::ctrl_c() => Err(Failure::lab("interrupted")
                    .hint("the same command goes on from what is compiled")),
            }
        })?;
        rows[index] = Some(match result {
            Ok(built) => Row::Built(Box::new(built)),
            // The others of a list go on without it.
            Err(error) if points.len() > 1 && is_this_variants(&error) => {
                let failure = failure(&error);
                let code = failure.kind.exit_code();
                terminal.explain(&failure);
                Row::Missing(chain(&failure), code)
            }
            Err(error) => return Err(failure(&error)),
        });
    }
    let rows: Vec<Row> = rows.into_iter().flatten().collect();
    if args.json {
        let answer: Vec<serde_json::Value> = points
            .iter()
            .zip(&rows)
            .map(|((_, point), row)| row.json(point))
            .collect();
        terminal.json(&answer);
    } else {
        terminal.table(table(&points, &rows));
    }
    let worst = rows.iter().filter_map(|row| match row {
        Row::Built(_) => None,
        Row::Missing(_, code) => Some(*code),
    });
    Ok(ExitCode::from(worst.max().unwrap_or(0)))
}

/// A variant that was built, or why it is not, with the exit code for that.
enum Row {
    Built(Box<BuiltKernel>),
    Missing(String, u8),
}

impl Row {
    fn json(&self, point: &KernelRef) -> serde_json::Value {
        match self {
            Self::Built(built) => serde_json::json!(built),
            Self::Missing(reason, _) => serde_json::json!({
                "kernel": point.kernel,
                "series": point.series,
                "variant": point.variant,
                "not_applicable": reason,
            }),
        }
    }
}

/// True when another variant may do better: its patches do not apply or compile.
fn is_this_variants(error: &KernelError) -> bool {
    matches!(
        error,
        KernelError::Series { .. } | KernelError::Build { .. } | KernelError::Config { .. }
    )
}

fn chain(failure: &Failure) -> String {
    let mut words = vec![failure.message.clone()];
    words.extend(failure.causes.iter().cloned());
    words.join(": ")
}

/// The order that recompiles least, kernel by kernel.
async fn schedule(points: &[(Kernel, KernelRef)], builder: &Builder) -> Vec<usize> {
    let mut schedule = Vec::new();
    for (index, (kernel, _)) in points.iter().enumerate() {
        if schedule.contains(&index) {
            continue;
        }
        let same: Vec<usize> = (index..points.len())
            .filter(|other| points[*other].0.name == kernel.name)
            .collect();
        let refs: Vec<KernelRef> = same.iter().map(|i| points[*i].1.clone()).collect();
        let order = kernel::order(kernel, &refs, &builder.tools).await;
        schedule.extend(order.into_iter().map(|place| same[place]));
    }
    schedule
}

fn table(points: &[(Kernel, KernelRef)], rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.set_header(["kernel", "objects", "seconds", "build id", "image"]);
    let mut images: Vec<(&str, String)> = Vec::new();
    let mut total = 0.0;
    for ((_, point), row) in points.iter().zip(rows) {
        let one = match row {
            Row::Built(built) => built,
            Row::Missing(reason, _) => {
                let first = reason.lines().next().unwrap_or_default();
                table.add_row([
                    point.to_string(),
                    String::new(),
                    String::new(),
                    String::new(),
                    first.to_owned(),
                ]);
                continue;
            }
        };
        let equal = images.iter().find(|(image, _)| *image == one.image_sha256);
        let place = match equal {
            Some((_, other)) => format!("equal to {other}"),
            None => one.image.display().to_string(),
        };
        let seconds = if one.cached {
            "cached".to_owned()
        } else {
            total += one.seconds;
            format!("{:.1}", one.seconds)
        };
        table.add_row([
            point.to_string(),
            one.recompiled.to_string(),
            seconds,
            one.build_id
                .as_deref()
                .unwrap_or("-")
                .chars()
                .take(12)
                .collect(),
            place,
        ]);
        images.push((&one.image_sha256, point.to_string()));
    }
    if points.len() > 1 {
        table.add_row(["together".to_owned(), String::new(), format!("{total:.1}")]);
    }
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}
