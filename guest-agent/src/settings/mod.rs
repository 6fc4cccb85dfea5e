//! Writing settings: each is read back, recorded and remembered, and all of
//! them are undone in reverse.

mod cgroup;
mod scheduler;
mod value;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use topolab_protocol::settings::{SettingRecord, Settings};

use crate::cpulist;
use crate::modules;

pub use cgroup::folder as group_folder;

/// Why a setting is not in place. Its text is what the host shows as
/// `not-testable`.
#[derive(Debug, thiserror::Error)]
pub enum SettingError {
    /// The kernel has no such file.
    #[error("this kernel has no {}", path.display())]
    Missing {
        /// The file.
        path: PathBuf,
    },
    /// The kernel has no such scheduler feature.
    #[error("this kernel has no scheduler feature {name}; it has {}", known.join(" "))]
    NoFeature {
        /// The feature.
        name: String,
        /// Those it has.
        known: Vec<String>,
    },
    /// None of the places a switch may be at exists.
    #[error("this kernel has no {what} (looked for {})", paths(.places))]
    NoSwitch {
        /// What the switch is for.
        what: &'static str,
        /// Where it was looked for.
        places: Vec<PathBuf>,
    },
    /// Reading or writing failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// `read`, `write "5" to`, …
        action: String,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel took the value and shows another one.
    #[error("{} reads back {got:?} after {wanted:?} was written", path.display())]
    NotTaken {
        /// The file.
        path: PathBuf,
        /// What was written.
        wanted: String,
        /// What is there.
        got: String,
    },
    /// A value that is no CPU list.
    #[error("{text:?} is no CPU list")]
    NoCpuList {
        /// The value.
        text: String,
    },
    /// A module is not there or was refused.
    #[error(transparent)]
    Module(#[from] modules::ModuleError),
}

fn paths(places: &[PathBuf]) -> String {
    let places: Vec<_> = places.iter().map(|p| p.display().to_string()).collect();
    places.join(" and ")
}

/// One step back.
#[derive(Debug)]
enum Undo {
    /// Write this value.
    Write { path: PathBuf, value: String },
    /// Kill what is left in a control group and remove it.
    RemoveGroup { path: PathBuf },
    /// Unload a module.
    Unload { name: String },
}

/// What was changed so far below one root folder.
#[derive(Debug)]
pub struct Journal {
    root: PathBuf,
    undo: Vec<Undo>,
}

impl Journal {
    /// Nothing changed yet. `root` is `/` for the real machine.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            undo: Vec::new(),
        }
    }

    /// Puts all settings in place, in the order of their fields.
    ///
    /// # Errors
    /// The first that cannot be; those before it stay in the journal.
    pub fn apply(&mut self, settings: &Settings) -> Result<Vec<SettingRecord>, SettingError> {
        let mut records = Vec::new();
        for (name, parameters) in &settings.modules {
            records.push(self.module(name, parameters)?);
        }
        for (name, value) in &settings.sysctl {
            let path = self.root.join("proc/sys").join(name.replace('.', "/"));
            records.push(self.write(&path, &value.to_string())?);
        }
        for (name, on) in &settings.sched_features {
            records.push(scheduler::feature(self, name, *on)?);
        }
        if let Some(runtime_ns) = settings.fair_server_runtime_ns {
            records.push(scheduler::fair_server(self, runtime_ns)?);
        }
        if let Some(on) = settings.itmt {
            records.push(scheduler::itmt(self, on)?);
        }
        if let Some(list) = &settings.offline {
            records.extend(self.offline(&list.to_string())?);
        }
        for (group, files) in &settings.cgroups {
            records.extend(cgroup::apply(self, group, files)?);
        }
        for (path, value) in &settings.files {
            let path = self.root.join(path.trim_start_matches('/'));
            records.push(self.write(&path, &value.to_string())?);
        }
        Ok(records)
    }

    /// Restores everything, last change first. Returns what could not be restored.
    pub fn undo(&mut self) -> Vec<String> {
        let mut failed = Vec::new();
        while let Some(step) = self.undo.pop() {
            let result = match &step {
                Undo::Write { path, value } => put(path, value).map_err(|e| e.to_string()),
                Undo::RemoveGroup { path } => cgroup::remove(path).map_err(|e| e.to_string()),
                Undo::Unload { name } => {
                    modules::unload(name).map_err(|e| format!("cannot unload {name}: {e}"))
                }
            };
            failed.extend(result.err());
        }
        failed
    }

    /// Writes one file and reads it back.
    fn write(&mut self, path: &Path, wanted: &str) -> Result<SettingRecord, SettingError> {
        let before = self.change(path, wanted)?;
        let got = match &before {
            Some(_) => read(path)?,
            None => String::new(),
        };
        if before.is_some() && !value::same(wanted, &got) {
            return Err(SettingError::NotTaken {
                path: path.to_path_buf(),
                wanted: wanted.to_string(),
                got,
            });
        }
        Ok(SettingRecord {
            what: self.shown(path),
            before,
            wanted: wanted.to_string(),
            got,
        })
    }

    /// Writes one file and remembers what was there, which is returned; `None`
    /// for a file that cannot be read.
    fn change(&mut self, path: &Path, wanted: &str) -> Result<Option<String>, SettingError> {
        let metadata = fs::metadata(path).map_err(|_| SettingError::Missing {
            path: path.to_path_buf(),
        })?;
        let mode = std::os::unix::fs::MetadataExt::mode(&metadata);
        let readable = mode & 0o444 != 0;
        let before = if readable { Some(read(path)?) } else { None };
        put(path, wanted)?;
        if let Some(before) = &before {
            self.undo.push(Undo::Write {
                path: path.to_path_buf(),
                value: value::chosen(before).to_string(),
            });
        }
        Ok(before)
    }

    fn module(&mut self, name: &str, parameters: &str) -> Result<SettingRecord, SettingError> {
        let before = modules::is_loaded(&self.root, name).then(|| "loaded".to_string());
        for loaded in modules::load(&self.root, name, parameters)? {
            self.undo.push(Undo::Unload { name: loaded });
        }
        Ok(SettingRecord {
            what: format!("module {name}"),
            before,
            wanted: parameters.to_string(),
            got: "loaded".into(),
        })
    }

    fn offline(&mut self, list: &str) -> Result<Vec<SettingRecord>, SettingError> {
        let cpus = cpulist::parse(list).ok_or_else(|| SettingError::NoCpuList {
            text: list.to_string(),
        })?;
        let folder = self.root.join("sys/devices/system/cpu");
        cpus.iter()
            .map(|cpu| self.write(&folder.join(format!("cpu{cpu}/online")), "0"))
            .collect()
    }

    /// The path as the guest knows it.
    fn shown(&self, path: &Path) -> String {
        let inside = path.strip_prefix(&self.root).unwrap_or(path);
        format!("/{}", inside.display())
    }
}

fn read(path: &Path) -> Result<String, SettingError> {
    fs::read_to_string(path)
        .map(|text| text.trim_end().to_string())
        .map_err(|source| SettingError::Io {
            action: "read".into(),
            path: path.to_path_buf(),
            source,
        })
}

/// One write call with the whole value: kernel files take nothing in pieces.
/// The file must exist.
fn put(path: &Path, text: &str) -> Result<(), SettingError> {
    // An empty write never reaches the kernel, a lone newline does.
    let bytes = if text.is_empty() { "\n" } else { text };
    fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| file.write_all(bytes.as_bytes()))
        .map_err(|source| SettingError::Io {
            action: format!("write {text:?} to"),
            path: path.to_path_buf(),
            source,
        })
}

#[cfg(test)]
mod tests {
    use topolab_protocol::settings::Scalar;

    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, content) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        root
    }

    fn now(root: &tempfile::TempDir, path: &str) -> String {
        fs::read_to_string(root.path().join(path)).unwrap()
    }

    #[test]
    fn settings_are_recorded_and_undone_in_reverse() {
        let root = root(&[
            ("proc/sys/kernel/numa_balancing", "0\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "never\n"),
            ("sys/devices/system/cpu/cpu3/online", "1\n"),
        ]);
        let settings = Settings {
            sysctl: [("kernel.numa_balancing".into(), Scalar::Bool(true))].into(),
            files: [(
                "/sys/kernel/mm/transparent_hugepage/enabled".into(),
                Scalar::Text("always".into()),
            )]
            .into(),
            offline: Some(Scalar::Int(3)),
            ..Settings::default()
        };
        let mut journal = Journal::new(root.path());
        let records = journal.apply(&settings).unwrap();
        let whats: Vec<_> = records.iter().map(|r| r.what.as_str()).collect();
        assert_eq!(
            whats,
            [
                "/proc/sys/kernel/numa_balancing",
                "/sys/devices/system/cpu/cpu3/online",
                "/sys/kernel/mm/transparent_hugepage/enabled"
            ]
        );
        assert_eq!(records[0].before.as_deref(), Some("0"));
        assert_eq!(records[0].got, "1");
        assert_eq!(now(&root, "sys/devices/system/cpu/cpu3/online"), "0");
        assert_eq!(journal.undo(), [""; 0]);
        assert_eq!(now(&root, "proc/sys/kernel/numa_balancing"), "0");
        assert_eq!(now(&root, "sys/devices/system/cpu/cpu3/online"), "1");
        assert_eq!(
            now(&root, "sys/kernel/mm/transparent_hugepage/enabled"),
            "never"
        );
    }

    #[test]
    fn what_a_kernel_lacks_is_named() {
        let root = root(&[("proc/sys/kernel/a", "1")]);
        let mut journal = Journal::new(root.path());
        let settings = Settings {
            sysctl: [
                ("kernel.a".into(), Scalar::Int(2)),
                ("kernel.b".into(), Scalar::Int(2)),
            ]
            .into(),
            ..Settings::default()
        };
        let error = journal.apply(&settings).unwrap_err().to_string();
        assert!(error.starts_with("this kernel has no "), "{error}");
        assert!(error.ends_with("/proc/sys/kernel/b"), "{error}");
        assert_eq!(now(&root, "proc/sys/kernel/a"), "2");
        assert!(journal.undo().is_empty());
        assert_eq!(now(&root, "proc/sys/kernel/a"), "1");
    }

    #[test]
    fn what_cannot_be_restored_is_said() {
        let root = root(&[("proc/sys/kernel/a", "1")]);
        let mut journal = Journal::new(root.path());
        let path = root.path().join("proc/sys/kernel/a");
        journal.write(&path, "2").unwrap();
        fs::remove_file(&path).unwrap();
        let failed = journal.undo();
        assert_eq!(failed.len(), 1);
        assert!(failed[0].contains("write \"1\" to"), "{failed:?}");
    }
}
