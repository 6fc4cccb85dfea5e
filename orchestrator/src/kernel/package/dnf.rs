//! Packages of Fedora: `dnf download`, `rpm2cpio`, `cpio`. Written from the manuals;
//! not tried on a Fedora machine.

use std::fs;

use super::super::built::BuildEvent;
use super::super::cache::Cache;
use super::super::tools::{Tools, command, output};
use super::{Marker, PackageError, Unpacked, io_error, only_file};

/// Fedora's package manager.
pub(super) struct Dnf<'a> {
    pub cache: &'a Cache,
    pub tools: &'a Tools,
}

impl Dnf<'_> {
    /// `dnf download` resolves wildcards and chooses the newest itself; the file's
    /// name tells which it was.
    pub async fn unpack(
        &self,
        pattern: &str,
        events: &(dyn Fn(BuildEvent) + Send + Sync),
    ) -> Result<Unpacked, PackageError> {
        let fetch_error = |source| PackageError::Fetch {
            package: pattern.to_owned(),
            source,
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
        if let Some(unpacked) = Unpacked::find(&entry) {
            return Ok(unpacked);
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
        Unpacked::keep(self.cache, scratch, &entry, marker)
    }
}
