//! `{name}` in settings, workloads and command lines stands for a named CPU set.

use std::collections::BTreeMap;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// A `{name}` that no set of the topology has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{{{name}}}` in {place}: the topology has no CPU set `{name}` (it has: {known})")]
pub struct UnknownSet {
    /// The name.
    pub name: String,
    /// Where it stands.
    pub place: String,
    /// Names that exist.
    pub known: String,
}

/// Replaces `{name}` in every text of a value, keys of maps included. `{{` and
/// `}}` stand for braces.
///
/// # Errors
/// The first name that no set has.
pub fn fill<T: Serialize + DeserializeOwned>(
    value: &T,
    place: &str,
    sets: &BTreeMap<String, String>,
) -> Result<T, UnknownSet> {
    let tree = serde_json::to_value(value).expect("settings and workloads are plain data");
    let filled = walk(tree, place, sets)?;
    Ok(serde_json::from_value(filled).expect("replacing text by text keeps the shape"))
}

fn walk(value: Value, place: &str, sets: &BTreeMap<String, String>) -> Result<Value, UnknownSet> {
    Ok(match value {
        Value::String(text) => Value::String(fill_text(&text, place, sets)?),
        Value::Array(items) => Value::Array(
            items
                .into_iter()
                .map(|item| walk(item, place, sets))
                .collect::<Result<_, _>>()?,
        ),
        Value::Object(entries) => {
            let mut filled = serde_json::Map::new();
            for (key, item) in entries {
                let inner = format!("{place}.{key}");
                filled.insert(fill_text(&key, place, sets)?, walk(item, &inner, sets)?);
            }
            Value::Object(filled)
        }
        other => other,
    })
}

/// Replaces `{name}` in one text.
///
/// # Errors
/// The first name that no set has.
pub fn fill_text(
    text: &str,
    place: &str,
    sets: &BTreeMap<String, String>,
) -> Result<String, UnknownSet> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let tail = &rest[at..];
        if tail.starts_with("{{") || tail.starts_with("}}") {
            out.push_str(&tail[..1]);
            rest = &tail[2..];
            continue;
        }
        let name = tail
            .strip_prefix('{')
            .and_then(|inner| inner.split_once('}'));
        match name {
            Some((name, after)) if is_name(name) => {
                let set = sets.get(name).ok_or_else(|| UnknownSet {
                    name: name.into(),
                    place: place.into(),
                    known: if sets.is_empty() {
                        "none".into()
                    } else {
                        sets.keys().cloned().collect::<Vec<_>>().join(", ")
                    },
                })?;
                out.push_str(set);
                rest = after;
            }
            // Braces around anything else are text, such as an awk program's.
            _ => {
                out.push_str(&tail[..1]);
                rest = &tail[1..];
            }
        }
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use topolab_protocol::settings::Settings;

    fn sets() -> BTreeMap<String, String> {
        BTreeMap::from([("isolated".to_string(), "4-7".to_string())])
    }

    #[test]
    fn names_are_replaced_and_braces_are_kept() {
        assert_eq!(
            fill_text(
                "isolcpus=nohz,{isolated} {{x}} { print }",
                "cmdline",
                &sets()
            )
            .unwrap(),
            "isolcpus=nohz,4-7 {x} { print }"
        );
    }

    #[test]
    fn a_name_without_a_set_is_told_with_those_there_are() {
        let error = fill_text("{isolatd}", "settings.a", &sets()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`{isolatd}` in settings.a: the topology has no CPU set `isolatd` (it has: isolated)"
        );
    }

    #[test]
    fn settings_are_filled_in_values_and_keys() {
        let settings: Settings = serde_json::from_str(
            r#"{"cgroups": {"work": {"cpuset.cpus": "{isolated}"}}, "sysctl": {"a.b": 1}}"#,
        )
        .unwrap();
        let filled = fill(&settings, "settings", &sets()).unwrap();
        assert_eq!(filled.cgroups["work"]["cpuset.cpus"].to_string(), "4-7");
        assert_eq!(filled.sysctl["a.b"].to_string(), "1");
    }
}
