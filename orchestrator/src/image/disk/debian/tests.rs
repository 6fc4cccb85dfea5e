//! The builder with a fake mmdebstrap; tar, mke2fs and ssh-keygen are real.

use super::*;
use crate::{
    document::Document,
    image::disk::{Base as Kind, Recipe},
};

/// Notes each call, then writes a tree of two files where its second last
/// argument says.
const FAKE: &str = r#"#!/bin/sh
set -eu
here=$(dirname "$0")
echo "$*" >> "$here/calls"
[ ! -e "$here/broken" ] || { echo "I: working"; echo "E: no such mirror"; exit 25; }
while [ $# -gt 2 ]; do shift; done
mkdir -p "$here/tree/var/lib/dpkg" "$here/tree/etc/ssh" "$here/tree/usr" "$here/tree/dev"
cp "$here/status" "$here/tree/var/lib/dpkg/status"
tar -C "$here/tree" --sort=name --mtime=@0 -cf "$1" .
echo "I: success"
"#;

struct Bench {
    folder: tempfile::TempDir,
    tools: Tools,
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let programs = folder.path().join("bin");
        fs::create_dir(&programs).unwrap();
        let fake = programs.join("mmdebstrap");
        fs::write(&fake, FAKE).unwrap();
        fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
        let status = "Package: dbus\nStatus: install ok installed\nVersion: 1.14\n";
        fs::write(programs.join("status"), status).unwrap();
        let path = format!("{}:/usr/bin:/bin", programs.display());
        // Not a namespace: its ids need an entry in /etc/subuid, and this tree
        // holds no files of others.
        let privilege = steps::Privilege::Root;
        let tools = Tools { path, privilege };
        Self { folder, tools }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("bin").join(name)
    }

    fn calls(&self) -> usize {
        fs::read_to_string(self.file("calls")).map_or(0, |calls| calls.lines().count())
    }

    fn build(&self, debian: &Debian, agent: &[u8], fresh: Freshness) -> Result<Disk, DebianError> {
        let cache = self.folder.path().join("cache");
        build(debian, agent, &cache, &self.tools, fresh, &mut |_| {})
    }
}

fn debian(rest: &str) -> Debian {
    let text = format!("name: d\ndebian: {{suite: bookworm, size: 512M{rest}}}\n");
    let document = Document::from_text("d.yaml", &text).unwrap();
    match Recipe::check(&document, Path::new("")).unwrap().base {
        Kind::Debian(debian) => debian,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_disk_is_made_once_and_a_new_agent_needs_no_new_packages() {
    let bench = Bench::new();
    let one = bench
        .build(&debian(""), b"agent 1", Freshness::Cached)
        .unwrap();
    let same = bench
        .build(&debian(""), b"agent 1", Freshness::Cached)
        .unwrap();
    assert_eq!(one, same);
    assert_eq!(file_hash(&one.path).unwrap(), one.manifest.disk_sha256);
    assert_eq!(fs::metadata(&one.path).unwrap().len(), 512 << 20);
    let other = bench
        .build(&debian(""), b"agent 2", Freshness::Cached)
        .unwrap();
    assert_ne!(one.path, other.path);
    assert_eq!(one.manifest.tree_sha256, other.manifest.tree_sha256);
    assert_eq!(one.login_key, other.login_key);
    assert_eq!(bench.calls(), 1);
    bench
        .build(&debian(""), b"agent 1", Freshness::Fresh)
        .unwrap();
    bench
        .build(
            &debian(", packages: [procps]"),
            b"agent 1",
            Freshness::Cached,
        )
        .unwrap();
    assert_eq!(bench.calls(), 3);
}

#[test]
fn keys_are_readable_by_their_owner_alone() {
    let bench = Bench::new();
    let disk = bench
        .build(&debian(""), b"agent", Freshness::Cached)
        .unwrap();
    let key = disk.login_key.unwrap();
    assert_eq!(
        fs::metadata(&key).unwrap().permissions().mode() & 0o777,
        0o600
    );
    let host_key = disk.manifest.host_key.unwrap();
    assert!(host_key.starts_with("ssh-ed25519 AAAA"), "{host_key}");
    let without = bench
        .build(&debian(", ssh: false"), b"agent", Freshness::Cached)
        .unwrap();
    assert_eq!(without.login_key, None);
    assert_eq!(without.manifest.host_key, None);
}

#[test]
fn the_disk_holds_the_layer() {
    let bench = Bench::new();
    let disk = bench
        .build(&debian(""), b"the agent itself", Freshness::Cached)
        .unwrap();
    let debugfs = bench.tools.find("debugfs").unwrap();
    let output = std::process::Command::new(debugfs)
        .args(["-R", "cat /usr/lib/topolab/agent"])
        .arg(&disk.path)
        .output()
        .unwrap();
    assert_eq!(output.stdout, b"the agent itself");
}

#[test]
fn a_failed_build_tells_the_complaints_and_leaves_nothing_half_made() {
    let bench = Bench::new();
    fs::write(bench.file("broken"), "").unwrap();
    let error = bench
        .build(&debian(""), b"agent", Freshness::Cached)
        .unwrap_err();
    let text = error.to_string();
    assert!(
        text.starts_with("mmdebstrap ended with exit status: 25: E: no such mirror; "),
        "{text}"
    );
    let DebianError::Step(StepError::Debootstrap { log, .. }) = error else {
        panic!("mmdebstrap failed");
    };
    assert_eq!(
        fs::read_to_string(log).unwrap(),
        "I: working\nE: no such mirror\n"
    );
    let left: Vec<_> = fs::read_dir(bench.folder.path().join("cache/base"))
        .unwrap()
        .filter(|entry| entry.as_ref().unwrap().path().is_dir())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    fs::remove_file(bench.file("broken")).unwrap();
    bench
        .build(&debian(""), b"agent", Freshness::Cached)
        .unwrap();
}

#[test]
fn other_packages_than_the_recorded_ones_are_refused() {
    let bench = Bench::new();
    let record = bench.file("record");
    let recipe = debian(&format!(", recorded: {}", record.display()));
    fs::write(&record, "dbus=1.13\nsystemd=252\n").unwrap();
    let error = bench
        .build(&recipe, b"agent", Freshness::Cached)
        .unwrap_err()
        .to_string();
    let wanted = "dbus: recorded 1.13, built 1.14; systemd: recorded 252, not built";
    assert!(error.ends_with(wanted), "{error}");
    let built = recorded_packages(&recipe, &bench.folder.path().join("cache")).unwrap();
    fs::write(&record, built).unwrap();
    bench.build(&recipe, b"agent", Freshness::Cached).unwrap();
    assert_eq!(bench.calls(), 1);
}

#[test]
fn a_damaged_cache_entry_is_made_again() {
    let bench = Bench::new();
    let disk = bench
        .build(&debian(""), b"agent", Freshness::Cached)
        .unwrap();
    fs::set_permissions(&disk.path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&disk.path, b"short").unwrap();
    let again = bench
        .build(&debian(""), b"agent", Freshness::Cached)
        .unwrap();
    assert_eq!(fs::metadata(&again.path).unwrap().len(), 512 << 20);
}

#[test]
fn arguments_name_what_was_asked_for() {
    let mut recipe = debian(", packages: [procps], snapshot: 20250520T000000Z");
    let args = mmdebstrap_args(&recipe, Path::new("/out.tar"));
    insta::assert_snapshot!(args.join("\n"), @r#"
    --variant=minbase
    --format=tar
    --include=dbus,iproute2,openssh-server,procps,systemd-sysv
    --skip=output/dev
    --customize-hook=rm -f "$1"/etc/ssh/ssh_host_*
    --aptopt=Acquire::Retries "3"
    --aptopt=Acquire::http::Timeout "60"
    --aptopt=Acquire::Check-Valid-Until "false"
    bookworm
    /out.tar
    http://snapshot.debian.org/archive/debian/20250520T000000Z/
    "#);
    recipe.mirror = Mirror::Live("file:///srv/debian".into());
    let args = mmdebstrap_args(&recipe, Path::new("/out.tar"));
    assert_eq!(args.last().unwrap(), "file:///srv/debian");
    assert!(!args.iter().any(|arg| arg.contains("Check-Valid-Until")));
}
