//! When a value read back is the value written.

use std::collections::BTreeSet;

use topolab_protocol::workload::parse_size;

use crate::cpulist;

/// Whether the kernel shows `got` after taking `wanted`. The kernel may write a
/// value in another form: CPU lists in canonical order, switches as Y and N,
/// sizes in bytes rounded down to pages, the chosen word of several in brackets,
/// and further fields after those that were written.
pub fn same(wanted: &str, got: &str) -> bool {
    let (wanted, got) = (wanted.trim(), chosen(got));
    fields(wanted) == fields(got)
        || switch(wanted).is_some_and(|on| switch(got) == Some(on))
        || list(wanted).is_some_and(|cpus| list(got) == Some(cpus))
        || same_size(wanted, got)
        || leading_fields(wanted, got)
}

/// The word in brackets of a file that shows all choices, `always [madvise]
/// never`; else the whole text.
pub fn chosen(text: &str) -> &str {
    let text = text.trim();
    let bracketed = text.split_whitespace().count() > 1;
    let inside = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    match inside {
        Some((word, _)) if bracketed && !word.contains(char::is_whitespace) => word,
        _ => text,
    }
}

fn fields(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn switch(text: &str) -> Option<bool> {
    match text {
        "1" | "Y" | "y" | "on" => Some(true),
        "0" | "N" | "n" | "off" => Some(false),
        _ => None,
    }
}

fn list(text: &str) -> Option<BTreeSet<usize>> {
    // A lone number would be equal only to itself anyway.
    cpulist::parse(text)
}

/// `256M` written to `memory.max` reads back in bytes, whole pages only.
fn same_size(wanted: &str, got: &str) -> bool {
    const PAGE: u64 = 4096;
    match (parse_size(wanted), parse_size(got)) {
        (Some(wanted), Some(got)) => wanted == got || (got > 0 && wanted / PAGE * PAGE == got),
        _ => false,
    }
}

/// `50000` written to `cpu.max` reads back as `50000 100000`. The rest must be
/// numbers: `isolated invalid (…)` is not what was asked for.
fn leading_fields(wanted: &str, got: &str) -> bool {
    let (wanted, got) = (fields(wanted), fields(got));
    !wanted.is_empty()
        && got.starts_with(&wanted)
        && got[wanted.len()..]
            .iter()
            .all(|field| field.parse::<u64>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_forms_of_the_same_value() {
        for (wanted, got) in [
            ("1", "1"),
            ("1", "Y"),
            ("4,5,6,7", "4-7"),
            ("256M", "268435456"),
            ("5000", "4096"),
            ("max", "max"),
            ("50000", "50000 100000"),
            ("50000 100000", "50000\t100000"),
            ("always", "[always] madvise never"),
            ("", ""),
        ] {
            assert!(same(wanted, got), "{wanted:?} {got:?}");
        }
    }

    #[test]
    fn other_values() {
        for (wanted, got) in [
            ("1", "0"),
            ("4-7", "4-6"),
            (
                "isolated",
                "isolated invalid (Cpu list in cpuset.cpus not exclusive)",
            ),
            ("always", "always [madvise] never"),
            ("0", ""),
            ("", "0"),
            ("100", "0"),
        ] {
            assert!(!same(wanted, got), "{wanted:?} {got:?}");
        }
    }
}
