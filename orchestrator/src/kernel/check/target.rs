//! Targets of a check, as users name them: `ARCH[:CONFIG[:COMPILER]]`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::super::spec::{Arch, ConfigBase, ConfigRequest};
use super::super::toolchain::Compiler;

/// The word for the kernel's own configuration.
const OWN: &str = "own";

/// One combination of architecture, configuration and compiler.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct TargetSpec {
    /// Architecture as `ARCH=` names it.
    pub arch: Arch,
    /// `own`, a make target such as `allnoconfig`, or the path of a `.config`.
    pub config: String,
    /// The compiler.
    pub compiler: Compiler,
}

/// A target that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{text}' is no target: write ARCH[:CONFIG[:COMPILER]], as in sh:allnoconfig or x86_64:defconfig:clang"
)]
pub struct TargetError {
    /// What was written.
    pub text: String,
}

impl TargetSpec {
    /// What it is configured like, for a kernel with the given own configuration.
    pub(super) fn request(&self, own: &ConfigRequest) -> ConfigRequest {
        if self.config == OWN {
            return ConfigRequest {
                arch: self.arch.clone(),
                ..own.clone()
            };
        }
        let base = if self.config.contains('/') {
            ConfigBase::File(PathBuf::from(&self.config))
        } else {
            ConfigBase::Target(self.config.clone())
        };
        ConfigRequest {
            base,
            fragments: Vec::new(),
            set: Vec::new(),
            optional: Vec::new(),
            arch: self.arch.clone(),
        }
    }

    /// What a person types to configure a tree like this, given make's variables.
    pub(super) fn configure_command(&self, variables: &str, fragment: &Path) -> String {
        if self.config == OWN {
            format!(
                "make {variables} KCONFIG_ALLCONFIG={} allnoconfig",
                fragment.display()
            )
        } else if self.config.contains('/') {
            format!(
                "cp {} .config && make {variables} olddefconfig",
                self.config
            )
        } else {
            format!("make {variables} {}", self.config)
        }
    }
}

impl fmt::Display for TargetSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.arch.0, self.config, self.compiler)
    }
}

impl FromStr for TargetSpec {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let error = || TargetError {
            text: text.to_owned(),
        };
        let mut parts = text.split(':');
        let arch = parts.next().unwrap_or_default();
        let fit = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if arch.is_empty() || !arch.chars().all(fit) {
            return Err(error());
        }
        let config = parts.next().unwrap_or(OWN);
        let compiler = parts.next().unwrap_or("gcc");
        if config.is_empty() || compiler.is_empty() || parts.next().is_some() {
            return Err(error());
        }
        Ok(Self {
            arch: Arch(arch.to_owned()),
            config: config.to_owned(),
            compiler: compiler.to_owned().into(),
        })
    }
}

impl From<TargetSpec> for String {
    fn from(target: TargetSpec) -> Self {
        target.to_string()
    }
}

impl TryFrom<String> for TargetSpec {
    type Error = TargetError;

    fn try_from(text: String) -> Result<Self, TargetError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_read_and_print() {
        let read = |text: &str| text.parse::<TargetSpec>().map(|t| t.to_string());
        assert_eq!(read("x86_64").unwrap(), "x86_64:own:gcc");
        assert_eq!(read("sh:allnoconfig").unwrap(), "sh:allnoconfig:gcc");
        assert_eq!(
            read("arm64:defconfig:clang").unwrap(),
            "arm64:defconfig:clang"
        );
        for bad in ["", ":allnoconfig", "sh:", "sh:a:b:c", "s h"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }
}
