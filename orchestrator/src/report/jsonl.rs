//! A campaign as lines of JSON: everything a report is made of, so that
//! a report made from the lines equals the one made from the folder.
//!
//! ```text
//! {"line":"campaign","topolab_jsonl":1,"meta":{…}}    first: what was planned and built
//! {"line":"run","record":{…}}                         one per finished run and try, in order
//! {"line":"end","runs":20}                            last: a file without it was cut off
//! ```
//!
//! `meta` and `record` are the documents of a results folder (`campaign.json`,
//! `run.json`) and carry their own `format`.

use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::store::{
    CampaignMeta,
    record::{FORMAT, RunRecord},
};

/// Version of the lines. A reader refuses others.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum LineRef<'a> {
    Campaign {
        topolab_jsonl: u32,
        meta: &'a CampaignMeta,
    },
    Run {
        record: &'a RunRecord,
    },
    End {
        runs: usize,
    },
}

#[derive(Deserialize)]
#[serde(tag = "line", rename_all = "kebab-case")]
enum Line {
    Campaign {
        topolab_jsonl: u32,
        meta: Box<CampaignMeta>,
    },
    Run {
        record: Box<RunRecord>,
    },
    End {
        runs: usize,
    },
}

/// Why lines cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JsonlError {
    /// The stream broke.
    #[error("line {line}: cannot be read")]
    Io {
        /// Line, from 1.
        line: usize,
        /// The system's words.
        #[source]
        source: io::Error,
    },
    /// A line is not one of ours.
    #[error("line {line}: not a line of a campaign")]
    Garbled {
        /// Line, from 1.
        line: usize,
        /// The parser's words.
        #[source]
        source: serde_json::Error,
    },
    /// Another version.
    #[error("line {line}: {what} version {found}; this topolab reads version {known}")]
    Version {
        /// Line, from 1.
        line: usize,
        /// Of what.
        what: &'static str,
        /// Version found.
        found: u32,
        /// Version known.
        known: u32,
    },
    /// The first line is no campaign.
    #[error("line 1: there is no campaign before the first run")]
    NoCampaign,
    /// The last line is missing or counts otherwise.
    #[error("cut off: {found} runs, and {} at the end", .said.map_or("no count".to_string(), |n| n.to_string()))]
    CutOff {
        /// Runs read.
        found: usize,
        /// Runs the last line says there are.
        said: Option<usize>,
    },
}

/// Writes a campaign.
///
/// # Errors
/// The stream refuses.
pub fn write(mut to: impl Write, meta: &CampaignMeta, records: &[RunRecord]) -> io::Result<()> {
    let mut line = |line: LineRef<'_>| {
        serde_json::to_writer(&mut to, &line)?;
        to.write_all(b"\n")
    };
    line(LineRef::Campaign {
        topolab_jsonl: VERSION,
        meta,
    })?;
    for record in records {
        line(LineRef::Run { record })?;
    }
    line(LineRef::End {
        runs: records.len(),
    })?;
    to.flush()
}

/// Reads a campaign back.
///
/// # Errors
/// The lines are broken, cut off, or of another version.
pub fn read(from: impl BufRead) -> Result<(CampaignMeta, Vec<RunRecord>), JsonlError> {
    let mut meta: Option<CampaignMeta> = None;
    let mut records = Vec::new();
    let mut said = None;
    for (place, text) in from.lines().enumerate() {
        let line = place + 1;
        let text = text.map_err(|source| JsonlError::Io { line, source })?;
        let version = |what, found, known| {
            if found == known {
                return Ok(());
            }
            Err(JsonlError::Version {
                line,
                what,
                found,
                known,
            })
        };
        match serde_json::from_str(&text).map_err(|source| JsonlError::Garbled { line, source })? {
            Line::Campaign {
                topolab_jsonl,
                meta: found,
            } => {
                version("JSONL", topolab_jsonl, VERSION)?;
                version("results format", found.format, FORMAT)?;
                meta = Some(*found);
            }
            Line::Run { record } => {
                version("results format", record.format, FORMAT)?;
                records.push(*record);
            }
            Line::End { runs } => said = Some(runs),
        }
        if meta.is_none() {
            return Err(JsonlError::NoCampaign);
        }
    }
    let meta = meta.ok_or(JsonlError::NoCampaign)?;
    if said != Some(records.len()) {
        return Err(JsonlError::CutOff {
            found: records.len(),
            said,
        });
    }
    Ok((meta, records))
}
