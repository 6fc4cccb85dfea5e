//! Kconfig's dependency expressions: read, evaluated against a configuration, and
//! asked what keeps them from being true. Pure.

use std::fmt;

use crate::kernel::config::{KernelConfig, Value};

/// An expression as `depends on` and `if` take it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expr {
    /// A symbol.
    Symbol(String),
    /// `y`, `m`, `n`, a quoted text or a number.
    Literal(String),
    /// `$(…)`: a question to the compiler or the shell, which is not asked here.
    Macro(String),
    /// `!a`
    Not(Box<Expr>),
    /// `a && b`
    And(Box<Expr>, Box<Expr>),
    /// `a || b`
    Or(Box<Expr>, Box<Expr>),
    /// `a = b`, `a != b`, `a < b` …
    Compare(Box<Expr>, Relation, Box<Expr>),
}

/// How two values compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// `=`
    Equal,
    /// `!=`
    Unequal,
    /// `<`
    Less,
    /// `<=`
    LessEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterEqual,
}

/// Kconfig's three truth values, ascending.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tristate {
    /// off
    No,
    /// as a module
    Module,
    /// on
    Yes,
}

impl Expr {
    /// Always true.
    pub fn yes() -> Self {
        Self::Literal("y".to_owned())
    }

    /// `self && other`, without needless `y`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Literal(y), _) if y == "y" => other,
            (_, Self::Literal(y)) if y == "y" => self,
            _ => Self::And(Box::new(self), Box::new(other)),
        }
    }

    /// Reads an expression; nothing when it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let tokens = tokens(text)?;
        let mut parser = Parser {
            tokens: &tokens,
            at: 0,
        };
        let expr = parser.or()?;
        (parser.at == tokens.len()).then_some(expr)
    }

    /// Its value. Macros count as true: what a compiler can do is not known here, and
    /// a dependency that is blamed must be one that is really off.
    pub fn eval(&self, config: &KernelConfig) -> Tristate {
        match self {
            Self::Symbol(name) => tristate(config.get(name)),
            Self::Literal(text) => match text.as_str() {
                "y" => Tristate::Yes,
                "m" => Tristate::Module,
                _ => Tristate::No,
            },
            Self::Macro(_) => Tristate::Yes,
            Self::Not(inner) => match inner.eval(config) {
                Tristate::No => Tristate::Yes,
                Tristate::Module => Tristate::Module,
                Tristate::Yes => Tristate::No,
            },
            Self::And(a, b) => a.eval(config).min(b.eval(config)),
            Self::Or(a, b) => a.eval(config).max(b.eval(config)),
            Self::Compare(a, relation, b) => {
                let (a, b) = (a.text(config), b.text(config));
                let order = match (integer(&a), integer(&b)) {
                    (Some(a), Some(b)) => a.cmp(&b),
                    _ => a.cmp(&b),
                };
                let holds = match relation {
                    Relation::Equal => order.is_eq(),
                    Relation::Unequal => order.is_ne(),
                    Relation::Less => order.is_lt(),
                    Relation::LessEqual => order.is_le(),
                    Relation::Greater => order.is_gt(),
                    Relation::GreaterEqual => order.is_ge(),
                };
                if holds { Tristate::Yes } else { Tristate::No }
            }
        }
    }

    /// The parts that keep it below `wanted`, each a piece that would have to change.
    /// Empty when it is met.
    pub fn unmet<'a>(&'a self, wanted: Tristate, config: &KernelConfig) -> Vec<&'a Expr> {
        if self.eval(config) >= wanted {
            return Vec::new();
        }
        match self {
            Self::And(a, b) => {
                let mut parts = a.unmet(wanted, config);
                for part in b.unmet(wanted, config) {
                    if !parts.contains(&part) {
                        parts.push(part);
                    }
                }
                parts
            }
            _ => vec![self],
        }
    }

    /// The symbols it names.
    pub fn symbols<'a>(&'a self, into: &mut Vec<&'a str>) {
        match self {
            Self::Symbol(name) => into.push(name),
            Self::Literal(_) | Self::Macro(_) => {}
            Self::Not(inner) => inner.symbols(into),
            Self::And(a, b) | Self::Or(a, b) | Self::Compare(a, _, b) => {
                a.symbols(into);
                b.symbols(into);
            }
        }
    }

    /// Its value as text, for comparisons: a symbol that is off or unset is `n`.
    fn text(&self, config: &KernelConfig) -> String {
        match self {
            Self::Symbol(name) => match config.get(name) {
                Some(Value::Text(text) | Value::Number(text)) => text.clone(),
                Some(value) => value.to_string(),
                None => "n".to_owned(),
            },
            Self::Literal(text) | Self::Macro(text) => text.clone(),
            other => match other.eval(config) {
                Tristate::No => "n".to_owned(),
                Tristate::Module => "m".to_owned(),
                Tristate::Yes => "y".to_owned(),
            },
        }
    }
}

fn tristate(value: Option<&Value>) -> Tristate {
    match value {
        Some(Value::Yes) => Tristate::Yes,
        Some(Value::Module) => Tristate::Module,
        _ => Tristate::No,
    }
}

fn integer(text: &str) -> Option<i128> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => i128::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = |f: &mut fmt::Formatter<'_>, e: &Expr, parenthesise: bool| {
            if parenthesise {
                write!(f, "({e})")
            } else {
                write!(f, "{e}")
            }
        };
        match self {
            Self::Symbol(text) | Self::Literal(text) => f.write_str(text),
            Self::Macro(text) => write!(f, "$({text})"),
            Self::Not(e) => {
                f.write_str("!")?;
                inner(f, e, !matches!(**e, Self::Symbol(_) | Self::Macro(_)))
            }
            Self::And(a, b) => {
                inner(f, a, matches!(**a, Self::Or(..)))?;
                f.write_str(" && ")?;
                inner(f, b, matches!(**b, Self::Or(..)))
            }
            Self::Or(a, b) => write!(f, "{a} || {b}"),
            Self::Compare(a, relation, b) => {
                let sign = match relation {
                    Relation::Equal => "=",
                    Relation::Unequal => "!=",
                    Relation::Less => "<",
                    Relation::LessEqual => "<=",
                    Relation::Greater => ">",
                    Relation::GreaterEqual => ">=",
                };
                write!(f, "{a}{sign}{b}")
            }
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(Expr),
    Not,
    And,
    Or,
    Open,
    Close,
    Relation(Relation),
}

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let simple = [
            ("&&", Token::And),
            ("||", Token::Or),
            ("!=", Token::Relation(Relation::Unequal)),
            ("<=", Token::Relation(Relation::LessEqual)),
            (">=", Token::Relation(Relation::GreaterEqual)),
            ("=", Token::Relation(Relation::Equal)),
            ("<", Token::Relation(Relation::Less)),
            (">", Token::Relation(Relation::Greater)),
            ("!", Token::Not),
            ("(", Token::Open),
            (")", Token::Close),
        ];
        let found = simple.iter().find(|(sign, _)| rest.starts_with(sign));
        let used = if let Some((sign, token)) = found {
            tokens.push(token.clone());
            sign.len()
        } else if first == '#' {
            break;
        } else if let Some(quoted) = rest.strip_prefix(['"', '\'']) {
            let end = quoted.find(first)?;
            tokens.push(Token::Word(Expr::Literal(quoted[..end].to_owned())));
            end + 2
        } else if rest.starts_with("$(") {
            let end = closing(rest)?;
            tokens.push(Token::Word(Expr::Macro(rest[2..end].to_owned())));
            end + 1
        } else {
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || "_-./$".contains(c)))
                .unwrap_or(rest.len());
            if end == 0 {
                return None;
            }
            tokens.push(Token::Word(word(&rest[..end])));
            end
        };
        rest = rest[used..].trim_start();
    }
    Some(tokens)
}

fn word(text: &str) -> Expr {
    let is_number = text.starts_with(|c: char| c.is_ascii_digit()) && integer(text).is_some();
    if matches!(text, "y" | "m" | "n") || is_number || text.starts_with('-') {
        Expr::Literal(text.to_owned())
    } else {
        Expr::Symbol(text.to_owned())
    }
}

/// Index of the parenthesis that closes a text beginning with `$(`.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            _ => {}
        }
    }
    None
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
}

impl Parser<'_> {
    fn or(&mut self) -> Option<Expr> {
        let mut left = self.and()?;
        while self.take(&Token::Or) {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Some(left)
    }

    fn and(&mut self) -> Option<Expr> {
        let mut left = self.not()?;
        while self.take(&Token::And) {
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Some(left)
    }

    fn not(&mut self) -> Option<Expr> {
        if self.take(&Token::Not) {
            return Some(Expr::Not(Box::new(self.not()?)));
        }
        if self.take(&Token::Open) {
            let inner = self.or()?;
            return self.take(&Token::Close).then_some(inner);
        }
        let Some(Token::Word(left)) = self.tokens.get(self.at) else {
            return None;
        };
        self.at += 1;
        let Some(Token::Relation(relation)) = self.tokens.get(self.at) else {
            return Some(left.clone());
        };
        let Some(Token::Word(right)) = self.tokens.get(self.at + 1) else {
            return None;
        };
        self.at += 2;
        Some(Expr::Compare(
            Box::new(left.clone()),
            *relation,
            Box::new(right.clone()),
        ))
    }

    fn take(&mut self, token: &Token) -> bool {
        let there = self.tokens.get(self.at) == Some(token);
        self.at += usize::from(there);
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unmet(text: &str, config: &str) -> Vec<String> {
        let config = KernelConfig::parse(config);
        Expr::parse(text)
            .unwrap()
            .unmet(Tristate::Yes, &config)
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn what_is_unmet() {
        let on = "CONFIG_SMP=y\nCONFIG_NR_CPUS=64\nCONFIG_USB=m\n";
        assert!(unmet("SMP && $(cc-option,-mfoo(x))", on).is_empty());
        assert_eq!(unmet("SMP && NUMA && !SMP", on), ["NUMA", "!SMP"]);
        assert_eq!(unmet("NUMA || (ACPI && SMP)", on), ["NUMA || ACPI && SMP"]);
        assert!(unmet("NR_CPUS >= 0x40 && HZ != 100", on).is_empty());
        assert_eq!(unmet("NR_CPUS < 64", on), ["NR_CPUS<64"]);
        assert_eq!(unmet("USB", on), ["USB"]);
        assert!(unmet("USB=m || SMP=\"y\"", on).is_empty());
    }

    #[test]
    fn malformed_is_refused() {
        for text in ["", "A &&", "(A", "A B", "= y", "$(x"] {
            assert_eq!(Expr::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[A-Z!&|()=<> \"$a-z]{0,40}") {
            if let Some(expr) = Expr::parse(&text) {
                expr.eval(&KernelConfig::default());
            }
        }
    }
}
