//! Which patches of a series a build carries, and how people write it down.
//!
//! A variant names patches by their position in the series, counted from 1 as
//! `[PATCH n/m]` does. Everything here is pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// One way of applying a patch series.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Variant {
    /// No patch.
    Base,
    /// Patch `n` alone.
    One(u32),
    /// Patches `1..=n`.
    Prefix(u32),
    /// Every patch.
    All,
    /// Every patch but `n`.
    AllBut(u32),
    /// The named patches, ascending and without repeats.
    Subset(Vec<u32>),
}

/// What may stand after `@`: one variant, or a word for several.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Selection {
    /// Exactly one variant.
    Only(Variant),
    /// Each patch alone: `1`, `2`, …
    Each,
    /// Each prefix: `1..1`, `1..2`, …
    Prefixes,
}

/// A kernel as a user names it, `KERNEL[+SERIES][@VARIANT]`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KernelRequest {
    /// Name of the kernel (a YAML in `kernels/`).
    pub kernel: String,
    /// Name of one of its series.
    pub series: Option<String>,
    /// The variants asked for; `all` when a series and nothing else is named,
    /// `base` when neither is.
    pub selection: Selection,
}

/// One buildable point: a kernel, a series and exactly one variant of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct KernelRef {
    /// Name of the kernel (a YAML in `kernels/`).
    pub kernel: String,
    /// Name of one of its series.
    pub series: Option<String>,
    /// Which of the series' patches.
    pub variant: Variant,
}

/// A variant, selection or kernel reference that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VariantError {
    /// Not one of the forms.
    #[error(
        "'{text}' is not a variant: write base, N, 1..N, all, all-N or [N,M] (or each, prefixes for several)"
    )]
    Form {
        /// What was written.
        text: String,
    },
    /// A prefix that does not begin at 1.
    #[error(
        "'{text}' does not begin at patch 1: a prefix is 1..{last}; write {list} for those patches alone"
    )]
    NotAPrefix {
        /// What was written.
        text: String,
        /// Its last patch.
        last: u32,
        /// The same patches as a subset.
        list: String,
    },
    /// Patches are counted from 1.
    #[error("'{text}' names patch 0: patches are counted from 1, and base has none")]
    Zero {
        /// What was written.
        text: String,
    },
    /// The series is shorter than the variant needs.
    #[error("variant {variant} needs patch {needed}, the series has {len}")]
    OutOfRange {
        /// The variant.
        variant: Variant,
        /// Highest patch it names.
        needed: u32,
        /// Patches in the series.
        len: u32,
    },
    /// A word for several variants where one is needed.
    #[error("'{text}' stands for several variants; name one")]
    Several {
        /// What was written.
        text: String,
    },
    /// A reference without a kernel name, or with an unusable one.
    #[error("'{text}' names no kernel: write KERNEL[+SERIES][@VARIANT]")]
    NoKernel {
        /// What was written.
        text: String,
    },
    /// A variant with patches, but no series to take them from.
    #[error("'{text}' asks for patches without naming a series: write KERNEL+SERIES@VARIANT")]
    NoSeries {
        /// What was written.
        text: String,
    },
}

impl Variant {
    /// The patches of a series of `len` that this variant carries, counted from
    /// 1 and ascending. Fails when the series is too short.
    pub fn patches(&self, len: u32) -> Result<Vec<u32>, VariantError> {
        let needed = match self {
            Self::Base | Self::All => 0,
            Self::One(n) | Self::Prefix(n) | Self::AllBut(n) => *n,
            Self::Subset(list) => list.last().copied().unwrap_or(0),
        };
        if needed > len {
            return Err(VariantError::OutOfRange {
                variant: self.clone(),
                needed,
                len,
            });
        }
        Ok(match self {
            Self::Base => Vec::new(),
            Self::One(n) => vec![*n],
            Self::Prefix(n) => (1..=*n).collect(),
            Self::All => (1..=len).collect(),
            Self::AllBut(n) => (1..=len).filter(|k| k != n).collect(),
            Self::Subset(list) => list.clone(),
        })
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Base => f.write_str("base"),
            Self::One(n) => write!(f, "{n}"),
            Self::Prefix(n) => write!(f, "1..{n}"),
            Self::All => f.write_str("all"),
            Self::AllBut(n) => write!(f, "all-{n}"),
            Self::Subset(list) => {
                let words: Vec<String> = list.iter().map(u32::to_string).collect();
                write!(f, "[{}]", words.join(","))
            }
        }
    }
}

impl FromStr for Variant {
    type Err = VariantError;

    fn from_str(text: &str) -> Result<Self, VariantError> {
        let form = || VariantError::Form {
            text: text.to_owned(),
        };
        let number = |digits: &str| -> Result<u32, VariantError> {
            // `u32::from_str` would also take "+3".
            if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
                return Err(form());
            }
            match digits.parse().map_err(|_| form())? {
                0 => Err(VariantError::Zero {
                    text: text.to_owned(),
                }),
                n => Ok(n),
            }
        };
        match text {
            "base" => return Ok(Self::Base),
            "all" => return Ok(Self::All),
            "each" | "prefixes" => {
                return Err(VariantError::Several {
                    text: text.to_owned(),
                });
            }
            _ => {}
        }
        if let Some(n) = text.strip_prefix("all-") {
            return Ok(Self::AllBut(number(n)?));
        }
        if let Some(list) = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')) {
            let mut patches = list
                .split(',')
                .map(|word| number(word.trim()))
                .collect::<Result<Vec<_>, _>>()?;
            patches.sort_unstable();
            patches.dedup();
            return Ok(Self::Subset(patches));
        }
        if let Some((first, last)) = text.split_once("..") {
            let (first, last) = (number(first)?, number(last)?);
            if first != 1 {
                let list: Vec<u32> = (first..=last).take(16).collect();
                return Err(VariantError::NotAPrefix {
                    text: text.to_owned(),
                    last,
                    list: Self::Subset(list).to_string(),
                });
            }
            return Ok(Self::Prefix(last));
        }
        Ok(Self::One(number(text)?))
    }
}

impl Selection {
    /// The variants this stands for, over a series of `len` patches.
    pub fn expand(&self, len: u32) -> Result<Vec<Variant>, VariantError> {
        Ok(match self {
            Self::Only(variant) => {
                variant.patches(len)?;
                vec![variant.clone()]
            }
            Self::Each => (1..=len).map(Variant::One).collect(),
            Self::Prefixes => (1..=len).map(Variant::Prefix).collect(),
        })
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Only(variant) => variant.fmt(f),
            Self::Each => f.write_str("each"),
            Self::Prefixes => f.write_str("prefixes"),
        }
    }
}

impl FromStr for Selection {
    type Err = VariantError;

    fn from_str(text: &str) -> Result<Self, VariantError> {
        Ok(match text {
            "each" => Self::Each,
            "prefixes" => Self::Prefixes,
            _ => Self::Only(text.parse()?),
        })
    }
}

impl KernelRequest {
    /// The points this stands for, when its series has `len` patches (0 when
    /// it names none).
    pub fn expand(&self, len: u32) -> Result<Vec<KernelRef>, VariantError> {
        let point = |variant| KernelRef {
            kernel: self.kernel.clone(),
            series: self.series.clone(),
            variant,
        };
        Ok(self.selection.expand(len)?.into_iter().map(point).collect())
    }
}

impl fmt::Display for KernelRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ref(f, &self.kernel, self.series.as_deref(), &self.selection)
    }
}

impl FromStr for KernelRequest {
    type Err = VariantError;

    fn from_str(text: &str) -> Result<Self, VariantError> {
        let (names, selection) = match text.rsplit_once('@') {
            Some((names, selection)) => (names, Some(selection.parse()?)),
            None => (text, None),
        };
        let (kernel, series) = match names.split_once('+') {
            Some((kernel, series)) => (kernel, Some(series)),
            None => (names, None),
        };
        if kernel.is_empty() || series == Some("") {
            return Err(VariantError::NoKernel {
                text: text.to_owned(),
            });
        }
        let selection = selection.unwrap_or(Selection::Only(match series {
            Some(_) => Variant::All,
            None => Variant::Base,
        }));
        if series.is_none() && selection != Selection::Only(Variant::Base) {
            return Err(VariantError::NoSeries {
                text: text.to_owned(),
            });
        }
        Ok(Self {
            kernel: kernel.to_owned(),
            series: series.map(str::to_owned),
            selection,
        })
    }
}

impl fmt::Display for KernelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ref(f, &self.kernel, self.series.as_deref(), &self.variant)
    }
}

impl FromStr for KernelRef {
    type Err = VariantError;

    fn from_str(text: &str) -> Result<Self, VariantError> {
        let request: KernelRequest = text.parse()?;
        let Selection::Only(variant) = request.selection else {
            return Err(VariantError::Several {
                text: text.to_owned(),
            });
        };
        Ok(Self {
            kernel: request.kernel,
            series: request.series,
            variant,
        })
    }
}

fn write_ref(
    f: &mut fmt::Formatter<'_>,
    kernel: &str,
    series: Option<&str>,
    variant: &dyn fmt::Display,
) -> fmt::Result {
    f.write_str(kernel)?;
    if let Some(series) = series {
        write!(f, "+{series}")?;
    }
    write!(f, "@{variant}")
}

macro_rules! text_serde {
    ($($name:ty),*) => {$(
        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
        impl TryFrom<String> for $name {
            type Error = VariantError;
            fn try_from(text: String) -> Result<Self, VariantError> {
                text.parse()
            }
        }
    )*};
}
text_serde!(Variant, Selection, KernelRequest, KernelRef);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn variants() -> impl Strategy<Value = Variant> {
        prop_oneof![
            Just(Variant::Base),
            Just(Variant::All),
            (1u32..200).prop_map(Variant::One),
            (1u32..200).prop_map(Variant::Prefix),
            (1u32..200).prop_map(Variant::AllBut),
            prop::collection::btree_set(1u32..200, 1..6)
                .prop_map(|set| Variant::Subset(set.into_iter().collect())),
        ]
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(variant in variants()) {
            prop_assert_eq!(variant.to_string().parse::<Variant>().unwrap(), variant);
        }

        #[test]
        fn a_reference_reads_back(variant in variants()) {
            let reference = KernelRef {
                kernel: "linux-6.12".to_owned(),
                series: Some("rt-push".to_owned()),
                variant,
            };
            prop_assert_eq!(reference.to_string().parse::<KernelRef>().unwrap(), reference);
        }

        #[test]
        fn any_text_is_refused_or_read_without_panic(text in ".*") {
            drop(text.parse::<KernelRequest>());
        }
    }

    #[test]
    fn patches_of_each_form() {
        let of = |text: &str| text.parse::<Variant>().unwrap().patches(4).unwrap();
        assert_eq!(of("base"), [0u32; 0]);
        assert_eq!(of("2"), [2]);
        assert_eq!(of("1..3"), [1, 2, 3]);
        assert_eq!(of("all"), [1, 2, 3, 4]);
        assert_eq!(of("all-2"), [1, 3, 4]);
        assert_eq!(of("[3, 1,3]"), [1, 3]);
    }

    #[test]
    fn defaults_follow_the_series() {
        let read = |text: &str| text.parse::<KernelRef>().unwrap().to_string();
        assert_eq!(read("linux-6.12"), "linux-6.12@base");
        assert_eq!(read("linux-6.12+rt-push"), "linux-6.12+rt-push@all");
    }

    #[test]
    fn refusals_say_what_to_write() {
        let refuse = |text: &str| text.parse::<KernelRequest>().unwrap_err().to_string();
        assert_eq!(
            refuse("k+s@2..3"),
            "'2..3' does not begin at patch 1: a prefix is 1..3; write [2,3] for those patches alone"
        );
        assert_eq!(
            refuse("k@all"),
            "'k@all' asks for patches without naming a series: write KERNEL+SERIES@VARIANT"
        );
        assert_eq!(
            refuse("k+s@0"),
            "'0' names patch 0: patches are counted from 1, and base has none"
        );
        assert!(refuse("k+s@+3").contains("is not a variant"));
        assert!(refuse("@base").contains("names no kernel"));
        assert_eq!(
            Variant::AllBut(7).patches(3).unwrap_err().to_string(),
            "variant all-7 needs patch 7, the series has 3"
        );
    }

    #[test]
    fn several_expand_in_order() {
        let expand = |text: &str| -> Vec<String> {
            let request: KernelRequest = text.parse().unwrap();
            let points = request.expand(3).unwrap();
            points.iter().map(ToString::to_string).collect()
        };
        assert_eq!(expand("k+s@each"), ["k+s@1", "k+s@2", "k+s@3"]);
        assert_eq!(expand("k+s@prefixes"), ["k+s@1..1", "k+s@1..2", "k+s@1..3"]);
        assert_eq!(expand("k"), ["k@base"]);
    }
}
