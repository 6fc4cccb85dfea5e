//! `topolab gc`: room in the cache.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use comfy_table::{CellAlignment, Table};
use topolab::kernel::{
    Cache,
    gc::{self, Limits, Thing},
};

use crate::{failure::Failure, folders::Folders, terminal::Terminal};

/// Arguments of `topolab gc`.
#[derive(Debug, Args)]
pub struct GcArgs {
    /// Keep at most this much, going by last use (such as 20G)
    #[arg(long, value_name = "SIZE", value_parser = size)]
    size: Option<u64>,
    /// Remove what was not used for this long (such as 30d, 12h)
    #[arg(long, value_name = "AGE", value_parser = age)]
    age: Option<Duration>,
    /// Only tell what would go
    #[arg(long)]
    dry_run: bool,
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// Without limits, what was not used for this long goes.
const DEFAULT_AGE: Duration = Duration::from_secs(30 * 24 * 3600);

/// Removes sources, trees and images that were not used lately.
pub fn run(args: &GcArgs, terminal: &Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let cache = Cache::inside(&folders.cache);
    let things = gc::list(&cache).map_err(Failure::lab)?;
    let total: u64 = things.iter().map(|thing| thing.bytes).sum();
    let limits = Limits {
        bytes: args.size,
        age: match (args.size, args.age) {
            (None, None) => Some(DEFAULT_AGE),
            (_, age) => age,
        },
    };
    let chosen = gc::chosen(things, limits, std::time::SystemTime::now());
    let gone = if args.dry_run {
        chosen
    } else {
        gc::remove(&cache, chosen).map_err(Failure::lab)?
    };
    let freed: u64 = gone.iter().map(|thing| thing.bytes).sum();
    if args.json {
        let things: Vec<serde_json::Value> = gone
            .iter()
            .map(|thing| {
                serde_json::json!({"kind": thing.kind, "path": thing.path, "bytes": thing.bytes})
            })
            .collect();
        terminal.json(&serde_json::json!({
            "removed": things,
            "freed": freed,
            "left": total - freed,
            "dry_run": args.dry_run,
        }));
    } else {
        if !gone.is_empty() {
            terminal.table(table(&gone));
        }
        let verb = if args.dry_run { "would free" } else { "freed" };
        terminal.answer(format_args!(
            "{verb} {} of {} in {}",
            shown(freed),
            shown(total),
            cache.root().display()
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn table(things: &[Thing]) -> Table {
    let mut table = Table::new();
    table.set_header(["kind", "size", "days unused", "path"]);
    for thing in things {
        let days = thing.used.elapsed().unwrap_or_default().as_secs() / (24 * 3600);
        table.add_row([
            thing.kind.to_owned(),
            shown(thing.bytes),
            days.to_string(),
            thing.path.display().to_string(),
        ]);
    }
    for column in [1, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Bytes in the unit that suits them.
fn shown(bytes: u64) -> String {
    let mut scaled = bytes;
    for unit in ["B", "KiB", "MiB"] {
        if scaled < 10 * 1024 {
            return format!("{scaled} {unit}");
        }
        scaled /= 1024;
    }
    format!("{scaled} GiB")
}

/// Bytes of a number with K, M, G or T.
pub fn size(text: &str) -> Result<u64, String> {
    scaled(
        text,
        &[
            ("", 1),
            ("K", 1 << 10),
            ("M", 1 << 20),
            ("G", 1 << 30),
            ("T", 1 << 40),
        ],
    )
    .ok_or_else(|| format!("'{text}' is no size: write a number and K, M, G or T"))
}

fn age(text: &str) -> Result<Duration, String> {
    scaled(
        text,
        &[
            ("s", 1),
            ("m", 60),
            ("h", 3600),
            ("d", 24 * 3600),
            ("w", 7 * 24 * 3600),
        ],
    )
    .map(Duration::from_secs)
    .ok_or_else(|| format!("'{text}' is no age: write a number and s, m, h, d or w"))
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages() {
        assert_eq!(size("20G"), Ok(20 << 30));
        assert_eq!(size("512"), Ok(512));
        assert!(size("20GB").is_err() && size("G").is_err() && size("99999999T").is_err());
        assert_eq!(age("2d"), Ok(Duration::from_secs(172_800)));
        assert!(age("2").is_err() && age("-1d").is_err());
        assert_eq!(shown(5000), "5000 B");
        assert_eq!(shown(20 << 30), "20 GiB");
    }
}
