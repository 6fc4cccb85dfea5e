//! Builds the guest agent as a static program, for `src/agent_binary.rs` to
//! embed: an installed `topolab` is one file.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// musl's standard library is not part of distribution toolchains; a static
/// program of the GNU target needs only glibc's static archive.
const TARGET: &str = "x86_64-unknown-linux-gnu";

fn main() {
    let here = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let workspace = here
        .parent()
        .expect("this crate lies in a folder of the workspace");
    for input in ["guest-agent", "Cargo.lock", "Cargo.toml"] {
        println!(
            "cargo::rerun-if-changed={}",
            workspace.join(input).display()
        );
    }
    let out = PathBuf::from(variable("OUT_DIR"));
    // A folder of its own: the outer cargo holds the lock of the usual one.
    let target = out.join("agent");
    build(workspace, &target);
    let program = target.join(TARGET).join("release/topolab-agent");
    assert!(
        program.is_file(),
        "the agent was built, but {} is not there",
        program.display()
    );
    println!("cargo::rustc-env=TOPOLAB_AGENT={}", program.display());
}

fn build(workspace: &Path, target: &Path) {
    let mut command = Command::new(variable("CARGO"));
    command
        .current_dir(workspace)
        .args([
            "build",
            "--package",
            "topolab-agent",
            "--release",
            "--locked",
        ])
        .args(["--target", TARGET])
        .arg("--target-dir")
        .arg(target)
        // The guest pays for each byte of its initramfs with boot time.
        .args(["--config", "profile.release.opt-level='s'"])
        .args(["--config", "profile.release.strip=true"])
        .args(["--config", "profile.release.debug=false"])
        .args(["--config", "profile.release.lto=true"])
        .args(["--config", "profile.release.codegen-units=1"]);
    // What the outer build set for itself must not reach the inner one: its
    // flags, its wrapper (clippy's would check instead of compile) and its profile.
    for name in [
        "CARGO_ENCODED_RUSTFLAGS",
        "CARGO_BUILD_TARGET",
        "CARGO_MAKEFLAGS",
        "MAKEFLAGS",
        "RUSTC_WORKSPACE_WRAPPER",
        "RUSTC_WRAPPER",
        "CLIPPY_ARGS",
    ] {
        command.env_remove(name);
    }
    command.env("RUSTFLAGS", "-C target-feature=+crt-static");
    let status = command
        .status()
        .unwrap_or_else(|error| panic!("cannot run cargo for the guest agent: {error}"));
    assert!(
        status.success(),
        "the guest agent cannot be built ({status}); try `RUSTFLAGS='-C target-feature=+crt-static' \
         cargo build --package topolab-agent --release --target {TARGET}` in {}",
        workspace.display()
    );
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name} for build scripts"))
}
