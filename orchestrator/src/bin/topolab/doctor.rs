//! `topolab doctor`: what this bench can do, and what to do about the rest.

use std::{collections::BTreeMap, path::Path, process::ExitCode};

use clap::Args;
use serde::Serialize;
use topolab::{
    host::{Inventory, Tuning},
    qemu::{accel::KvmState, process::find_program},
    run::{Lab, LabWish, QEMU},
    topology::size::Size,
};

use crate::{
    failure::{Failure, Kind},
    folders::Folders,
    lab,
    terminal::Terminal,
};

/// Arguments of `topolab doctor`.
#[derive(Debug, Args)]
pub struct DoctorArgs {
    /// Answer as JSON
    #[arg(long)]
    json: bool,
}

/// How good a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Level {
    /// As it should be.
    Good,
    /// Works, with a loss that is told.
    Fair,
    /// Something cannot be done.
    Bad,
}

/// One thing that was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Finding {
    /// Short name.
    name: &'static str,
    level: Level,
    /// What is so.
    text: String,
    /// A command to paste, where one helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn new(name: &'static str, level: Level, text: impl Into<String>) -> Self {
        Self {
            name,
            level,
            text: text.into(),
            remedy: None,
        }
    }

    fn remedy(mut self, command: impl Into<String>) -> Self {
        self.remedy = Some(command.into());
        self
    }
}

/// Looks at everything.
///
/// # Errors
/// When no guest at all can be run here.
pub fn run(args: &DoctorArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let path = std::env::var("PATH").unwrap_or_default();
    let root = Path::new("/");
    let mut findings = lab::runtime()?.block_on(guests(&folders, &path));
    findings.extend(tools(&path));
    findings.extend(disk(&folders));
    match Inventory::read(root) {
        Ok(inventory) => {
            let tuning = Tuning::read(root, &inventory);
            findings.extend(cpus(&inventory));
            findings.extend(memory(&inventory, &tuning));
            findings.extend(quiet(&inventory, &tuning));
        }
        Err(error) => findings.push(Finding::new("cpus", Level::Bad, error.to_string())),
    }
    if args.json {
        terminal.json(&findings);
    } else {
        for finding in &findings {
            terminal.answer(line(finding));
        }
    }
    let no_guests = findings
        .iter()
        .any(|finding| finding.name == "qemu" && finding.level == Level::Bad);
    if no_guests {
        return Err(Failure::new(Kind::Lab, "no guest can be run here"));
    }
    Ok(ExitCode::SUCCESS)
}

fn line(finding: &Finding) -> String {
    let level = match finding.level {
        Level::Good => "good",
        Level::Fair => "fair",
        Level::Bad => "BAD ",
    };
    let Finding { name, text, .. } = finding;
    match &finding.remedy {
        Some(remedy) => format!("{level}  {name:<9} {text}\n                {remedy}"),
        None => format!("{level}  {name:<9} {text}"),
    }
}

/// QEMU and its accelerators, by running it.
async fn guests(folders: &Folders, path: &str) -> Vec<Finding> {
    let Some(qemu) = find_program(QEMU, path) else {
        let finding = Finding::new("qemu", Level::Bad, format!("there is no {QEMU} in PATH"));
        return vec![finding.remedy("sudo apt-get install qemu-system-x86")];
    };
    let lab = match Lab::open(LabWish::usual(&qemu, &folders.cache)).await {
        Ok(lab) => lab,
        Err(error) => return vec![Finding::new("qemu", Level::Bad, error.to_string())],
    };
    let about = lab.about();
    let text = format!(
        "{} {}, up to {} vCPUs{}{}",
        qemu.display(),
        about.version,
        about.capabilities.max_cpus,
        if about.capabilities.modules {
            ", clusters"
        } else {
            ""
        },
        if about.capabilities.smp_cache {
            ", caches to order"
        } else {
            ""
        },
    );
    let mut findings = vec![Finding::new("qemu", Level::Good, text)];
    let old = about
        .version
        .split('.')
        .next()
        .and_then(|major| major.parse::<u32>().ok());
    if old.is_some_and(|major| major < 7) {
        findings.push(Finding::new(
            "qemu",
            Level::Bad,
            "QEMU 7.2 or newer is needed",
        ));
    }
    findings.push(kvm(lab.try_kvm("host").await));
    if !about.tcg {
        findings.push(Finding::new(
            "emulation",
            Level::Fair,
            "this QEMU has no emulator (TCG)",
        ));
    }
    findings
}

fn kvm(state: KvmState) -> Finding {
    let reason = match state {
        KvmState::Works { took_ms } => {
            return Finding::new("kvm", Level::Good, format!("a guest ran ({took_ms} ms)"));
        }
        KvmState::Broken { reason } => reason,
    };
    let finding = |consequence| {
        let text = format!("{reason}; {consequence}");
        Finding::new("kvm", Level::Fair, text)
    };
    let emulated = "guests are emulated, their durations are not judged";
    if reason.starts_with("no permission") {
        finding(emulated).remedy("sudo usermod -aG kvm \"$USER\"   # then log in again")
    } else if reason.starts_with("there is no") {
        finding(emulated).remedy("sudo modprobe kvm_intel || sudo modprobe kvm_amd")
    } else {
        finding(emulated)
    }
}

/// Programs (and headers, by path) that building kernels needs, and their
/// Debian packages.
const BUILDERS: [(&str, &str); 11] = [
    ("gcc", "gcc"),
    ("make", "make"),
    ("flex", "flex"),
    ("bison", "bison"),
    ("bc", "bc"),
    ("perl", "perl"),
    ("patch", "patch"),
    ("xz", "xz-utils"),
    ("ld", "binutils"),
    ("/usr/include/libelf.h", "libelf-dev"),
    ("/usr/include/openssl/opensslv.h", "libssl-dev"),
];

fn tools(path: &str) -> Vec<Finding> {
    let missing = BUILDERS
        .iter()
        .filter(|(program, _)| find_program(program, path).is_none());
    let (programs, packages): (Vec<&str>, Vec<&str>) = missing.copied().unzip();
    let build = if programs.is_empty() {
        Finding::new("build", Level::Good, "kernels can be built")
    } else {
        let text = format!("kernels cannot be built: no {}", programs.join(", "));
        let command = format!("sudo apt-get install {}", packages.join(" "));
        Finding::new("build", Level::Bad, text).remedy(command)
    };
    let ccache = match find_program("ccache", path) {
        Some(_) => Finding::new("ccache", Level::Good, "is used"),
        None => Finding::new(
            "ccache",
            Level::Fair,
            "not there: rebuilding an old variant costs more",
        )
        .remedy("sudo apt-get install ccache"),
    };
    vec![build, ccache]
}

/// Bytes that sources and one build of a kernel need.
const BUILD_SPACE: u64 = 6 << 30;

fn disk(folders: &Folders) -> Option<Finding> {
    // The folder may not be there yet; its nearest parent is on the same disk.
    let there = folders.cache.ancestors().find(|folder| folder.exists())?;
    let stat = rustix::fs::statvfs(there).ok()?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let text = format!(
        "{} free for the cache in {}",
        gib(free),
        folders.cache.display()
    );
    Some(if free < BUILD_SPACE {
        let text = format!(
            "{text}; a kernel's source and build want {}",
            gib(BUILD_SPACE)
        );
        Finding::new("disk", Level::Fair, text).remedy("export TOPOLAB_CACHE=/a/larger/disk")
    } else {
        Finding::new("disk", Level::Good, text)
    })
}

fn cpus(host: &Inventory) -> Vec<Finding> {
    let mut parts = vec![format!("{} CPUs", host.online.len())];
    if host.threads_per_core() > 1 {
        parts.push(format!("{} threads per core", host.threads_per_core()));
    }
    if host.is_hybrid() {
        parts.push("cores of two kinds".into());
    }
    if host.nodes.len() > 1 {
        parts.push(format!("{} nodes", host.nodes.len()));
    }
    let mut findings = vec![Finding::new("cpus", Level::Good, parts.join(", "))];
    if host.allowed != host.online {
        let text = format!(
            "this process may use only {} of {}",
            host.allowed, host.online
        );
        findings.push(Finding::new("cpuset", Level::Fair, text));
    }
    findings
}

fn memory(host: &Inventory, tuning: &Tuning) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let (Some(available), Some(memory)) = (tuning.available, tuning.memory) {
        let text = format!("{} of {} available", gib(available), gib(memory));
        let level = if available < 2 << 30 {
            Level::Fair
        } else {
            Level::Good
        };
        findings.push(Finding::new("memory", level, text));
    }
    findings.push(hugepages(host));
    findings
}

fn hugepages(host: &Inventory) -> Finding {
    let mut free: BTreeMap<u64, u64> = BTreeMap::new();
    for (size, pages) in host.nodes.iter().flat_map(|node| &node.hugepages) {
        *free.entry(*size).or_default() += pages;
    }
    let free: Vec<String> = free
        .into_iter()
        .filter(|(_, pages)| *pages > 0)
        .map(|(size, pages)| format!("{pages} of {}", Size(size)))
        .collect();
    if free.is_empty() {
        let text = "none free: topologies with `memory_backing: {hugepages: …}` cannot start";
        return Finding::new("hugepages", Level::Fair, text)
            .remedy("sudo sysctl vm.nr_hugepages=1024   # 2G in pages of 2M");
    }
    let text = format!("{} free", free.join(", "));
    Finding::new("hugepages", Level::Good, text)
}

/// What disturbs durations.
fn quiet(host: &Inventory, tuning: &Tuning) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut fair = |name, text: String, remedy: &str| {
        let finding = Finding::new(name, Level::Fair, text);
        findings.push(if remedy.is_empty() {
            finding
        } else {
            finding.remedy(remedy)
        });
    };
    if let Some(load) = tuning
        .load
        .filter(|load| *load > 0.5 * f64::from(host.online.len()))
    {
        fair(
            "load",
            format!(
                "{load:.1} processes want to run on {} CPUs",
                host.online.len()
            ),
            "",
        );
    }
    let slow = tuning
        .governors
        .iter()
        .filter(|(name, _)| *name != "performance");
    for (governor, cpus) in slow {
        fair(
            "governor",
            format!("{governor} on CPUs {cpus}: frequencies change while a guest runs"),
            "sudo cpupower frequency-set -g performance",
        );
    }
    if tuning.boost == Some(true) {
        fair(
            "boost",
            "on: how fast a CPU runs depends on its neighbours".into(),
            "echo 0 | sudo tee /sys/devices/system/cpu/cpufreq/boost   # or 1 to intel_pstate/no_turbo",
        );
    }
    if tuning.ksm == Some(true) {
        fair(
            "ksm",
            "merges pages of guests while they run".into(),
            "echo 0 | sudo tee /sys/kernel/mm/ksm/run",
        );
    }
    if tuning.virtual_machine {
        fair(
            "nested",
            "this host is a guest itself: durations depend on its neighbours".into(),
            "",
        );
    } else if tuning.nested == Some(false) {
        fair(
            "nested",
            "guests of this host cannot run guests of their own with KVM".into(),
            "sudo modprobe -r kvm_intel && sudo modprobe kvm_intel nested=1   # or kvm_amd",
        );
    }
    if tuning.smt.as_deref() == Some("on") {
        fair(
            "smt",
            "on: a vCPU alone on a thread is slowed by whatever runs on the other".into(),
            "echo off | sudo tee /sys/devices/system/cpu/smt/control   # or leave it to `pin: paired`",
        );
    }
    if !tuning.run_delay {
        fair(
            "schedstat",
            "this kernel does not tell how long vCPUs waited (CONFIG_SCHED_INFO)".into(),
            "",
        );
    }
    if !tuning.pressure {
        fair(
            "pressure",
            "this kernel does not tell how short of CPUs it is (CONFIG_PSI, psi=1)".into(),
            "",
        );
    }
    findings
}

fn gib(bytes: u64) -> String {
    #[expect(
        clippy::cast_precision_loss,
        reason = "shown with one digit after the point"
    )]
    let gib = bytes as f64 / f64::from(1 << 30);
    format!("{gib:.1} GiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tools_come_with_one_command() {
        let folder = tempfile::tempdir().unwrap();
        let found = tools(folder.path().to_str().unwrap());
        assert_eq!(found[0].level, Level::Bad);
        let remedy = found[0].remedy.as_deref().unwrap();
        let expected = "sudo apt-get install gcc make flex bison bc perl patch xz-utils binutils";
        assert!(remedy.starts_with(expected), "{remedy}");
    }

    #[test]
    fn what_is_wrong_with_kvm_has_a_remedy_where_there_is_one() {
        let told = |reason: &str| {
            kvm(KvmState::Broken {
                reason: reason.into(),
            })
        };
        assert!(
            told("no permission to use `/dev/kvm`")
                .remedy
                .unwrap()
                .contains("usermod")
        );
        assert!(
            told("there is no `/dev/kvm`")
                .remedy
                .unwrap()
                .contains("modprobe")
        );
        assert_eq!(told("KVM opens, but nothing runs").remedy, None);
        assert_eq!(
            line(&told("there is no `/dev/kvm`")),
            "fair  kvm       there is no `/dev/kvm`; guests are emulated, their durations are not judged\n                sudo modprobe kvm_intel || sudo modprobe kvm_amd"
        );
    }
}
