//! The library's topologies in real guests, and machines that were tampered with.

use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use topolab::{qemu::acpi, topology::Topology};

/// vCPUs that two host CPUs boot under emulation within seconds.
const FEW: u32 = 16;

fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The library's small machines, by name.
fn small() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(checkout().join("topologies"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| Topology::read(path).unwrap().cpus.count() <= FEW)
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_string())
        .collect();
    names.sort();
    assert!(names.contains(&"ryzen-preferred".to_string()), "{names:?}");
    names
}

/// `topology` is a name of the library, or a path.
fn boot(topology: &str, kernel: &str, more: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_topolab"));
    command
        .current_dir(checkout())
        .args(["boot", topology])
        .args(["--kernel", kernel, "--accel", "tcg"])
        .args(more);
    command
}

/// Boots machines and lists what is not as it was asked.
fn prove<S: AsRef<str>>(topologies: &[S], kernel: &str) {
    let mut wrong = Vec::new();
    println!("| topology | fields proved | seconds to hello |\n|---|---|---|");
    for name in topologies.iter().map(AsRef::as_ref) {
        let output = boot(name, kernel, &["--verify", "--json"])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let rows: Vec<serde_json::Value> =
            serde_json::from_slice(&output.stdout).unwrap_or_default();
        for row in rows.iter().filter(|row| row["same"] != true) {
            wrong.push(format!("{name}: {row}"));
        }
        if !output.status.success() || rows.is_empty() {
            wrong.push(format!("{name}: {}: {said}", output.status));
        }
        let hello = said
            .lines()
            .find_map(|line| line.strip_prefix("start of QEMU to hello: "))
            .and_then(|rest| rest.strip_suffix(" ms")?.parse::<f64>().ok())
            .unwrap_or(f64::NAN);
        println!("| {name} | {} | {:.1} |", rows.len(), hello / 1000.0);
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn every_small_topology_is_there_on_the_lean_kernel() {
    prove(&small(), "linux-6.12@base");
}

/// Nodes within one cache, as with sub-NUMA clustering, and distances that depend on
/// the direction, one of them beyond reach.
#[test]
fn odd_machines_are_there_when_the_file_means_it() {
    let folder = tempfile::tempdir().unwrap();
    let files = [
        (
            "split-socket",
            "name: split-socket\ncpus: {sockets: 1, cores: 2, threads: 2}\n\
             nodes: [{cpus: 0-1, memory: 256M}, {cpus: 2-3, memory: 256M}]\n\
             distances: {0-1: 12}\ndeliberate: [llc-spans-nodes]\n",
        ),
        (
            "one-way",
            "name: one-way\ncpus: {sockets: 3, cores: 1}\n\
             nodes: [{cpus: 0, memory: 256M}, {cpus: 1, memory: 256M}, {cpus: 2, memory: 256M}]\n\
             asymmetric: true\ndistances: [[10, 20, 255], [30, 10, 40], [255, 40, 10]]\n",
        ),
    ];
    let paths = files.map(|(name, text)| {
        let path = folder.path().join(name).with_extension("yaml");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    });
    prove(&paths, "linux-6.12@base");
}

/// Downloads Debian's kernel package.
#[test]
#[ignore = "two minutes and a download: cargo test --test topologies -- --ignored --nocapture"]
fn every_small_topology_is_there_on_debians_kernel() {
    prove(&small(), "debian-6.12@base");
}

/// Boots with a QEMU whose arguments `edit` (shell, sets `a` from `a`, or adds
/// words with `put`) has changed.
fn tampered(topology: &str, edit: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let path = env::var("PATH").unwrap();
    let qemu = path
        .split(':')
        .map(|folder| Path::new(folder).join("qemu-system-x86_64"))
        .find(|program| program.is_file())
        .expect("QEMU is installed");
    // The arguments are edited in place: taken off the front, put back at the end.
    let script = format!(
        "#!/bin/sh\nn=$#\nwhile [ $n -gt 0 ]; do\na=$1; shift; n=$((n - 1))\n{edit}\n\
         set -- \"$@\" \"$a\"\ndone\nexec {} \"$@\"\n",
        qemu.display()
    );
    let wrapper = folder.path().join("qemu-system-x86_64");
    fs::write(&wrapper, script).unwrap();
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
    boot(topology, "linux-6.12@base", &["--", "/bin/true"])
        .env("PATH", format!("{}:{path}", folder.path().display()))
        .output()
        .unwrap()
}

fn is_caught(output: &Output, field: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(125), "{said}");
    let verdict = said
        .lines()
        .find(|line| line.contains("wrong-topology"))
        .unwrap_or_else(|| panic!("{said}"));
    assert!(verdict.contains(field), "{verdict}");
}

#[test]
fn a_dropped_distance_is_caught() {
    let edit = "case $a,$1 in -numa,dist,*) a=-name ;; dist,*) a=no-distance ;; esac";
    let output = tampered("dual-node-4", edit);
    is_caught(&output, "node 0 distances: asked 10 21, seen 10 20");
}

#[test]
fn a_cpu_in_another_node_is_caught() {
    let edit = "if [ \"$a\" = cpu,node-id=1,socket-id=1 ]; then\n\
        set -- \"$@\" cpu,node-id=1,socket-id=1,core-id=0 -numa\n\
        a=cpu,node-id=0,socket-id=1,core-id=1\nfi";
    let output = tampered("dual-node-4", edit);
    is_caught(&output, "node 0 cpus: asked 0-1, seen 0-1,3");
}

#[test]
fn swapped_rankings_are_caught() {
    let mut other = Topology::read(&checkout().join("topologies/ryzen-preferred.yaml")).unwrap();
    let rankings = other.preferred_cores.as_mut().unwrap();
    let (best, worst) = (12, 0);
    rankings.swap(best, worst);
    rankings.swap(best + 1, worst + 1);
    let table = tempfile::NamedTempFile::new().unwrap();
    fs::write(table.path(), acpi::ssdt(&other).unwrap()).unwrap();
    let edit = format!(
        "case $a in file=rankings.aml) a=file={} ;; esac",
        table.path().display()
    );
    let output = tampered("ryzen-preferred", &edit);
    is_caught(&output, "ranking of cpu 0: asked 166, seen 231");
}

#[test]
fn a_forgotten_amd_pstate_is_caught() {
    let edit = "case $a in *amd_pstate=*) a=$(echo \"$a\" | sed 's/amd_pstate=[a-z]*//') ;; esac";
    let output = tampered("ryzen-preferred", edit);
    is_caught(&output, "amd_pstate");
}

/// A guest that booted without the driver shows what its configuration did not say.
#[test]
fn a_kernel_without_the_driver_cannot_test_rankings() {
    let without = "initcall_blacklist=amd_pstate_init";
    let output = boot(
        "ryzen-preferred",
        "linux-6.12@base",
        &["--append", without, "--", "/bin/true"],
    )
    .output()
    .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("not-testable: preferred cores need the amd-pstate driver, which kernel "),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(125));
}

/// A machine whose firmware describes its memory needs a kernel that reads it.
///
/// The kernel's own configuration says so before a guest is started; it is taken
/// from the kernel that was built, without the option.
#[test]
fn a_kernel_without_the_option_cannot_test_the_machine() {
    let build = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .current_dir(checkout())
        .args(["kernel", "build", "linux-6.12@base", "--json"])
        .output()
        .unwrap();
    assert!(build.status.success());
    let built: serde_json::Value = serde_json::from_slice(&build.stdout).unwrap();
    let image = Path::new(built[0]["image"].as_str().unwrap());
    let config = fs::read_to_string(image.with_file_name("config")).unwrap();
    assert!(config.contains("CONFIG_ACPI_HMAT=y\n"));
    let folder = tempfile::tempdir().unwrap();
    let lacking = config.replace("CONFIG_ACPI_HMAT=y\n", "# CONFIG_ACPI_HMAT is not set\n");
    fs::write(folder.path().join("config"), lacking).unwrap();
    let kernel = folder.path().join("lacking.yaml");
    let text = format!(
        "name: lacking\nimage: {}\nconfig: {{base: config}}\n",
        image.display()
    );
    fs::write(&kernel, text).unwrap();
    let output = boot(
        "cpuless-cxl",
        &kernel.display().to_string(),
        &["--", "/bin/true"],
    )
    .output()
    .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains(
            "not-testable: memory attributes need CONFIG_ACPI_HMAT, which this kernel lacks"
        ),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(125));
}
