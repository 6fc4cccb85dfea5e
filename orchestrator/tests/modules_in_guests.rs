//! Modules reach guests through experiments: one of our own built for each kernel, and
//! those of a distribution's kernel, which needs some before its agent can be heard.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use topolab::{
    outcome::Outcome,
    store::{self, record::RunRecord},
};

/// Runs an experiment, written here, with the checkout's topologies and kernels, and
/// yields its records with what their workloads printed.
fn run(kernels: &str, own_kernel: Option<&str>, settings: &str) -> Vec<(RunRecord, String)> {
    let folder = tempfile::tempdir().unwrap();
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for part in ["experiments", "kernels"] {
        fs::create_dir(folder.path().join(part)).unwrap();
    }
    if let Some(text) = own_kernel {
        fs::write(folder.path().join("kernels/own.yaml"), text).unwrap();
    }
    let experiment = folder.path().join("experiments/modules.yaml");
    let text = format!(
        "name: modules\nkernels: [{kernels}]\ntopologies: [dual-node-4]\nsettings: {settings}\n\
         image: {{binaries: [/bin/cat]}}\n\
         workloads: {{see: {{command: {{argv: [/bin/cat, /proc/modules]}}}}}}\n\
         rounds: 1\nseed: 1\n"
    );
    fs::write(&experiment, text).unwrap();
    let results = folder.path().join("results");
    let output = Command::new(env!("CARGO_BIN_EXE_topolab"))
        .current_dir(checkout)
        .arg("run")
        .arg(&experiment)
        .arg("--output")
        .arg(&results)
        .args(["--accel", "tcg"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    let loaded = store::load(&results).unwrap_or_else(|error| panic!("{error}\n{told}"));
    let folders: Vec<PathBuf> = fs::read_dir(results.join("runs"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let printed = |record: &RunRecord| {
        let start = format!("{:05}-", record.index);
        let mut folders = folders.iter();
        let folder = folders.find(|f| f.file_name().unwrap().to_string_lossy().starts_with(&start));
        fs::read_to_string(folder.unwrap().join("output.log")).unwrap_or_default()
    };
    let records = loaded.records.into_iter();
    records
        .map(|record| {
            let text = printed(&record);
            (record, text)
        })
        .collect()
}

#[test]
fn a_module_of_our_own_is_built_for_the_kernel_and_loaded() {
    let settings = "{spins: {modules: {mdspin: ''}}, blocks: {modules: {no-such: ''}}}";
    for (record, printed) in run("linux-6.12@base", None, settings) {
        if record.cell.settings == "spins" {
            assert_eq!(record.outcome, Outcome::Completed, "{record:?}");
            assert!(printed.starts_with("mdspin "), "{printed}");
            assert_eq!(record.settings[0].what, "module mdspin");
        } else {
            let told = record.outcome.detail();
            assert!(told.contains("no module no-such below"), "{told}");
            assert_eq!(record.outcome.class(), "not-testable");
        }
    }
}

fn names(printed: &str) -> Vec<&str> {
    let lines = printed.lines();
    lines
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

/// `cargo test -p topolab --test modules_in_guests -- --ignored`
#[test]
#[ignore = "downloads a kernel package and its headers"]
fn a_distributions_kernel_brings_its_modules_and_takes_ours() {
    let kernel = "name: own\npackage: linux-image-6.12*+deb??-amd64\n";
    let settings = "{mdspin: {modules: {mdspin: ''}}, loop: {modules: {loop: max_loop=3}}}";
    for (record, printed) in run("own", Some(kernel), settings) {
        assert_eq!(record.outcome, Outcome::Completed, "{record:?}");
        let loaded = names(&printed);
        assert!(loaded.contains(&"pvpanic_pci"), "{printed}");
        assert!(loaded.contains(&record.cell.settings.as_str()), "{printed}");
    }
}

#[test]
#[ignore = "builds a kernel"]
fn a_kernel_whose_virtio_drivers_are_modules_is_heard() {
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kernels/config");
    let kernel = format!(
        "name: own\nsource: {{package: linux-source-6.12}}\nconfig:\n  base: allnoconfig\n\
         \x20 fragments: [{0}/lean.config, {0}/trace.config]\n\
         \x20 set: {{VIRTIO_PCI: m, VIRTIO_CONSOLE: m}}\n",
        config.display()
    );
    let settings = "{mdspin: {modules: {mdspin: ''}}, none: {}}";
    for (record, printed) in run("own", Some(&kernel), settings) {
        assert_eq!(record.outcome, Outcome::Completed, "{record:?}");
        let loaded = names(&printed);
        for module in ["virtio_pci", "virtio_console"] {
            assert!(loaded.contains(&module), "{printed}");
        }
        let ours = record.cell.settings == "mdspin";
        assert_eq!(loaded.contains(&"mdspin"), ours, "{printed}");
    }
}
