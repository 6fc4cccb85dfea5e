//! YAML files as users write them: read with the line and column of every
//! value, checked as a whole, every problem told at once.
//!
//! [`Document::parse`] works in three steps: the text becomes a tree of
//! [`node::Node`]s (positions kept, size and nesting bounded), the tree is held
//! against the JSON Schema that the target type derives (so the schema that
//! editors get is the one that judges), and only then is the typed value read.
//! Misspelt keys alone do not stop the third step: the caller can go on to its
//! own checks and report both together.

pub mod node;
mod problem;
mod shape;
mod span;

use std::{path::Path, sync::Arc};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

pub use problem::{Problem, Problems};
pub use span::At;

use node::Node;

/// Longest file read, bytes. A file of this size is a mistake.
pub const MAX_BYTES: u64 = 4 << 20;

/// A YAML file, parsed as far as its syntax.
#[derive(Debug, Clone)]
pub struct Document {
    name: String,
    text: Arc<str>,
    root: Node,
}

/// A typed value and the problems that did not keep it from being read.
#[derive(Debug)]
pub struct Parsed<T> {
    /// The value; unknown keys are left out.
    pub value: T,
    /// Unknown keys. Not empty: the file must be refused in the end.
    pub problems: Problems,
}

impl Document {
    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, is too long, is not UTF-8, or is not YAML.
    pub fn read(path: &Path) -> Result<Self, Problems> {
        let name = path.display().to_string();
        let whole = |message: String| Problems::of_file(&name, message);
        let size = std::fs::metadata(path)
            .map_err(|e| whole(format!("cannot be read: {e}")))?
            .len();
        if size > MAX_BYTES {
            return Err(whole(format!(
                "is {size} bytes long; at most {MAX_BYTES} are read"
            )));
        }
        let bytes = std::fs::read(path).map_err(|e| whole(format!("cannot be read: {e}")))?;
        let text = String::from_utf8(bytes).map_err(|e| {
            whole(format!(
                "is not UTF-8 (first bad byte at offset {})",
                e.utf8_error().valid_up_to()
            ))
        })?;
        Self::from_text(&name, &text)
    }

    /// Takes a text; `name` stands for the file in messages.
    ///
    /// # Errors
    /// The text is not YAML, or nests or repeats beyond all reason.
    pub fn from_text(name: &str, text: &str) -> Result<Self, Problems> {
        let text: Arc<str> = text.into();
        match node::parse(&text) {
            Ok(root) => Ok(Self {
                name: name.into(),
                text,
                root,
            }),
            Err(problem) => Err(Problems::new(name, text, vec![problem])),
        }
    }

    /// Name of the file, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The tree, for readers that need shapes serde cannot describe.
    pub fn root(&self) -> &Node {
        &self.root
    }

    /// An empty list of problems of this file.
    pub fn problems(&self) -> Problems {
        Problems::new(&self.name, self.text.clone(), Vec::new())
    }

    /// Reads a typed value after holding the file against the type's schema.
    ///
    /// # Errors
    /// All problems of shape (types, missing keys, unknown keys) at once, when
    /// one of them keeps the value from being read.
    pub fn parse<T: DeserializeOwned + JsonSchema>(&self) -> Result<Parsed<T>, Problems> {
        let found = shape::check::<T>(&self.root);
        let mut problems = self.problems();
        problems.list.extend(found.unknown);
        if !found.wrong.is_empty() {
            problems.list.extend(found.wrong);
            problems.sort();
            return Err(problems);
        }
        match serde_yaml::from_str_with_options::<T>(&self.text, node::options()) {
            Ok(value) => {
                problems.sort();
                Ok(Parsed { value, problems })
            }
            Err(error) => {
                problems.list.push(node::problem_of(&error));
                problems.sort();
                Err(problems)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemars::JsonSchema;
    use serde::Deserialize;

    #[derive(Debug, Deserialize, JsonSchema)]
    #[schemars(deny_unknown_fields)]
    struct Machine {
        name: At<String>,
        #[serde(default)]
        nodes: Vec<NodeSpec>,
        #[serde(default)]
        kind: Option<Kind>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[schemars(deny_unknown_fields)]
    struct NodeSpec {
        cpus: At<String>,
        #[serde(default)]
        memory: Option<At<String>>,
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[serde(rename_all = "kebab-case")]
    enum Kind {
        BigOne { size: u32 },
        Small(SmallOne),
    }

    #[derive(Debug, Deserialize, JsonSchema)]
    #[schemars(deny_unknown_fields)]
    struct SmallOne {
        #[serde(default)]
        seconds: f64,
    }

    fn parse(text: &str) -> Result<Parsed<Machine>, Problems> {
        Document::from_text("m.yaml", text)?.parse()
    }

    #[test]
    fn values_know_their_lines() {
        let parsed = parse("name: a\nnodes:\n  - {cpus: 0-3, memory: 1G}\n  - cpus: 4\n").unwrap();
        assert!(parsed.problems.list.is_empty());
        assert_eq!(parsed.value.name.value, "a");
        assert_eq!(parsed.value.nodes[0].memory.as_ref().unwrap().line, 3);
        assert_eq!(parsed.value.nodes[1].cpus.value, "4");
        assert_eq!(parsed.value.nodes[1].cpus.line, 4);
    }

    #[test]
    fn variants_are_read_by_their_key() {
        let kind = |text: &str| parse(text).unwrap().value.kind;
        assert!(matches!(
            kind("name: a\nkind: {big-one: {size: 3}}\n"),
            Some(Kind::BigOne { size: 3 })
        ));
        let small = kind("name: a\nkind: {small: {seconds: 1.5}}\n");
        assert!(matches!(small, Some(Kind::Small(SmallOne { seconds })) if seconds == 1.5));
        assert!(kind("name: a\n").is_none());
    }

    #[test]
    fn unknown_keys_are_told_with_a_suggestion_and_do_not_stop_reading() {
        let parsed = parse("name: a\nnods: []\nnodes:\n  - {cpus: 0-3, memry: 1G}\n").unwrap();
        insta::assert_snapshot!(parsed.problems, @"
        error: unknown key `nods`
         --> m.yaml:2:1
          |
        2 | nods: []
          | ^^^^^
          |
          = help: did you mean `nodes`?
        error: unknown key `memry`
         --> m.yaml:4:17
          |
        4 |   - {cpus: 0-3, memry: 1G}
          |                 ^^^^^^
          |
          = help: did you mean `memory`?
        ");
    }

    #[test]
    fn all_wrong_shapes_are_told_at_once() {
        let error =
            parse("nodes:\n  - cpus: [1]\n  - 7\nkind: {small: {secnds: 1}}\n").unwrap_err();
        insta::assert_snapshot!(error, @"
        error: the file lacks the key `name`
         --> m.yaml:1:1
          |
        1 | nodes:
          | ^^^^^^
        error: `nodes[0].cpus` should be text, but is a list
         --> m.yaml:2:11
          |
        2 |   - cpus: [1]
          |           ^^
        error: `nodes[1]` should be a map, but is `7`
         --> m.yaml:3:5
          |
        3 |   - 7
          |     ^
        error: unknown key `secnds`
         --> m.yaml:4:16
          |
        4 | kind: {small: {secnds: 1}}
          |                ^^^^^^^
          |
          = help: did you mean `seconds`?
        ");
    }

    #[test]
    fn a_variant_that_does_not_exist_names_those_that_do() {
        let error = parse("name: a\nkind: {smal: {}}\n").unwrap_err();
        insta::assert_snapshot!(error, @"
        error: `kind` is `smal`; it can be one of: big-one, small
         --> m.yaml:2:8
          |
        2 | kind: {smal: {}}
          |        ^^^^^
          |
          = help: did you mean `small`?
        ");
    }

    #[test]
    fn syntax_errors_have_a_line() {
        let error = parse("name: a\nnodes: [\n").unwrap_err();
        assert_eq!(error.list.len(), 1);
        assert!(error.list[0].line >= 2, "{error}");
    }

    #[test]
    fn bombs_are_refused_quickly() {
        let mut text = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for level in 1..12 {
            let before = level - 1;
            let row = vec![format!("*a{before}"); 10].join(",");
            text.extend([
                "a",
                &level.to_string(),
                ": &a",
                &level.to_string(),
                " [",
                &row,
                "]\n",
            ]);
        }
        let start = std::time::Instant::now();
        assert!(parse(&text).is_err());
        let deep = "[".repeat(100_000);
        assert!(parse(&deep).is_err());
        assert!(start.elapsed().as_secs() < 5);
    }
}
