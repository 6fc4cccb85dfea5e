//! Series wherever they are: files, commits, the archive of mailing lists.

use std::path::PathBuf;

use super::patch::{Imported, Series, SeriesError};
use super::source;
use super::spec::SeriesSource;
use super::tools::{Tools, command, output};

/// Reads one of a kernel's series.
///
/// # Errors
/// It cannot be read, or holds no patches.
pub async fn read_series(source: &SeriesSource, tools: &Tools) -> Result<Series, SeriesError> {
    match source {
        SeriesSource::Path { path, version } => Ok(Series::read(path, *version)?.series),
        SeriesSource::GitRange { repo, range } => {
            let patches = source::patches_of_range(repo, range, tools).await?;
            Series::of_texts(patches)
        }
        SeriesSource::Message { id, version } => {
            Ok(fetch_series(id, *version, tools).await?.series)
        }
    }
}

/// Fetches a series from the archive of mailing lists by the message-id of one of its
/// mails, through `b4`.
///
/// # Errors
/// b4 is not installed or cannot get it, or it is no series.
pub async fn fetch_series(
    id: &str,
    version: Option<u32>,
    tools: &Tools,
) -> Result<Imported, SeriesError> {
    let folder = tempfile::tempdir().map_err(|source| SeriesError::Read {
        path: "a temporary folder".into(),
        source,
    })?;
    let mut b4 = command(&tools.b4);
    b4.args(["am", "--no-cover", "--mbox-name", "series.mbx", "--outdir"])
        .arg(folder.path());
    if let Some(version) = version {
        b4.args(["--use-version", &version.to_string()]);
    }
    output(b4.args(["--", id]))
        .await
        .map_err(|source| SeriesError::Fetch {
            id: id.to_owned(),
            source,
        })?;
    let mut imported = Series::read(folder.path(), version)?;
    for patch in &mut imported.series.patches {
        patch.origin = PathBuf::from(id).join(patch.name());
    }
    Ok(imported)
}
