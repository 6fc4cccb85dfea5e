//! Sets of CPUs in the kernel's cpulist syntax.

use std::{collections::BTreeSet, fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// No x86 kernel can be configured for more CPUs (`NR_CPUS_RANGE_END` with
/// `MAXSMP` in `arch/x86/Kconfig`), so a larger number is a mistake.
pub const MAX_CPUS: u32 = 8192;

/// A set of CPU numbers.
///
/// Read as `bitmap_parselist()` in the kernel's `lib/bitmap-str.c` reads it:
/// numbers and ranges separated by commas or blanks, `all`, `N` for the last
/// CPU, and `RANGE:USED/GROUP` for the first `USED` of each `GROUP` of the
/// range. `^RANGE` takes CPUs out of what stands before it; the kernel does
/// not know that form, and never sees it: [`fmt::Display`] writes plain ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuList(BTreeSet<u32>);

/// Why a text is no list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuListError {
    /// A part that is neither a number nor a range.
    #[error("`{part}` is not a CPU, a range like `0-3`, or a range with a stride like `0-7:1/2`")]
    Syntax {
        /// The part.
        part: String,
    },
    /// `7-4`.
    #[error("the range `{part}` ends before it begins")]
    Backwards {
        /// The part.
        part: String,
    },
    /// `0-7:3/2` or `0-7:1/0`.
    #[error("`{part}` uses {used} CPUs of each group of {group}")]
    Stride {
        /// The part.
        part: String,
        /// CPUs used of a group.
        used: u32,
        /// CPUs of a group.
        group: u32,
    },
    /// A CPU that does not exist.
    #[error("`{part}` names CPU {cpu}, but the last CPU is {last}")]
    Beyond {
        /// The part.
        part: String,
        /// The CPU.
        cpu: u32,
        /// The last CPU there is.
        last: u32,
    },
}

impl CpuList {
    /// No CPUs.
    pub fn new() -> Self {
        Self::default()
    }

    /// CPUs `0` to `count - 1`.
    pub fn all(count: u32) -> Self {
        (0..count).collect()
    }

    /// Reads a list for a machine of `count` CPUs.
    ///
    /// # Errors
    /// The first part that is wrong.
    pub fn parse(text: &str, count: u32) -> Result<Self, CpuListError> {
        let last = count.saturating_sub(1);
        let mut cpus = BTreeSet::new();
        for part in text.split(|c: char| c == ',' || c.is_whitespace()) {
            if part.is_empty() {
                continue;
            }
            let (out, range) = match part.strip_prefix('^') {
                Some(range) => (true, range),
                None => (false, part),
            };
            let range = Range::parse(part, range, last)?;
            if range.end > last {
                return Err(CpuListError::Beyond {
                    part: part.into(),
                    cpu: range.end,
                    last,
                });
            }
            for cpu in range.cpus() {
                if out {
                    cpus.remove(&cpu);
                } else {
                    cpus.insert(cpu);
                }
            }
        }
        Ok(Self(cpus))
    }

    /// How many CPUs.
    pub fn len(&self) -> u32 {
        u32::try_from(self.0.len()).expect("at most MAX_CPUS members")
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a CPU is among them.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.contains(&cpu)
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// The lowest CPU.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// Adds a CPU.
    pub fn insert(&mut self, cpu: u32) {
        self.0.insert(cpu);
    }

    /// CPUs in both.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).copied().collect())
    }

    /// CPUs in either.
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        Self(self.0.union(&other.0).copied().collect())
    }

    /// CPUs in this list and not in the other.
    #[must_use]
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    /// Whether every CPU is also in the other.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }

    /// Runs of consecutive CPUs: first and last of each.
    pub fn ranges(&self) -> Vec<(u32, u32)> {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, end)) if *end + 1 == cpu => *end = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        runs
    }
}

/// One part of a list.
struct Range {
    start: u32,
    end: u32,
    used: u32,
    group: u32,
}

impl Range {
    /// `part` is the text as written, for messages; `text` the range in it.
    fn parse(part: &str, text: &str, last: u32) -> Result<Self, CpuListError> {
        let syntax = || CpuListError::Syntax { part: part.into() };
        let number = |text: &str| -> Result<u32, CpuListError> {
            if text == "N" {
                return Ok(last);
            }
            if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
                return Err(syntax());
            }
            text.parse().map_err(|_| syntax())
        };
        let (span, stride) = match text.split_once(':') {
            Some((span, stride)) => (span, Some(stride)),
            None => (text, None),
        };
        let (start, end) = if span.eq_ignore_ascii_case("all") {
            (0, last)
        } else {
            match span.split_once('-') {
                Some((start, end)) => (number(start)?, number(end)?),
                // The kernel takes a stride only after a range or `all`.
                None if stride.is_some() => return Err(syntax()),
                None => {
                    let cpu = number(span)?;
                    (cpu, cpu)
                }
            }
        };
        if start > end {
            return Err(CpuListError::Backwards { part: part.into() });
        }
        let (used, group) = match stride {
            None => (1, 1),
            Some(stride) => {
                let (used, group) = stride.split_once('/').ok_or_else(syntax)?;
                (number(used)?, number(group)?)
            }
        };
        if group == 0 || used > group {
            return Err(CpuListError::Stride {
                part: part.into(),
                used,
                group,
            });
        }
        Ok(Self {
            start,
            end,
            used,
            group,
        })
    }

    fn cpus(&self) -> impl Iterator<Item = u32> + '_ {
        (self.start..=self.end).filter(|cpu| (cpu - self.start) % self.group < self.used)
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    /// Reads what a kernel wrote: any CPU below [`MAX_CPUS`].
    fn from_str(text: &str) -> Result<Self, CpuListError> {
        Self::parse(text, MAX_CPUS)
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (start, end)) in self.ranges().into_iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            if start == end {
                write!(f, "{start}")?;
            } else {
                write!(f, "{start}-{end}")?;
            }
        }
        Ok(())
    }
}

impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        Self(cpus.into_iter().collect())
    }
}

impl Serialize for CpuList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> String {
        match CpuList::parse(text, 16) {
            Ok(list) => list.to_string(),
            Err(error) => format!("! {error}"),
        }
    }

    /// The accepted and refused forms of `lib/test_bitmap.c`, for 16 CPUs.
    #[test]
    fn reads_what_the_kernel_reads() {
        for (text, wanted) in [
            ("", ""),
            ("0", "0"),
            ("0-3", "0-3"),
            ("3,1,2", "1-3"),
            (" 1, 2\t4 ,", "1-2,4"),
            ("all", "0-15"),
            ("ALL", "0-15"),
            ("N", "15"),
            ("12-N", "12-15"),
            ("0-10:2/4", "0-1,4-5,8-9"),
            ("all:1/2", "0,2,4,6,8,10,12,14"),
            ("0-15:16/31", "0-15"),
            ("0-15:0/4", ""),
            ("0-7,^3", "0-2,4-7"),
            ("all,^0-1,^15", "2-14"),
        ] {
            assert_eq!(read(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, wanted) in [
            (
                "x",
                "! `x` is not a CPU, a range like `0-3`, or a range with a stride like `0-7:1/2`",
            ),
            (
                "1-",
                "! `1-` is not a CPU, a range like `0-3`, or a range with a stride like `0-7:1/2`",
            ),
            (
                "-3",
                "! `-3` is not a CPU, a range like `0-3`, or a range with a stride like `0-7:1/2`",
            ),
            (
                "3:1/2",
                "! `3:1/2` is not a CPU, a range like `0-3`, or a range with a stride like `0-7:1/2`",
            ),
            (
                "0-7:2",
                "! `0-7:2` is not a CPU, a range like `0-3`, or a range with a stride like `0-7:1/2`",
            ),
            ("7-4", "! the range `7-4` ends before it begins"),
            ("0-7:3/2", "! `0-7:3/2` uses 3 CPUs of each group of 2"),
            ("0-7:0/0", "! `0-7:0/0` uses 0 CPUs of each group of 0"),
            ("0,14-17", "! `14-17` names CPU 17, but the last CPU is 15"),
            (
                "99999999999",
                "! `99999999999` is not a CPU, a range like `0-3`, or a range with a stride like `0-7:1/2`",
            ),
        ] {
            assert_eq!(read(text), wanted, "{text:?}");
        }
    }

    #[test]
    fn huge_ranges_are_refused_before_they_are_walked() {
        assert!("0-4294967295".parse::<CpuList>().is_err());
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(cpus in prop::collection::btree_set(0u32..300, 0..60)) {
            let list = CpuList(cpus);
            prop_assert_eq!(list.to_string().parse::<CpuList>().unwrap(), list);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9N,:/^ al-]{0,24}") {
            let _ = CpuList::parse(&text, 64);
        }
    }
}
