//! `topolab kernel import`: what a mailbox, a folder or a thread of a mailing list
//! holds, and keeping it as a series.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use comfy_table::Table;
use topolab::kernel::{
    self,
    patch::{Imported, Patch, Series, slug},
};

use super::{missing_hint, runtime};
use crate::{
    failure::{Failure, Kind},
    lab::tools,
    terminal::Terminal,
};

/// Arguments of `topolab kernel import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// A mailbox, a mail, a folder of patches, or a message-id (fetched by b4)
    #[arg(value_name = "MBOX")]
    what: String,
    /// Version of the series, when there are several; the newest when left out
    #[arg(long, value_name = "N")]
    take: Option<u32>,
    /// Write the patches, in order, into this new folder
    #[arg(long, value_name = "DIR")]
    to: Option<PathBuf>,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// Shows what was read, and keeps it if asked.
pub fn run(args: &ImportArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let path = Path::new(&args.what);
    let read = if !path.exists() && args.what.contains('@') {
        let id = args.what.trim_matches(['<', '>']);
        runtime()?.block_on(kernel::fetch_series(id, args.take, &tools()))
    } else {
        Series::read(path, args.take)
    };
    let imported =
        read.map_err(|error| missing_hint(Failure::of(Kind::Request, &error), &error))?;
    if let Some(folder) = &args.to {
        keep(&imported, folder)?;
    }
    if args.json {
        terminal.json(&as_json(&imported));
    } else {
        terminal.table(table(&imported));
        for skipped in &imported.skipped {
            terminal.say(format_args!(
                "left out '{}': {}",
                skipped.subject, skipped.why
            ));
        }
    }
    if let Some(folder) = &args.to {
        let name = folder.file_name().unwrap_or_default().to_string_lossy();
        terminal.say(format_args!(
            "written to {}; in a kernel's file: series: {{{name}: {}}}",
            folder.display(),
            folder.display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(imported: &Imported) -> Table {
    let mut table = Table::new();
    table.set_header(["patch", "subject", "author", "signed off", "changes"]);
    let len = imported.series.len();
    for (number, patch) in (1..).zip(&imported.series.patches) {
        table.add_row([
            format!("{number}/{len}"),
            patch.subject.clone(),
            patch.author.clone().unwrap_or_default(),
            if patch.signed_off() { "yes" } else { "no" }.to_owned(),
            touched(patch).join(" "),
        ]);
    }
    table
}

fn touched(patch: &Patch) -> Vec<&str> {
    let mut paths: Vec<&str> = patch.touches().collect();
    paths.dedup();
    paths
}

fn as_json(imported: &Imported) -> serde_json::Value {
    let patches: Vec<serde_json::Value> = (1..)
        .zip(&imported.series.patches)
        .map(|(number, patch): (u32, _)| {
            serde_json::json!({
                "number": number,
                "subject": patch.subject,
                "author": patch.author,
                "signed_off": patch.signed_off(),
                "files": touched(patch),
            })
        })
        .collect();
    let skipped: Vec<serde_json::Value> = imported
        .skipped
        .iter()
        .map(|one| serde_json::json!({"subject": one.subject, "why": one.why.to_string()}))
        .collect();
    serde_json::json!({"version": imported.version, "patches": patches, "skipped": skipped})
}

/// Writes each patch as a mail of its own.
fn keep(imported: &Imported, folder: &Path) -> Result<(), Failure> {
    if folder.exists() {
        return Err(Failure::request(format_args!(
            "{} exists already",
            folder.display()
        )));
    }
    let failed = |error: std::io::Error| {
        Failure::lab(format_args!(
            "{} cannot be written: {error}",
            folder.display()
        ))
    };
    std::fs::create_dir_all(folder).map_err(failed)?;
    let len = imported.series.len();
    for (number, patch) in (1u32..).zip(&imported.series.patches) {
        let author = patch
            .author
            .as_deref()
            .unwrap_or("unknown <unknown@invalid>");
        let mut text = format!(
            "From: {author}\nSubject: [PATCH {number}/{len}] {}\n\n",
            patch.subject
        )
        .into_bytes();
        text.extend_from_slice(&patch.text);
        let name = format!("{number:04}-{}", slug(&patch.subject));
        std::fs::write(folder.join(name), text).map_err(failed)?;
    }
    Ok(())
}
