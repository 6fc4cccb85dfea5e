//! Unified diffs as `git format-patch`, `git diff` and `diff -u` write them. Pure.
//!
//! Only what `git apply` accepts is read, and with its strictness: hunk headers
//! must count their lines right, and a patch that ends inside a hunk is refused.

use std::fmt;

/// The change of one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePatch {
    /// Path before the change, without the `a/`; nothing when the file is new.
    pub old: Option<String>,
    /// Path after the change, without the `b/`; nothing when the file goes away.
    pub new: Option<String>,
    /// Mode the file gets (`100755`), when the patch says so.
    pub mode: Option<u32>,
    /// True for `copy from`: the old file stays.
    pub copy: bool,
    /// The changes, ascending.
    pub hunks: Vec<Hunk>,
    /// Line of the patch text where this file begins, from 1.
    pub line: u32,
}

/// One run of changed lines with their surroundings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hunk {
    /// First line in the old file, from 1; 0 for an empty old side.
    pub old_start: u32,
    /// First line in the new file, from 1; 0 for an empty new side.
    pub new_start: u32,
    /// The lines in order.
    pub lines: Vec<Line>,
    /// The `@@ … @@` line as written.
    pub header: String,
}

/// One line of a hunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Which sides have it.
    pub side: Side,
    /// Its bytes with the newline, if it has one.
    pub bytes: Vec<u8>,
}

/// Which sides of a diff a line is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// Both: context.
    Both,
    /// Removed.
    Old,
    /// Added.
    New,
}

/// A diff that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {problem}")]
pub struct DiffError {
    /// Line in the text given, from 1.
    pub line: u32,
    /// What is wrong.
    pub problem: DiffProblem,
}

/// What is wrong with a diff.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiffProblem {
    /// A hunk header that cannot be read.
    #[error("'{0}' is not a hunk header")]
    HunkHeader(String),
    /// The hunk ends before its header's counts are used up.
    #[error("the hunk '{header}' is cut off: {old} old and {new} new lines are missing")]
    CutOff {
        /// The header.
        header: String,
        /// Old lines missing.
        old: u32,
        /// New lines missing.
        new: u32,
    },
    /// A file without both paths.
    #[error("a hunk without the '---' and '+++' lines that name its file")]
    NoPath,
    /// A binary change.
    #[error("a binary patch ({0}), which is not supported")]
    Binary(String),
    /// A path that leaves the tree.
    #[error("the path '{0}' leaves the tree")]
    Outside(String),
    /// A line that names no path.
    #[error("'{0}' names no path")]
    BadPath(String),
}

impl FilePatch {
    /// The path people know the file by: the new one, else the old one.
    pub fn path(&self) -> &str {
        self.new
            .as_deref()
            .or(self.old.as_deref())
            .expect("a file patch has at least one path")
    }
}

impl Hunk {
    /// The lines of one side, joined.
    pub fn side(&self, side: Side) -> impl Iterator<Item = &[u8]> {
        self.lines
            .iter()
            .filter(move |line| line.side == Side::Both || line.side == side)
            .map(|line| line.bytes.as_slice())
    }

    /// Number of context lines before the first and after the last change.
    pub fn context(&self) -> (usize, usize) {
        let both = |line: &&Line| line.side == Side::Both;
        (
            self.lines.iter().take_while(both).count(),
            self.lines.iter().rev().take_while(both).count(),
        )
    }
}

impl fmt::Display for FilePatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path())
    }
}

/// Reads every file of a diff. Text that belongs to none (a commit message, a
/// diffstat, a mail signature) is passed over, as `git apply` does.
pub fn read(text: &[u8]) -> Result<Vec<FilePatch>, DiffError> {
    Reader {
        lines: text.split_inclusive(|byte| *byte == b'\n').collect(),
        at: 0,
    }
    .files()
}

struct Reader<'a> {
    lines: Vec<&'a [u8]>,
    at: usize,
}

impl<'a> Reader<'a> {
    fn files(mut self) -> Result<Vec<FilePatch>, DiffError> {
        let mut files = Vec::new();
        while let Some(line) = self.peek() {
            if line.starts_with(b"diff --git ") {
                files.push(self.git_file()?);
            } else if line.starts_with(b"--- ")
                && self
                    .lines
                    .get(self.at + 1)
                    .is_some_and(|l| l.starts_with(b"+++ "))
                && self
                    .lines
                    .get(self.at + 2)
                    .is_some_and(|l| l.starts_with(b"@@ -"))
            {
                files.push(self.plain_file()?);
            } else if hunk_header(line).is_some() && line.windows(3).any(|w| w == b" @@") {
                return Err(self.error(DiffProblem::NoPath));
            } else {
                self.at += 1;
            }
        }
        Ok(files)
    }

    /// `diff --git a/X b/X`, extended header lines, then perhaps hunks.
    fn git_file(&mut self) -> Result<FilePatch, DiffError> {
        let mut file = FilePatch {
            old: None,
            new: None,
            mode: None,
            copy: false,
            hunks: Vec::new(),
            line: self.number(),
        };
        let first = lossy(self.lines[self.at]);
        self.at += 1;
        let (mut created, mut deleted) = (false, false);
        while let Some(line) = self.peek() {
            let text = lossy(line);
            let word = |prefix: &str| text.strip_prefix(prefix).map(str::to_owned);
            if let Some(mode) = word("new file mode ") {
                created = true;
                file.mode = u32::from_str_radix(&mode, 8).ok();
            } else if word("deleted file mode ").is_some() {
                deleted = true;
            } else if let Some(mode) = word("new mode ") {
                file.mode = u32::from_str_radix(&mode, 8).ok();
            } else if let Some(path) = word("rename from ").or_else(|| word("copy from ")) {
                file.copy = text.starts_with("copy");
                file.old = Some(self.inside(unquote(&path))?);
            } else if let Some(path) = word("rename to ").or_else(|| word("copy to ")) {
                file.new = Some(self.inside(unquote(&path))?);
            } else if text.starts_with("GIT binary patch") || text.starts_with("Binary files ") {
                return Err(self.error(DiffProblem::Binary(text)));
            } else if text.starts_with("--- ") {
                let (old, new) = self.paths()?;
                (file.old, file.new) = (file.old.or(old), file.new.or(new));
                file.hunks = self.hunks()?;
                break;
            } else if !["old mode ", "index ", "similarity ", "dissimilarity "]
                .iter()
                .any(|prefix| text.starts_with(prefix))
            {
                break;
            }
            self.at += 1;
        }
        if file.old.is_none() && file.new.is_none() {
            // No hunks and no rename: a mode change, or an empty file made or
            // removed. Only the first line names it.
            let path =
                same_path(&first).ok_or_else(|| self.error(DiffProblem::BadPath(first.clone())))?;
            let path = self.inside(path)?;
            file.old = (!created).then(|| path.clone());
            file.new = (!deleted).then_some(path);
        }
        Ok(file)
    }

    /// `--- X`, `+++ Y`, hunks, as plain `diff -u` writes.
    fn plain_file(&mut self) -> Result<FilePatch, DiffError> {
        let line = self.number();
        let (old, new) = self.paths()?;
        Ok(FilePatch {
            old,
            new,
            mode: None,
            copy: false,
            hunks: self.hunks()?,
            line,
        })
    }

    fn paths(&mut self) -> Result<(Option<String>, Option<String>), DiffError> {
        let old = self.path_line("--- ")?;
        let new = self.path_line("+++ ")?;
        if old.is_none() && new.is_none() {
            return Err(self.error(DiffProblem::NoPath));
        }
        Ok((old, new))
    }

    fn path_line(&mut self, prefix: &str) -> Result<Option<String>, DiffError> {
        let text = self.peek().map(lossy).unwrap_or_default();
        let Some(written) = text.strip_prefix(prefix) else {
            return Err(self.error(DiffProblem::BadPath(text)));
        };
        // `diff -u` puts a tab and a date behind the path.
        let path = written.split('\t').next().unwrap_or(written);
        let path = unquote(path.trim_end());
        if path == "/dev/null" {
            self.at += 1;
            return Ok(None);
        }
        let stripped = match path.split_once('/') {
            Some((_, rest)) if !rest.is_empty() => rest.to_owned(),
            _ => return Err(self.error(DiffProblem::BadPath(text.clone()))),
        };
        let path = self.inside(stripped)?;
        self.at += 1;
        Ok(Some(path))
    }

    fn hunks(&mut self) -> Result<Vec<Hunk>, DiffError> {
        let mut hunks = Vec::new();
        while let Some(line) = self.peek() {
            if !line.starts_with(b"@@ -") {
                break;
            }
            let header = lossy(line);
            let Some((old_start, mut old, new_start, mut new)) = hunk_header(line) else {
                return Err(self.error(DiffProblem::HunkHeader(header)));
            };
            self.at += 1;
            let mut lines: Vec<Line> = Vec::new();
            while old > 0 || new > 0 {
                let cut_off = DiffProblem::CutOff {
                    header: header.clone(),
                    old,
                    new,
                };
                let Some(line) = self.peek() else {
                    return Err(self.error(cut_off));
                };
                let (side, bytes) = match line.first() {
                    Some(b' ') => (Side::Both, &line[1..]),
                    Some(b'-') => (Side::Old, &line[1..]),
                    Some(b'+') => (Side::New, &line[1..]),
                    // Some mailers strip the blank of an empty context line.
                    Some(b'\n') => (Side::Both, line),
                    Some(b'\\') => {
                        self.at += 1;
                        drop_newline(&mut lines);
                        continue;
                    }
                    _ => return Err(self.error(cut_off)),
                };
                let (needs_old, needs_new) = (side != Side::New, side != Side::Old);
                if (needs_old && old == 0) || (needs_new && new == 0) {
                    return Err(self.error(cut_off));
                }
                old -= u32::from(needs_old);
                new -= u32::from(needs_new);
                lines.push(Line {
                    side,
                    bytes: bytes.to_vec(),
                });
                self.at += 1;
            }
            if self.peek().is_some_and(|line| line.starts_with(b"\\ ")) {
                drop_newline(&mut lines);
                self.at += 1;
            }
            hunks.push(Hunk {
                old_start,
                new_start,
                lines,
                header,
            });
        }
        Ok(hunks)
    }

    fn peek(&self) -> Option<&'a [u8]> {
        self.lines.get(self.at).copied()
    }

    fn number(&self) -> u32 {
        u32::try_from(self.at + 1).unwrap_or(u32::MAX)
    }

    fn error(&self, problem: DiffProblem) -> DiffError {
        DiffError {
            line: self.number(),
            problem,
        }
    }

    fn inside(&self, path: String) -> Result<String, DiffError> {
        let leaves = path.starts_with('/')
            || path
                .split('/')
                .any(|part| matches!(part, "" | "." | ".." | ".git"));
        if leaves {
            return Err(self.error(DiffProblem::Outside(path)));
        }
        Ok(path)
    }
}

/// `\ No newline at end of file` speaks about the line before it.
fn drop_newline(lines: &mut [Line]) {
    if let Some(last) = lines.last_mut()
        && last.bytes.last() == Some(&b'\n')
    {
        last.bytes.pop();
    }
}

/// `@@ -1,2 +3,4 @@ …` as (old start, old lines, new start, new lines).
fn hunk_header(line: &[u8]) -> Option<(u32, u32, u32, u32)> {
    let text = std::str::from_utf8(line)
        .map(str::to_owned)
        .unwrap_or_else(|_| lossy(line));
    let (ranges, _) = text.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let range = |text: &str| -> Option<(u32, u32)> {
        match text.split_once(',') {
            Some((start, len)) => Some((start.parse().ok()?, len.parse().ok()?)),
            None => Some((text.parse().ok()?, 1)),
        }
    };
    let ((a, b), (c, d)) = (range(old)?, range(new)?);
    Some((a, b, c, d))
}

/// The path of `diff --git a/X b/X` when both sides are the same.
fn same_path(first: &str) -> Option<String> {
    let rest = first.strip_prefix("diff --git ")?.trim_end();
    if let Some(quoted) = rest.strip_prefix('"') {
        let end = quoted.find("\" ")?;
        return unquote(&format!("\"{}\"", &quoted[..end]))
            .split_once('/')
            .map(|(_, path)| path.to_owned());
    }
    let half = rest.len() / 2;
    let (a, b) = (rest.get(..half)?, rest.get(half + 1..)?);
    let (a, b) = (a.split_once('/')?.1, b.split_once('/')?.1);
    (a == b).then(|| a.to_owned())
}

/// Undoes git's C-style quoting of unusual paths.
fn unquote(path: &str) -> String {
    let Some(inner) = path.strip_prefix('"').and_then(|p| p.strip_suffix('"')) else {
        return path.to_owned();
    };
    let mut bytes = Vec::with_capacity(inner.len());
    let mut rest = inner.bytes().peekable();
    while let Some(byte) = rest.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match rest.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    if let Some(next @ b'0'..=b'7') = rest.peek().copied() {
                        value = value * 8 + u32::from(next - b'0');
                        rest.next();
                    }
                }
                bytes.push(u8::try_from(value & 0xff).expect("masked to a byte"));
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A line as text, without its line end.
fn lossy(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    text.trim_end_matches(['\n', '\r']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TWO: &str = "Subject: x\n\n a.c | 2 +-\n---\n\ndiff --git a/a.c b/a.c\nindex 1..2 100644\n--- a/a.c\n+++ b/a.c\n\
        @@ -1,3 +1,3 @@ int f(void)\n one\n-two\n+TWO\n three\n\
        diff --git a/new.h b/new.h\nnew file mode 100644\nindex 0..3\n--- /dev/null\n+++ b/new.h\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n\
        -- \n2.39\n";

    #[test]
    fn files_and_hunks_are_read_and_the_signature_is_not() {
        let files = read(TWO.as_bytes()).unwrap();
        assert_eq!(files.len(), 2);
        assert_eq!(files[0].path(), "a.c");
        assert_eq!(files[0].hunks[0].lines.len(), 4);
        assert_eq!(files[0].hunks[0].context(), (1, 1));
        assert_eq!((files[1].old.as_deref(), files[1].path()), (None, "new.h"));
        assert_eq!(files[1].hunks[0].lines[0].bytes, b"x");
    }

    #[test]
    fn renames_modes_and_empty_files() {
        let text = "diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n\
            diff --git a/run.sh b/run.sh\nold mode 100644\nnew mode 100755\n\
            diff --git a/e b/e\nnew file mode 100644\nindex 0..0\n\
            diff --git a/gone b/gone\ndeleted file mode 100644\nindex 0..0\n";
        let files = read(text.as_bytes()).unwrap();
        let sides: Vec<_> = files
            .iter()
            .map(|f| (f.old.as_deref(), f.new.as_deref()))
            .collect();
        assert_eq!(
            sides,
            [
                (Some("x"), Some("y")),
                (Some("run.sh"), Some("run.sh")),
                (None, Some("e")),
                (Some("gone"), None)
            ]
        );
        assert_eq!(files[1].mode, Some(0o100_755));
    }

    #[test]
    fn a_cut_off_hunk_names_what_is_missing() {
        let text = "--- a/a.c\n+++ b/a.c\n@@ -1,3 +1,3 @@\n one\n-two\n";
        let error = read(text.as_bytes()).unwrap_err();
        assert_eq!(
            error.to_string(),
            "line 6: the hunk '@@ -1,3 +1,3 @@' is cut off: 1 old and 2 new lines are missing"
        );
    }

    #[test]
    fn paths_stay_inside_the_tree() {
        for path in ["a/../../etc/passwd", "a//etc/passwd", "a/.git/config"] {
            let text = format!("--- {path}\n+++ {path}\n@@ -0,0 +1 @@\n+x\n");
            assert!(matches!(
                read(text.as_bytes()).unwrap_err().problem,
                DiffProblem::Outside(_)
            ));
        }
        let link = "diff --git a/x b/x\nrename from ../x\nrename to y\n";
        assert!(read(link.as_bytes()).is_err());
    }

    #[test]
    fn quoted_paths_are_unquoted() {
        assert_eq!(unquote("\"a/\\303\\244 b\""), "a/ä b");
        assert_eq!(unquote("plain"), "plain");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            drop(read(&bytes));
        }

        #[test]
        fn mangled_diffs_never_panic(at in 0usize..400, byte in any::<u8>()) {
            let mut text = TWO.as_bytes().to_vec();
            let len = text.len();
            text[at % len] = byte;
            drop(read(&text));
        }
    }
}
