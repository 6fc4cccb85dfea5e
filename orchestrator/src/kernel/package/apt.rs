//! Packages of Debian and Ubuntu: `apt-get download`, `dpkg-deb -x`.

use std::fs;

use super::super::built::BuildEvent;
use super::super::cache::{Cache, sha256_file};
use super::super::tools::{Tools, command, output};
use super::version::debian_version_cmp;
use super::{Marker, PackageError, Unpacked, glob, io_error, only_file, similar};

/// Debian's and Ubuntu's package manager.
pub(super) struct Apt<'a> {
    pub cache: &'a Cache,
    pub tools: &'a Tools,
}

/// One line of `apt-get download --print-uris`.
#[derive(Debug, PartialEq, Eq)]
struct Announced {
    file_name: String,
    sha256: Option<String>,
}

impl Apt<'_> {
    pub async fn unpack(
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
        let _lock = self
            .cache
            .lock("packages", &name, |lock| {
                events(BuildEvent::Waiting { lock: lock.into() });
            })
            .await
            .map_err(io_error(&entry))?;
        if let Some(unpacked) = Unpacked::find(&entry) {
            return Ok(unpacked);
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
        Unpacked::keep(self.cache, scratch, &entry, marker)
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

#[cfg(test)]
mod tests {
    use super::*;

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
