//! Loading kernel modules from files, plain or compressed.

use std::ffi::CString;
use std::fs;
use std::path::{Path, PathBuf};

/// `MODULE_INIT_COMPRESSED_FILE` of `include/uapi/linux/module.h`: the kernel
/// unpacks the file itself (CONFIG_MODULE_DECOMPRESS).
const COMPRESSED: i32 = 4;

/// File name endings a module may have.
const ENDINGS: [&str; 4] = ["ko", "ko.zst", "ko.xz", "ko.gz"];

/// Why a module is not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ModuleError {
    /// No file has its name.
    #[error("no module {name} below {}", folders(.searched))]
    NotFound {
        /// Its name.
        name: String,
        /// Where it was looked for.
        searched: Vec<PathBuf>,
    },
    /// Its file cannot be read.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The kernel refused it.
    #[error("{}: {source} ({})", path.display(), explain(*.source))]
    Refused {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: rustix::io::Errno,
    },
    /// Its parameters hold a NUL byte.
    #[error("parameters of {name} hold a NUL byte")]
    Parameters {
        /// Its name.
        name: String,
    },
}

fn folders(searched: &[PathBuf]) -> String {
    let searched: Vec<_> = searched.iter().map(|p| p.display().to_string()).collect();
    searched.join(" and ")
}

/// What the usual answers of `finit_module` mean (`kernel/module/main.c`).
fn explain(errno: rustix::io::Errno) -> &'static str {
    use rustix::io::Errno;
    match errno {
        Errno::NOEXEC => "built for another kernel",
        Errno::NOENT => "it needs a symbol that is not there",
        Errno::OPNOTSUPP => "this kernel does not unpack compressed modules",
        Errno::NOSYS => "this kernel has no loadable modules",
        Errno::INVAL => "wrong parameters, or not a module",
        _ => "see the kernel log",
    }
}

/// Loads one file. A module that is loaded already counts as loaded.
///
/// # Errors
/// When the file is missing or the kernel refuses it.
pub fn load_file(path: &Path, parameters: &str) -> Result<(), ModuleError> {
    let file = fs::File::open(path).map_err(|source| ModuleError::Open {
        path: path.to_path_buf(),
        source,
    })?;
    let parameters = CString::new(parameters).map_err(|_| ModuleError::Parameters {
        name: path.display().to_string(),
    })?;
    let compressed = path.extension().is_some_and(|ending| ending != "ko");
    let flags = if compressed { COMPRESSED } else { 0 };
    match rustix::system::finit_module(file, &parameters, flags) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => Ok(()),
        Err(source) => Err(ModuleError::Refused {
            path: path.to_path_buf(),
            source,
        }),
    }
}

/// Loads a module and what it depends on. Returns the names loaded, in order,
/// without those that were there before.
///
/// Looks in `lib/modules/topolab` (what the experiment brought) and in the
/// running kernel's folder, each with its `modules.dep` when it has one.
///
/// # Errors
/// When no file has its name or the kernel refuses one.
pub fn load(root: &Path, name: &str, parameters: &str) -> Result<Vec<String>, ModuleError> {
    let release = rustix::system::uname();
    let modules = root.join("lib/modules");
    let folders = [
        modules.join("topolab"),
        modules.join(release.release().to_string_lossy().as_ref()),
    ];
    let chain = folders.iter().find_map(|folder| chain(folder, name));
    let Some(chain) = chain else {
        // Built in, or loaded by whoever made the image.
        if is_loaded(root, name) {
            return Ok(Vec::new());
        }
        return Err(ModuleError::NotFound {
            name: name.to_string(),
            searched: folders.into(),
        });
    };
    let mut loaded = Vec::new();
    for path in chain {
        let this = module_name(&path);
        if is_loaded(root, &this) {
            continue;
        }
        let parameters = if this == normal(name) { parameters } else { "" };
        load_file(&path, parameters)?;
        loaded.push(this);
    }
    Ok(loaded)
}

/// Whether a module is loaded or built in with a name of its own.
pub fn is_loaded(root: &Path, name: &str) -> bool {
    root.join("sys/module").join(normal(name)).exists()
}

/// Unloads a module.
///
/// # Errors
/// The kernel's answer: `EBUSY` while something uses it.
pub fn unload(name: &str) -> Result<(), rustix::io::Errno> {
    let name = CString::new(normal(name)).map_err(|_| rustix::io::Errno::INVAL)?;
    rustix::system::delete_module(&name, libc::O_NONBLOCK)
}

/// The kernel writes module names with underscores.
fn normal(name: &str) -> String {
    name.replace('-', "_")
}

fn module_name(path: &Path) -> String {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    normal(file.split(".ko").next().unwrap_or_default())
}

/// The files to load for `name`, dependencies first; `None` when the folder
/// does not have it.
fn chain(folder: &Path, name: &str) -> Option<Vec<PathBuf>> {
    if let Ok(dependencies) = fs::read_to_string(folder.join("modules.dep"))
        && let Some(files) = listed(&dependencies, name)
    {
        return Some(files.iter().map(|file| folder.join(file)).collect());
    }
    let spellings = [name.to_string(), normal(name), name.replace('_', "-")];
    spellings
        .iter()
        .flat_map(|name| ENDINGS.map(|ending| folder.join(format!("{name}.{ending}"))))
        .find(|path| path.is_file())
        .map(|path| vec![path])
}

/// Reads one entry of `modules.dep` (depmod(8)): `file: needed first …`, where
/// the last needed file must be loaded first.
fn listed(dependencies: &str, name: &str) -> Option<Vec<String>> {
    let wanted = normal(name);
    let (file, needs) = dependencies
        .lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(file, _)| module_name(Path::new(file)) == wanted)?;
    let needs = needs.split_whitespace().rev().map(str::to_string);
    Some(needs.chain([file.to_string()]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_come_first() {
        let dep = "kernel/a.ko.xz:\nkernel/virtio-x.ko.xz: kernel/b.ko.xz kernel/a.ko.xz\n";
        assert_eq!(
            listed(dep, "virtio_x").unwrap(),
            ["kernel/a.ko.xz", "kernel/b.ko.xz", "kernel/virtio-x.ko.xz"]
        );
        assert_eq!(listed(dep, "c"), None);
    }

    #[test]
    fn a_missing_module_names_where_it_was_looked_for() {
        let root = tempfile::tempdir().unwrap();
        let error = load(root.path(), "mdspin", "").unwrap_err().to_string();
        assert!(error.starts_with("no module mdspin below "), "{error}");
        assert!(error.contains("lib/modules/topolab"), "{error}");
    }
}
