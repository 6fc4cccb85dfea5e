//! Labels of a sample: a small map that costs little, because a campaign holds
//! millions of them.

use std::{fmt, ops::Index};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{MapAccess, Visitor},
    ser::SerializeMap,
};

/// Names and values, in the order of the names. JSON: an object.
///
/// A `BTreeMap` of one entry takes half a kilobyte; this takes what the texts
/// take. Samples have a handful of labels, so searching is no matter.
#[derive(Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Labels(Vec<(String, String)>);

impl Labels {
    /// No labels.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let place = self.place(name).ok()?;
        Some(&self.0[place].1)
    }

    /// Sets a label; gives the value it had.
    pub fn insert(&mut self, name: impl Into<String>, value: impl Into<String>) -> Option<String> {
        let (name, value) = (name.into(), value.into());
        match self.place(&name) {
            Ok(place) => Some(std::mem::replace(&mut self.0[place].1, value)),
            Err(place) => {
                self.0.insert(place, (name, value));
                None
            }
        }
    }

    /// Names and values, in the order of the names.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn place(&self, name: &str) -> Result<usize, usize> {
        self.0
            .binary_search_by(|(known, _)| known.as_str().cmp(name))
    }
}

impl<N: Into<String>, V: Into<String>> FromIterator<(N, V)> for Labels {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(labels: I) -> Self {
        let mut map = Self::new();
        for (name, value) in labels {
            map.insert(name, value);
        }
        map
    }
}

impl<N: Into<String>, V: Into<String>, const COUNT: usize> From<[(N, V); COUNT]> for Labels {
    fn from(labels: [(N, V); COUNT]) -> Self {
        labels.into_iter().collect()
    }
}

impl Index<&str> for Labels {
    type Output = str;

    fn index(&self, name: &str) -> &str {
        self.get(name).expect("the label exists")
    }
}

impl fmt::Debug for Labels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl Serialize for Labels {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.len()))?;
        for (name, value) in self.iter() {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for Labels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfLabels;
        impl<'de> Visitor<'de> for OfLabels {
            type Value = Labels;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of labels")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Labels, A::Error> {
                let mut labels = Labels(Vec::with_capacity(map.size_hint().unwrap_or(1).min(16)));
                while let Some((name, value)) = map.next_entry::<String, String>()? {
                    labels.insert(name, value);
                }
                Ok(labels)
            }
        }
        deserializer.deserialize_map(OfLabels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_a_sorted_map_of_texts() {
        let mut labels = Labels::from([("interval", "3"), ("cpu", "1")]);
        assert_eq!(labels.insert("cpu", "2"), Some("1".into()));
        assert_eq!(
            labels.iter().collect::<Vec<_>>(),
            [("cpu", "2"), ("interval", "3")]
        );
        assert_eq!((labels.get("cpu"), labels.get("node")), (Some("2"), None));
        let json = serde_json::to_string(&labels).unwrap();
        assert_eq!(json, r#"{"cpu":"2","interval":"3"}"#);
        assert_eq!(serde_json::from_str::<Labels>(&json).unwrap(), labels);
        assert_eq!(
            serde_json::from_str::<Labels>(r#"{"b":"1","a":"2","b":"3"}"#)
                .unwrap()
                .len(),
            2
        );
    }
}
