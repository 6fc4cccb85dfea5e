//! Packages of distributions, fetched and taken apart without installing them and
//! without root.

mod apt;
mod dnf;
mod version;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::built::BuildEvent;
use super::cache::{Cache, read_json, write_json};
use super::tools::{ToolError, Tools};

/// A package in the cache, unpacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unpacked {
    /// The folder its files are in, as they would be under `/`.
    pub root: PathBuf,
    /// Its file name, which says name, version and architecture.
    pub file_name: String,
    /// Packages it depends on, by name.
    pub depends: Vec<String>,
}

/// A package that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// No package manager we know is installed.
    #[error("neither apt-get nor dnf is installed: packages of a distribution cannot be fetched")]
    NoManager,
    /// No package matches.
    #[error("no package matches '{pattern}'{}", near(.similar))]
    NoMatch {
        /// The pattern.
        pattern: String,
        /// Packages with a similar name.
        similar: Vec<String>,
    },
    /// The package manager failed.
    #[error("package '{package}' cannot be fetched")]
    Fetch {
        /// The package.
        package: String,
        /// Why.
        source: ToolError,
    },
    /// What was fetched is not what the package manager announced.
    #[error("'{file}' has SHA-256 {found}, the package list says {expected}")]
    Checksum {
        /// The file.
        file: String,
        /// As the list says.
        expected: String,
        /// As it is.
        found: String,
    },
    /// A file or folder of the cache cannot be used.
    #[error("{path} cannot be used")]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

fn near(similar: &[String]) -> String {
    if similar.is_empty() {
        String::new()
    } else {
        format!("; there are {}", similar.join(", "))
    }
}

/// What is remembered beside an unpacked package.
#[derive(serde::Serialize, serde::Deserialize)]
struct Marker {
    file_name: String,
    depends: Vec<String>,
}

/// Fetches and unpacks the newest package that matches.
pub(super) async fn unpack(
    pattern: &str,
    cache: &Cache,
    tools: &Tools,
    events: &(dyn Fn(BuildEvent) + Send + Sync),
) -> Result<Unpacked, PackageError> {
    let not_installed = |error: &PackageError, tool: &Path| {
        matches!(error, PackageError::Fetch { source: ToolError::NotInstalled { program }, .. }
            if Path::new(program) == tool)
    };
    match (apt::Apt { cache, tools }).unpack(pattern, events).await {
        Err(error) if not_installed(&error, &tools.apt_cache) => {}
        answer => return answer,
    }
    match (dnf::Dnf { cache, tools }).unpack(pattern, events).await {
        Err(error) if not_installed(&error, &tools.dnf) => Err(PackageError::NoManager),
        answer => answer,
    }
}

impl Unpacked {
    /// One that is complete in the cache.
    fn find(entry: &Path) -> Option<Self> {
        let marker = read_json::<Marker>(&entry.join("package.json"))?;
        Cache::touch(entry);
        Some(Self {
            root: entry.join("root"),
            file_name: marker.file_name,
            depends: marker.depends,
        })
    }

    /// Makes a scratch folder with `root/` in it the entry.
    fn keep(
        cache: &Cache,
        scratch: tempfile::TempDir,
        entry: &Path,
        marker: Marker,
    ) -> Result<Self, PackageError> {
        write_json(&scratch.path().join("package.json"), &marker).map_err(io_error(entry))?;
        cache.keep(scratch, entry).map_err(io_error(entry))?;
        Ok(Self {
            root: entry.join("root"),
            file_name: marker.file_name,
            depends: marker.depends,
        })
    }
}

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> PackageError + use<> {
    let path = path.to_owned();
    move |source| PackageError::Io { path, source }
}

/// The single file of a folder.
fn only_file(folder: &Path) -> io::Result<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        files.push(entry?.path());
    }
    match <[PathBuf; 1]>::try_from(files) {
        Ok([file]) => Ok(file),
        Err(files) => Err(io::Error::other(format!(
            "one package was expected, {} files came",
            files.len()
        ))),
    }
}

/// Up to three names that look like a pattern.
fn similar<'a>(pattern: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut scored: Vec<(f64, &str)> = names
        .map(|name| (strsim::jaro_winkler(pattern, name), name))
        .filter(|(score, _)| *score > 0.92)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(b.1)));
    scored
        .into_iter()
        .take(3)
        .map(|(_, n)| n.to_owned())
        .collect()
}

/// Shell-style match with `*` and `?` over the whole name.
fn glob(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == b'?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    n = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        assert!(glob(
            "linux-image-6.12*-amd64",
            "linux-image-6.12.117+deb12-amd64"
        ));
        assert!(!glob(
            "linux-image-6.12*-amd64",
            "linux-image-6.12.117+deb12-amd64-dbg"
        ));
        assert!(glob("a?c", "abc") && !glob("a?c", "ac") && glob("*", ""));
    }
}
