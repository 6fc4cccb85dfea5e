//! Which shared libraries a program needs, found as the dynamic loader would
//! find them: by `DT_NEEDED`, `DT_RUNPATH`/`DT_RPATH` (with `$ORIGIN`), and the
//! folders of `/etc/ld.so.conf` with the loader's own defaults (ld.so(8)).

use std::{
    collections::{BTreeMap, VecDeque},
    fs, io,
    path::{Path, PathBuf},
};

use object::{
    Endianness,
    elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRSZ, DT_STRTAB, PT_DYNAMIC, PT_INTERP, PT_LOAD},
    read::elf::{Dyn, FileHeader, ProgramHeader},
};

/// Why the libraries of a program could not be found.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// The file cannot be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// The program or library.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is no sound ELF file.
    #[error("`{}` is no sound ELF file", path.display())]
    Elf {
        /// The program or library.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: object::Error,
    },
    /// A library is in none of the loader's folders.
    #[error("`{}` needs {name}, which is in none of {}", needed_by.display(),
        searched.iter().map(|dir| dir.display().to_string()).collect::<Vec<_>>().join(", "))]
    Missing {
        /// Who needs it.
        needed_by: PathBuf,
        /// Its `DT_NEEDED` name.
        name: String,
        /// The folders searched, in order.
        searched: Vec<PathBuf>,
    },
}

/// Folders the loader searches when a program names none of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoaderPaths(pub Vec<PathBuf>);

impl LoaderPaths {
    /// Reads `/etc/ld.so.conf` (with its `include` lines) below `root` and adds
    /// the defaults. An unreadable or absent file leaves the defaults.
    pub fn read(root: &Path) -> Self {
        let mut folders = Vec::new();
        read_conf(root, Path::new("etc/ld.so.conf"), 0, &mut folders);
        for default in ["/lib64", "/usr/lib64", "/lib", "/usr/lib"] {
            folders.push(PathBuf::from(default));
        }
        let mut seen = std::collections::BTreeSet::new();
        folders.retain(|folder| seen.insert(folder.clone()));
        Self(folders)
    }
}

/// `include` lines may nest; the loader's own tool stops at a depth too.
const CONF_DEPTH: u32 = 8;

fn read_conf(root: &Path, conf: &Path, depth: u32, folders: &mut Vec<PathBuf>) {
    if depth > CONF_DEPTH {
        return;
    }
    let Ok(text) = fs::read_to_string(root.join(conf)) else {
        return;
    };
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if let Some(pattern) = line.strip_prefix("include ") {
            let pattern = Path::new(pattern.trim());
            let pattern = match pattern.strip_prefix("/") {
                Ok(absolute) => absolute.to_path_buf(),
                Err(_) => conf.parent().unwrap_or(Path::new("")).join(pattern),
            };
            for file in matches(root, &pattern) {
                read_conf(root, &file, depth + 1, folders);
            }
        } else if line.starts_with('/') {
            folders.push(PathBuf::from(line));
        }
    }
}

/// Files of a pattern whose last part may hold one `*`, sorted.
fn matches(root: &Path, pattern: &Path) -> Vec<PathBuf> {
    let folder = pattern.parent().unwrap_or(Path::new(""));
    let name = pattern.file_name().unwrap_or_default().to_string_lossy();
    let Some((before, after)) = name.split_once('*') else {
        return vec![pattern.to_path_buf()];
    };
    let mut found: Vec<PathBuf> = fs::read_dir(root.join(folder))
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| {
            name.len() >= before.len() + after.len()
                && name.starts_with(before)
                && name.ends_with(after)
        })
        .map(|name| folder.join(name))
        .collect();
    found.sort();
    found
}

/// What one ELF file asks of the loader.
#[derive(Debug, Default, PartialEq, Eq)]
struct Needs {
    interpreter: Option<String>,
    libraries: Vec<String>,
    run_paths: Vec<String>,
    is_64: bool,
}

fn needs(bytes: &[u8]) -> Result<Needs, object::Error> {
    match object::FileKind::parse(bytes)? {
        object::FileKind::Elf32 => needs_of::<object::elf::FileHeader32<Endianness>>(bytes),
        _ => needs_of::<object::elf::FileHeader64<Endianness>>(bytes),
    }
}

fn needs_of<E: FileHeader<Endian = Endianness>>(bytes: &[u8]) -> Result<Needs, object::Error> {
    let header = E::parse(bytes)?;
    let endian = header.endian()?;
    let segments = header.program_headers(endian, bytes)?;
    let mut needs = Needs {
        is_64: header.is_class_64(),
        ..Needs::default()
    };
    let mut entries: Vec<(u64, u64)> = Vec::new();
    for segment in segments {
        if segment.p_type(endian) == PT_INTERP {
            needs.interpreter = segment
                .interpreter(endian, bytes)?
                .map(|path| String::from_utf8_lossy(path).into_owned());
        }
        if segment.p_type(endian) == PT_DYNAMIC {
            for entry in segment.dynamic(endian, bytes)?.unwrap_or_default() {
                entries.push((entry.d_tag(endian).into(), entry.d_val(endian).into()));
            }
        }
    }
    let value = |tag: u32| {
        let found = entries.iter().find(|(t, _)| *t == u64::from(tag));
        found.map(|&(_, value)| value)
    };
    let (Some(table), Some(size)) = (value(DT_STRTAB), value(DT_STRSZ)) else {
        return Ok(needs);
    };
    let mut strings: &[u8] = &[];
    for segment in segments {
        if segment.p_type(endian) == PT_LOAD
            && let Ok(Some(data)) = segment.data_range(endian, bytes, table, size)
        {
            strings = data;
        }
    }
    let text = |at: u64| {
        let rest = usize::try_from(at).ok().and_then(|at| strings.get(at..))?;
        let end = rest.iter().position(|&byte| byte == 0)?;
        Some(String::from_utf8_lossy(&rest[..end]).into_owned())
    };
    for &(tag, at) in &entries {
        match u32::try_from(tag) {
            Ok(DT_NEEDED) => needs.libraries.extend(text(at)),
            Ok(DT_RUNPATH | DT_RPATH) => {
                let paths = text(at).unwrap_or_default();
                needs.run_paths.extend(paths.split(':').map(String::from));
            }
            _ => {}
        }
    }
    Ok(needs)
}

/// Everything `program` needs to start, itself not included: path in the guest
/// to file on the host. The interpreter and libraries keep the paths under
/// which they were found, so that the loader finds them again in the guest.
///
/// # Errors
/// When a file cannot be read, is no ELF file, or a library is nowhere.
pub fn closure(
    program: &Path,
    paths: &LoaderPaths,
) -> Result<BTreeMap<String, PathBuf>, LibraryError> {
    let mut found: BTreeMap<String, PathBuf> = BTreeMap::new();
    let mut queue = VecDeque::from([program.to_path_buf()]);
    while let Some(file) = queue.pop_front() {
        let bytes = fs::read(&file).map_err(|source| LibraryError::Read {
            path: file.clone(),
            source,
        })?;
        let needs = needs(&bytes).map_err(|source| LibraryError::Elf {
            path: file.clone(),
            source,
        })?;
        let mut add = |path: PathBuf| {
            let guest = path.to_string_lossy().into_owned();
            if found.insert(guest, path.clone()).is_none() {
                queue.push_back(path);
            }
        };
        if let Some(interpreter) = &needs.interpreter {
            add(PathBuf::from(interpreter));
        }
        let origin = file.parent().unwrap_or(Path::new("/")).to_string_lossy();
        let own = needs.run_paths.iter().map(|path| {
            let path = path.replace("${ORIGIN}", &origin);
            PathBuf::from(path.replace("$ORIGIN", &origin))
        });
        let folders: Vec<PathBuf> = own.chain(paths.0.iter().cloned()).collect();
        for name in &needs.libraries {
            let path = if name.contains('/') {
                Some(PathBuf::from(name))
            } else {
                let candidates = folders.iter().map(|folder| folder.join(name));
                let mut fitting = candidates.filter(|path| same_class(path, needs.is_64));
                fitting.next()
            };
            match path {
                Some(path) => add(path),
                None => {
                    return Err(LibraryError::Missing {
                        needed_by: file,
                        name: name.clone(),
                        searched: folders,
                    });
                }
            }
        }
    }
    Ok(found)
}

/// The loader passes over libraries of the other word size.
fn same_class(path: &Path, is_64: bool) -> bool {
    let mut head = [0; 5];
    let read = fs::File::open(path).and_then(|mut file| io::Read::read_exact(&mut file, &mut head));
    read.is_ok() && head[..4] == *b"\x7fELF" && (head[4] == 2) == is_64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_program_is_found_with_its_loader_and_libc() {
        let found = closure(Path::new("/bin/ls"), &LoaderPaths::read(Path::new("/"))).unwrap();
        let names: Vec<&str> = found
            .keys()
            .filter_map(|path| path.rsplit('/').next())
            .collect();
        assert!(names.contains(&"libc.so.6"), "{names:?}");
        assert!(
            names.iter().any(|name| name.starts_with("ld-")),
            "{names:?}"
        );
    }

    #[test]
    fn a_library_that_is_nowhere_is_named_with_the_folders() {
        let error = closure(
            Path::new("/bin/ls"),
            &LoaderPaths(vec![PathBuf::from("/nowhere")]),
        )
        .unwrap_err()
        .to_string();
        assert!(error.starts_with("`/bin/ls` needs "), "{error}");
        assert!(error.ends_with("which is in none of /nowhere"), "{error}");
    }

    #[test]
    fn a_text_file_is_no_elf_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "#!/bin/sh\n").unwrap();
        let error = closure(file.path(), &LoaderPaths::default()).unwrap_err();
        assert!(matches!(error, LibraryError::Elf { .. }), "{error}");
    }

    #[test]
    fn includes_and_comments_of_the_loader_configuration() {
        let root = tempfile::tempdir().unwrap();
        let etc = root.path().join("etc");
        fs::create_dir_all(etc.join("ld.so.conf.d")).unwrap();
        fs::write(etc.join("ld.so.conf"), "include ld.so.conf.d/*.conf\n").unwrap();
        fs::write(etc.join("ld.so.conf.d/b.conf"), "/opt/b # why\n").unwrap();
        fs::write(etc.join("ld.so.conf.d/a.conf"), "# nothing\n/opt/a\n/lib\n").unwrap();
        fs::write(etc.join("ld.so.conf.d/c.conf.off"), "/opt/c\n").unwrap();
        let paths = LoaderPaths::read(root.path()).0;
        let paths: Vec<_> = paths.iter().map(|path| path.to_str().unwrap()).collect();
        assert_eq!(
            paths,
            [
                "/opt/a",
                "/lib",
                "/opt/b",
                "/lib64",
                "/usr/lib64",
                "/usr/lib"
            ]
        );
    }
}
