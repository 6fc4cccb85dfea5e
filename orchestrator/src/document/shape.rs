//! Holds a file's tree against the JSON Schema of the type it should become.

use jsonschema::{
    ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use schemars::JsonSchema;
use serde_json::Value as Json;

use super::{
    Problem,
    node::{Node, Value},
};

/// What [`check`] found.
pub(super) struct Found {
    /// Keys the schema does not know; the typed value can be read without them.
    pub unknown: Vec<Problem>,
    /// Anything that keeps the typed value from being read.
    pub wrong: Vec<Problem>,
}

/// Holds the tree against the schema of `T`.
pub(super) fn check<T: JsonSchema>(root: &Node) -> Found {
    let schema = schemars::schema_for!(T).to_value();
    let instance = root.to_json();
    let validator = jsonschema::validator_for(&schema).expect("a derived schema is a valid schema");
    let mut found = Found {
        unknown: Vec::new(),
        wrong: Vec::new(),
    };
    for error in validator.iter_errors(&instance) {
        collect(&schema, root, &error, &mut found);
    }
    found
}

fn collect(schema: &Json, root: &Node, error: &ValidationError<'_>, found: &mut Found) {
    let path = error.instance_path().to_string();
    let (node, line, column) = locate(root, &path);
    let wrong = |message: String, help: Option<String>| Problem {
        line,
        column,
        message,
        help,
    };
    let here = if path.is_empty() {
        "the file".to_string()
    } else {
        format!("`{}`", readable(&path))
    };
    match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected } => {
            let known = known_keys(schema, &error.schema_path().to_string());
            for key in unexpected {
                let (line, column) = key_position(node, key).unwrap_or((line, column));
                found.unknown.push(Problem {
                    line,
                    column,
                    message: format!("unknown key `{key}`"),
                    help: suggestion(key, &known),
                });
            }
        }
        // A plain `12` where text is wanted is text to whoever wrote it.
        ValidationErrorKind::Type {
            kind: TypeKind::Single(kind),
        } if kind.to_string() == "string" && is_plain_scalar(node) => {}
        ValidationErrorKind::Type { kind } => {
            let wanted = match kind {
                TypeKind::Single(kind) => kind.to_string(),
                TypeKind::Multiple(kinds) => {
                    let mut kinds: Vec<String> = kinds.iter().map(|k| k.to_string()).collect();
                    // Leaving it empty is the last thing the writer had in mind.
                    kinds.sort_by_key(|kind| kind == "null");
                    kinds.join(" or ")
                }
            };
            if wanted.contains("string") && is_plain_scalar(node) {
                return;
            }
            let message = format!(
                "{here} should be {}, but is {}",
                friendly(&wanted),
                describe(node)
            );
            found.wrong.push(wrong(message, None));
        }
        ValidationErrorKind::Required { property } => {
            let key = property.as_str().unwrap_or_default();
            found
                .wrong
                .push(wrong(format!("{here} lacks the key `{key}`"), None));
        }
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            alternatives(schema, root, error, context, found);
        }
        ValidationErrorKind::Enum { options } => {
            let options: Vec<String> = options
                .as_array()
                .map(|o| {
                    o.iter()
                        .map(|v| v.as_str().map_or(v.to_string(), String::from))
                        .collect()
                })
                .unwrap_or_default();
            let given = describe(node);
            let help = match &node.value {
                Value::Text(text) => suggestion(text, &options),
                _ => None,
            };
            let message = format!(
                "{here} is {given}; it can be one of: {}",
                options.join(", ")
            );
            found.wrong.push(wrong(message, help));
        }
        _ => found.wrong.push(wrong(format!("{here}: {error}"), None)),
    }
}

/// None of several shapes fits. The branch that got furthest says what is
/// wrong; when none got anywhere, the keys that could stand here are named.
fn alternatives(
    schema: &Json,
    root: &Node,
    error: &ValidationError<'_>,
    context: &[Vec<ValidationError<'static>>],
    found: &mut Found,
) {
    let path = error.instance_path().to_string();
    let (node, line, column) = locate(root, &path);
    let base = path.matches('/').count();
    // A scalar is refused only by its type in every branch: when text would do, it is fine.
    let text_would_do = context.iter().any(|branch| {
        branch.iter().all(|e| {
            matches!(e.kind(), ValidationErrorKind::Type { kind: TypeKind::Single(k) } if k.to_string() == "string")
        })
    });
    if text_would_do && is_plain_scalar(node) {
        return;
    }
    let deepest = context.iter().max_by_key(|branch| depth(branch));
    if let Some(branch) = deepest.filter(|branch| depth(branch) > base) {
        for inner in branch {
            collect(schema, root, inner, found);
        }
        return;
    }
    let only_unknown = context.iter().find(|branch| {
        branch
            .iter()
            .all(|e| matches!(e.kind(), ValidationErrorKind::AdditionalProperties { .. }))
    });
    if let Some(branch) = only_unknown {
        for inner in branch {
            collect(schema, root, inner, found);
        }
        return;
    }
    let names = variant_names(schema, &error.schema_path().to_string());
    let here = if path.is_empty() {
        "the file".to_string()
    } else {
        format!("`{}`", readable(&path))
    };
    let given = match &node.value {
        Value::Map(entries) if entries.len() == 1 => format!("`{}`", entries[0].0.text),
        Value::Text(text) => format!("`{text}`"),
        _ => describe(node),
    };
    let (line, column) = match &node.value {
        Value::Map(entries) if entries.len() == 1 => (entries[0].0.line, entries[0].0.column),
        _ => (line, column),
    };
    let help = suggestion(given.trim_matches('`'), &names);
    let message = if names.is_empty() {
        format!("{here} has no shape that is known here: {}", describe(node))
    } else {
        format!("{here} is {given}; it can be one of: {}", names.join(", "))
    };
    found.wrong.push(Problem {
        line,
        column,
        message,
        help,
    });
}

/// How deep in the instance the errors of a branch lie, alternatives within included.
fn depth(branch: &[ValidationError<'_>]) -> usize {
    let of = |e: &ValidationError<'_>| {
        let inner = match e.kind() {
            ValidationErrorKind::AnyOf { context }
            | ValidationErrorKind::OneOfNotValid { context } => context
                .iter()
                .map(|branch| depth(branch))
                .max()
                .unwrap_or(0),
            _ => 0,
        };
        inner.max(e.instance_path().to_string().matches('/').count())
    };
    branch.iter().map(of).max().unwrap_or(0)
}

/// Follows a JSON pointer through the tree.
fn locate<'a>(root: &'a Node, pointer: &str) -> (&'a Node, u32, u32) {
    let mut node = root;
    let mut place = (root.line, root.column);
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        let next = match &node.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.text == part).map(|(_, v)| v),
            Value::List(items) => part.parse::<usize>().ok().and_then(|i| items.get(i)),
            _ => None,
        };
        let Some(next) = next else { break };
        node = next;
        place = (next.line, next.column);
    }
    (node, place.0, place.1)
}

fn key_position(node: &Node, key: &str) -> Option<(u32, u32)> {
    match &node.value {
        Value::Map(entries) => entries
            .iter()
            .find(|(k, _)| k.text == key)
            .map(|(k, _)| (k.line, k.column)),
        _ => None,
    }
}

/// `/nodes/1/cpus` as people say it: `nodes[1].cpus`.
fn readable(pointer: &str) -> String {
    let mut text = String::new();
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if part.chars().all(|c| c.is_ascii_digit()) {
            text.extend(["[", &part, "]"]);
        } else {
            if !text.is_empty() {
                text.push('.');
            }
            text += &part;
        }
    }
    text
}

fn is_plain_scalar(node: &Node) -> bool {
    matches!(
        node.value,
        Value::Bool(_) | Value::Int(_) | Value::Unsigned(_) | Value::Float(_)
    )
}

fn describe(node: &Node) -> String {
    match &node.value {
        Value::Null => "empty".into(),
        Value::Bool(b) => format!("`{b}`"),
        Value::Int(n) => format!("`{n}`"),
        Value::Unsigned(n) => format!("`{n}`"),
        Value::Float(x) => format!("`{x}`"),
        Value::Text(text) => format!("the text `{text}`"),
        Value::List(_) => "a list".into(),
        Value::Map(_) => "a map".into(),
    }
}

fn friendly(kinds: &str) -> String {
    let word = |kind: &str| match kind {
        "string" => "text",
        "integer" => "a whole number",
        "number" => "a number",
        "array" => "a list",
        "object" => "a map",
        "boolean" => "`true` or `false`",
        "null" => "empty",
        _ => "something else",
    };
    kinds
        .split(" or ")
        .map(word)
        .collect::<Vec<_>>()
        .join(" or ")
}

/// The schema object that a keyword's path points into, `$ref`s followed.
fn schema_at<'a>(schema: &'a Json, pointer: &str) -> Option<&'a Json> {
    let mut here = schema;
    for part in pointer.split('/').skip(1) {
        let part = part.replace("~1", "/").replace("~0", "~");
        if part == "$ref" {
            let target = here.get("$ref")?.as_str()?.strip_prefix('#')?;
            here = schema.pointer(target)?;
            continue;
        }
        here = match here {
            Json::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            _ => here.get(&part)?,
        };
    }
    Some(here)
}

fn known_keys(schema: &Json, keyword: &str) -> Vec<String> {
    let parent = keyword.rsplit_once('/').map_or("", |(parent, _)| parent);
    schema_at(schema, parent)
        .and_then(|s| s.get("properties"))
        .and_then(Json::as_object)
        .map(|p| p.keys().cloned().collect())
        .unwrap_or_default()
}

/// Names of the alternatives of `oneOf`/`anyOf`: constants and sole keys.
fn variant_names(schema: &Json, keyword: &str) -> Vec<String> {
    let mut names = Vec::new();
    if let Some(branches) = schema_at(schema, keyword) {
        collect_names(schema, branches, 0, &mut names);
    }
    names
}

/// Alternatives may lead to further alternatives: an optional value that is a
/// word or a map has two levels. `depth` ends schemas that refer to themselves.
fn collect_names(schema: &Json, branches: &Json, depth: u32, names: &mut Vec<String>) {
    let Json::Array(branches) = branches else {
        return;
    };
    for branch in branches.iter().filter(|_| depth < 8) {
        let target = branch.get("$ref").and_then(Json::as_str);
        let branch = target
            .and_then(|r| schema.pointer(r.strip_prefix('#')?))
            .unwrap_or(branch);
        if let Some(name) = branch.get("const").and_then(Json::as_str) {
            names.push(name.to_string());
        }
        for list in ["enum", "required"] {
            if let Some(options) = branch.get(list).and_then(Json::as_array) {
                names.extend(options.iter().filter_map(Json::as_str).map(String::from));
            }
        }
        for inner in ["oneOf", "anyOf"] {
            if let Some(inner) = branch.get(inner) {
                collect_names(schema, inner, depth + 1, names);
            }
        }
    }
}

/// The known word nearest to a misspelt one, or the list when it is short.
fn suggestion(word: &str, known: &[String]) -> Option<String> {
    let nearest = known
        .iter()
        .map(|k| (strsim::damerau_levenshtein(word, k), k))
        .min()
        .filter(|(distance, k)| *distance <= (k.len().max(word.len()) / 3).max(1));
    match nearest {
        Some((_, k)) => Some(format!("did you mean `{k}`?")),
        None if known.is_empty() => None,
        None => Some(format!("known here: {}", known.join(", "))),
    }
}
