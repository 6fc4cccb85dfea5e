//! What is said before anything is built when a cluster cannot do what is asked.
//! Slurm's clients are played by a script, so that it can be any cluster.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// Plays the client it is called as. `sbatch --test-only` says what the file
/// `refuses` holds; a submission leaves the file `submitted`.
const CLIENT: &str = r#"#!/bin/sh
here=$(dirname "$0")
case $(basename "$0") in
scontrol) echo 'MaxArraySize            = 1001'; echo 'MaxJobCount             = 10000' ;;
sinfo) echo 'n1|lab*|8|16000|idle|kvm'; echo 'n2|night|64|64000|idle|(null)' ;;
sbatch)
    case " $* " in
    *' --test-only '*) [ ! -e "$here/refuses" ] || { cat "$here/refuses" >&2; exit 1; } ;;
    *) touch "$here/submitted"; echo 1 ;;
    esac ;;
esac
"#;

struct Clients {
    folder: tempfile::TempDir,
}

impl Clients {
    fn none() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    fn all() -> Self {
        let clients = Self::none();
        for name in ["scontrol", "sinfo", "sbatch", "squeue", "scancel"] {
            let path = clients.bin().join(name);
            fs::create_dir_all(clients.bin()).unwrap();
            fs::write(&path, CLIENT).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        for name in ["sh", "dirname", "basename", "cat", "touch"] {
            let real = ["/bin", "/usr/bin"].map(|folder| Path::new(folder).join(name));
            let real = real.iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(real, clients.bin().join(name)).unwrap();
        }
        clients
    }

    fn bin(&self) -> PathBuf {
        self.folder.path().join("bin")
    }

    fn results(&self) -> PathBuf {
        self.folder.path().join("results")
    }

    fn run(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_topolab"))
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
            .env("PATH", self.bin())
            .env("TOPOLAB_CACHE", self.folder.path().join("cache"))
            .args(["run", "numa-scan", "--on", "slurm", "--detach", "--output"])
            .arg(self.results())
            .args(args)
            .output()
            .unwrap()
    }

    /// What was said, when nothing was begun.
    fn refusal(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(!self.results().exists(), "{said}");
        assert!(!self.bin().join("submitted").exists(), "{said}");
        said
    }
}

#[test]
fn without_slurm_its_packages_are_named() {
    let said = Clients::none().refusal(&[]);
    assert!(said.contains("no sbatch, no squeue"), "{said}");
    assert!(said.contains("apt-get install slurm-client"), "{said}");
}

#[test]
fn a_partition_that_does_not_exist_is_told_with_those_that_do() {
    let said = Clients::all().refusal(&["--partition", "nope"]);
    assert!(
        said.contains("there is no partition `nope`; there are: lab, night"),
        "{said}"
    );
}

#[test]
fn more_cpus_than_any_node_has_are_told() {
    let said = Clients::all().refusal(&["--housekeeping", "5"]);
    assert!(
        said.contains("a task needs 9 CPUs; the largest node of partition lab has 8"),
        "{said}"
    );
    let clients = Clients::all();
    let output = clients.run(&["--housekeeping", "5", "--partition", "night"]);
    assert!(output.status.success(), "{output:?}");
}

#[test]
fn an_account_slurm_does_not_know_is_told_before_anything_is_built() {
    let clients = Clients::all();
    fs::write(
        clients.bin().join("refuses"),
        "allocation failure: Invalid account or account/partition combination specified\n",
    )
    .unwrap();
    let said = clients.refusal(&["--account", "nobody"]);
    assert!(said.contains("Invalid account"), "{said}");
    assert!(said.contains("--account NAME"), "{said}");
}

#[test]
fn a_campaign_that_was_not_submitted_is_not_attached_to() {
    let clients = Clients::all();
    let output = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .args(["run", "--attach"])
        .arg(clients.results())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("not a campaign that was submitted"), "{said}");
}
