//! From a heap of mails to one series: which of them are its patches, in which
//! order, and why the others are not. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use super::mail::patch_of_mail;
use super::mailbox::{self, Mail};
use super::series::{Series, SeriesError};

/// What was read out of mails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Imported {
    /// The patches in order.
    pub series: Series,
    /// Version of the series.
    pub version: u32,
    /// Mails that were left out, in the order they came.
    pub skipped: Vec<Skipped>,
}

/// A mail that is not part of the series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// Its subject.
    pub subject: String,
    /// Why it was left out.
    pub why: SkipReason,
}

/// Why a mail was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SkipReason {
    /// `[PATCH 0/n]`.
    Cover,
    /// `Re:`.
    Reply,
    /// No diff in it.
    NoDiff,
    /// Another version of the series was taken.
    Version {
        /// This mail's.
        mail: u32,
        /// The one that was taken.
        taken: u32,
    },
    /// The same patch is there already.
    Repeated,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cover => f.write_str("a cover letter"),
            Self::Reply => f.write_str("a reply"),
            Self::NoDiff => f.write_str("holds no diff"),
            Self::Version { mail, taken } => {
                write!(f, "version {mail}; version {taken} is taken")
            }
            Self::Repeated => f.write_str("the same patch again"),
        }
    }
}

/// Mails that do not make a series.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// No mail is a patch.
    #[error("no mail in it is a patch{}", listing(.skipped))]
    NoPatch {
        /// What is there.
        skipped: Vec<Skipped>,
    },
    /// Some are missing.
    #[error("version {version} of the series has {total} patches; missing: {}", numbers(.missing))]
    Missing {
        /// Version of the series.
        version: u32,
        /// Patches it says it has.
        total: u32,
        /// Those that are not there.
        missing: Vec<u32>,
    },
    /// Two different mails claim the same place.
    #[error("'{first}' and '{second}' both claim to be patch {number} of version {version}")]
    Twice {
        /// The place.
        number: u32,
        /// Version of the series.
        version: u32,
        /// A subject.
        first: String,
        /// The other.
        second: String,
    },
    /// The mails belong to series of different lengths.
    #[error(
        "mails of more than one series are mixed: '{first}' of {first_total} and '{second}' of {second_total}"
    )]
    Mixed {
        /// A subject.
        first: String,
        /// Patches its series has.
        first_total: u32,
        /// Another subject.
        second: String,
        /// Patches its series has.
        second_total: u32,
    },
    /// The version asked for is not there.
    #[error("no patch of version {version} is in it; there are {}", numbers(.known))]
    NoVersion {
        /// What was asked for.
        version: u32,
        /// What is there.
        known: Vec<u32>,
    },
}

fn numbers(list: &[u32]) -> String {
    let words: Vec<String> = list.iter().map(u32::to_string).collect();
    words.join(", ")
}

fn listing(skipped: &[Skipped]) -> String {
    skipped
        .iter()
        .take(5)
        .map(|one| format!("\n  '{}': {}", one.subject, one.why))
        .collect()
}

/// Reads a mailbox (or one mail). `version` chooses among several; the newest
/// otherwise.
pub fn read_mailbox(
    origin: &Path,
    bytes: &[u8],
    version: Option<u32>,
) -> Result<Imported, SeriesError> {
    let mails = mailbox::split(bytes)
        .iter()
        .map(|mail| mailbox::read(mail))
        .collect::<Result<Vec<Mail>, _>>()
        .map_err(|error| SeriesError::Patch {
            path: origin.to_owned(),
            problem: error.into(),
        })?;
    of_mails(origin, &mails, version)
}

/// Chooses and orders.
pub fn of_mails(
    origin: &Path,
    mails: &[Mail],
    version: Option<u32>,
) -> Result<Imported, SeriesError> {
    let import = |problem| SeriesError::Import {
        path: origin.to_owned(),
        problem,
    };
    let mut skipped: Vec<(usize, SkipReason)> = Vec::new();
    let mut patches: Vec<usize> = Vec::new();
    for (index, mail) in mails.iter().enumerate() {
        let reason = if mail.tag.reply {
            Some(SkipReason::Reply)
        } else if mail.tag.number == Some(0) {
            Some(SkipReason::Cover)
        } else if !has_diff(&mail.body) {
            Some(SkipReason::NoDiff)
        } else {
            None
        };
        match reason {
            Some(reason) => skipped.push((index, reason)),
            None => patches.push(index),
        }
    }
    let told = |mut skipped: Vec<(usize, SkipReason)>| -> Vec<Skipped> {
        skipped.sort_by_key(|(index, _)| *index);
        skipped
            .into_iter()
            .map(|(index, why)| Skipped {
                subject: mails[index].subject.clone(),
                why,
            })
            .collect()
    };
    let mut known: Vec<u32> = patches.iter().map(|i| mails[*i].tag.version).collect();
    known.sort_unstable();
    known.dedup();
    let Some(newest) = known.last().copied() else {
        return Err(import(ImportError::NoPatch {
            skipped: told(skipped),
        }));
    };
    let taken = version.unwrap_or(newest);
    if !known.contains(&taken) {
        let version = taken;
        return Err(import(ImportError::NoVersion { version, known }));
    }
    patches.retain(|index| {
        let mail = mails[*index].tag.version;
        if mail != taken {
            skipped.push((*index, SkipReason::Version { mail, taken }));
        }
        mail == taken
    });
    let ordered = order(mails, patches, taken, &mut skipped).map_err(import)?;
    let patches = ordered
        .into_iter()
        .map(|index| {
            let mail = &mails[index];
            let name = match mail.tag.number {
                _ if mail.file.is_some() => mail.file.clone().unwrap_or_default(),
                Some(number) => origin.join(format!("{number:04}-{}", slug(&mail.tag.title))),
                None if mails.len() == 1 => origin.to_owned(),
                None => origin.join(slug(&mail.tag.title)),
            };
            patch_of_mail(&name, mail).map_err(|problem| SeriesError::Patch {
                path: name.clone(),
                problem,
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(Imported {
        series: Series { patches },
        version: taken,
        skipped: told(skipped),
    })
}

/// Numbered patches by number, each once and none missing; others as they came.
fn order(
    mails: &[Mail],
    patches: Vec<usize>,
    version: u32,
    skipped: &mut Vec<(usize, SkipReason)>,
) -> Result<Vec<usize>, ImportError> {
    let numbered: Vec<(usize, u32, u32)> = patches
        .iter()
        .filter_map(|i| Some((*i, mails[*i].tag.number?, mails[*i].tag.total?)))
        .collect();
    let Some((first, _, total)) = numbered.first().copied() else {
        return Ok(patches);
    };
    if let Some((second, _, other)) = numbered.iter().find(|(_, _, t)| *t != total) {
        return Err(ImportError::Mixed {
            first: mails[first].subject.clone(),
            first_total: total,
            second: mails[*second].subject.clone(),
            second_total: *other,
        });
    }
    let mut places: BTreeMap<u32, usize> = BTreeMap::new();
    for (index, number, _) in numbered {
        match places.get(&number) {
            None => {
                places.insert(number, index);
            }
            Some(earlier) if mails[*earlier].body == mails[index].body => {
                skipped.push((index, SkipReason::Repeated));
            }
            Some(earlier) => {
                return Err(ImportError::Twice {
                    number,
                    version,
                    first: mails[*earlier].subject.clone(),
                    second: mails[index].subject.clone(),
                });
            }
        }
    }
    let missing: Vec<u32> = (1..=total).filter(|n| !places.contains_key(n)).collect();
    if !missing.is_empty() {
        return Err(ImportError::Missing {
            version,
            total,
            missing,
        });
    }
    let loose = patches
        .into_iter()
        .filter(|index| mails[*index].tag.number.is_none());
    Ok(places.into_values().chain(loose).collect())
}

/// A diff begins somewhere (whether it can be read is another question).
fn has_diff(body: &[u8]) -> bool {
    let mut lines = body.split(|byte| *byte == b'\n');
    lines.any(|line| line.starts_with(b"diff --git ") || line.starts_with(b"@@ -"))
}

/// A title as a file name, as `git format-patch` makes them.
pub fn slug(title: &str) -> String {
    let mut name = String::new();
    for c in title.chars() {
        if c.is_ascii_alphanumeric() || c == '.' || c == '_' {
            name.push(c);
        } else if !name.ends_with('-') {
            name.push('-');
        }
    }
    let name: String = name.trim_matches(['-', '.']).chars().take(52).collect();
    format!("{}.patch", name.trim_matches(['-', '.']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mail(subject: &str, text: &str) -> Vec<u8> {
        format!(
            "From x@y Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: {subject}\n\n{text}\n\n"
        )
        .into_bytes()
    }

    fn diff(n: u32) -> String {
        format!("Why.\n---\n--- a/f{n}\n+++ b/f{n}\n@@ -1 +1 @@\n-x\n+y\n")
    }

    fn import(mails: &[Vec<u8>]) -> Result<Imported, SeriesError> {
        read_mailbox(Path::new("box"), &mails.concat(), None)
    }

    #[test]
    fn a_thread_as_it_comes() {
        let imported = import(&[
            mail("[PATCH 2/2] two, old", &diff(20)),
            mail("Re: [PATCH v2 1/2] one", &diff(9)),
            mail("[PATCH v2 2/2] two", &diff(2)),
            mail("[PATCH v2 0/2] cover", "words"),
            mail("[PATCH v2 1/2] one: it", &diff(1)),
            mail("[PATCH v2 1/2] one: it", &diff(1)),
            mail("a question", "words"),
        ])
        .unwrap();
        let subjects: Vec<&str> = imported
            .series
            .patches
            .iter()
            .map(|p| p.subject.as_str())
            .collect();
        assert_eq!(subjects, ["one: it", "two"]);
        assert_eq!(imported.series.patches[0].name(), "0001-one-it.patch");
        let told: Vec<String> = imported
            .skipped
            .iter()
            .map(|s| format!("{}: {}", s.subject, s.why))
            .collect();
        assert_eq!(
            told,
            [
                "[PATCH 2/2] two, old: version 1; version 2 is taken",
                "Re: [PATCH v2 1/2] one: a reply",
                "[PATCH v2 0/2] cover: a cover letter",
                "[PATCH v2 1/2] one: it: the same patch again",
                "a question: holds no diff",
            ]
        );
    }

    #[test]
    fn heaps_that_are_no_series() {
        let told = |mails: &[Vec<u8>]| import(mails).unwrap_err().to_string();
        assert_eq!(
            told(&[
                mail("[PATCH 1/3] a", &diff(1)),
                mail("[PATCH 3/3] c", &diff(3))
            ]),
            "box: version 1 of the series has 3 patches; missing: 2"
        );
        assert_eq!(
            told(&[
                mail("[PATCH 1/1] a", &diff(1)),
                mail("[PATCH 1/1] b", &diff(2))
            ]),
            "box: '[PATCH 1/1] a' and '[PATCH 1/1] b' both claim to be patch 1 of version 1"
        );
        assert!(
            told(&[
                mail("[PATCH 1/1] a", &diff(1)),
                mail("[PATCH 1/2] b", &diff(2))
            ])
            .contains("more than one series are mixed")
        );
        assert_eq!(
            told(&[mail("Re: [PATCH] a", &diff(1))]),
            "box: no mail in it is a patch\n  'Re: [PATCH] a': a reply"
        );
        let two = [mail("[PATCH 1/1] a", &diff(1))].concat();
        assert_eq!(
            read_mailbox(Path::new("box"), &two, Some(4))
                .unwrap_err()
                .to_string(),
            "box: no patch of version 4 is in it; there are 1"
        );
    }
}
