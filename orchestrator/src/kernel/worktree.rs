//! The tree a kernel is built in: a copy of a source, changed file by file so that
//! make sees exactly what differs from the variant built before.
//!
//! A file whose content must change is replaced (never written in place: it may be
//! a hard link into the source) and gets the present time, also when it goes *back*
//! to the source's content. Its old time would be older than the objects made from
//! the patched one, and make would keep those.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use walkdir::WalkDir;

use super::cache::{read_json, write_json, write_whole};
use super::patch::{Change, Overlay};
use super::source::{SourceTree, read_file};

/// A tree and its objects. Whoever has one holds its lock.
#[derive(Debug)]
pub(super) struct WorkTree {
    folder: PathBuf,
    state: State,
}

/// What is remembered beside a tree.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct State {
    /// The source it is a copy of.
    source_id: String,
    /// Paths that may differ from the source.
    touched: BTreeSet<String>,
    /// What the present `.config` was made from; nothing before the first one.
    pub configured: Option<String>,
}

impl WorkTree {
    /// Opens the tree in `folder`, copying the source if it is not there yet. A tree
    /// of another content of the same lineage is kept, to be changed where they
    /// differ.
    pub async fn open(folder: &Path, source: &SourceTree) -> io::Result<Self> {
        let state = read_json::<State>(&folder.join("state.json"));
        let mut work = Self {
            folder: folder.to_owned(),
            state: state.unwrap_or_default(),
        };
        if work.path().join("Makefile").is_file()
            && let Some(changed) = source.changed_since(&work.state.source_id).await
        {
            // Written first: if this is cut off, the next call looks at these paths.
            work.state.touched.extend(changed);
            work.state.source_id.clone_from(&source.id);
            work.save()?;
            return Ok(work);
        }
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder)?;
        copy_tree(&source.path, &work.path())?;
        work.state = State {
            source_id: source.id.clone(),
            ..State::default()
        };
        work.save()?;
        Ok(work)
    }

    /// Makes `folder` a copy of another tree, objects included, so that a changed
    /// configuration recompiles only what depends on the changed options: kbuild
    /// keeps account of that for each object. The other tree's lock is held.
    pub fn adopt(folder: &Path, donor: &Path) -> io::Result<()> {
        let Some(mut state) = read_json::<State>(&donor.join("state.json")) else {
            return Ok(());
        };
        let objects = donor.join("tree/o");
        if folder.exists() || !objects.join("vmlinux").is_file() {
            return Ok(());
        }
        let copied = (|| {
            fs::create_dir_all(folder.join("tree"))?;
            for entry in fs::read_dir(donor.join("tree"))? {
                let entry = entry?;
                let place = folder.join("tree").join(entry.file_name());
                if entry.path() == objects {
                    copy_objects(&objects, &place, &donor.join("tree"), &folder.join("tree"))?;
                } else {
                    copy_tree(&entry.path(), &place)?;
                }
            }
            state.configured = None;
            write_json(&folder.join("state.json"), &state)
        })();
        if copied.is_err() {
            fs::remove_dir_all(folder)?;
        }
        copied
    }

    /// The source files.
    pub fn path(&self) -> PathBuf {
        self.folder.join("tree")
    }

    /// The objects: a folder inside the tree, so that kbuild refers to the source as
    /// `..` and neither images nor ccache depend on where the cache is.
    pub fn objects(&self) -> PathBuf {
        self.path().join("o")
    }

    /// What is remembered.
    pub fn state(&mut self) -> &mut State {
        &mut self.state
    }

    /// Keeps what is remembered.
    pub fn save(&self) -> io::Result<()> {
        write_json(&self.folder.join("state.json"), &self.state)
    }

    /// Makes the tree the source with the overlay. Returns the paths that changed.
    pub fn lay(&mut self, source: &SourceTree, overlay: &Overlay) -> io::Result<Vec<String>> {
        let paths: BTreeSet<String> = self
            .state
            .touched
            .iter()
            .chain(overlay.files.keys())
            .cloned()
            .collect();
        // Written first: if this is cut off, the next call looks at these paths.
        self.state.touched.clone_from(&paths);
        self.save()?;
        let mut changed = Vec::new();
        for path in &paths {
            let wanted = match overlay.files.get(path) {
                Some(change) => change.clone(),
                None => Change {
                    content: source.read(path)?,
                    mode: None,
                },
            };
            if self.set(source, path, &wanted)? {
                changed.push(path.clone());
            }
        }
        self.state.touched = overlay.files.keys().cloned().collect();
        self.save()?;
        Ok(changed)
    }

    /// Gives one file its content; false when it has it.
    fn set(&self, source: &SourceTree, path: &str, wanted: &Change) -> io::Result<bool> {
        let place = self.path().join(path);
        if let Some(target) = link_target(&source.path.join(path)) {
            if link_target(&place).as_ref() == Some(&target) {
                return Ok(false);
            }
            if place.symlink_metadata().is_ok() {
                fs::remove_file(&place)?;
            }
            fs::create_dir_all(place.parent().expect("a file has a parent"))?;
            std::os::unix::fs::symlink(target, &place)?;
            return Ok(true);
        }
        let present = match link_target(&place) {
            Some(_) => None,
            None => read_file(&place)?,
        };
        let Some(content) = &wanted.content else {
            let there = place.symlink_metadata().is_ok();
            if there {
                fs::remove_file(&place)?;
            }
            return Ok(there);
        };
        let mode = match wanted.mode {
            Some(mode) => mode & 0o777,
            None => match fs::metadata(source.path.join(path)) {
                Ok(metadata) => metadata.permissions().mode() & 0o777,
                Err(_) => 0o644,
            },
        };
        let same_mode = || -> io::Result<bool> {
            Ok(fs::metadata(&place)?.permissions().mode() & 0o777 == mode)
        };
        if present.as_ref() == Some(content) && same_mode()? {
            return Ok(false);
        }
        fs::create_dir_all(place.parent().expect("a file has a parent"))?;
        write_whole(&place, content)?;
        fs::set_permissions(&place, fs::Permissions::from_mode(mode))?;
        Ok(true)
    }
}

/// Where a symbolic link points; nothing for anything else.
fn link_target(path: &Path) -> Option<PathBuf> {
    fs::read_link(path).ok()
}

/// Copies objects by contents, with their times: compilers write into an object
/// that is there, and make compares times.
///
/// kbuild's own notes (`.X.o.cmd`) have paths relative to the tree. Those of the
/// programs under tools/ have absolute ones; they are changed from the old tree to
/// the new, or objtool, on which every object depends, would be made again.
fn copy_objects(from: &Path, to: &Path, old: &Path, new: &Path) -> io::Result<()> {
    for entry in WalkDir::new(from) {
        let entry = entry?;
        let place = below(to, from, entry.path());
        let kind = entry.file_type();
        if kind.is_dir() {
            fs::create_dir_all(&place)?;
            continue;
        }
        if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &place)?;
            continue;
        }
        let is_note = entry
            .path()
            .extension()
            .is_some_and(|end| end == "cmd" || end == "d");
        if is_note {
            let note = String::from_utf8_lossy(&fs::read(entry.path())?).into_owned();
            let (old, new) = (old.to_string_lossy(), new.to_string_lossy());
            fs::write(&place, note.replace(&*old, &new))?;
        } else {
            fs::copy(entry.path(), &place)?;
        }
        let modified = entry.metadata()?.modified()?;
        fs::File::options()
            .write(true)
            .open(&place)?
            .set_modified(modified)?;
    }
    Ok(())
}

/// Where a path below `from` is below `to`.
fn below(to: &Path, from: &Path, path: &Path) -> PathBuf {
    let inside = path
        .strip_prefix(from)
        .expect("walkdir stays below its root");
    // Joining an empty path would put a slash behind a file's name.
    if inside.as_os_str().is_empty() {
        to.to_owned()
    } else {
        to.join(inside)
    }
}

/// Copies a tree by hard links (by contents where the file system refuses).
pub(super) fn copy_tree(from: &Path, to: &Path) -> io::Result<()> {
    for entry in WalkDir::new(from) {
        let entry = entry?;
        let place = below(to, from, entry.path());
        let kind = entry.file_type();
        if kind.is_dir() {
            fs::create_dir_all(&place)?;
        } else if kind.is_symlink() {
            std::os::unix::fs::symlink(fs::read_link(entry.path())?, &place)?;
        } else if fs::hard_link(entry.path(), &place).is_err() {
            fs::copy(entry.path(), &place)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::SystemTime;

    fn change(content: Option<&str>) -> Change {
        Change {
            content: content.map(|text| text.as_bytes().to_vec()),
            mode: None,
        }
    }

    fn overlay(files: &[(&str, Option<&str>)]) -> Overlay {
        Overlay {
            files: files
                .iter()
                .map(|(path, content)| ((*path).to_owned(), change(*content)))
                .collect(),
        }
    }

    fn fixture() -> (tempfile::TempDir, SourceTree) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("source");
        fs::create_dir_all(path.join("kernel/sched")).unwrap();
        for file in ["Makefile", "kernel/sched/fair.c", "kernel/sched/rt.c"] {
            fs::write(path.join(file), format!("{file}\n")).unwrap();
        }
        (folder, SourceTree::fixed("s", &path))
    }

    fn mtime(path: &Path) -> SystemTime {
        fs::metadata(path).unwrap().modified().unwrap()
    }

    #[tokio::test]
    async fn only_files_that_differ_are_touched_and_the_source_never() {
        let (folder, source) = fixture();
        let place = folder.path().join("work");
        let mut work = WorkTree::open(&place, &source).await.unwrap();
        let rt = work.path().join("kernel/sched/rt.c");
        let fair = work.path().join("kernel/sched/fair.c");
        let (rt_time, fair_time) = (mtime(&rt), mtime(&fair));

        let patched = overlay(&[
            ("kernel/sched/fair.c", Some("new\n")),
            ("kernel/new.c", Some("n\n")),
        ]);
        let changed = work.lay(&source, &patched).unwrap();
        assert_eq!(changed, ["kernel/new.c", "kernel/sched/fair.c"]);
        assert_eq!(mtime(&rt), rt_time);
        assert!(work.lay(&source, &patched).unwrap().is_empty());
        assert_eq!(
            fs::read(source.path.join("kernel/sched/fair.c")).unwrap(),
            b"kernel/sched/fair.c\n"
        );
        let patched_time = mtime(&fair);

        // Another process opens it: what was touched is remembered.
        let mut work = WorkTree::open(&place, &source).await.unwrap();
        let back = work.lay(&source, &Overlay::default()).unwrap();
        assert_eq!(back, ["kernel/new.c", "kernel/sched/fair.c"]);
        assert_eq!(fs::read(&fair).unwrap(), b"kernel/sched/fair.c\n");
        assert!(mtime(&fair) >= patched_time && mtime(&fair) > fair_time);
        assert!(!work.path().join("kernel/new.c").exists());
    }

    #[tokio::test]
    async fn an_adopted_tree_keeps_times_and_shares_no_object() {
        let (folder, source) = fixture();
        let donor = folder.path().join("donor");
        let mut work = WorkTree::open(&donor, &source).await.unwrap();
        work.lay(&source, &overlay(&[("kernel/sched/rt.c", Some("x\n"))]))
            .unwrap();
        fs::create_dir_all(work.objects()).unwrap();
        fs::write(work.objects().join("vmlinux"), "linked").unwrap();
        let place = folder.path().join("work");
        WorkTree::adopt(&place, &donor).unwrap();
        let mut adopted = WorkTree::open(&place, &source).await.unwrap();
        for file in ["kernel/sched/rt.c", "o/vmlinux"] {
            assert_eq!(
                mtime(&donor.join("tree").join(file)),
                mtime(&place.join("tree").join(file))
            );
        }
        fs::write(adopted.objects().join("vmlinux"), "other").unwrap();
        assert_eq!(fs::read(donor.join("tree/o/vmlinux")).unwrap(), b"linked");
        // It knows what it differs in.
        assert_eq!(
            adopted.lay(&source, &Overlay::default()).unwrap(),
            ["kernel/sched/rt.c"]
        );
        assert_eq!(
            fs::read(donor.join("tree/kernel/sched/rt.c")).unwrap(),
            b"x\n"
        );
    }

    #[tokio::test]
    async fn an_interrupted_change_is_finished_by_the_next() {
        let (folder, source) = fixture();
        let place = folder.path().join("work");
        let mut work = WorkTree::open(&place, &source).await.unwrap();
        work.lay(&source, &overlay(&[("kernel/sched/rt.c", Some("x\n"))]))
            .unwrap();
        // As if it had been cut off between two files.
        fs::write(place.join("tree/kernel/sched/rt.c"), "half").unwrap();
        let mut work = WorkTree::open(&place, &source).await.unwrap();
        work.lay(&source, &overlay(&[("kernel/sched/rt.c", Some("x\n"))]))
            .unwrap();
        assert_eq!(
            fs::read(place.join("tree/kernel/sched/rt.c")).unwrap(),
            b"x\n"
        );
    }

    #[tokio::test]
    async fn a_damaged_state_means_a_fresh_copy() {
        let (folder, source) = fixture();
        let place = folder.path().join("work");
        let mut work = WorkTree::open(&place, &source).await.unwrap();
        work.lay(&source, &overlay(&[("kernel/sched/rt.c", Some("x\n"))]))
            .unwrap();
        fs::write(place.join("state.json"), "{").unwrap();
        let work = WorkTree::open(&place, &source).await.unwrap();
        assert_eq!(
            fs::read(work.path().join("kernel/sched/rt.c")).unwrap(),
            b"kernel/sched/rt.c\n"
        );
    }
}
