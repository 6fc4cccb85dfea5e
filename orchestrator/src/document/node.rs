//! The tree of a YAML file: values with their positions.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::{Problem, span::narrow};

/// A value and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The value.
    pub value: Value,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

/// A YAML value. Maps keep their order; keys are text.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number too large for `i64`.
    Unsigned(u64),
    /// A number with a fraction.
    Float(f64),
    /// Text.
    Text(String),
    /// A list.
    List(Vec<Node>),
    /// A map; the position of a key is that of the entry.
    Map(Vec<(Key, Node)>),
}

/// A key and its position.
#[derive(Debug, Clone, PartialEq)]
pub struct Key {
    /// The key.
    pub text: String,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
    pub column: u32,
}

impl Node {
    /// The entry of a map.
    pub fn get(&self, key: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries.iter().find(|(k, _)| k.text == key).map(|(_, v)| v),
            _ => None,
        }
    }

    /// The same value without positions.
    pub fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(b) => (*b).into(),
            Value::Int(n) => (*n).into(),
            Value::Unsigned(n) => (*n).into(),
            Value::Float(x) => (*x).into(),
            Value::Text(text) => text.clone().into(),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => entries
                .iter()
                .map(|(k, v)| (k.text.clone(), v.to_json()))
                .collect(),
        }
    }
}

/// How every file is read: bounded, strict about duplicate keys, YAML 1.2.
pub(super) fn options() -> serde_yaml::Options {
    let mut options = serde_yaml::Options::default();
    options.leading_zero_numbers_as_strings = true;
    options.underscored_numbers_as_strings = true;
    options.strict_booleans = true;
    options.with_snippet = false;
    options
}

/// Parses a text.
pub(super) fn parse(text: &str) -> Result<Node, Problem> {
    serde_yaml::from_str_with_options::<Node>(text, options()).map_err(|e| problem_of(&e))
}

/// A problem from the parser's own error.
pub(super) fn problem_of(error: &serde_yaml::Error) -> Problem {
    let (line, column) = error
        .location()
        .map_or((0, 0), |at| (narrow(at.line()), narrow(at.column())));
    let text = error.without_snippet().to_string();
    // The parser ends its messages with the position; ours is shown apart.
    let message = text.split(" at line ").next().unwrap_or(&text);
    // Nor does a reader care for the options of our parser.
    let message = message.split(", set ").next().unwrap_or(message);
    let message = message.to_string();
    Problem {
        line,
        column,
        message,
        help: None,
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_yaml::Spanned::<Value>::deserialize(deserializer)?;
        Ok(Self {
            line: narrow(spanned.referenced.line()),
            column: narrow(spanned.referenced.column()),
            value: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_yaml::Spanned::<String>::deserialize(deserializer)?;
        Ok(Self {
            line: narrow(spanned.referenced.line()),
            column: narrow(spanned.referenced.column()),
            text: spanned.value,
        })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(i64::try_from(value).map_or(Value::Unsigned(value), Value::Int))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.into()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = access.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Map(entries))
    }
}
