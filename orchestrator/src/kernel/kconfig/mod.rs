//! A small reader of a tree's Kconfig files, to say why an option is not what was
//! asked for. It follows `source`, keeps each symbol's definitions with the
//! conditions around them, and leaves questions to the compiler (`$(cc-option,…)`)
//! unanswered. What it reads is described in Documentation/kbuild/kconfig-language.rst.

mod expr;
mod read;
mod why;

pub use expr::{Expr, Relation, Tristate};
pub use why::{Cause, Why};

use std::collections::BTreeMap;

/// The symbols of a tree, for one architecture.
#[derive(Debug, Clone, Default)]
pub struct Kconfig {
    symbols: BTreeMap<String, Vec<Definition>>,
    /// Symbol to (who selects it, on which condition).
    selectors: BTreeMap<String, Vec<(String, Expr)>>,
}

/// One `config` block. A symbol may have several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The file, relative to the tree.
    pub file: String,
    /// Line of the `config` keyword, from 1.
    pub line: u32,
    /// `bool`, `tristate`, `int`, `hex` or `string`; empty when it says none.
    pub kind: String,
    /// Everything it depends on, the conditions around it included.
    pub depends: Expr,
    /// The condition of its prompt; nothing when it has no prompt.
    pub prompt: Option<Expr>,
    /// Default values with their conditions.
    pub defaults: Vec<(Expr, Expr)>,
    /// Ranges `(low, high, condition)`.
    pub ranges: Vec<(Expr, Expr, Expr)>,
    /// Which `choice` it is a member of, as a number of its own.
    pub choice: Option<u32>,
}

impl Kconfig {
    /// The definitions of a symbol; empty for one that does not exist.
    pub fn definitions(&self, symbol: &str) -> &[Definition] {
        self.symbols.get(symbol).map_or(&[], Vec::as_slice)
    }

    /// Number of symbols.
    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    /// True when no symbol was found.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    /// Up to three symbols whose names look like `name`.
    pub fn similar(&self, name: &str) -> Vec<String> {
        let mut scored: Vec<(usize, &str)> = self
            .symbols
            .keys()
            .map(|known| (strsim::damerau_levenshtein(name, known), known.as_str()))
            .filter(|(distance, _)| *distance <= 1 + name.len() / 5)
            .collect();
        scored.sort_unstable();
        scored
            .into_iter()
            .take(3)
            .map(|(_, known)| known.to_owned())
            .collect()
    }
}
