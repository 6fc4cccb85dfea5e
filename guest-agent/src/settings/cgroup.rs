//! Control groups (cgroup v2): made with their parents, filled, removed again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use topolab_protocol::settings::{Scalar, SettingRecord};

use super::{Journal, SettingError, Undo, put, read};

/// Controllers that a file name's first part may name. `cgroup.*` files belong
/// to every group.
const CONTROLLERS: [&str; 7] = ["cpu", "cpuset", "hugetlb", "io", "memory", "misc", "pids"];

/// The folder of a group given by its path below the root group.
pub fn folder(root: &Path, group: &str) -> PathBuf {
    root.join("sys/fs/cgroup").join(group.trim_matches('/'))
}

/// Makes a group with its parents, enables the controllers its files need, and
/// writes the files: alphabetically, `cpuset.cpus.partition` last because the
/// kernel judges it by the other cpuset files.
pub fn apply(
    journal: &mut Journal,
    group: &str,
    files: &BTreeMap<String, Scalar>,
) -> Result<Vec<SettingRecord>, SettingError> {
    let top = folder(&journal.root, "");
    if !top.join("cgroup.controllers").exists() {
        return Err(SettingError::NoSwitch {
            what: "cgroup v2 hierarchy",
            places: vec![top],
        });
    }
    let needed: BTreeSet<&str> = files
        .keys()
        .filter_map(|file| file.split_once('.'))
        .map(|(controller, _)| controller)
        .filter(|controller| CONTROLLERS.contains(controller))
        .collect();
    let mut at = top;
    for part in group.split('/').filter(|part| !part.is_empty()) {
        enable(journal, &at, &needed)?;
        at.push(part);
        make(journal, &at)?;
    }
    let (last, first): (Vec<_>, Vec<_>) = files
        .iter()
        .partition(|(file, _)| *file == "cpuset.cpus.partition");
    first
        .into_iter()
        .chain(last)
        .map(|(file, value)| journal.write(&at.join(file), &value.to_string()))
        .collect()
}

fn make(journal: &mut Journal, path: &Path) -> Result<(), SettingError> {
    if path.is_dir() {
        return Ok(());
    }
    fs::create_dir(path).map_err(|source| SettingError::Io {
        action: "make control group".into(),
        path: path.to_path_buf(),
        source,
    })?;
    journal.undo.push(Undo::RemoveGroup {
        path: path.to_path_buf(),
    });
    Ok(())
}

/// Gives the children of a group the controllers they need.
fn enable(
    journal: &mut Journal,
    parent: &Path,
    needed: &BTreeSet<&str>,
) -> Result<(), SettingError> {
    let file = parent.join("cgroup.subtree_control");
    let enabled = read(&file)?;
    let missing = needed
        .iter()
        .filter(|controller| !enabled.split_whitespace().any(|on| on == **controller));
    for controller in missing {
        put(&file, &format!("+{controller}"))?;
        journal.undo.push(Undo::Write {
            path: file.clone(),
            value: format!("-{controller}"),
        });
    }
    Ok(())
}

/// Longest wait for the processes of a group to be gone.
const EMPTY_LIMIT: Duration = Duration::from_secs(5);

/// Kills what is left in a group and removes it.
pub fn remove(path: &Path) -> Result<(), SettingError> {
    // Older kernels (before 5.14) have no cgroup.kill; the removal then fails
    // while processes are left, and says so.
    let kill = path.join("cgroup.kill");
    if kill.exists() {
        put(&kill, "1")?;
    }
    let begin = Instant::now();
    loop {
        match fs::remove_dir(path) {
            Ok(()) => return Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {
                if begin.elapsed() > EMPTY_LIMIT {
                    return Err(failed(path, error));
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(failed(path, error)),
        }
    }
}

fn failed(path: &Path, source: std::io::Error) -> SettingError {
    SettingError::Io {
        action: "remove control group".into(),
        path: path.to_path_buf(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder tree has no kernel behind it, so groups that already have their
    /// files stand in for what the kernel would put there.
    fn hierarchy() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let top = folder(root.path(), "");
        fs::create_dir_all(top.join("a/work")).unwrap();
        fs::write(top.join("cgroup.controllers"), "cpuset cpu memory").unwrap();
        fs::write(top.join("cgroup.subtree_control"), "").unwrap();
        fs::write(top.join("a/cgroup.subtree_control"), "").unwrap();
        for file in ["cpuset.mems", "cpuset.cpus", "cpuset.cpus.partition"] {
            fs::write(top.join("a/work").join(file), "").unwrap();
        }
        root
    }

    #[test]
    fn controllers_are_enabled_on_the_way_and_the_partition_comes_last() {
        let root = hierarchy();
        let mut journal = Journal::new(root.path());
        let files = BTreeMap::from([
            (
                "cpuset.cpus.partition".into(),
                Scalar::Text("isolated".into()),
            ),
            ("cpuset.mems".into(), Scalar::Int(0)),
            ("cpuset.cpus".into(), Scalar::Text("4-7".into())),
        ]);
        let records = apply(&mut journal, "a/work", &files).unwrap();
        let order: Vec<_> = records.iter().map(|r| r.what.as_str()).collect();
        assert_eq!(
            order,
            [
                "/sys/fs/cgroup/a/work/cpuset.cpus",
                "/sys/fs/cgroup/a/work/cpuset.mems",
                "/sys/fs/cgroup/a/work/cpuset.cpus.partition"
            ]
        );
        let control = folder(root.path(), "a").join("cgroup.subtree_control");
        assert_eq!(fs::read_to_string(&control).unwrap(), "+cpuset");
        assert!(journal.undo().is_empty());
        assert_eq!(fs::read_to_string(&control).unwrap(), "-cpuset");
    }

    #[test]
    fn made_groups_are_removed() {
        let root = hierarchy();
        let mut journal = Journal::new(root.path());
        apply(&mut journal, "new", &BTreeMap::new()).unwrap();
        let made = folder(root.path(), "new");
        assert!(made.is_dir());
        assert!(journal.undo().is_empty());
        assert!(!made.exists());
    }

    #[test]
    fn without_cgroup_v2_nothing_is_testable() {
        let root = tempfile::tempdir().unwrap();
        let error = apply(&mut Journal::new(root.path()), "work", &BTreeMap::new()).unwrap_err();
        assert!(
            error.to_string().contains("no cgroup v2 hierarchy"),
            "{error}"
        );
    }
}
