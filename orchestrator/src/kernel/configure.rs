//! Making a `.config` and holding it against what was asked for.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::cache::{sha256_parts, write_whole};
use super::config::{KernelConfig, Setting, SettingError, Value, read_settings};
use super::kconfig::{Kconfig, Why};
use super::make::Make;
use super::spec::{Arch, ConfigBase, ConfigRequest};

/// What a configuration shall be made from, read into memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    base: Base,
    /// The settings in order; later ones win.
    settings: Vec<Wanted>,
    optional: Vec<String>,
    arch: Arch,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Base {
    Target(String),
    Text(String),
}

/// A setting and the file it stands in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The setting.
    pub setting: Setting,
    /// The fragment, or the kernel's file.
    pub file: PathBuf,
}

/// A configuration that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A fragment or base file cannot be read.
    #[error("{path} cannot be read")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A fragment has lines that set nothing.
    #[error("{path}: {}", join(.problems))]
    Fragment {
        /// The fragment.
        path: PathBuf,
        /// Its bad lines.
        problems: Vec<SettingError>,
    },
    /// make failed.
    #[error("'make {target}' failed; its output is in {log}{}", first_words(.said))]
    Make {
        /// The target.
        target: String,
        /// The log.
        log: PathBuf,
        /// What it said last.
        said: String,
    },
    /// Options got lost.
    #[error("{} of the options asked for did not survive 'make olddefconfig':{}", .lost.len(), list(.lost))]
    Lost {
        /// Each of them.
        lost: Vec<Lost>,
    },
    /// A file of the tree or the objects cannot be used.
    #[error("{path} cannot be used")]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// An option whose final value is not the one asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// What was asked for, and where.
    pub wanted: Wanted,
    /// What it is, and why.
    pub why: Why,
}

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Wanted { setting, file } = &self.wanted;
        write!(
            f,
            "{}:{}: CONFIG_{}={} was asked for, the final configuration has {}: {}",
            file.display(),
            setting.line,
            setting.option,
            setting.value,
            self.why.value,
            self.why
        )
    }
}

fn join(problems: &[SettingError]) -> String {
    let words: Vec<String> = problems.iter().map(ToString::to_string).collect();
    words.join("; ")
}

fn list(lost: &[Lost]) -> String {
    lost.iter().map(|one| format!("\n  {one}")).collect()
}

fn first_words(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    }
}

impl Request {
    /// Reads the base file and the fragments.
    pub fn read(written: &ConfigRequest, kernel_file: &Path) -> Result<Self, ConfigError> {
        let text_of = |path: &Path| {
            fs::read_to_string(path).map_err(|source| ConfigError::Read {
                path: path.to_owned(),
                source,
            })
        };
        let base = match &written.base {
            ConfigBase::Target(target) => Base::Target(target.clone()),
            ConfigBase::File(path) => Base::Text(text_of(path)?),
        };
        let mut settings = Vec::new();
        for path in &written.fragments {
            let (read, problems) = read_settings(&text_of(path)?);
            if !problems.is_empty() {
                return Err(ConfigError::Fragment {
                    path: path.clone(),
                    problems,
                });
            }
            settings.extend(read.into_iter().map(|setting| Wanted {
                setting,
                file: path.clone(),
            }));
        }
        settings.extend(written.set.iter().map(|setting| Wanted {
            setting: setting.clone(),
            file: kernel_file.to_owned(),
        }));
        Ok(Self {
            base,
            settings,
            optional: written.optional.clone(),
            arch: written.arch.clone(),
        })
    }

    /// Architecture of the kernel.
    pub fn arch(&self) -> &Arch {
        &self.arch
    }

    /// SHA-256 of what determines the `.config` of a given tree, lower-case hex.
    /// Which file says a thing, and what may get lost, do not count.
    pub fn digest(&self) -> String {
        let fragment = self.fragment();
        let (kind, base) = match &self.base {
            Base::Target(target) => ("target", target),
            Base::Text(text) => ("text", text),
        };
        let parts = [kind, base.as_str(), &fragment, &self.arch.0];
        sha256_parts(parts.map(str::as_bytes))
    }

    /// The settings of one option, in order.
    pub fn asked(&self, option: &str) -> Vec<Wanted> {
        let settings = self.settings.iter();
        settings
            .filter(|wanted| wanted.setting.option == option)
            .cloned()
            .collect()
    }

    /// The last setting of each option.
    fn last(&self) -> BTreeMap<&str, &Wanted> {
        self.settings
            .iter()
            .map(|wanted| (wanted.setting.option.as_str(), wanted))
            .collect()
    }

    /// The settings as one fragment, each option once.
    fn fragment(&self) -> String {
        self.last()
            .values()
            .map(|wanted| match &wanted.setting.value {
                Value::No => format!("# CONFIG_{} is not set\n", wanted.setting.option),
                value => format!("CONFIG_{}={value}\n", wanted.setting.option),
            })
            .collect()
    }

    /// Makes `.config` in the object folder. What make says goes to `log`.
    pub async fn make(&self, make: &Make<'_>, log: &Path) -> Result<KernelConfig, ConfigError> {
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |source| ConfigError::Io { path, source }
        };
        let objects = &make.objects;
        fs::create_dir_all(objects).map_err(io_error(objects))?;
        let place = objects.join(".config");
        let fragment = objects.join(".topolab-fragment");
        write_whole(&fragment, self.fragment().as_bytes()).map_err(io_error(&fragment))?;
        let allconfig = format!("KCONFIG_ALLCONFIG={}", fragment.display());
        match &self.base {
            // These take a fragment themselves, and decide what is not named in it:
            // laid over afterwards, newly visible options would get their defaults.
            Base::Target(target)
                if matches!(
                    target.as_str(),
                    "allnoconfig" | "allyesconfig" | "allmodconfig"
                ) =>
            {
                run(make, &[target, &allconfig], log).await?;
            }
            base => {
                let text = match base {
                    Base::Target(target) => {
                        run(make, &[target], log).await?;
                        fs::read_to_string(&place).map_err(io_error(&place))?
                    }
                    Base::Text(text) => text.clone(),
                };
                let merged = self.merged(&text);
                write_whole(&place, merged.as_bytes()).map_err(io_error(&place))?;
            }
        }
        run(make, &["olddefconfig"], log).await?;
        let text = fs::read_to_string(&place).map_err(io_error(&place))?;
        Ok(KernelConfig::parse(&text))
    }

    /// A `.config` with the settings in place of its own lines for those options.
    fn merged(&self, text: &str) -> String {
        let last = self.last();
        let kept = text.lines().filter(|line| {
            let (settings, _) = read_settings(line);
            settings
                .first()
                .is_none_or(|setting| !last.contains_key(setting.option.as_str()))
        });
        let mut merged: String = kept.map(|line| format!("{line}\n")).collect();
        merged.push_str(&self.fragment());
        merged
    }

    /// The options that are not as asked for, optional ones left out. `tree` is the
    /// tree as configured.
    pub fn lost(&self, config: &KernelConfig, tree: &Path) -> io::Result<Vec<Lost>> {
        let missing: Vec<&Wanted> = self
            .last()
            .into_values()
            .filter(|wanted| !self.optional.contains(&wanted.setting.option))
            .filter(|wanted| !satisfied(&wanted.setting, config))
            .collect();
        if missing.is_empty() {
            return Ok(Vec::new());
        }
        let kconfig = read_kconfig(tree, &self.arch)?;
        Ok(missing
            .into_iter()
            .map(|wanted| Lost {
                wanted: wanted.clone(),
                why: kconfig.why(&wanted.setting.option, &wanted.setting.value, config),
            })
            // An option that does not exist and shall be off is off.
            .collect())
    }
}

/// True when the final configuration has what a setting asks for. An absent option
/// is off; an empty text is as good as an absent one.
fn satisfied(setting: &Setting, config: &KernelConfig) -> bool {
    match (config.get(&setting.option), &setting.value) {
        (None, Value::No) => true,
        (None, Value::Text(text)) => text.is_empty(),
        (None, _) => false,
        (Some(have), wanted) => have.same(wanted),
    }
}

/// Reads a tree's Kconfig for an architecture.
pub(super) fn read_kconfig(tree: &Path, arch: &Arch) -> io::Result<Kconfig> {
    let header_arch = if arch.0 == "um" { "x86" } else { arch.folder() };
    let variables = BTreeMap::from([
        ("SRCARCH".to_owned(), arch.folder().to_owned()),
        ("HEADER_ARCH".to_owned(), header_arch.to_owned()),
        ("ARCH".to_owned(), arch.0.clone()),
    ]);
    Kconfig::read(
        |path| match fs::read(tree.join(path)) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        },
        &variables,
    )
}

async fn run(make: &Make<'_>, arguments: &[&str], log: &Path) -> Result<(), ConfigError> {
    let mut said: Vec<String> = Vec::new();
    let ended = make
        .run(arguments, log, |line, _| {
            if !line.starts_with("make") {
                said.push(line.to_owned());
            }
        })
        .await
        .map_err(|source| ConfigError::Io {
            path: make.tools.make.clone(),
            source,
        })?;
    if ended.status.success() {
        return Ok(());
    }
    let tail = said.len().saturating_sub(3);
    Err(ConfigError::Make {
        target: arguments.first().copied().unwrap_or_default().to_owned(),
        log: log.to_owned(),
        said: said.split_off(tail).join("; "),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(text: &str) -> Request {
        Request {
            base: Base::Target("defconfig".to_owned()),
            settings: read_settings(text)
                .0
                .into_iter()
                .map(|setting| Wanted {
                    setting,
                    file: "f.config".into(),
                })
                .collect(),
            optional: vec!["OPT".to_owned()],
            arch: Arch::default(),
        }
    }

    #[test]
    fn later_settings_win_and_replace_the_base() {
        let request = request("CONFIG_A=y\nCONFIG_B=\"x\"\n# CONFIG_A is not set\n");
        assert_eq!(
            request.fragment(),
            "# CONFIG_A is not set\nCONFIG_B=\"x\"\n"
        );
        assert_eq!(
            request.merged("CONFIG_A=y\nCONFIG_C=y\n# CONFIG_B is not set\n"),
            "CONFIG_C=y\n# CONFIG_A is not set\nCONFIG_B=\"x\"\n"
        );
    }

    #[test]
    fn lost_options_are_named_with_file_and_line() {
        let tree = tempfile::tempdir().unwrap();
        fs::write(
            tree.path().join("Kconfig"),
            "config A\n\tbool \"a\"\n\tdepends on B\nconfig B\n\tbool \"b\"\nconfig OPT\n\tbool \"o\"\n",
        )
        .unwrap();
        let request =
            request("CONFIG_A=y\nCONFIG_OPT=y\n# CONFIG_GONE is not set\nCONFIG_TYPOO=\"\"\n");
        let lost = request
            .lost(&KernelConfig::parse("CONFIG_C=y\n"), tree.path())
            .unwrap();
        assert_eq!(lost.len(), 1);
        assert_eq!(
            lost[0].to_string(),
            "f.config:1: CONFIG_A=y was asked for, the final configuration has n: it depends on B (B=n)"
        );
    }

    #[test]
    fn the_digest_follows_content_not_place() {
        let mut other = request("CONFIG_A=y\n");
        other.settings[0].file = "elsewhere".into();
        assert_eq!(other.digest(), request("CONFIG_A=y\n").digest());
        assert_ne!(other.digest(), request("CONFIG_A=m\n").digest());
    }
}
