//! Kernel modules with what they depend on, in the order in which they load,
//! from a folder `lib/modules/RELEASE` and its `modules.dep` (depmod(8)).

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

/// Why modules could not be chosen.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// `modules.dep` or a module cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// No module of that name.
    #[error("the kernel in `{}` has no module {name}{}", folder.display(),
        near.as_ref().map(|near| format!(" (there is {near})")).unwrap_or_default())]
    Unknown {
        /// The name asked for.
        name: String,
        /// `lib/modules/RELEASE`.
        folder: PathBuf,
        /// A module with a similar name.
        near: Option<String>,
    },
    /// The dependencies go in a circle.
    #[error("the dependencies of module {name} in `{}` go in a circle", folder.display())]
    Circle {
        /// A module of the circle.
        name: String,
        /// `lib/modules/RELEASE`.
        folder: PathBuf,
    },
}

/// The modules of one kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleTree {
    folder: PathBuf,
    /// Name with underscores to path below the folder.
    paths: BTreeMap<String, String>,
    /// Path to the paths it needs.
    needs: BTreeMap<String, Vec<String>>,
    /// Names of what is built into the kernel.
    builtin: Vec<String>,
}

impl ModuleTree {
    /// Reads `modules.dep` and, when it is there, `modules.builtin`.
    ///
    /// # Errors
    /// When `modules.dep` cannot be read.
    pub fn read(folder: &Path) -> Result<Self, ModuleError> {
        let path = folder.join("modules.dep");
        let text =
            fs::read_to_string(&path).map_err(|source| ModuleError::Read { path, source })?;
        let mut tree = Self {
            folder: folder.into(),
            paths: BTreeMap::new(),
            needs: BTreeMap::new(),
            builtin: fs::read_to_string(folder.join("modules.builtin"))
                .unwrap_or_default()
                .lines()
                .map(name_of)
                .collect(),
        };
        for line in text.lines() {
            if let Some((module, needs)) = line.split_once(':') {
                let needs = needs.split_whitespace().map(String::from).collect();
                tree.paths.insert(name_of(module), module.into());
                tree.needs.insert(module.into(), needs);
            }
        }
        Ok(tree)
    }

    /// The folder it was read from.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Whether the kernel has this as a module or built in.
    pub fn knows(&self, name: &str) -> bool {
        let name = name_of(name);
        self.paths.contains_key(&name) || self.builtin.contains(&name)
    }

    /// Paths below the folder in which every module comes after what it needs.
    /// What is built in needs nothing.
    ///
    /// # Errors
    /// When a name is unknown, or dependencies go in a circle.
    pub fn load_order(&self, names: &[String]) -> Result<Vec<String>, ModuleError> {
        let mut order = Vec::new();
        for name in names {
            let key = name_of(name);
            match self.paths.get(&key) {
                Some(path) => self.visit(path, &mut Vec::new(), &mut order)?,
                None if self.builtin.contains(&key) => {}
                None => {
                    let near = self.paths.keys().map(|known| {
                        let distance = strsim::damerau_levenshtein(known, &key);
                        (distance, known.clone())
                    });
                    return Err(ModuleError::Unknown {
                        name: name.clone(),
                        folder: self.folder.clone(),
                        near: near
                            .filter(|(distance, _)| *distance <= 3)
                            .min()
                            .map(|(_, near)| near),
                    });
                }
            }
        }
        Ok(order)
    }

    fn visit(
        &self,
        path: &str,
        open: &mut Vec<String>,
        order: &mut Vec<String>,
    ) -> Result<(), ModuleError> {
        if order.iter().any(|done| done == path) {
            return Ok(());
        }
        if open.iter().any(|above| above == path) {
            return Err(ModuleError::Circle {
                name: name_of(path),
                folder: self.folder.clone(),
            });
        }
        open.push(path.into());
        // depmod lists every dependency, the most basic one last.
        for need in self.needs.get(path).into_iter().flatten().rev() {
            self.visit(need, open, order)?;
        }
        open.pop();
        order.push(path.into());
        Ok(())
    }

    /// The lines of `modules.dep` for these paths, for the image.
    pub fn dependency_file(&self, paths: &[String]) -> String {
        let mut sorted: Vec<&String> = paths.iter().collect();
        sorted.sort();
        sorted.dedup();
        let lines = sorted.into_iter().map(|path| {
            let needs = self.needs.get(path).into_iter().flatten();
            let needs: String = needs.map(|need| format!(" {need}")).collect();
            format!("{path}:{needs}\n")
        });
        lines.collect()
    }
}

/// `kernel/drivers/char/virtio_console.ko.xz` is `virtio_console`; dashes in
/// file names are underscores in names (modprobe(8)).
pub fn name_of(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let stem = file.find(".ko").map_or(file, |at| &file[..at]);
    stem.trim().replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(dep: &str, builtin: &str) -> (tempfile::TempDir, ModuleTree) {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("modules.dep"), dep).unwrap();
        fs::write(dir.path().join("modules.builtin"), builtin).unwrap();
        let tree = ModuleTree::read(dir.path()).unwrap();
        (dir, tree)
    }

    const DEP: &str = "kernel/d/virtio-console.ko.xz: kernel/d/virtio_ring.ko.xz kernel/d/virtio.ko.xz\n\
        kernel/d/virtio_ring.ko.xz: kernel/d/virtio.ko.xz\n\
        kernel/d/virtio.ko.xz:\n";

    #[test]
    fn dependencies_come_first_and_once() {
        let (_dir, tree) = tree(DEP, "kernel/b/ext4.ko\n");
        let names = ["virtio_console", "virtio-ring", "ext4"].map(String::from);
        let order = tree.load_order(&names).unwrap();
        assert_eq!(
            order,
            [
                "kernel/d/virtio.ko.xz",
                "kernel/d/virtio_ring.ko.xz",
                "kernel/d/virtio-console.ko.xz"
            ]
        );
        assert_eq!(
            tree.dependency_file(&order[..2]),
            "kernel/d/virtio.ko.xz:\nkernel/d/virtio_ring.ko.xz: kernel/d/virtio.ko.xz\n"
        );
        assert!(tree.knows("ext4") && tree.knows("virtio") && !tree.knows("xfs"));
    }

    #[test]
    fn unknown_names_get_a_suggestion_and_circles_are_found() {
        let (_dir, tree_) = tree(DEP, "");
        let error = tree_.load_order(&["virtio_rin".into()]).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("has no module virtio_rin (there is virtio_ring)"),
            "{error}"
        );
        let (_dir, circle) = tree("a.ko: b.ko\nb.ko: a.ko\n", "");
        let error = circle.load_order(&["a".into()]).unwrap_err();
        assert!(matches!(error, ModuleError::Circle { .. }), "{error}");
    }
}
