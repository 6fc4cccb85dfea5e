//! A kernel's YAML: the shape users write, and its way to a checked [`Kernel`].

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::check::{TargetError, TargetSpec};
use super::config::{Setting, Value};
use super::spec::{Arch, ConfigBase, ConfigRequest, Kernel, Recipe, SeriesSource, Source};
use crate::document::node::{Node, Value as Yaml};
use crate::document::{At, Document, Problems};

/// A kernel as its file says. Exactly one of `image`, `package` and `source` is given.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct KernelSpec {
    /// Its name; the file's name without `.yaml`.
    pub name: At<String>,
    /// A bootable image on this machine.
    #[serde(default)]
    pub image: Option<At<String>>,
    /// A distribution's kernel package; `*` and `?` match, the newest wins.
    #[serde(default)]
    pub package: Option<At<String>>,
    /// Where the source comes from.
    #[serde(default)]
    pub source: Option<SourceSpec>,
    /// How it is configured. For an image, only `base`: its `.config`.
    #[serde(default)]
    pub config: Option<ConfigSpec>,
    /// Patch series, by name.
    #[serde(default)]
    pub series: BTreeMap<String, SeriesSpec>,
    /// What `topolab kernel check` covers unless it is told: `ARCH[:CONFIG[:COMPILER]]`,
    /// where CONFIG is `own`, a make target or the path of a `.config`.
    #[serde(default)]
    pub check: Vec<At<String>>,
    /// Architecture as `ARCH=` takes it; x86_64 when left out.
    #[serde(default)]
    pub arch: Option<At<String>>,
}

/// Where source comes from: exactly one key.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[serde(default)]
pub struct SourceSpec {
    /// A package that carries the source as a tarball.
    pub package: Option<At<String>>,
    /// A tarball on this machine.
    pub tarball: Option<TarballSpec>,
    /// A folder.
    pub dir: Option<At<String>>,
    /// A commit of a git repository.
    pub git: Option<GitSpec>,
}

/// A tarball and its checksum.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct TarballSpec {
    /// The file.
    pub path: At<String>,
    /// Its SHA-256, hex.
    pub sha256: At<String>,
}

/// A repository and a commit.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GitSpec {
    /// Path or address.
    pub repo: At<String>,
    /// Anything `git rev-parse` understands; HEAD when left out.
    #[serde(default, rename = "ref")]
    pub reference: Option<At<String>>,
}

/// A configuration.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ConfigSpec {
    /// A make target of the tree, or a `.config` file (a path with a `/`).
    pub base: At<String>,
    /// Fragments laid over it, in order: files in `config/` beside the kernel's file.
    #[serde(default)]
    pub fragments: Vec<At<String>>,
    /// Options set after the fragments.
    #[serde(default)]
    pub set: BTreeMap<String, serde_json::Value>,
    /// Options that may get lost.
    #[serde(default)]
    pub optional: Vec<At<String>>,
}

/// A series: a path, or one of the longer forms.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum SeriesSpec {
    /// A folder of patches, a quilt `series` file, a mailbox, or one patch.
    Path(String),
    /// The same, with the version to take.
    File(FileSeriesSpec),
    /// A series in the archive of mailing lists.
    Message(MessageSeriesSpec),
    /// Commits of a git repository.
    Git(GitSeriesSpec),
}

/// Patches in files.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FileSeriesSpec {
    /// A folder of patches, a quilt `series` file, a mailbox, or one patch.
    pub path: String,
    /// Which version of a series in mails; the newest when left out.
    #[serde(default)]
    pub version: Option<u32>,
}

/// A series in the archive of mailing lists, fetched by `b4`.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MessageSeriesSpec {
    /// Message-id of one of its mails.
    pub message: String,
    /// Which version; the newest when left out.
    #[serde(default)]
    pub version: Option<u32>,
}

/// Commits of a repository as a series.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct GitSeriesSpec {
    /// Path of the repository.
    pub repo: String,
    /// `BASE..TIP`.
    pub range: String,
}

impl Kernel {
    /// Reads and checks a kernel's file. Paths in it are relative to its folder,
    /// fragments to `config/` in it.
    ///
    /// # Errors
    /// All problems of the file at once.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        let document = Document::read(path)?;
        let parsed = document.parse::<KernelSpec>()?;
        let folder = path.parent().unwrap_or(Path::new(".")).to_owned();
        let mut checker = Checker {
            folder,
            problems: parsed.problems,
            root: document.root(),
        };
        let kernel = checker.kernel(&parsed.value, path);
        checker.problems.into_result(())?;
        Ok(kernel.expect("a kernel without problems is complete"))
    }
}

struct Checker<'a> {
    folder: PathBuf,
    problems: Problems,
    root: &'a Node,
}

impl Checker<'_> {
    fn kernel(&mut self, spec: &KernelSpec, file: &Path) -> Option<Kernel> {
        self.name(&spec.name);
        let given = [
            spec.image.is_some(),
            spec.package.is_some(),
            spec.source.is_some(),
        ];
        if given.iter().filter(|given| **given).count() != 1 {
            self.problems.at(
                &spec.name,
                "a kernel has exactly one of `image`, `package` and `source`",
                "source: {package: linux-source-6.12}".to_owned(),
            );
            return None;
        }
        let recipe = match (&spec.image, &spec.package, &spec.source) {
            (Some(image), ..) => self.image(image, spec),
            (_, Some(package), _) => {
                self.no_series(spec, "a package is built already");
                Some(Recipe::Package {
                    pattern: package.value.clone(),
                })
            }
            (.., Some(source)) => self.build(source, spec),
            _ => None,
        };
        Some(Kernel {
            name: spec.name.value.clone(),
            file: file.to_owned(),
            recipe: recipe?,
        })
    }

    fn name(&mut self, name: &At<String>) {
        let fit = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if name.is_empty() || !name.chars().all(fit) {
            self.problems.at(
                name,
                format!(
                    "the name '{}' has characters other than letters, digits, '.', '_' and '-'",
                    name.value
                ),
                "'+' and '@' separate series and variant, as in linux-6.12+rt-push@all".to_owned(),
            );
        }
    }

    fn image(&mut self, image: &At<String>, spec: &KernelSpec) -> Option<Recipe> {
        self.no_series(spec, "an image is built already");
        let path = self.folder.join(&image.value);
        if !path.is_file() {
            self.problems
                .at(image, format!("{} is not a file", path.display()), None);
            return None;
        }
        let config = spec
            .config
            .as_ref()
            .map(|config| self.folder.join(&config.base.value));
        Some(Recipe::Image {
            image: path,
            config,
        })
    }

    fn no_series(&mut self, spec: &KernelSpec, why: &str) {
        if !spec.series.is_empty() {
            let (line, column) = self.position(&["series"]);
            self.problems.push(
                line,
                column,
                format!("{why} and takes no `series`"),
                "use `source` to build it with patches".to_owned(),
            );
        }
    }

    fn build(&mut self, source: &SourceSpec, spec: &KernelSpec) -> Option<Recipe> {
        let source = self.source(source);
        let config = match &spec.config {
            Some(config) => Some(self.config(config, spec)),
            None => {
                self.problems.at(
                    &spec.name,
                    "a kernel built from source needs `config`",
                    "config: {base: allnoconfig, fragments: [lean.config]}".to_owned(),
                );
                None
            }
        };
        let series = spec
            .series
            .iter()
            .filter_map(|(name, series)| Some((name.clone(), self.series(name, series)?)))
            .collect();
        let check = self.targets(&spec.check);
        Some(Recipe::Build {
            source: source?,
            config: config?,
            series,
            check,
        })
    }

    /// The targets of a check; the kernel's own configuration and the smallest one
    /// when none is named.
    fn targets(&mut self, written: &[At<String>]) -> Vec<TargetSpec> {
        if written.is_empty() {
            return ["x86_64:own", "x86_64:allnoconfig"]
                .map(|target| target.parse().expect("these are targets"))
                .to_vec();
        }
        let mut targets = Vec::new();
        for one in written {
            match one.parse() {
                Ok(target) => targets.push(target),
                Err(error @ TargetError { .. }) => self.problems.at(one, error.to_string(), None),
            }
        }
        targets
    }

    fn source(&mut self, spec: &SourceSpec) -> Option<Source> {
        let given = [
            spec.package.is_some(),
            spec.tarball.is_some(),
            spec.dir.is_some(),
            spec.git.is_some(),
        ];
        if given.iter().filter(|given| **given).count() != 1 {
            let (line, column) = self.position(&["source"]);
            self.problems.push(
                line,
                column,
                "`source` has exactly one of `package`, `tarball`, `dir` and `git`",
                None,
            );
            return None;
        }
        if let Some(package) = &spec.package {
            return Some(Source::Package {
                pattern: package.value.clone(),
            });
        }
        if let Some(tarball) = &spec.tarball {
            let sha256 = tarball.sha256.to_ascii_lowercase();
            if sha256.len() != 64 || !sha256.bytes().all(|b| b.is_ascii_hexdigit()) {
                self.problems.at(
                    &tarball.sha256,
                    format!("a SHA-256 has 64 hex digits, this has {}", sha256.len()),
                    format!("sha256sum {}", tarball.path.value),
                );
            }
            return Some(Source::Tarball {
                path: self.folder.join(&tarball.path.value),
                sha256,
            });
        }
        if let Some(dir) = &spec.dir {
            let path = self.folder.join(&dir.value);
            if !path.join("Makefile").is_file() || !path.join("Kconfig").is_file() {
                self.problems.at(
                    dir,
                    format!("{} is not the top of a kernel tree", path.display()),
                    None,
                );
            }
            return Some(Source::Folder { path });
        }
        let git = spec.git.as_ref()?;
        let local = self.folder.join(&git.repo.value);
        Some(Source::Git {
            // An address is taken as it is, a path from the file's folder.
            repo: if local.exists() {
                local.display().to_string()
            } else {
                git.repo.value.clone()
            },
            reference: git
                .reference
                .as_ref()
                .map_or("HEAD", |reference| reference.value.as_str())
                .to_owned(),
        })
    }

    fn config(&mut self, config: &ConfigSpec, spec: &KernelSpec) -> ConfigRequest {
        let base = if config.base.contains('/') {
            let path = self.folder.join(&config.base.value);
            self.must_be_file(&config.base, &path);
            ConfigBase::File(path)
        } else {
            ConfigBase::Target(config.base.value.clone())
        };
        let fragments = config
            .fragments
            .iter()
            .map(|name| {
                let inside = self.folder.join("config").join(&name.value);
                let beside = self.folder.join(&name.value);
                let path = if !inside.is_file() && beside.is_file() {
                    beside
                } else {
                    inside
                };
                self.must_be_file(name, &path);
                path
            })
            .collect();
        ConfigRequest {
            base,
            fragments,
            set: self.settings(),
            optional: config.optional.iter().map(|o| plain(&o.value)).collect(),
            arch: spec
                .arch
                .as_ref()
                .map_or_else(Arch::default, |arch| Arch(arch.value.clone())),
        }
    }

    /// `set`, with the line of each option.
    fn settings(&mut self) -> Vec<Setting> {
        let set = self.root.get("config").and_then(|c| c.get("set"));
        let Some(Yaml::Map(entries)) = set.map(|node| &node.value) else {
            return Vec::new();
        };
        let mut settings = Vec::new();
        for (key, node) in entries {
            let value = match &node.value {
                Yaml::Text(text) if matches!(text.as_str(), "y" | "m" | "n") => Value::parse(text),
                Yaml::Text(text) if text.starts_with("0x") => Value::Number(text.clone()),
                Yaml::Text(text) => Value::Text(text.clone()),
                Yaml::Int(number) => Value::Number(number.to_string()),
                Yaml::Unsigned(number) => Value::Number(number.to_string()),
                Yaml::Bool(on) => {
                    let (is, word) = if *on { ("true", "y") } else { ("false", "n") };
                    self.problems.push(
                        node.line,
                        node.column,
                        format!("an option is y, m, n, a number or a text, not {is}"),
                        format!("{}: {word}", key.text),
                    );
                    continue;
                }
                _ => {
                    self.problems.push(
                        node.line,
                        node.column,
                        "an option is y, m, n, a number or a text",
                        None,
                    );
                    continue;
                }
            };
            settings.push(Setting {
                option: plain(&key.text),
                value,
                line: key.line,
            });
        }
        settings
    }

    fn series(&mut self, name: &str, spec: &SeriesSpec) -> Option<SeriesSource> {
        match spec {
            SeriesSpec::Path(path) => self.series_path(name, path, None),
            SeriesSpec::File(file) => self.series_path(name, &file.path, file.version),
            SeriesSpec::Message(message) => Some(SeriesSource::Message {
                id: message.message.trim_matches(['<', '>']).to_owned(),
                version: message.version,
            }),
            SeriesSpec::Git(git) => Some(SeriesSource::GitRange {
                repo: self.folder.join(&git.repo),
                range: git.range.clone(),
            }),
        }
    }

    fn series_path(
        &mut self,
        name: &str,
        written: &str,
        version: Option<u32>,
    ) -> Option<SeriesSource> {
        let path = self.folder.join(written);
        if path.exists() {
            return Some(SeriesSource::Path { path, version });
        }
        let (line, column) = self.position(&["series", name]);
        self.problems.push(
            line,
            column,
            format!("{} does not exist", path.display()),
            None,
        );
        None
    }

    fn must_be_file(&mut self, written: &At<String>, path: &Path) {
        if path.is_file() {
            return;
        }
        let there: Vec<String> = path
            .parent()
            .and_then(|folder| std::fs::read_dir(folder).ok())
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
            .collect();
        let nearest = there
            .iter()
            .max_by(|a, b| {
                let score = |name: &str| strsim::jaro_winkler(&written.value, name);
                score(a).total_cmp(&score(b))
            })
            .filter(|name| strsim::jaro_winkler(&written.value, name) > 0.8);
        self.problems.at(
            written,
            format!("{} is not a file", path.display()),
            nearest.map(|name| format!("did you mean {name}?")),
        );
    }

    /// Position of a key, by its path from the top.
    fn position(&self, path: &[&str]) -> (u32, u32) {
        let mut node = self.root;
        let mut position = (0, 0);
        for step in path {
            let Yaml::Map(entries) = &node.value else {
                break;
            };
            let Some((key, value)) = entries.iter().find(|(key, _)| key.text == *step) else {
                break;
            };
            position = (key.line, key.column);
            node = value;
        }
        position
    }
}

/// An option's name without `CONFIG_`.
fn plain(name: &str) -> String {
    name.strip_prefix("CONFIG_").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(yaml: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("config")).unwrap();
        std::fs::create_dir_all(at("patches/p")).unwrap();
        std::fs::write(at("config/lean.config"), "CONFIG_SMP=y\n").unwrap();
        std::fs::write(at("k.yaml"), yaml).unwrap();
        let file = at("k.yaml");
        (folder, file)
    }

    #[test]
    fn a_kernel_built_from_source() {
        let (_folder, file) = folder(
            "name: linux-6.12\nsource: {package: linux-source-6.12}\n\
             config:\n  base: allnoconfig\n  fragments: [lean.config]\n  set: {NUMA: y, NR_CPUS: 64}\n  optional: [SCHED_MC_PRIO]\n\
             series: {p: patches/p}\n",
        );
        let kernel = Kernel::read(&file).unwrap();
        let Recipe::Build { config, series, .. } = kernel.recipe else {
            panic!("{kernel:?}");
        };
        assert_eq!(config.base, ConfigBase::Target("allnoconfig".to_owned()));
        assert!(config.fragments[0].ends_with("config/lean.config"));
        let set: Vec<_> = config
            .set
            .iter()
            .map(|s| (s.option.as_str(), s.value.to_string(), s.line))
            .collect();
        assert_eq!(
            set,
            [("NUMA", "y".to_owned(), 6), ("NR_CPUS", "64".to_owned(), 6)]
        );
        assert!(series.contains_key("p"));
    }

    #[test]
    fn all_problems_of_a_file_come_at_once() {
        let (_folder, file) = folder(
            "name: linux+6\nsource: {packge: x, dir: .}\nconfig:\n  base: allnoconfig\n  fragments: [leen.config]\n  set: {NUMA: true}\n\
             series: {q: patches/q}\n",
        );
        let problems = Kernel::read(&file).unwrap_err();
        let told: Vec<String> = problems
            .list
            .iter()
            .map(|p| {
                let message = p
                    .message
                    .replace(&*file.parent().unwrap().to_string_lossy(), "DIR");
                format!(
                    "{}: {message} ({})",
                    p.line,
                    p.help.as_deref().unwrap_or("")
                )
            })
            .collect();
        assert_eq!(
            told,
            [
                "1: the name 'linux+6' has characters other than letters, digits, '.', '_' and '-' ('+' and '@' separate series and variant, as in linux-6.12+rt-push@all)",
                "2: unknown key `packge` (did you mean `package`?)",
                "2: DIR/. is not the top of a kernel tree ()",
                "5: DIR/config/leen.config is not a file (did you mean lean.config?)",
                "6: an option is y, m, n, a number or a text, not true (NUMA: y)",
                "7: DIR/patches/q does not exist ()",
            ]
        );
    }

    #[test]
    fn one_way_to_get_a_kernel() {
        let (_folder, file) = folder("name: k\nimage: x\npackage: y\n");
        let problems = Kernel::read(&file).unwrap_err();
        assert_eq!(
            problems.list[0].message,
            "a kernel has exactly one of `image`, `package` and `source`"
        );
        let (_folder, file) = folder("name: k\npackage: linux-image-*\nseries: {p: patches/p}\n");
        let problems = Kernel::read(&file).unwrap_err();
        assert_eq!(problems.list[0].line, 3);
    }
}
