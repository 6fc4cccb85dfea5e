//! The tree's own `scripts/checkpatch.pl`, asked about each patch.

use std::io;
use std::path::Path;
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;

use super::super::patch::Patch;
use super::super::tools::command;

/// What checkpatch.pl says of a patch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpatch {
    /// Its notes, in the order of the patch.
    pub notes: Vec<StyleNote>,
}

/// One note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StyleNote {
    /// `ERROR`, `WARNING` or `CHECK`.
    pub level: String,
    /// The note's type (`LONG_LINE`).
    pub kind: String,
    /// File and line, when it is about one.
    pub place: Option<String>,
    /// What it says.
    pub message: String,
}

impl Checkpatch {
    /// Number of notes of a level.
    pub fn count(&self, level: &str) -> usize {
        self.notes.iter().filter(|note| note.level == level).count()
    }
}

/// Asks about one patch. Nothing when the tree has no checkpatch.pl.
pub(super) async fn ask(tree: &Path, patch: &Patch) -> io::Result<Option<Checkpatch>> {
    let script = tree.join("scripts/checkpatch.pl");
    if !script.is_file() {
        return Ok(None);
    }
    let mut perl = command(Path::new("perl"));
    perl.arg(&script)
        .args([
            "--terse",
            "--show-types",
            "--no-summary",
            "--color=never",
            "--showfile",
        ])
        .arg(format!("--root={}", tree.display()))
        .arg("-")
        .current_dir(tree)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = perl.spawn()?;
    let mut stdin = child.stdin.take().expect("stdin is piped");
    let text = mail(patch);
    let write = async move {
        // It may have seen enough before the end.
        match stdin.write_all(&text).await {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
            _ => Ok(()),
        }
    };
    let (written, said) = tokio::join!(write, child.wait_with_output());
    written?;
    // It exits with 1 when it has notes.
    Ok(Some(read(&String::from_utf8_lossy(&said?.stdout))))
}

/// The patch as the mail it came in, so that subject and sign-off are judged too.
fn mail(patch: &Patch) -> Vec<u8> {
    let mut text = Vec::new();
    if let Some(author) = &patch.author {
        text.extend_from_slice(format!("From: {author}\n").as_bytes());
    }
    text.extend_from_slice(format!("Subject: [PATCH] {}\n\n", patch.subject).as_bytes());
    text.extend_from_slice(&patch.text);
    text
}

/// Reads `-:12: WARNING:LONG_LINE: line length …` and, with files shown,
/// `mm/swap.c:12: …`.
fn read(said: &str) -> Checkpatch {
    let notes = said
        .lines()
        .filter_map(|line| {
            let (at, level) = ["ERROR", "WARNING", "CHECK"]
                .iter()
                .find_map(|level| Some((line.find(&format!(": {level}:"))?, *level)))?;
            let rest = line[at + 2 + level.len()..].trim_start_matches(':');
            let (kind, message) = rest.split_once(": ")?;
            let place = line[..at].trim_end_matches(':');
            Some(StyleNote {
                level: level.to_owned(),
                kind: kind.to_owned(),
                place: (!place.starts_with('-')).then(|| place.to_owned()),
                message: message.to_owned(),
            })
        })
        .collect();
    Checkpatch { notes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terse_notes_are_read() {
        let said = "-:8: WARNING:COMMIT_LOG_LONG_LINE: Possible unwrapped commit description\n\
            mm/swap.c:12: ERROR:SPACING: space required before the open parenthesis '('\n\
            total: 1 errors, 1 warnings, 10 lines checked\n";
        let checkpatch = read(said);
        assert_eq!(
            (checkpatch.count("ERROR"), checkpatch.count("WARNING")),
            (1, 1)
        );
        assert_eq!(checkpatch.notes[0].place, None);
        assert_eq!(checkpatch.notes[1].place.as_deref(), Some("mm/swap.c:12"));
        assert_eq!(checkpatch.notes[1].kind, "SPACING");
    }
}
