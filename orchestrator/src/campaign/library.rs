//! Finds topologies, kernels, experiments and images by name.

use std::path::{Path, PathBuf};

/// Folders that hold `topologies/`, `kernels/` and `experiments/`, first match first.
#[derive(Debug, Clone, Default)]
pub struct Library {
    roots: Vec<PathBuf>,
}

/// A name no folder has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {kind} `{name}`{}", self.advice())]
pub struct NotFound {
    /// `topology`, `kernel`, `experiment` or `image`.
    pub kind: &'static str,
    /// What was asked for.
    pub name: String,
    /// The nearest name there is.
    pub nearest: Option<String>,
    /// Files looked for.
    pub tried: Vec<PathBuf>,
}

impl NotFound {
    fn advice(&self) -> String {
        let tried = self
            .tried
            .iter()
            .map(|p| p.display().to_string())
            .collect::<Vec<_>>()
            .join(", ");
        match &self.nearest {
            Some(nearest) => format!("; did you mean `{nearest}`? (looked for {tried})"),
            None => format!(" (looked for {tried})"),
        }
    }
}

impl Library {
    /// A library of these folders.
    pub fn new(roots: Vec<PathBuf>) -> Self {
        Self { roots }
    }

    /// The library seen from an experiment file: its own tree goes before the others.
    #[must_use]
    pub fn seen_from(&self, experiment: &Path) -> Self {
        let own = experiment
            .parent()
            .and_then(Path::parent)
            .map_or_else(PathBuf::new, Path::to_path_buf);
        let mut roots = vec![if own.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            own
        }];
        roots.extend(self.roots.iter().cloned());
        Self { roots }
    }

    /// A topology by name or path.
    ///
    /// # Errors
    /// There is none.
    pub fn topology(&self, name: &str) -> Result<PathBuf, NotFound> {
        self.find("topology", "topologies", name)
    }

    /// A kernel by name or path.
    ///
    /// # Errors
    /// There is none.
    pub fn kernel(&self, name: &str) -> Result<PathBuf, NotFound> {
        self.find("kernel", "kernels", name)
    }

    /// An experiment by name or path.
    ///
    /// # Errors
    /// There is none.
    pub fn experiment(&self, name: &str) -> Result<PathBuf, NotFound> {
        self.find("experiment", "experiments", name)
    }

    /// An image by name or path.
    ///
    /// # Errors
    /// There is none.
    pub fn image(&self, name: &str) -> Result<PathBuf, NotFound> {
        self.find("image", "images", name)
    }

    /// The folder of a module that is built here, by its name below
    /// `kernels/modules/` or by path; nothing when there is none.
    pub fn module(&self, name: &str) -> Option<PathBuf> {
        let below = if name.contains('/') {
            PathBuf::new()
        } else {
            PathBuf::from("kernels/modules")
        };
        let is_module = |folder: &PathBuf| {
            let mut files = ["Kbuild", "Makefile"].iter();
            files.any(|file| folder.join(file).is_file())
        };
        let mut folders = self.roots.iter().map(|root| root.join(&below).join(name));
        folders.find(is_module)
    }

    /// A name is a path when it has a slash or ends in `.yaml`.
    fn find(&self, kind: &'static str, folder: &str, name: &str) -> Result<PathBuf, NotFound> {
        let mut tried = Vec::new();
        if name.contains('/') || name.ends_with(".yaml") {
            let plain = PathBuf::from(name);
            let candidates = std::iter::once(plain.clone())
                .chain(self.roots.iter().map(|root| root.join(&plain)));
            for path in candidates {
                if path.is_file() {
                    return Ok(path);
                }
                tried.push(path);
            }
            return Err(NotFound {
                kind,
                name: name.into(),
                nearest: None,
                tried,
            });
        }
        for root in &self.roots {
            let path = root.join(folder).join(format!("{name}.yaml"));
            if path.is_file() {
                return Ok(path);
            }
            tried.push(path);
        }
        let nearest = self
            .names(folder)
            .into_iter()
            .map(|known| (strsim::damerau_levenshtein(&known, name), known))
            .min()
            .filter(|(distance, _)| *distance <= name.len() / 2)
            .map(|(_, known)| known);
        Err(NotFound {
            kind,
            name: name.into(),
            nearest,
            tried,
        })
    }

    /// Names in a folder of the library, sorted, each once.
    pub fn names(&self, folder: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .roots
            .iter()
            .filter_map(|root| std::fs::read_dir(root.join(folder)).ok())
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .filter_map(|name| name.strip_suffix(".yaml").map(String::from))
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_and_misspelt_ones_get_a_suggestion() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("topologies")).unwrap();
        std::fs::write(root.path().join("topologies/dual-node-4.yaml"), "").unwrap();
        let library = Library::new(vec![root.path().into()]);
        assert!(library.topology("dual-node-4").is_ok());
        let error = library.topology("dual-nod-4").unwrap_err();
        assert_eq!(error.nearest.as_deref(), Some("dual-node-4"));
        assert!(
            error.to_string().contains("did you mean `dual-node-4`?"),
            "{error}"
        );
        assert!(library.topology("x/y.yaml").unwrap_err().nearest.is_none());
    }
}
