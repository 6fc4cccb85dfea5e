//! Reading `.config` files and configuration fragments: which options are set,
//! and to what. Pure.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The value of a configuration option as the `.config` syntax writes it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// `=n`, or `# CONFIG_X is not set`.
    No,
    /// `=m`.
    Module,
    /// `=y`.
    Yes,
    /// A string, without its quotes and escapes.
    Text(String),
    /// An integer or hexadecimal number, as written.
    Number(String),
}

impl Value {
    /// Reads the right-hand side of `CONFIG_X=…`, or a bare word from a YAML.
    pub fn parse(text: &str) -> Self {
        match text {
            "y" => Self::Yes,
            "m" => Self::Module,
            "n" => Self::No,
            _ => match text.strip_prefix('"').and_then(|t| t.strip_suffix('"')) {
                Some(quoted) => {
                    let mut plain = String::with_capacity(quoted.len());
                    let mut chars = quoted.chars();
                    while let Some(c) = chars.next() {
                        plain.push(match c {
                            '\\' => chars.next().unwrap_or('\\'),
                            c => c,
                        });
                    }
                    Self::Text(plain)
                }
                None => Self::Number(text.to_owned()),
            },
        }
    }

    /// Equal in meaning: a number compares by value (`0x10` and `16`).
    pub fn same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => match (number(a), number(b)) {
                (Some(a), Some(b)) => a == b,
                _ => a == b,
            },
            (a, b) => a == b,
        }
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::No => f.write_str("n"),
            Self::Module => f.write_str("m"),
            Self::Yes => f.write_str("y"),
            Self::Text(text) => {
                let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
                write!(f, "\"{escaped}\"")
            }
            Self::Number(text) => f.write_str(text),
        }
    }
}

fn number(text: &str) -> Option<i128> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// One line of a fragment that sets an option.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Option name without `CONFIG_`.
    pub option: String,
    /// The value asked for.
    pub value: Value,
    /// Line in the file, from 1.
    pub line: u32,
}

/// A line that is neither a setting, a comment nor empty.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "line {line}: '{text}' is not a configuration line: write CONFIG_NAME=value or '# CONFIG_NAME is not set'"
)]
pub struct SettingError {
    /// Line in the file, from 1.
    pub line: u32,
    /// The line.
    pub text: String,
}

/// Reads the settings of a fragment in file order, and every line that is not
/// one.
pub fn read_settings(text: &str) -> (Vec<Setting>, Vec<SettingError>) {
    let (mut settings, mut errors) = (Vec::new(), Vec::new());
    for (line, written) in (1u32..).zip(text.lines()) {
        let written = written.trim();
        let off = written
            .strip_prefix('#')
            .map(str::trim)
            .and_then(|t| t.strip_suffix(" is not set"))
            .and_then(|t| t.strip_prefix("CONFIG_"));
        let set = written
            .strip_prefix("CONFIG_")
            .and_then(|t| t.split_once('='));
        let (option, value) = match (off, set) {
            (Some(option), _) => (option, Value::No),
            (_, Some((option, value))) => (option, Value::parse(value.trim())),
            _ if written.is_empty() || written.starts_with('#') => continue,
            _ => {
                errors.push(SettingError {
                    line,
                    text: written.to_owned(),
                });
                continue;
            }
        };
        settings.push(Setting {
            option: option.trim().to_owned(),
            value,
            line,
        });
    }
    (settings, errors)
}

/// A kernel's final configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelConfig {
    options: BTreeMap<String, Value>,
}

impl KernelConfig {
    /// Reads the text of a `.config` (or of `/proc/config.gz`, unpacked). Lines
    /// that set nothing are passed over: a `.config` is written by a program.
    pub fn parse(text: &str) -> Self {
        let options = read_settings(text)
            .0
            .into_iter()
            .map(|setting| (setting.option, setting.value))
            .collect();
        Self { options }
    }

    /// True when the option is `y` or `m`. `option` is written without `CONFIG_`.
    pub fn is_on(&self, option: &str) -> bool {
        matches!(self.get(option), Some(Value::Yes | Value::Module))
    }

    /// True when the option is `y`, so that its code is in the image itself.
    pub fn is_built_in(&self, option: &str) -> bool {
        self.get(option) == Some(&Value::Yes)
    }

    /// The option's value; nothing when the configuration does not mention it,
    /// which for a boolean means off.
    pub fn get(&self, option: &str) -> Option<&Value> {
        self.options.get(option)
    }

    /// Every option the file mentions, sorted by name.
    pub fn options(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.options
            .iter()
            .map(|(name, value)| (name.as_str(), value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_reads_every_form() {
        let config = KernelConfig::parse(
            "# Automatically generated file; DO NOT EDIT.\nCONFIG_SMP=y\n# CONFIG_KASAN is not set\n\
             CONFIG_NR_CPUS=512\nCONFIG_VIRTIO_NET=m\nCONFIG_DEFAULT_HOSTNAME=\"(no\\\"ne)\"\n",
        );
        assert!(config.is_on("SMP") && config.is_built_in("SMP"));
        assert!(config.is_on("VIRTIO_NET") && !config.is_built_in("VIRTIO_NET"));
        assert!(!config.is_on("KASAN") && !config.is_on("NOT_THERE"));
        assert_eq!(config.get("KASAN"), Some(&Value::No));
        assert_eq!(config.get("NR_CPUS").unwrap().to_string(), "512");
        assert_eq!(
            config.get("DEFAULT_HOSTNAME"),
            Some(&Value::Text("(no\"ne)".to_owned()))
        );
        assert_eq!(
            config.get("DEFAULT_HOSTNAME").unwrap().to_string(),
            "\"(no\\\"ne)\""
        );
    }

    #[test]
    fn a_line_that_sets_nothing_is_told() {
        let (settings, errors) =
            read_settings("CONFIG_SMP=y\nSMP=y\n\n# a remark\nCONFIG_NUMA y\n");
        assert_eq!(settings.len(), 1);
        let lines: Vec<u32> = errors.iter().map(|e| e.line).collect();
        assert_eq!(lines, [2, 5]);
    }

    #[test]
    fn numbers_compare_by_value() {
        assert!(Value::parse("0x10").same(&Value::parse("16")));
        assert!(!Value::parse("17").same(&Value::parse("16")));
        assert!(!Value::parse("\"16\"").same(&Value::parse("16")));
    }
}
