//! The kernel verbs as a person types them, where neither a compiler nor a guest is needed.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

fn topolab(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_topolab"))
        .current_dir(folder)
        .env("TOPOLAB_CACHE", folder.join("cache"))
        .args(args)
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const MAILS: &str = "\
From 1 Mon Sep 17 00:00:00 2001
From: A <a@b>
Subject: [PATCH v2 0/1] what for

Words.

From 2 Mon Sep 17 00:00:00 2001
From: A <a@b>
Subject: [PATCH v2 1/1] one: two

Why.

Signed-off-by: A <a@b>
---
--- a/f
+++ b/f
@@ -1 +1 @@
-one
+two
";

#[test]
fn import_shows_what_a_mailbox_holds_and_keeps_it() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("mails"), MAILS).unwrap();
    let output = topolab(
        folder.path(),
        &["kernel", "import", "mails", "--to", "kept", "--take", "2"],
    );
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("one: two"), "{}", stdout(&output));
    assert!(folder.path().join("kept/0001-one-two.patch").is_file());
}

#[test]
fn import_tells_what_is_broken() {
    let folder = tempfile::tempdir().unwrap();
    let cut = MAILS.strip_suffix("-one\n+two\n").unwrap();
    for (name, text, told) in [
        ("cut", cut, "is cut off: 1 old and 1 new lines are missing"),
        (
            "words",
            "From: A <a@b>\nSubject: hello\n\nno patch\n",
            "words",
        ),
    ] {
        fs::write(folder.path().join(name), text).unwrap();
        let output = topolab(folder.path(), &["kernel", "import", name]);
        let words = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {words}");
        assert!(words.contains(told), "{name}: {words}");
    }
}

#[test]
fn a_check_that_could_test_nothing_is_not_good() {
    let folder = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let place = folder.path().join(path);
        fs::create_dir_all(place.parent().unwrap()).unwrap();
        fs::write(place, text).unwrap();
    };
    write("linux/Makefile", "all:\n");
    write("linux/Kconfig", "");
    write("linux/f", "one\n");
    write("kernels/s", MAILS);
    write(
        "kernels/k.yaml",
        "name: k\nsource: {dir: ../linux}\nconfig: {base: allnoconfig}\nseries: {s: s}\n",
    );
    let target = "x86_64:own:no-such-gcc";
    let arguments = [
        "kernel",
        "check",
        "k+s",
        "--no-checkpatch",
        "--target",
        target,
    ];
    let output = topolab(folder.path(), &arguments);
    let told = stdout(&output);
    assert_eq!(output.status.code(), Some(5), "{told}{}", stderr(&output));
    assert!(
        told.contains("'no-such-gcc', which compiles for x86_64, is not installed"),
        "{told}"
    );
}
