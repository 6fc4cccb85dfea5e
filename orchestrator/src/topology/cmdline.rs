//! Kernel command lines: words, sets filled in, and the CPU lists in them.

use std::collections::BTreeMap;

use super::{CpuList, CpuListError};

/// Words of a command line. Blanks inside double quotes do not end a word, as
/// in the kernel's `next_arg()` (`lib/cmdline.c`).
pub fn words(text: &str) -> Vec<&str> {
    let mut words = Vec::new();
    let mut start = None;
    let mut quoted = false;
    for (at, c) in text.char_indices() {
        if c == '"' {
            quoted = !quoted;
        }
        if c.is_whitespace() && !quoted {
            if let Some(start) = start.take() {
                words.push(&text[start..at]);
            }
        } else if start.is_none() {
            start = Some(at);
        }
    }
    if let Some(start) = start {
        words.push(&text[start..]);
    }
    words
}

/// The value of the last `name=value` word. Dashes and underscores in names
/// are the same, as in the kernel's `parameq()`.
pub fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let plain = |name: &str| name.replace('-', "_");
    words(text)
        .into_iter()
        .filter_map(|word| word.split_once('='))
        .filter(|(key, _)| plain(key) == plain(name))
        .map(|(_, value)| value)
        .next_back()
}

/// What is wrong with a `{set}` in a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FillError {
    /// There is no such set.
    #[error("there is no set `{name}`")]
    Unknown {
        /// Its name.
        name: String,
    },
    /// `{` without `}`, or the other way round.
    #[error("the brace in `{near}` has no partner")]
    Brace {
        /// The word it stands in.
        near: String,
    },
}

/// Fills in sets: `isolcpus={isolated}` becomes `isolcpus=4-7`.
///
/// # Errors
/// Every set that does not exist and every lone brace.
pub fn fill(text: &str, sets: &BTreeMap<String, CpuList>) -> Result<String, Vec<FillError>> {
    let mut out = String::new();
    let mut errors = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        let end = after
            .find(|c: char| "{}".contains(c) || c.is_whitespace())
            .filter(|&end| after[end..].starts_with('}'));
        match end {
            Some(end) if rest[at..].starts_with('{') => {
                let name = &after[..end];
                match sets.get(name) {
                    Some(cpus) => out.push_str(&cpus.to_string()),
                    None => errors.push(FillError::Unknown { name: name.into() }),
                }
                rest = &after[end + 1..];
            }
            _ => {
                let start = rest[..at].rfind(char::is_whitespace).map_or(0, |s| s + 1);
                let stop = after.find(char::is_whitespace).unwrap_or(after.len());
                errors.push(FillError::Brace {
                    near: format!("{}{}", &rest[start..=at], &after[..stop]),
                });
                rest = after;
            }
        }
    }
    out.push_str(rest);
    if errors.is_empty() {
        Ok(out)
    } else {
        Err(errors)
    }
}

/// The CPUs that `isolcpus=` takes from whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Isolation {
    /// Taken out of the scheduler's domains; shown in
    /// `/sys/devices/system/cpu/isolated`.
    pub domain: CpuList,
    /// Without a tick (`nohz_full=`, or the `nohz` flag of `isolcpus=`); shown
    /// in `/sys/devices/system/cpu/nohz_full`.
    pub nohz: CpuList,
}

/// Reads `isolcpus=` and `nohz_full=` as `housekeeping_setup()` in the kernel's
/// `kernel/sched/isolation.c` does, for a machine of `count` CPUs.
///
/// # Errors
/// The word and what is wrong with its list.
pub fn isolation(text: &str, count: u32) -> Result<Isolation, (String, CpuListError)> {
    let mut isolation = Isolation::default();
    let list = |name: &str, text: &str| {
        CpuList::parse(text, count).map_err(|error| (format!("{name}={text}"), error))
    };
    if let Some(value) = value(text, "isolcpus") {
        let mut rest = value;
        let mut flags = Vec::new();
        // `all` and `N` begin with a letter, too, but no comma-ended flag is called so.
        while let Some((flag, after)) = rest.split_once(',') {
            let is_flag = flag.chars().all(|c| c.is_ascii_alphabetic() || c == '_')
                && !flag.eq_ignore_ascii_case("all")
                && flag != "N";
            if !is_flag {
                break;
            }
            flags.push(flag);
            rest = after;
        }
        let cpus = list("isolcpus", rest)?;
        let known = ["nohz", "domain", "managed_irq"];
        if flags.contains(&"domain") || !flags.iter().any(|f| known.contains(f)) {
            isolation.domain = cpus.clone();
        }
        if flags.contains(&"nohz") {
            isolation.nohz = cpus;
        }
    }
    if let Some(value) = value(text, "nohz_full") {
        isolation.nohz = list("nohz_full", value)?;
    }
    Ok(isolation)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets() -> BTreeMap<String, CpuList> {
        BTreeMap::from([
            ("isolated".to_string(), "4-7".parse().unwrap()),
            ("hk".to_string(), "0-3".parse().unwrap()),
        ])
    }

    #[test]
    fn words_keep_their_quotes() {
        assert_eq!(
            words(" a=1  dyndbg=\"file x +p\" quiet\n"),
            ["a=1", "dyndbg=\"file x +p\"", "quiet"]
        );
    }

    #[test]
    fn the_last_value_counts_and_dashes_do_not() {
        assert_eq!(value("nr-cpus=4 x nr_cpus=2", "nr_cpus"), Some("2"));
        assert_eq!(value("nr_cpus", "nr_cpus"), None);
    }

    #[test]
    fn sets_are_filled_in() {
        assert_eq!(
            fill("isolcpus=nohz,{isolated} irqaffinity={hk}", &sets()),
            Ok("isolcpus=nohz,4-7 irqaffinity=0-3".into())
        );
        assert_eq!(
            fill("a={nope} b={is olated} c=} {hk", &sets()),
            Err(vec![
                FillError::Unknown {
                    name: "nope".into()
                },
                FillError::Brace {
                    near: "b={is".into()
                },
                FillError::Brace {
                    near: "olated}".into()
                },
                FillError::Brace { near: "c=}".into() },
                FillError::Brace { near: "{hk".into() },
            ])
        );
    }

    #[test]
    fn isolcpus_flags_say_who_loses_the_cpus() {
        let read = |text: &str| {
            let it = isolation(text, 8).unwrap();
            (it.domain.to_string(), it.nohz.to_string())
        };
        let pair = |domain: &str, nohz: &str| (domain.to_string(), nohz.to_string());
        assert_eq!(read("isolcpus=4-7"), pair("4-7", ""));
        assert_eq!(read("isolcpus=nohz,4-7"), pair("", "4-7"));
        assert_eq!(read("isolcpus=nohz,domain,4-7"), pair("4-7", "4-7"));
        assert_eq!(read("isolcpus=managed_irq,1,4"), pair("", ""));
        assert_eq!(read("isolcpus=domain,all:1/2"), pair("0,2,4,6", ""));
        assert_eq!(read("isolcpus=4 nohz_full=5-N"), pair("4", "5-7"));
        assert!(isolation("nohz_full=9", 8).is_err());
    }
}
