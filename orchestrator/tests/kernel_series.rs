//! Series as they are found: threads of mailing lists as archives print them, and
//! `b4` as it is called.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use topolab::kernel::{
    self, Tools,
    patch::{Imported, SeriesError, read_mailbox},
};

/// Texts of real threads, which live beside a checkout of the project and are not
/// part of it.
fn threads() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/seeds");
    let Ok(entries) = fs::read_dir(&folder) else {
        eprintln!("{} is not there: nothing to try", folder.display());
        return Vec::new();
    };
    let mut texts: Vec<(PathBuf, String)> = entries
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    texts.sort();
    texts
}

/// Makes a mailbox of an archive's page: a mail begins where a line is a subject with
/// `[PATCH n/m]` (perhaps behind `* `), and ends at the next or at the archive's own
/// rule.
fn mailbox(page: &str) -> Vec<u8> {
    let is_subject = |line: &str| {
        let line = line.trim_start_matches("* ");
        let line = line.strip_prefix("Re: ").unwrap_or(line);
        line.starts_with("[PATCH") && line.contains("] ")
    };
    let mut mailbox = String::new();
    let mut inside = false;
    for line in page.lines() {
        if is_subject(line) {
            let subject = line.trim_start_matches("* ");
            let head = "\nFrom a@b Mon Sep 17 00:00:00 2001\nFrom: A <a@b>\nSubject: ";
            mailbox.extend([head, subject, "\n\n"]);
            inside = true;
        } else if line.starts_with("^ permalink") {
            inside = false;
        } else if inside {
            mailbox.push_str(line);
            mailbox.push('\n');
        }
    }
    mailbox.into_bytes()
}

fn import(page: &str) -> Result<Imported, SeriesError> {
    read_mailbox(Path::new("page"), &mailbox(page), None)
}

#[test]
fn real_threads_become_series() {
    for (path, page) in threads() {
        let first = page
            .lines()
            .find_map(|line| line.trim_start_matches("* ").strip_prefix("[PATCH 0/"))
            .and_then(|rest| rest.split(']').next()?.parse::<u32>().ok());
        let Some(total) = first else { continue };
        let imported = import(&page).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(imported.series.len(), total, "{}", path.display());
        for patch in &imported.series.patches {
            assert!(patch.signed_off(), "{}: {}", path.display(), patch.subject);
            assert!(!patch.files.is_empty());
        }
        // The cover letter and the answers are told, not taken.
        assert!(!imported.skipped.is_empty(), "{}", path.display());
    }
}

#[test]
fn the_page_reader_of_this_test_reads_a_page() {
    let page = "* [PATCH 0/1] cover\nwords\n^ permalink raw\nrule\n* [PATCH 1/1] one\nWhy.\n\
        --- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n\n^ permalink raw\nRe: [PATCH 1/1] one\n> quoted\n";
    let imported = import(page).unwrap();
    assert_eq!((imported.series.len(), imported.skipped.len()), (1, 2));
}

#[tokio::test]
async fn a_thread_is_fetched_by_message_id() {
    let folder = tempfile::tempdir().unwrap();
    let b4 = folder.path().join("b4");
    let mail = "From git@z Thu Jan  1 00:00:00 1970\nFrom: A <a@b>\nSubject: [PATCH v3 1/1] one\n\nWhy.\n\n\
        Reviewed-by: B <b@c>\n---\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-x\n+y\n";
    fs::write(folder.path().join("mail"), mail).unwrap();
    fs::write(
        &b4,
        "#!/bin/sh\n[ \"$1\" = am ] || exit 2\nfor last; do :; done\n[ \"$last\" = known@id ] || { echo 'no such message' >&2; exit 1; }\n\
         while [ \"$1\" != --outdir ]; do shift; done\ncp \"$(dirname \"$0\")/mail\" \"$2/series.mbx\"\n",
    )
    .unwrap();
    fs::set_permissions(&b4, fs::Permissions::from_mode(0o755)).unwrap();
    let tools = Tools {
        b4,
        ..Tools::in_path(std::env::var_os("PATH").as_deref())
    };
    let imported = kernel::fetch_series("known@id", None, &tools)
        .await
        .unwrap();
    assert_eq!(imported.version, 3);
    assert_eq!(imported.series.patches[0].name(), "0001-one.patch");
    assert!(
        imported.series.patches[0]
            .message
            .contains("Reviewed-by: B")
    );
    let error = kernel::fetch_series("other@id", None, &tools)
        .await
        .unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("no such message"), "{cause}");
    let tools = Tools {
        b4: "/no/such/b4".into(),
        ..tools
    };
    let error = kernel::fetch_series("known@id", None, &tools)
        .await
        .unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("is not installed"), "{cause}");
}
