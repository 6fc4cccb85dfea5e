//! One patch out of one file: a mail as `git format-patch` and mail clients write
//! it, or a bare diff with words before it.

use std::path::Path;

use mailparse::MailHeaderMap;

use super::Patch;
use super::diff::{self, DiffError};

/// A file that is no patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The mail's headers or encoding cannot be read.
    #[error("not a mail that can be decoded: {0}")]
    Mail(String),
    /// The diff cannot be read.
    #[error("{0}")]
    Diff(DiffError),
    /// There is no diff in it.
    #[error("holds no diff")]
    NoDiff,
}

/// Reads a patch. `origin` is only a name here.
pub fn read_patch(origin: &Path, bytes: &[u8]) -> Result<Patch, PatchError> {
    let (mut subject, mut author) = (String::new(), None);
    let body = if is_mail(bytes) {
        let bytes = strip_from_line(bytes);
        let mail =
            mailparse::parse_mail(bytes).map_err(|error| PatchError::Mail(error.to_string()))?;
        let header = |name: &str| mail.headers.get_first_value(name);
        subject = plain_subject(&header("Subject").unwrap_or_default());
        author = header("From");
        let body = mail
            .get_body_raw()
            .map_err(|error| PatchError::Mail(error.to_string()))?;
        unix_lines(&body)
    } else {
        bytes.to_vec()
    };
    let files = diff::read(&body).map_err(PatchError::Diff)?;
    if files.is_empty() {
        return Err(PatchError::NoDiff);
    }
    let mut message = before_diff(&body);
    // A mail sent for someone else names the author in its first line.
    if let Some(rest) = message.strip_prefix("From: ")
        && let Some((name, rest)) = rest.split_once('\n')
    {
        author = Some(name.trim().to_owned());
        message = rest.trim_start().to_owned();
    }
    if subject.is_empty() {
        subject = message.lines().next().unwrap_or_default().to_owned();
    }
    Ok(Patch {
        origin: origin.to_owned(),
        subject,
        author,
        message,
        files,
        text: body,
    })
}

/// A mail begins with a `From ` line or with header fields.
fn is_mail(bytes: &[u8]) -> bool {
    let first = bytes
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default();
    if first.starts_with(b"From ") {
        return true;
    }
    // "diff --git a: b" has no colon directly behind its first word.
    let name = first.split(|byte| *byte == b':').next().unwrap_or_default();
    first.contains(&b':')
        && !name.is_empty()
        && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
}

fn strip_from_line(bytes: &[u8]) -> &[u8] {
    if !bytes.starts_with(b"From ") {
        return bytes;
    }
    match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => &bytes[end + 1..],
        None => bytes,
    }
}

/// `git am` takes the carriage return from each line end; so do we.
fn unix_lines(bytes: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(start) => {
                plain.extend_from_slice(start);
                plain.push(b'\n');
            }
            None => plain.extend_from_slice(line),
        }
    }
    plain
}

/// The subject without `[PATCH …]`, `Re:` and line folds.
fn plain_subject(subject: &str) -> String {
    let mut rest = subject.trim();
    while let Some(inner) = rest.strip_prefix('[') {
        match inner.split_once(']') {
            Some((_, after)) => rest = after.trim_start(),
            None => break,
        }
    }
    rest.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands before the diff and its `---` line.
fn before_diff(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let mut message = String::new();
    for line in text.lines() {
        if line == "---" || line.starts_with("diff --git ") || line.starts_with("--- ") {
            break;
        }
        message.push_str(line);
        message.push('\n');
    }
    message.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n";

    #[test]
    fn a_format_patch_file() {
        let text = format!(
            "From 0123 Mon Sep 17 00:00:00 2001\nFrom: =?utf-8?q?J=C3=B6rg?= <j@x.de>\nDate: now\n\
             Subject: [PATCH v2 1/3] sched: a long\n subject\n\nWhy.\n\nSigned-off-by: J <j@x.de>\n---\n f | 2 +-\n\n{DIFF}-- \n2.39\n"
        );
        let patch = read_patch(Path::new("0001-x.patch"), text.as_bytes()).unwrap();
        assert_eq!(patch.subject, "sched: a long subject");
        assert_eq!(patch.author.as_deref(), Some("Jörg <j@x.de>"));
        assert!(patch.signed_off());
        assert!(patch.message.starts_with("Why."));
        assert_eq!(patch.files[0].path(), "f");
    }

    #[test]
    fn a_bare_diff_with_words_before_it() {
        let patch = read_patch(Path::new("x"), format!("make it y\n\n{DIFF}").as_bytes()).unwrap();
        assert_eq!(patch.subject, "make it y");
        let bare = read_patch(Path::new("x"), DIFF.as_bytes()).unwrap();
        assert_eq!(bare.subject, "");
    }

    #[test]
    fn quoted_printable_is_decoded() {
        let text = "Subject: [PATCH] q\nContent-Transfer-Encoding: quoted-printable\n\n\
            --- a/f\n+++ b/f\n@@ -1 +1 @@\n-x=3D1\n+x=3D2\n";
        let patch = read_patch(Path::new("q"), text.as_bytes()).unwrap();
        assert_eq!(patch.files[0].hunks[0].lines[1].bytes, b"x=2\n");
    }

    #[test]
    fn words_alone_are_no_patch() {
        let error = read_patch(Path::new("x"), b"Subject: hello\n\nhi\n").unwrap_err();
        assert_eq!(error, PatchError::NoDiff);
    }
}
