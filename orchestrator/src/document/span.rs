//! A value and where it stands in its file.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value with the line and column it was read from, both from 1 (0 when it
/// was not read from a file, or its position was lost in an untagged enum).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct At<T> {
    /// The value.
    pub value: T,
    /// Line, from 1.
    pub line: u32,
    /// Column in characters, from 1.
    pub column: u32,
}

impl<T> At<T> {
    /// A value that stands in no file.
    pub fn nowhere(value: T) -> Self {
        Self {
            value,
            line: 0,
            column: 0,
        }
    }
}

impl<T> std::ops::Deref for At<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for At<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = serde_yaml::Spanned::<T>::deserialize(deserializer)?;
        Ok(Self {
            line: narrow(spanned.referenced.line()),
            column: narrow(spanned.referenced.column()),
            value: spanned.value,
        })
    }
}

impl<T: Serialize> Serialize for At<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.value.serialize(serializer)
    }
}

impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Positions beyond 4 G do not occur in files of at most [`super::MAX_BYTES`].
pub(super) fn narrow(position: u64) -> u32 {
    u32::try_from(position).unwrap_or(u32::MAX)
}
