//! `topolab kernel list`: kernels, their series and patches.

use std::{path::Path, process::ExitCode};

use clap::Args;
use comfy_table::Table;
use topolab::kernel::{self, Kernel, Recipe};

use super::{files, find, runtime};
use crate::{
    failure::{Failure, Kind},
    lab::tools,
    terminal::Terminal,
};

/// Arguments of `topolab kernel list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Kernels to show; all when none is named
    #[arg(value_name = "KERNEL")]
    names: Vec<String>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// Shows kernels.
pub fn run(
    folder: Option<&Path>,
    args: &ListArgs,
    terminal: &Terminal,
) -> Result<ExitCode, Failure> {
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
    table.set_header(["kernel", "patch", "subject", "changes"]);
    let runtime = runtime()?;
    let tools = tools();
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
        terminal.table(table);
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
