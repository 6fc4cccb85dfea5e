//! What compilers said of the objects of a tree, out of the log of everything that
//! was ever made in it.
//!
//! make is run with `--output-sync=target`: what a compilation says stands directly
//! below its `  CC      object` line. The last time an object was made counts.

use std::collections::BTreeMap;

use super::super::diagnostics::{self, Diagnostic};

/// The complaints that stand for a tree, by make's step.
pub(super) fn standing(log: &str) -> Vec<Diagnostic> {
    let mut steps: BTreeMap<&str, &str> = BTreeMap::new();
    let mut starts: Vec<(usize, &str)> = Vec::new();
    let mut at = 0;
    for line in log.split_inclusive('\n') {
        if let Some(step) = step(line) {
            starts.push((at, step));
        } else if line.starts_with("$ ") {
            // A new call of make: what was said outside of any step is said again.
            starts.push((at, ""));
        }
        at += line.len();
    }
    for (index, (start, step)) in starts.iter().enumerate() {
        let end = starts.get(index + 1).map_or(log.len(), |(next, _)| *next);
        steps.insert(step, &log[*start..end]);
    }
    let mut found: Vec<Diagnostic> = steps
        .values()
        .flat_map(|text| diagnostics::read(text))
        // "make: *** Error 1" only says that something above failed.
        .filter(|one| one.file.is_some() || !follows(&one.message))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// True for make's own words about the failure of a step.
fn follows(message: &str) -> bool {
    message.starts_with('[') || message.starts_with("Waiting for unfinished jobs")
}

/// `  VERB    target` of quiet kbuild output, as one word for the step.
fn step(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("  ")?;
    let verb = rest.split_whitespace().next()?;
    let is_verb = verb.len() >= 2
        && verb.starts_with(|c: char| c.is_ascii_uppercase())
        && verb
            .chars()
            .all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    (is_verb && rest.starts_with(verb) && rest.contains("  ")).then(|| rest.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(log: &str) -> Vec<String> {
        standing(log).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn the_last_time_of_each_object_counts() {
        let log = "$ make\n  CC      a.o\n../a.c:1:1: warning: old\n  CC      b.o\n../b.c:2:2: warning: stays\n\
            $ make\n  CC      a.o\n../a.c:5:1: error: new\nmake[2]: *** [../scripts/Makefile.build:1: a.o] Error 1\n";
        assert_eq!(
            shown(log),
            ["a.c:5:1: error: new", "b.c:2:2: warning: stays"]
        );
        let healed = format!("{log}$ make\n  CC      a.o\n");
        assert_eq!(shown(&healed), ["b.c:2:2: warning: stays"]);
    }

    #[test]
    fn a_linkers_complaint_goes_with_the_next_link() {
        let log = "$ make\n  LD      vmlinux\nld: a.o: in function `f':\na.c:(.text+0x1): undefined reference to `g'\n\
            $ make\n  LD      vmlinux\n";
        assert!(shown(log).is_empty());
    }

    #[test]
    fn words_that_are_no_step() {
        assert_eq!(step("  CC [M]  x.o\n"), Some("CC [M]  x.o"));
        assert_eq!(step("  293 |   code\n"), None);
        assert_eq!(step("  indented text  here\n"), None);
    }
}
