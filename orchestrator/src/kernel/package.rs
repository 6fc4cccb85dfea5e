//! Packages of distributions, fetched and taken apart without installing them and
//! without root.

use std::cmp::Ordering;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::built::BuildEvent;
use super::cache::{Cache, read_json, sha256_file, write_json};
use super::tools::{ToolError, Tools, command, output};

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
    match (Apt { cache, tools }).unpack(pattern, events).await {
        Err(error) if not_installed(&error, &tools.apt_cache) => {}
        answer => return answer,
    }
    match (Dnf { cache, tools }).unpack(pattern, events).await {
        Err(error) if not_installed(&error, &tools.dnf) => Err(PackageError::NoManager),
        answer => answer,
    }
}

struct Apt<'a> {
    cache: &'a Cache,
    tools: &'a Tools,
}

/// One line of `apt-get download --print-uris`.
#[derive(Debug, PartialEq, Eq)]
struct Announced {
    file_name: String,
    sha256: Option<String>,
}

impl Apt<'_> {
    async fn unpack(
        &self,
        pattern: &str,
        events: &(dyn Fn(BuildEvent) + Send + Sync),
    ) -> Result<Unpacked, PackageError> {
        let package = self.newest(pattern).await?;
        let fetch_error = |source| PackageError::Fetch {
            package: package.clone(),
            source,
        };
        let announced =
            output(command(&self.tools.apt_get).args(["download", "--print-uris", &package]))
                .await
                .map_err(fetch_error)?;
        let announced = String::from_utf8_lossy(&announced)
            .lines()
            .find_map(announced_uri)
            .ok_or_else(|| PackageError::NoMatch {
                pattern: pattern.to_owned(),
                similar: Vec::new(),
            })?;
        let name = announced.file_name.clone();
        let entry = self.cache.entry("packages", &name);
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source| PackageError::Io { path, source }
        };
        let _lock = self
            .cache
            .lock("packages", &name, |lock| {
                events(BuildEvent::Waiting { lock: lock.into() });
            })
            .await
            .map_err(io_error(&entry))?;
        if let Some(marker) = read_json::<Marker>(&entry.join("package.json")) {
            return Ok(Unpacked {
                root: entry.join("root"),
                file_name: marker.file_name,
                depends: marker.depends,
            });
        }
        let scratch = self.cache.scratch("packages").map_err(io_error(&entry))?;
        events(BuildEvent::Fetching {
            what: package.clone(),
        });
        output(
            command(&self.tools.apt_get)
                // Without this apt warns that its own user cannot write here.
                .args(["-o", "APT::Sandbox::User=root", "-q", "download", &package])
                .current_dir(scratch.path()),
        )
        .await
        .map_err(fetch_error)?;
        let file = only_file(scratch.path()).map_err(io_error(scratch.path()))?;
        if let Some(expected) = announced.sha256 {
            let found = sha256_file(&file).map_err(io_error(&file))?;
            if found != expected {
                return Err(PackageError::Checksum {
                    file: name,
                    expected,
                    found,
                });
            }
        }
        events(BuildEvent::Unpacking { what: name.clone() });
        let depends = output(
            command(&self.tools.dpkg_deb)
                .arg("-f")
                .arg(&file)
                .arg("Depends"),
        )
        .await
        .map_err(fetch_error)?;
        output(
            command(&self.tools.dpkg_deb)
                .arg("-x")
                .arg(&file)
                .arg(scratch.path().join("root")),
        )
        .await
        .map_err(fetch_error)?;
        fs::remove_file(&file).map_err(io_error(&file))?;
        let marker = Marker {
            file_name: name,
            depends: depended(&String::from_utf8_lossy(&depends)),
        };
        self.finish(scratch, &entry, marker)
            .map_err(io_error(&entry))
    }

    fn finish(
        &self,
        scratch: tempfile::TempDir,
        entry: &Path,
        marker: Marker,
    ) -> io::Result<Unpacked> {
        write_json(&scratch.path().join("package.json"), &marker)?;
        self.cache.keep(scratch, entry)?;
        Ok(Unpacked {
            root: entry.join("root"),
            file_name: marker.file_name,
            depends: marker.depends,
        })
    }

    /// The package a pattern means: itself without wildcards, else the one with the
    /// newest version; among equals the shortest name, so that `linux-image-6.12*-amd64`
    /// does not choose a `-rt-` or `-cloud-` flavour.
    async fn newest(&self, pattern: &str) -> Result<String, PackageError> {
        let fetch_error = |source| PackageError::Fetch {
            package: pattern.to_owned(),
            source,
        };
        let names = output(command(&self.tools.apt_cache).arg("pkgnames"))
            .await
            .map_err(fetch_error)?;
        let names = String::from_utf8_lossy(&names);
        let matching: Vec<&str> = names.lines().filter(|n| glob(pattern, n)).collect();
        if matching.is_empty() {
            return Err(PackageError::NoMatch {
                pattern: pattern.to_owned(),
                similar: similar(pattern, names.lines()),
            });
        }
        if let [only] = matching[..] {
            return Ok(only.to_owned());
        }
        let shown = output(
            command(&self.tools.apt_cache)
                .args(["show", "--no-all-versions"])
                .args(&matching),
        )
        .await
        .map_err(fetch_error)?;
        let shown = String::from_utf8_lossy(&shown);
        let best = stanzas(&shown)
            .into_iter()
            .max_by(|a, b| debian_version_cmp(&a.1, &b.1).then_with(|| b.0.len().cmp(&a.0.len())));
        best.map(|(name, _)| name)
            .ok_or_else(|| PackageError::NoMatch {
                pattern: pattern.to_owned(),
                similar: Vec::new(),
            })
    }
}

struct Dnf<'a> {
    cache: &'a Cache,
    tools: &'a Tools,
}

impl Dnf<'_> {
    /// `dnf download` resolves wildcards and chooses the newest itself; the file's
    /// name tells which it was.
    async fn unpack(
        &self,
        pattern: &str,
        events: &(dyn Fn(BuildEvent) + Send + Sync),
    ) -> Result<Unpacked, PackageError> {
        let fetch_error = |source| PackageError::Fetch {
            package: pattern.to_owned(),
            source,
        };
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source| PackageError::Io { path, source }
        };
        let announced = output(
            command(&self.tools.dnf)
                .args(["-q", "repoquery", "--latest-limit=1"])
                .args(["--qf", "%{name}-%{version}-%{release}.%{arch}\n"])
                .arg(pattern),
        )
        .await
        .map_err(fetch_error)?;
        let announced = String::from_utf8_lossy(&announced).into_owned();
        let Some(name) = announced.lines().map(str::trim).rfind(|l| !l.is_empty()) else {
            return Err(PackageError::NoMatch {
                pattern: pattern.to_owned(),
                similar: Vec::new(),
            });
        };
        let entry = self.cache.entry("packages", name);
        let _lock = self
            .cache
            .lock("packages", name, |lock| {
                events(BuildEvent::Waiting { lock: lock.into() });
            })
            .await
            .map_err(io_error(&entry))?;
        if let Some(marker) = read_json::<Marker>(&entry.join("package.json")) {
            return Ok(Unpacked {
                root: entry.join("root"),
                file_name: marker.file_name,
                depends: marker.depends,
            });
        }
        let scratch = self.cache.scratch("packages").map_err(io_error(&entry))?;
        events(BuildEvent::Fetching {
            what: name.to_owned(),
        });
        output(
            command(&self.tools.dnf)
                .args(["-q", "download", "--destdir"])
                .arg(scratch.path())
                .arg(name),
        )
        .await
        .map_err(fetch_error)?;
        let file = only_file(scratch.path()).map_err(io_error(scratch.path()))?;
        events(BuildEvent::Unpacking {
            what: name.to_owned(),
        });
        let root = scratch.path().join("root");
        fs::create_dir(&root).map_err(io_error(&root))?;
        let archive = scratch.path().join("archive.cpio");
        let bytes = output(command(&self.tools.rpm2cpio).arg(&file))
            .await
            .map_err(fetch_error)?;
        fs::write(&archive, bytes).map_err(io_error(&archive))?;
        output(
            command(&self.tools.cpio)
                .args(["--extract", "--make-directories", "--quiet"])
                .args(["--no-absolute-filenames", "--file"])
                .arg(&archive)
                .current_dir(&root),
        )
        .await
        .map_err(fetch_error)?;
        for spent in [&archive, &file] {
            fs::remove_file(spent).map_err(io_error(spent))?;
        }
        let marker = Marker {
            file_name: name.to_owned(),
            depends: Vec::new(),
        };
        write_json(&scratch.path().join("package.json"), &marker).map_err(io_error(&entry))?;
        self.cache.keep(scratch, &entry).map_err(io_error(&entry))?;
        Ok(Unpacked {
            root: entry.join("root"),
            file_name: marker.file_name,
            depends: marker.depends,
        })
    }
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

/// Reads `'URI' FILE SIZE SHA256:HEX`.
fn announced_uri(line: &str) -> Option<Announced> {
    let mut words = line.split_whitespace();
    words.next()?.strip_prefix('\'')?.strip_suffix('\'')?;
    let file_name = words.next()?.to_owned();
    let sha256 = words
        .nth(1)
        .and_then(|sum| sum.strip_prefix("SHA256:"))
        .map(str::to_owned);
    Some(Announced { file_name, sha256 })
}

/// Names out of a `Depends:` value, the first of alternatives.
fn depended(text: &str) -> Vec<String> {
    text.split(',')
        .filter_map(|one| one.split('|').next())
        .filter_map(|one| one.split(['(', ':']).next())
        .map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .collect()
}

/// `(Package, Version)` of each stanza of `apt-cache show`.
fn stanzas(text: &str) -> Vec<(String, String)> {
    text.split("\n\n")
        .filter_map(|stanza| {
            let field = |name: &str| {
                stanza
                    .lines()
                    .find_map(|line| line.strip_prefix(name))
                    .map(|value| value.trim().to_owned())
            };
            Some((field("Package:")?, field("Version:")?))
        })
        .collect()
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

/// Order of Debian versions (deb-version(7)): epoch, then upstream and revision,
/// each by turns of non-digits (letters first, `~` before everything) and numbers.
fn debian_version_cmp(a: &str, b: &str) -> Ordering {
    let split = |v: &str| -> (u64, String, String) {
        let (epoch, rest) = match v.split_once(':') {
            Some((epoch, rest)) => (epoch.parse().unwrap_or(0), rest),
            None => (0, v),
        };
        match rest.rsplit_once('-') {
            Some((upstream, revision)) => (epoch, upstream.to_owned(), revision.to_owned()),
            None => (epoch, rest.to_owned(), String::new()),
        }
    };
    let (a, b) = (split(a), split(b));
    a.0.cmp(&b.0)
        .then_with(|| part_cmp(&a.1, &b.1))
        .then_with(|| part_cmp(&a.2, &b.2))
}

fn part_cmp(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    let weight = |byte: Option<&u8>| -> i32 {
        match byte {
            Some(b'~') => -1,
            None => 0,
            Some(c) if c.is_ascii_digit() => 0,
            Some(c) if c.is_ascii_alphabetic() => i32::from(*c),
            Some(c) => i32::from(*c) + 256,
        }
    };
    while !a.is_empty() || !b.is_empty() {
        let digit = |text: &[u8]| text.first().is_some_and(u8::is_ascii_digit);
        while (!a.is_empty() && !digit(a)) || (!b.is_empty() && !digit(b)) {
            match weight(a.first()).cmp(&weight(b.first())) {
                Ordering::Equal => {}
                other => return other,
            }
            a = a.get(1..).unwrap_or_default();
            b = b.get(1..).unwrap_or_default();
        }
        let number = |text: &[u8]| -> (usize, u128) {
            let len = text.iter().take_while(|c| c.is_ascii_digit()).count();
            let digits = text[..len].iter().fold(0u128, |n, c| {
                n.saturating_mul(10).saturating_add(u128::from(c - b'0'))
            });
            (len, digits)
        };
        let ((len_a, number_a), (len_b, number_b)) = (number(a), number(b));
        match number_a.cmp(&number_b) {
            Ordering::Equal => {}
            other => return other,
        }
        (a, b) = (&a[len_a..], &b[len_b..]);
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_order_as_dpkg_orders_them() {
        // Each list ascends; cases from deb-version(7) and Debian's kernel.
        for list in [
            &["6.12.9-1", "6.12.107-1", "6.12.117-1~deb12u1", "6.12.117-1"][..],
            &["1.0~rc1", "1.0", "1.0+dfsg", "1.0.1", "1:0.1"],
            &["2.3a", "2.3b", "2.3.1"],
        ] {
            for (low, rest) in (1..).map(|k| &list[k..]).take(list.len()).enumerate() {
                for high in rest {
                    assert_eq!(
                        debian_version_cmp(list[low], high),
                        Ordering::Less,
                        "{} {high}",
                        list[low]
                    );
                    assert_eq!(debian_version_cmp(high, list[low]), Ordering::Greater);
                }
            }
        }
        assert_eq!(debian_version_cmp("1.0-0", "1.0-00"), Ordering::Equal);
    }

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

    #[test]
    fn an_announced_package_is_read() {
        let line = "'http://deb/x%7e1.deb' x_6.12~1_all.deb 153476148 SHA256:e849";
        assert_eq!(
            announced_uri(line).unwrap(),
            Announced {
                file_name: "x_6.12~1_all.deb".to_owned(),
                sha256: Some("e849".to_owned())
            }
        );
        assert_eq!(announced_uri("E: Unable to locate package y"), None);
    }

    #[test]
    fn the_first_of_alternatives_is_depended_on() {
        assert_eq!(
            depended("linux-image-6.1.0-57-amd64 (= 6.1), kmod | x, libc6:any"),
            ["linux-image-6.1.0-57-amd64", "kmod", "libc6"]
        );
    }
}
