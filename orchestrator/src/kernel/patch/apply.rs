//! Laying a file's hunks over its text with the exactness of `git apply`: every
//! context and removed line must be there, byte for byte; only the line number
//! may be off. Pure.

use super::diff::{FilePatch, Hunk, Side};

/// A hunk that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Which hunk of the file, from 1.
    pub hunk: u32,
    /// Its header as written.
    pub header: String,
    /// Line of the file where it fits best, from 1.
    pub line: u32,
    /// The line the patch expects there.
    pub expected: String,
    /// The line the file has there; nothing past its end.
    pub found: Option<String>,
    /// True when the change seems to be in the file already.
    pub already: bool,
}

/// Why a patch cannot be laid over a tree.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyProblem {
    /// A hunk's lines are not there.
    #[error("{}", misfit_text(.0))]
    Misfit(Box<Misfit>),
    /// The file to change is not there.
    #[error("the tree has no such file")]
    Missing,
    /// The file to make is there.
    #[error("the patch makes this file, but the tree has it already")]
    Exists,
    /// A file to remove has lines left after the removal.
    #[error("the patch removes this file, but the tree's has other lines too")]
    Leftover,
}

fn misfit_text(misfit: &Misfit) -> String {
    let Misfit {
        hunk,
        header,
        line,
        expected,
        ..
    } = misfit;
    let found = match &misfit.found {
        Some(found) => format!("has '{found}'"),
        None => "has ended".to_owned(),
    };
    let already = if misfit.already {
        " (the change seems to be in the tree already)"
    } else {
        ""
    };
    format!(
        "hunk {hunk} ({header}) does not apply: it expects '{expected}' at line {line}, where the file {found}{already}"
    )
}

/// The text after the change; nothing when the patch removes the file. `old` is
/// the text before, nothing when the tree does not have the file at the patch's
/// old path.
pub fn apply(file: &FilePatch, old: Option<&[u8]>) -> Result<Option<Vec<u8>>, ApplyProblem> {
    let text = match (&file.old, old) {
        (Some(_), Some(text)) => text,
        (Some(_), None) => return Err(ApplyProblem::Missing),
        (None, Some(_)) => return Err(ApplyProblem::Exists),
        (None, None) => &[],
    };
    let mut image: Vec<ImageLine> = text
        .split_inclusive(|byte| *byte == b'\n')
        .map(|bytes| ImageLine {
            bytes,
            patched: false,
        })
        .collect();
    for (number, hunk) in (1u32..).zip(&file.hunks) {
        let old: Vec<&[u8]> = hunk.side(Side::Old).collect();
        let Some(at) = find(&image, hunk, &old) else {
            return Err(ApplyProblem::Misfit(Box::new(explain(
                &image, number, hunk, &old,
            ))));
        };
        let new = hunk.side(Side::New).map(|bytes| ImageLine {
            bytes,
            patched: true,
        });
        image.splice(at..at + old.len(), new);
    }
    if file.new.is_none() {
        return if image.is_empty() {
            Ok(None)
        } else {
            Err(ApplyProblem::Leftover)
        };
    }
    Ok(Some(
        image
            .iter()
            .flat_map(|line| line.bytes.iter().copied())
            .collect(),
    ))
}

/// A line of the file being changed. `git apply` does not let a hunk match lines
/// an earlier hunk of the same patch has produced.
struct ImageLine<'a> {
    bytes: &'a [u8],
    patched: bool,
}

/// Where the hunk's old side is, nearest to where its header says, as
/// `find_pos` in git's apply.c searches: a hunk at the file's beginning is only
/// taken there, one without trailing context only at its end.
fn find(image: &[ImageLine<'_>], hunk: &Hunk, old: &[&[u8]]) -> Option<usize> {
    if old.len() > image.len() {
        return None;
    }
    let last = image.len() - old.len();
    let fits = |at: usize| {
        image[at..at + old.len()]
            .iter()
            .zip(old)
            .all(|(line, wanted)| !line.patched && line.bytes == *wanted)
    };
    let at_beginning = hunk.old_start <= 1;
    let at_end = hunk.context().1 == 0;
    if at_beginning || at_end {
        let at = if at_beginning { 0 } else { last };
        return ((!at_end || at == last) && fits(at)).then_some(at);
    }
    let wanted = usize::try_from(hunk.new_start.saturating_sub(1))
        .unwrap_or(usize::MAX)
        .min(last);
    (0..=last.max(wanted))
        .flat_map(|distance| [wanted.checked_sub(distance), wanted.checked_add(distance)])
        .flatten()
        .find(|at| *at <= last && fits(*at))
}

/// Finds the place where most of the hunk's lines agree, and the first line there
/// that does not.
fn explain(image: &[ImageLine<'_>], number: u32, hunk: &Hunk, old: &[&[u8]]) -> Misfit {
    let wanted = usize::try_from(hunk.new_start.saturating_sub(1)).unwrap_or(usize::MAX);
    let agree = |at: usize, side: &[&[u8]]| {
        side.iter()
            .enumerate()
            .filter(|(k, line)| image.get(at + k).is_some_and(|have| have.bytes == **line))
            .count()
    };
    let best = (0..image.len().max(1))
        .max_by_key(|at| (agree(*at, old), std::cmp::Reverse(at.abs_diff(wanted))))
        .unwrap_or(0);
    let offset = old
        .iter()
        .enumerate()
        .position(|(k, line)| {
            image
                .get(best + k)
                .is_none_or(|have| have.bytes != *line || have.patched)
        })
        .unwrap_or(0);
    let new: Vec<&[u8]> = hunk.side(Side::New).collect();
    let already = !new.is_empty() && (0..image.len()).any(|at| agree(at, &new) == new.len());
    let shown = |bytes: &[u8]| {
        String::from_utf8_lossy(bytes)
            .trim_end_matches('\n')
            .to_owned()
    };
    Misfit {
        hunk: number,
        header: hunk.header.clone(),
        line: u32::try_from(best + offset + 1).unwrap_or(u32::MAX),
        expected: old.get(offset).map(|line| shown(line)).unwrap_or_default(),
        found: image.get(best + offset).map(|line| shown(line.bytes)),
        already,
    }
}

#[cfg(test)]
mod tests {
    use super::super::diff;
    use super::*;

    fn one(patch: &str) -> FilePatch {
        diff::read(patch.as_bytes()).unwrap().remove(0)
    }

    const PATCH: &str = "--- a/f\n+++ b/f\n@@ -3,5 +3,5 @@\n c\n d\n-e\n+E\n f\n g\n";

    fn numbered(lines: &[&str]) -> Vec<u8> {
        lines
            .iter()
            .flat_map(|l| format!("{l}\n").into_bytes())
            .collect()
    }

    #[test]
    fn a_hunk_applies_where_it_says_and_at_an_offset() {
        let there = numbered(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        let after = apply(&one(PATCH), Some(&there)).unwrap().unwrap();
        assert_eq!(after, numbered(&["a", "b", "c", "d", "E", "f", "g", "h"]));
        let shifted = numbered(&["x", "y", "a", "b", "c", "d", "e", "f", "g", "h"]);
        let after = apply(&one(PATCH), Some(&shifted)).unwrap().unwrap();
        assert!(String::from_utf8(after).unwrap().contains("d\nE\nf"));
    }

    #[test]
    fn changed_context_is_refused_with_both_lines() {
        let other = numbered(&["a", "b", "c", "d", "e", "F", "g", "h"]);
        let error = apply(&one(PATCH), Some(&other)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "hunk 1 (@@ -3,5 +3,5 @@) does not apply: it expects 'f' at line 6, where the file has 'F'"
        );
    }

    #[test]
    fn a_change_that_is_there_is_recognised() {
        let done = numbered(&["a", "b", "c", "d", "E", "f", "g", "h"]);
        let error = apply(&one(PATCH), Some(&done)).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("(the change seems to be in the tree already)")
        );
    }

    #[test]
    fn a_hunk_at_the_end_stays_at_the_end() {
        let patch = one("--- a/f\n+++ b/f\n@@ -2,1 +2,2 @@\n x\n+y\n");
        assert!(apply(&patch, Some(b"a\nx\n")).is_ok());
        assert!(apply(&patch, Some(b"x\nb\n")).is_err());
    }

    #[test]
    fn files_are_made_and_removed() {
        let make = one("--- /dev/null\n+++ b/f\n@@ -0,0 +1 @@\n+x\n");
        assert_eq!(apply(&make, None).unwrap().unwrap(), b"x\n");
        assert_eq!(apply(&make, Some(b"")).unwrap_err(), ApplyProblem::Exists);
        let remove = one("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n");
        assert_eq!(apply(&remove, Some(b"x\n")).unwrap(), None);
        assert!(apply(&remove, Some(b"x\nmore\n")).is_err());
        assert_eq!(apply(&remove, None).unwrap_err(), ApplyProblem::Missing);
    }
}
