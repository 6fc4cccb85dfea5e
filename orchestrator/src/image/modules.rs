//! Kernel modules with what they depend on, in the order in which they load,
//! from a folder `lib/modules/RELEASE` and its `modules.dep` (depmod(8)). A
//! package that was unpacked and not installed has no such file yet: modinfo(8)
//! is then asked about the few modules that are wanted.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
    process::Command,
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
    /// modinfo(8) cannot tell what a module needs.
    #[error("`{command}` cannot tell what the module needs{}", if said.is_empty() { String::new() } else { format!(": {said}") })]
    Ask {
        /// The command.
        command: String,
        /// What it wrote to stderr; empty when it could not be started.
        said: String,
        /// Why it could not be started.
        #[source]
        source: Option<io::Error>,
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
    /// Path to the paths it needs, directly or not; nothing without `modules.dep`.
    needs: Option<BTreeMap<String, Vec<String>>>,
    /// Names of what is built into the kernel.
    builtin: Vec<String>,
}

impl ModuleTree {
    /// Reads `modules.dep` and, when it is there, `modules.builtin`.
    ///
    /// # Errors
    /// When `modules.dep` is there and cannot be read, or the folder is not there.
    pub fn read(folder: &Path) -> Result<Self, ModuleError> {
        let path = folder.join("modules.dep");
        let builtin = fs::read_to_string(folder.join("modules.builtin")).unwrap_or_default();
        let mut tree = Self {
            folder: folder.into(),
            paths: BTreeMap::new(),
            needs: None,
            builtin: builtin.lines().map(name_of).collect(),
        };
        match fs::read_to_string(&path) {
            Ok(text) => tree.listed(&text),
            Err(error) if error.kind() == io::ErrorKind::NotFound && folder.is_dir() => {
                tree.found();
            }
            Err(source) => return Err(ModuleError::Read { path, source }),
        }
        Ok(tree)
    }

    /// Takes the modules of a `modules.dep`.
    fn listed(&mut self, text: &str) {
        let mut all = BTreeMap::new();
        for line in text.lines() {
            if let Some((module, needs)) = line.split_once(':') {
                let needs = needs.split_whitespace().map(String::from).collect();
                self.paths.insert(name_of(module), module.into());
                all.insert(module.into(), needs);
            }
        }
        self.needs = Some(all);
    }

    /// Takes the modules that lie in the folder.
    fn found(&mut self) {
        for entry in walkdir::WalkDir::new(&self.folder).into_iter().flatten() {
            let path = entry.path();
            let inside = path.strip_prefix(&self.folder).ok().and_then(Path::to_str);
            let is_module = entry.file_name().to_str().is_some_and(|name| {
                let ends = [".ko", ".ko.xz", ".ko.zst", ".ko.gz"];
                ends.iter().any(|end| name.ends_with(end))
            });
            if let Some(inside) = inside.filter(|_| is_module) {
                self.paths.insert(name_of(inside), inside.into());
            }
        }
    }

    /// Paths a module needs itself, or all it needs: the order of loading does
    /// not care. The most basic one comes last, as depmod writes them.
    fn needs_of(&self, path: &str) -> Result<Vec<String>, ModuleError> {
        if let Some(listed) = &self.needs {
            return Ok(listed.get(path).cloned().unwrap_or_default());
        }
        let file = self.folder.join(path);
        let command = format!("modinfo -F depends {}", file.display());
        let asked = Command::new("modinfo")
            .args(["-F", "depends"])
            .arg(&file)
            // Distributions keep it where only root looks by default.
            .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
            .output();
        let output = asked.map_err(|source| ModuleError::Ask {
            command: command.clone(),
            said: String::new(),
            source: Some(source),
        })?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_string();
            return Err(ModuleError::Ask {
                command,
                said,
                source: None,
            });
        }
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        let names = names.trim().split(',').filter(|name| !name.is_empty());
        let paths = names.filter_map(|name| self.paths.get(&name_of(name)).cloned());
        Ok(paths.collect())
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
        for need in self.needs_of(path)?.iter().rev() {
            self.visit(need, open, order)?;
        }
        open.pop();
        order.push(path.into());
        Ok(())
    }

    /// The lines of `modules.dep` for these paths, for the image.
    ///
    /// # Errors
    /// When a dependency cannot be found out.
    pub fn dependency_file(&self, paths: &[String]) -> Result<String, ModuleError> {
        let mut sorted: Vec<&String> = paths.iter().collect();
        sorted.sort();
        sorted.dedup();
        let mut text = String::new();
        for path in sorted {
            let mut needs = Vec::new();
            self.visit(path, &mut Vec::new(), &mut needs)?;
            needs.pop();
            text.push_str(path);
            text.push(':');
            for need in needs.iter().rev() {
                text.push(' ');
                text.push_str(need);
            }
            text.push('\n');
        }
        Ok(text)
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
            tree.dependency_file(&order[..2]).unwrap(),
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

    /// As `dpkg-deb -x` leaves a kernel package: modules, and no `modules.dep`.
    #[test]
    fn without_a_list_modinfo_is_asked() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("kernel")).unwrap();
        fs::write(dir.path().join("modules.builtin"), "kernel/b/ext4.ko\n").unwrap();
        // The section of a module in which it says what it needs.
        for (name, depends) in [("pvpanic-pci", "pvpanic"), ("pvpanic", "")] {
            let info = format!("depends={depends}\0name={name}\0");
            let object = object_with_modinfo(info.as_bytes());
            fs::write(dir.path().join(format!("kernel/{name}.ko")), object).unwrap();
        }
        let tree = ModuleTree::read(dir.path()).unwrap();
        assert!(tree.knows("pvpanic_pci") && tree.knows("ext4"));
        let order = tree.load_order(&["pvpanic-pci".into()]).unwrap();
        assert_eq!(order, ["kernel/pvpanic.ko", "kernel/pvpanic-pci.ko"]);
        assert_eq!(
            tree.dependency_file(&order).unwrap(),
            "kernel/pvpanic-pci.ko: kernel/pvpanic.ko\nkernel/pvpanic.ko:\n"
        );
    }

    /// A relocatable ELF file with nothing but `.modinfo` and section names.
    fn object_with_modinfo(info: &[u8]) -> Vec<u8> {
        let names = b"\0.modinfo\0.shstrtab\0";
        let (info_at, names_at) = (64, 64 + info.len());
        let sections_at = (names_at + names.len()).next_multiple_of(8);
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(16, 0);
        for half in [1u16, 62] {
            elf.extend(half.to_le_bytes());
        }
        elf.extend(1u32.to_le_bytes());
        for word in [0u64, 0, sections_at as u64] {
            elf.extend(word.to_le_bytes());
        }
        elf.extend(0u32.to_le_bytes());
        for half in [64u16, 0, 0, 64, 3, 2] {
            elf.extend(half.to_le_bytes());
        }
        elf.extend(info);
        elf.extend(names);
        elf.resize(sections_at + 64, 0);
        for (name, kind, at, size) in [
            (1u32, 1u32, info_at, info.len()),
            (10, 3, names_at, names.len()),
        ] {
            elf.extend(name.to_le_bytes());
            elf.extend(kind.to_le_bytes());
            for word in [2u64, 0, at as u64, size as u64] {
                elf.extend(word.to_le_bytes());
            }
            elf.resize(elf.len() + 8, 0);
            for word in [1u64, 0] {
                elf.extend(word.to_le_bytes());
            }
        }
        elf
    }
}
