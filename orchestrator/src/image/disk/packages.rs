//! Which packages a Debian tree holds, and how two lists differ.

use std::{collections::BTreeMap, fmt};

/// Installed packages: name to version. Written one `NAME=VERSION` a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Packages(pub BTreeMap<String, String>);

/// One difference between a recorded list and what a build installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The package.
    pub package: String,
    /// Its version in the record.
    pub recorded: Option<String>,
    /// Its version in the build.
    pub built: Option<String>,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let package = &self.package;
        match (&self.recorded, &self.built) {
            (Some(recorded), Some(built)) => {
                write!(f, "{package}: recorded {recorded}, built {built}")
            }
            (Some(recorded), None) => write!(f, "{package}: recorded {recorded}, not built"),
            (None, built) => {
                let built = built.as_deref().unwrap_or_default();
                write!(f, "{package}: not recorded, built {built}")
            }
        }
    }
}

impl Packages {
    /// Reads dpkg's status file: paragraphs of `Key: value`, of which those with
    /// `Status: … installed` count (dpkg(1), "Package states").
    pub fn from_status(status: &str) -> Self {
        let mut packages = BTreeMap::new();
        for paragraph in status.split("\n\n") {
            let field = |name: &str| {
                let mut lines = paragraph.lines();
                lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':').map(str::trim))
            };
            let installed = field("Status").is_some_and(|s| s.ends_with(" installed"));
            if let (true, Some(name), Some(version)) =
                (installed, field("Package"), field("Version"))
            {
                packages.insert(name.to_string(), version.to_string());
            }
        }
        Self(packages)
    }

    /// Reads a recorded list. Empty lines and those that begin with `#` count for nothing.
    ///
    /// # Errors
    /// The number (from 1) and text of the first line without `=`.
    pub fn from_record(text: &str) -> Result<Self, (usize, String)> {
        let mut packages = BTreeMap::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (name, version) = line.split_once('=').ok_or((number, line.to_string()))?;
            packages.insert(name.to_string(), version.to_string());
        }
        Ok(Self(packages))
    }

    /// How `built` differs from this record.
    pub fn differences(&self, built: &Self) -> Vec<Difference> {
        let mut names: Vec<&String> = self.0.keys().chain(built.0.keys()).collect();
        names.sort();
        names.dedup();
        names
            .into_iter()
            .map(|name| Difference {
                package: name.clone(),
                recorded: self.0.get(name).cloned(),
                built: built.0.get(name).cloned(),
            })
            .filter(|difference| difference.recorded != difference.built)
            .collect()
    }
}

impl fmt::Display for Packages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|(name, version)| writeln!(f, "{name}={version}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_file_is_read_and_removed_packages_do_not_count() {
        let status = "Package: dbus\nStatus: install ok installed\nVersion: 1.14.10-1\n\
                      Description: bus\n more\n\n\
                      Package: old\nStatus: deinstall ok config-files\nVersion: 1\n\n\
                      Package: adduser\nVersion: 3.134\nStatus: install ok installed\n";
        let packages = Packages::from_status(status);
        assert_eq!(packages.to_string(), "adduser=3.134\ndbus=1.14.10-1\n");
        assert_eq!(Packages::from_record(&packages.to_string()), Ok(packages));
    }

    #[test]
    fn differences_name_both_versions() {
        let recorded = Packages::from_record("# of May\na=1\nb=2\nc=3\n").unwrap();
        let built = Packages::from_record("a=1\nb=2.1\nd=4\n").unwrap();
        let told: Vec<String> = recorded
            .differences(&built)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "b: recorded 2, built 2.1",
                "c: recorded 3, not built",
                "d: not recorded, built 4"
            ]
        );
        assert_eq!(Packages::from_record("a=1\nb\n"), Err((2, "b".to_string())));
    }
}
