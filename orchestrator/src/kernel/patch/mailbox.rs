//! Mailboxes and single mails as mail clients, `git format-patch` and `b4 am` write
//! them: taken apart, decoded, and asked which patch of which series they are.

use std::path::PathBuf;

use mailparse::{MailHeaderMap, ParsedMail};

/// One mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mail {
    /// The file it is alone in, when it is.
    pub file: Option<PathBuf>,
    /// The subject as sent, folds undone.
    pub subject: String,
    /// What its `[…]` says.
    pub tag: Tag,
    /// `From:` field.
    pub from: Option<String>,
    /// `Date:` field.
    pub date: Option<String>,
    /// `Message-ID:` field without its angle brackets.
    pub message_id: Option<String>,
    /// The text as words, for the message.
    pub words: String,
    /// The text as bytes, for the diff.
    pub body: Vec<u8>,
}

/// What a subject says about the mail.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tag {
    /// True for `Re:` and its translations.
    pub reply: bool,
    /// Version of the series: 1 unless `v2` or so is there.
    pub version: u32,
    /// `n` of `n/m`; 0 is the cover letter.
    pub number: Option<u32>,
    /// `m` of `n/m`.
    pub total: Option<u32>,
    /// The subject behind the brackets.
    pub title: String,
}

/// A mail that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot be decoded as a mail: {0}")]
pub struct MailError(pub String);

/// Splits a mailbox. Text without any `From ` line is one mail.
pub fn split(mailbox: &[u8]) -> Vec<Vec<u8>> {
    let mut mails: Vec<Vec<u8>> = Vec::new();
    let mut blank_before = true;
    for line in mailbox.split_inclusive(|byte| *byte == b'\n') {
        if blank_before && is_from_line(line) {
            mails.push(Vec::new());
        } else {
            if mails.is_empty() {
                mails.push(Vec::new());
            }
            let mail = mails.last_mut().expect("one was just made");
            mail.extend_from_slice(unescape(line));
        }
        blank_before = line.iter().all(u8::is_ascii_whitespace);
    }
    mails.retain(|mail| !mail.iter().all(u8::is_ascii_whitespace));
    mails
}

/// `From WHO … hh:mm… YYYY`. Sentences begin with "From " too; git's mailsplit asks
/// for a colon and a year as well.
fn is_from_line(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"From ") else {
        return false;
    };
    let words: Vec<&[u8]> = rest
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    let year = |word: &&&[u8]| word.len() == 4 && word.iter().all(u8::is_ascii_digit);
    let clock = |word: &&[u8]| word.contains(&b':') && word[0].is_ascii_digit();
    words.iter().any(clock) && words.iter().rev().take(2).any(|w| year(&w))
}

/// `>From ` stands for `From ` inside a mailbox (and `>>From ` for `>From `).
fn unescape(line: &[u8]) -> &[u8] {
    let quotes = line.iter().take_while(|byte| **byte == b'>').count();
    if quotes > 0 && line[quotes..].starts_with(b"From ") {
        &line[1..]
    } else {
        line
    }
}

/// Decodes one mail.
pub fn read(bytes: &[u8]) -> Result<Mail, MailError> {
    // A file of its own may begin with the line that separates mails.
    let bytes = match bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) if bytes.starts_with(b"From ") => &bytes[end + 1..],
        _ => bytes,
    };
    let parsed = mailparse::parse_mail(bytes).map_err(|error| MailError(error.to_string()))?;
    let field = |name: &str| parsed.headers.get_first_value(name);
    let subject = field("Subject").unwrap_or_default();
    let subject = subject.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut words, mut body) = (String::new(), Vec::new());
    texts(&parsed, &mut words, &mut body)?;
    Ok(Mail {
        file: None,
        tag: tag(&subject),
        subject,
        from: field("From").map(|from| from.split_whitespace().collect::<Vec<_>>().join(" ")),
        date: field("Date"),
        message_id: field("Message-ID").map(|id| id.trim().trim_matches(['<', '>']).to_owned()),
        words,
        body: unix_lines(&body),
    })
}

/// Joins the text parts. Of alternatives, the plain one.
fn texts(mail: &ParsedMail<'_>, words: &mut String, body: &mut Vec<u8>) -> Result<(), MailError> {
    let kind = mail.ctype.mimetype.as_str();
    if !mail.subparts.is_empty() {
        for part in &mail.subparts {
            texts(part, words, body)?;
        }
        return Ok(());
    }
    let is_patch = kind.contains("patch") || kind.contains("diff");
    if !(kind.starts_with("text/") || is_patch) || kind == "text/html" {
        return Ok(());
    }
    let error = |error: mailparse::MailParseError| MailError(error.to_string());
    // The line end before a boundary belongs to the boundary.
    if !body.is_empty() && !body.ends_with(b"\n") {
        body.push(b'\n');
        words.push('\n');
    }
    body.extend(mail.get_body_raw().map_err(error)?);
    words.push_str(&mail.get_body().map_err(error)?.replace("\r\n", "\n"));
    Ok(())
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

/// Reads `Re: [PATCH v2 RESEND 1/3] title`.
pub fn tag(subject: &str) -> Tag {
    let mut tag = Tag {
        reply: false,
        version: 1,
        number: None,
        total: None,
        title: String::new(),
    };
    let mut rest = subject.trim();
    loop {
        let lower = rest.to_ascii_lowercase();
        let reply = ["re:", "aw:", "sv:", "antw:", "fwd:", "fw:"]
            .iter()
            .find(|word| lower.starts_with(*word));
        if let Some(word) = reply {
            tag.reply = true;
            rest = rest[word.len()..].trim_start();
        } else if let Some((inside, after)) =
            rest.strip_prefix('[').and_then(|rest| rest.split_once(']'))
        {
            for word in inside.split_whitespace() {
                bracket_word(word, &mut tag);
            }
            rest = after.trim_start();
        } else {
            break;
        }
    }
    rest.clone_into(&mut tag.title);
    tag
}

fn bracket_word(word: &str, tag: &mut Tag) {
    if let Some((number, total)) = word.split_once('/') {
        if let (Ok(number), Ok(total)) = (number.parse(), total.parse()) {
            (tag.number, tag.total) = (Some(number), Some(total));
        }
    } else if let Some(digits) = word.strip_prefix(['v', 'V']) {
        tag.version = digits.parse().unwrap_or(tag.version);
    } else if let Some(digits) = word.strip_prefix("PATCHv") {
        tag.version = digits.parse().unwrap_or(tag.version);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn subjects() {
        let of = |subject: &str| {
            let t = tag(subject);
            (t.reply, t.version, t.number, t.total, t.title)
        };
        assert_eq!(
            of("[PATCH v3 02/11] mm: x [y]"),
            (false, 3, Some(2), Some(11), "mm: x [y]".to_owned())
        );
        assert_eq!(
            of("Re: [RFC PATCHv2 0/3] cover"),
            (true, 2, Some(0), Some(3), "cover".to_owned())
        );
        assert_eq!(
            of("[PATCH][tip:sched/core] one"),
            (false, 1, None, None, "one".to_owned())
        );
        assert_eq!(
            of("[unclosed"),
            (false, 1, None, None, "[unclosed".to_owned())
        );
    }

    #[test]
    fn mailboxes_are_split_at_real_from_lines() {
        let mailbox = b"From 01ab Mon Sep 17 00:00:00 2001\nSubject: one\n\nbody\n\nFrom here on, words.\n\n>From quoted\n\n\
            From git@z Thu Jan  1 00:00:00 1970\nSubject: two\n\nbody\n";
        let mails = split(mailbox);
        assert_eq!(mails.len(), 2);
        assert!(mails[0].ends_with(b"From here on, words.\n\nFrom quoted\n\n"));
        assert_eq!(read(&mails[1]).unwrap().subject, "two");
    }

    #[test]
    fn encodings_and_parts() {
        let mail = "From: =?iso-8859-1?q?J=F6rg?= <j@x>\r\nMessage-Id: <1@x>\r\nSubject: =?utf-8?b?W1BBVENIXSBmw7xy?=\r\n\
            Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nWhy.\r\n\
            --b\r\nContent-Type: text/x-patch\r\nContent-Transfer-Encoding: base64\r\n\r\nLS0tIGEvZgorKysgYi9mCg==\r\n--b--\r\n";
        let mail = read(mail.as_bytes()).unwrap();
        assert_eq!(mail.from.as_deref(), Some("Jörg <j@x>"));
        assert_eq!(mail.message_id.as_deref(), Some("1@x"));
        assert_eq!(mail.tag.title, "für");
        assert_eq!(mail.body, b"Why.\n--- a/f\n+++ b/f\n");
    }

    proptest! {
        #[test]
        fn arbitrary_mailboxes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            for mail in split(&bytes) {
                drop(read(&mail));
            }
        }
    }
}
