//! One patch out of one text: a mail, or a bare diff with words before it.

use std::path::Path;

use super::Patch;
use super::diff::{self, DiffError};
use super::mailbox::{self, Mail, MailError};

/// A text that is no patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The mail's headers or encoding cannot be read.
    #[error(transparent)]
    Mail(#[from] MailError),
    /// The diff cannot be read.
    #[error("{0}")]
    Diff(DiffError),
    /// There is no diff in it.
    #[error("holds no diff")]
    NoDiff,
}

/// Reads a patch. `origin` is only a name here.
pub fn read_patch(origin: &Path, bytes: &[u8]) -> Result<Patch, PatchError> {
    if is_mail(bytes) {
        return patch_of_mail(origin, &mailbox::read(bytes)?);
    }
    let files = files_of(bytes)?;
    let message = before_diff(&String::from_utf8_lossy(bytes));
    Ok(Patch {
        origin: origin.to_owned(),
        subject: message.lines().next().unwrap_or_default().to_owned(),
        author: None,
        message,
        files,
        text: bytes.to_vec(),
    })
}

/// Reads the patch in a mail.
pub(super) fn patch_of_mail(origin: &Path, mail: &Mail) -> Result<Patch, PatchError> {
    let files = files_of(&mail.body)?;
    let mut author = mail.from.clone();
    let mut message = before_diff(&mail.words);
    // A mail sent for someone else names the author in its first line.
    if let Some(rest) = message.strip_prefix("From: ") {
        let (name, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        author = Some(name.trim().to_owned());
        message = rest.trim_start().to_owned();
    }
    Ok(Patch {
        origin: origin.to_owned(),
        subject: mail.tag.title.clone(),
        author,
        message,
        files,
        text: mail.body.clone(),
    })
}

fn files_of(bytes: &[u8]) -> Result<Vec<diff::FilePatch>, PatchError> {
    let files = diff::read(bytes).map_err(PatchError::Diff)?;
    if files.is_empty() {
        return Err(PatchError::NoDiff);
    }
    Ok(files)
}

/// A mail begins with a `From ` line or with header fields.
pub(super) fn is_mail(bytes: &[u8]) -> bool {
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

/// What stands before the diff and its `---` line.
fn before_diff(text: &str) -> String {
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
    fn a_mail_sent_for_someone_else() {
        let text =
            format!("From: S <s@x>\nSubject: [PATCH] t\n\nFrom: A <a@x>\n\nWhy.\n---\n{DIFF}");
        let patch = read_patch(Path::new("x"), text.as_bytes()).unwrap();
        assert_eq!(patch.author.as_deref(), Some("A <a@x>"));
        assert_eq!(patch.message, "Why.");
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
