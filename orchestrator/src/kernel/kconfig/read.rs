//! Reading Kconfig files.

use std::collections::BTreeMap;
use std::io;

use super::{Definition, Expr, Kconfig};

/// How deep `source` may nest; the kernel needs fewer than ten.
const MAX_DEPTH: usize = 40;

/// A condition that holds for everything inside a block.
#[derive(Debug)]
struct Block {
    end: &'static str,
    depends: Expr,
    visible: Expr,
    choice: Option<u32>,
}

struct Reader<'a, F> {
    read: F,
    variables: &'a BTreeMap<String, String>,
    found: Kconfig,
    blocks: Vec<Block>,
    choices: u32,
    /// The symbol whose attributes are being read, and which of its definitions.
    current: Option<(String, usize)>,
}

impl Kconfig {
    /// Reads the tree's files from `Kconfig` on. `read` gives the text of a file
    /// (nothing for one that does not exist, which Kconfig allows for globs only);
    /// `variables` are what `$(NAME)` stands for, `SRCARCH` above all.
    pub fn read(
        read: impl FnMut(&str) -> io::Result<Option<String>>,
        variables: &BTreeMap<String, String>,
    ) -> io::Result<Self> {
        let mut reader = Reader {
            read,
            variables,
            found: Self::default(),
            blocks: Vec::new(),
            choices: 0,
            current: None,
        };
        reader.file("Kconfig", 0)?;
        Ok(reader.found)
    }
}

impl<F: FnMut(&str) -> io::Result<Option<String>>> Reader<'_, F> {
    fn file(&mut self, path: &str, depth: usize) -> io::Result<()> {
        let Some(text) = (self.read)(path)? else {
            return Ok(());
        };
        let mut lines = (1u32..).zip(text.lines());
        let mut help = Help::No;
        while let Some((number, line)) = lines.next() {
            if help.covers(line) {
                continue;
            }
            let mut whole = line.trim().to_owned();
            while whole.ends_with('\\') {
                whole.pop();
                let Some((_, more)) = lines.next() else { break };
                whole.push_str(more.trim());
            }
            let (keyword, rest) = match whole.split_once(|c: char| c.is_whitespace()) {
                Some((keyword, rest)) => (keyword, rest.trim()),
                None => (whole.as_str(), ""),
            };
            match keyword {
                "" => {}
                "help" | "---help---" => help = Help::Begins,
                "source" if depth < MAX_DEPTH => {
                    self.current = None;
                    let path = self.expand(rest.trim_matches('"'));
                    self.file(&path, depth + 1)?;
                }
                _ => self.line(keyword, rest, path, number),
            }
        }
        Ok(())
    }

    fn line(&mut self, keyword: &str, rest: &str, path: &str, number: u32) {
        let here = |end| Block {
            end,
            depends: Expr::yes(),
            visible: Expr::yes(),
            choice: None,
        };
        match keyword {
            "config" | "menuconfig" => self.begin(rest, path, number),
            "if" => {
                self.current = None;
                self.blocks.push(Block {
                    depends: parse(rest),
                    ..here("endif")
                });
            }
            "menu" => {
                self.current = None;
                self.blocks.push(here("endmenu"));
            }
            "choice" => {
                self.current = None;
                self.choices += 1;
                self.blocks.push(Block {
                    choice: Some(self.choices),
                    ..here("endchoice")
                });
            }
            "endif" | "endmenu" | "endchoice" => {
                self.current = None;
                if self.blocks.last().is_some_and(|block| block.end == keyword) {
                    self.blocks.pop();
                }
            }
            // A comment's `depends on` belongs to nobody.
            "comment" | "mainmenu" => self.current = None,
            _ => self.attribute(keyword, rest),
        }
    }

    fn begin(&mut self, symbol: &str, path: &str, line: u32) {
        let around = |f: fn(&Block) -> &Expr| {
            self.blocks
                .iter()
                .fold(Expr::yes(), |all, block| all.and(f(block).clone()))
        };
        let definition = Definition {
            file: path.to_owned(),
            line,
            kind: String::new(),
            depends: around(|block| &block.depends),
            prompt: None,
            defaults: Vec::new(),
            ranges: Vec::new(),
            choice: self.blocks.iter().rev().find_map(|block| block.choice),
        };
        let all = self.found.symbols.entry(symbol.to_owned()).or_default();
        all.push(definition);
        self.current = Some((symbol.to_owned(), all.len() - 1));
    }

    fn attribute(&mut self, keyword: &str, rest: &str) {
        let visible = self
            .blocks
            .iter()
            .fold(Expr::yes(), |all, block| all.and(block.visible.clone()));
        let Some((symbol, index)) = self.current.clone() else {
            // `depends on` and `visible if` of a menu or choice.
            if let Some(block) = self.blocks.last_mut() {
                if keyword == "depends" {
                    let condition = parse(rest.trim_start_matches("on").trim());
                    block.depends = block.depends.clone().and(condition);
                } else if keyword == "visible" {
                    let condition = parse(rest.trim_start_matches("if").trim());
                    block.visible = block.visible.clone().and(condition);
                }
            }
            return;
        };
        let definition = &mut self
            .found
            .symbols
            .get_mut(&symbol)
            .expect("the current symbol was entered")[index];
        let (value, condition) = split_if(rest);
        match keyword {
            "bool" | "tristate" | "string" | "hex" | "int" => {
                keyword.clone_into(&mut definition.kind);
                if value.starts_with(['"', '\'']) {
                    definition.prompt = Some(visible.and(condition));
                }
            }
            "prompt" => definition.prompt = Some(visible.and(condition)),
            "def_bool" | "def_tristate" => {
                keyword[4..].clone_into(&mut definition.kind);
                definition.defaults.push((parse(value), condition));
            }
            "default" => definition.defaults.push((parse(value), condition)),
            "depends" => {
                let more = parse(rest.trim_start_matches("on").trim());
                definition.depends = definition.depends.clone().and(more);
            }
            "range" => {
                let mut ends = value.split_whitespace().map(parse);
                if let (Some(low), Some(high)) = (ends.next(), ends.next()) {
                    definition.ranges.push((low, high, condition));
                }
            }
            "select" => {
                let selectors = self.found.selectors.entry(value.to_owned()).or_default();
                selectors.push((symbol, condition));
            }
            _ => {}
        }
    }

    /// Replaces `$(NAME)` by what it stands for; unknown ones stay.
    fn expand(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some(start) = rest.find("$(") {
            out.push_str(&rest[..start]);
            let Some(end) = rest[start..].find(')') else {
                break;
            };
            let name = &rest[start + 2..start + end];
            match self.variables.get(name) {
                Some(value) => out.push_str(value),
                None => out.push_str(&rest[start..=start + end]),
            }
            rest = &rest[start + end + 1..];
        }
        out.push_str(rest);
        out
    }
}

/// Where in a help text we are: it goes on as long as lines are indented at least
/// as deep as its first one.
enum Help {
    No,
    Begins,
    Indented(usize),
}

impl Help {
    fn covers(&mut self, line: &str) -> bool {
        if matches!(self, Self::No) {
            return false;
        }
        if line.trim().is_empty() {
            return true;
        }
        // Tabs reach to the next multiple of eight.
        let mut indent = 0;
        for c in line.chars() {
            match c {
                ' ' => indent += 1,
                '\t' => indent += 8 - indent % 8,
                _ => break,
            }
        }
        let goes_on = match self {
            Self::Begins => indent > 0,
            Self::Indented(first) => indent >= *first,
            Self::No => false,
        };
        *self = match (goes_on, &self) {
            (true, Self::Begins) => Self::Indented(indent),
            (true, Self::Indented(first)) => Self::Indented(*first),
            _ => Self::No,
        };
        goes_on
    }
}

/// Splits `VALUE if CONDITION`, looking past quotes and macros.
fn split_if(text: &str) -> (&str, Expr) {
    let (mut quote, mut depth) = (None, 0i32);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, 'i') if depth == 0 && at > 0 => {
                let before = text[..at].ends_with(char::is_whitespace);
                let after = text[at..]
                    .strip_prefix("if")
                    .filter(|rest| rest.starts_with(|c: char| c.is_whitespace() || c == '('));
                if let (true, Some(condition)) = (before, after) {
                    return (text[..at].trim(), parse(condition.trim()));
                }
            }
            _ => {}
        }
    }
    (text.trim(), Expr::yes())
}

/// An expression; one we cannot read counts as a question we cannot answer.
fn parse(text: &str) -> Expr {
    Expr::parse(text).unwrap_or_else(|| Expr::Macro(text.to_owned()))
}
