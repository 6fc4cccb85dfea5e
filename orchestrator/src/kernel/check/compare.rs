//! Which complaints a patch brings: those of the tree with it that the tree without
//! it does not have. Pure.
//!
//! Lines move when code is added above them, so a complaint is known by its file and
//! words. The same words twice in a file are two complaints.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::super::diagnostics::Diagnostic;

/// A complaint and the code around it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// What the compiler says.
    pub diagnostic: Diagnostic,
    /// Lines of the source around the place, the place marked with `>`.
    pub source: Vec<String>,
}

/// The complaints of `with` that `without` does not have.
pub fn introduced<'a>(without: &[Diagnostic], with: &'a [Diagnostic]) -> Vec<&'a Diagnostic> {
    let mut known: BTreeMap<Key, Vec<Option<u32>>> = BTreeMap::new();
    for one in without {
        known.entry(key(one)).or_default().push(one.line);
    }
    let mut by_key: BTreeMap<Key, Vec<&Diagnostic>> = BTreeMap::new();
    for one in with {
        by_key.entry(key(one)).or_default().push(one);
    }
    let mut new: Vec<&Diagnostic> = Vec::new();
    for (key, mut ones) in by_key {
        let old = known.remove(&key).unwrap_or_default();
        let more = ones.len().saturating_sub(old.len());
        // Of several with the same words, those on lines that had none are new.
        ones.sort_by_key(|one| (old.contains(&one.line), one.line));
        new.extend(ones.into_iter().take(more));
    }
    new.sort();
    new
}

type Key = (u8, Option<String>, String);

fn key(one: &Diagnostic) -> Key {
    let severity = match one.severity {
        super::super::diagnostics::Severity::Error => 0,
        super::super::diagnostics::Severity::Warning => 1,
    };
    // Locales and compilers differ in their quotation marks.
    let words: String = one
        .message
        .chars()
        .map(|c| {
            if "‘’`´“”\"".contains(c) {
                '\''
            } else {
                c
            }
        })
        .collect();
    (severity, one.file.clone(), words)
}

/// Lines of a source around a place, numbered.
pub(super) fn around(text: &str, line: u32) -> Vec<String> {
    /// Lines shown on each side.
    const SIDE: u32 = 4;
    let (first, last) = (line.saturating_sub(SIDE).max(1), line.saturating_add(SIDE));
    (1u32..)
        .zip(text.lines())
        .skip_while(|(number, _)| *number < first)
        .take_while(|(number, _)| *number <= last)
        .map(|(number, words)| {
            let mark = if number == line { '>' } else { ' ' };
            format!("{mark}{number:>6}  {words}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::diagnostics::Severity;
    use super::*;

    fn one(file: &str, line: u32, message: &str) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            file: Some(file.to_owned()),
            line: Some(line),
            column: Some(1),
            message: message.to_owned(),
            function: None,
            context: Vec::new(),
        }
    }

    #[test]
    fn moved_lines_and_other_quotes_are_not_new() {
        let without = [one("a.c", 10, "unused variable ‘x’"), one("b.c", 1, "w")];
        let with = [one("a.c", 14, "unused variable 'x'"), one("c.c", 1, "w")];
        let new: Vec<_> = introduced(&without, &with)
            .iter()
            .map(|d| d.file.clone())
            .collect();
        assert_eq!(new, [Some("c.c".to_owned())]);
        assert!(introduced(&with, &with).is_empty());
    }

    #[test]
    fn the_same_words_once_more_are_new() {
        let without = [one("a.c", 10, "w")];
        let with = [one("a.c", 10, "w"), one("a.c", 30, "w")];
        let new: Vec<_> = introduced(&without, &with).iter().map(|d| d.line).collect();
        assert_eq!(new, [Some(30)]);
    }

    #[test]
    fn code_around_a_place() {
        let text = "a\nb\nc\nd\ne\nf\ng\n";
        assert_eq!(around(text, 1).len(), 5);
        assert_eq!(around(text, 1)[0], ">     1  a");
        assert_eq!(around(text, 7).last().unwrap(), ">     7  g");
        assert!(around(text, 99).is_empty());
    }
}
