//! `topolab report`: a campaign as files for people and for other programs.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::PathBuf,
    process::ExitCode,
};

use clap::Args;
use topolab::report::{self, campaign::Campaign};

use crate::{
    compare::{compared, folder_name, load},
    failure::Failure,
    terminal::Terminal,
};

/// Arguments of `topolab report`.
#[derive(Debug, Args)]
#[group(id = "shapes", multiple = true, required = true, args = ["html", "junit", "ktap", "kcidb", "jsonl"])]
pub struct ReportArgs {
    /// Results folder, or a file written by `report --jsonl`
    results: PathBuf,
    /// Older results to compare with, cell by cell
    #[arg(long, value_name = "DIR")]
    baseline: Option<PathBuf>,
    /// One page with everything: tables, plots, builds, failures (`-`: stdout, for every shape)
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// JUnit XML: a case per cell and per gate
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// KTAP, as the kernel's own tests print it
    #[arg(long, value_name = "FILE")]
    ktap: Option<PathBuf>,
    /// JSON for KCIDB
    #[arg(long, value_name = "FILE")]
    kcidb: Option<PathBuf>,
    /// The campaign as lines of JSON, to be read again by `report` and `compare`
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
    /// Name of the sender with KCIDB
    #[arg(long, value_name = "NAME", default_value = "topolab", value_parser = origin)]
    kcidb_origin: String,
}

fn origin(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !text.is_empty() && text.chars().all(is_plain) {
        Ok(text.into())
    } else {
        Err("an origin has lower-case letters, digits and `_` only".into())
    }
}

/// Where a shape goes.
enum Sink {
    Stdout,
    File(PathBuf, File),
}

impl Sink {
    /// Opens before anything is computed: a bad path fails at once.
    fn open(path: &PathBuf) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self::Stdout);
        }
        let file = File::create(path)
            .map_err(|error| Failure::request(format!("{}: {error}", path.display())))?;
        Ok(Self::File(path.clone(), file))
    }

    fn write(
        self,
        terminal: &Terminal,
        with: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        match self {
            Self::Stdout => {
                let mut bytes = Vec::new();
                with(&mut bytes).map_err(Failure::lab)?;
                terminal.answer(String::from_utf8_lossy(&bytes).trim_end());
            }
            Self::File(path, file) => {
                let mut file = BufWriter::new(file);
                with(&mut file)
                    .and_then(|()| file.flush())
                    .map_err(|error| Failure::lab(format!("{}: {error}", path.display())))?;
                terminal.say(format_args!("wrote {}", path.display()));
            }
        }
        Ok(())
    }
}

/// Writes every file that was asked for.
///
/// # Errors
/// Results cannot be read, or a file cannot be written.
pub fn run(args: &ReportArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let open = |path: &Option<PathBuf>| path.as_ref().map(Sink::open).transpose();
    let html = open(&args.html)?;
    let junit = open(&args.junit)?;
    let ktap = open(&args.ktap)?;
    let kcidb = open(&args.kcidb)?;
    let jsonl = open(&args.jsonl)?;

    let results = load(&args.results)?;
    let older = args.baseline.as_deref().map(load).transpose()?;
    let spec = &results.meta.experiment.compare;
    let comparison = compared(older.as_ref(), &results, spec, &[])?;
    let folder = folder_name(&results.path);
    let campaign = Campaign::new(&results.meta, &folder, &results.records, &comparison);
    if let Some(sink) = html {
        let page = report::html::render(&campaign);
        sink.write(terminal, |to| to.write_all(page.as_bytes()))?;
    }
    if let Some(sink) = junit {
        let text = report::junit::render(&campaign).map_err(Failure::lab)?;
        sink.write(terminal, |to| to.write_all(text.as_bytes()))?;
    }
    if let Some(sink) = ktap {
        sink.write(terminal, |to| {
            to.write_all(report::ktap::render(&campaign).as_bytes())
        })?;
    }
    if let Some(sink) = kcidb {
        let document = report::kcidb::document(&campaign, &args.kcidb_origin);
        sink.write(terminal, |to| {
            serde_json::to_writer_pretty(to, &document).map_err(io::Error::from)
        })?;
    }
    if let Some(sink) = jsonl {
        sink.write(terminal, |to| {
            report::jsonl::write(to, &results.meta, &results.records)
        })?;
    }
    Ok(ExitCode::SUCCESS)
}
