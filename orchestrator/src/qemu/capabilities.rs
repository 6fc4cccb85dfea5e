//! What a QEMU can do, asked of the binary itself over QMP, not guessed from
//! its version.

use std::path::Path;

use qapi::{Command, qmp::QmpCommand};
use serde::{Deserialize, Serialize};
use tokio::{io::AsyncReadExt, sync::mpsc};

use super::{
    args::Capabilities,
    process::{Channel, Launch, LaunchError, Qemu},
    qmp::{Qmp, QmpError},
};

/// A QEMU program and what it told about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct About {
    /// Its version, such as `7.2.22`.
    pub version: String,
    /// What the arguments may use.
    pub capabilities: Capabilities,
    /// It was built with KVM.
    pub kvm: bool,
    /// It was built with its emulator.
    pub tcg: bool,
}

/// Why a QEMU told nothing.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// It did not start.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// No sockets could be opened.
    #[error("cannot open a socket for QEMU")]
    Socket(#[source] std::io::Error),
    /// It ended without an answer.
    #[error("`{program}` ends without an answer: {words}")]
    Ended {
        /// The program.
        program: String,
        /// What it wrote.
        words: String,
    },
    /// It answered something unexpected.
    #[error(transparent)]
    Qmp(#[from] QmpError),
}

/// Starts the program without a machine, asks, ends it.
///
/// # Errors
/// When it does not start or does not answer.
pub async fn ask(program: &Path) -> Result<About, AskError> {
    let channel = Channel::open(100).map_err(AskError::Socket)?;
    let chardev = format!("socket,id=control,fd={}", channel.number());
    let args = [
        "-M",
        "none",
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-S",
        "-chardev",
        &chardev,
        "-mon",
        "chardev=control,mode=control",
    ];
    let launch = Launch {
        program: program.into(),
        args: args.map(String::from).to_vec(),
        folder: "/".into(),
    };
    let (mut qemu, mut output) = Qemu::start(&launch, vec![channel.theirs]).await?;
    let (events, _ignored) = mpsc::unbounded_channel();
    let qmp = match Qmp::greet(channel.ours, events).await {
        Ok(qmp) => qmp,
        Err(error) => {
            qemu.kill();
            qemu.wait().await;
            let mut words = Vec::new();
            let _ = output.read_to_end(&mut words).await;
            let words = String::from_utf8_lossy(&words).trim().to_string();
            return Err(if words.is_empty() {
                error.into()
            } else {
                AskError::Ended {
                    program: program.display().to_string(),
                    words,
                }
            });
        }
    };
    let about = questions(&qmp).await?;
    // A QEMU that does not quit is killed when it is dropped.
    if qmp.quit().await.is_ok() {
        qemu.wait_for(std::time::Duration::from_secs(2)).await;
    }
    Ok(about)
}

async fn questions(qmp: &Qmp) -> Result<About, QmpError> {
    let machines = qmp.ask(QueryMachines {}).await?;
    let q35 = machines
        .iter()
        .find(|machine| machine.alias.as_deref() == Some("q35") || machine.name == "q35");
    let options = qmp.ask(QueryOptions { option: "smp-opts" }).await;
    // Groups that do not exist are refused.
    let modules = options.is_ok_and(|groups| {
        let mut parameters = groups.iter().flat_map(|group| &group.parameters);
        parameters.any(|parameter| parameter.name == "modules")
    });
    let smp_cache = match q35 {
        Some(machine) => {
            let typename = format!("{}-machine", machine.name);
            let properties = qmp.ask(QomListProperties { typename }).await;
            properties.is_ok_and(|list| list.iter().any(|p| p.name.starts_with("smp-cache")))
        }
        None => false,
    };
    // Refused by a QEMU that has no emulator for it to be asked of.
    let expansion = qmp.ask(QueryCpuModelExpansion {
        kind: "full",
        model: CpuModelName { name: "max" },
    });
    let emulated_x2apic = expansion.await.is_ok_and(|expanded| {
        let x2apic = expanded.model.props.get("x2apic");
        x2apic.and_then(serde_json::Value::as_bool) == Some(true)
    });
    let accels = qmp
        .ask(QomListTypes {
            implements: "accel",
        })
        .await?;
    let has = |name: &str| accels.iter().any(|accel| accel.name == name);
    Ok(About {
        version: qmp.version().into(),
        capabilities: Capabilities {
            max_cpus: q35.map_or(Capabilities::default().max_cpus, |machine| machine.cpu_max),
            modules,
            smp_cache,
            emulated_x2apic,
        },
        kvm: has("kvm-accel"),
        tcg: has("tcg-accel"),
    })
}

#[derive(Debug, Serialize)]
struct QueryMachines {}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Machine {
    name: String,
    alias: Option<String>,
    cpu_max: u32,
}

impl Command for QueryMachines {
    const NAME: &'static str = "query-machines";
    const ALLOW_OOB: bool = false;
    type Ok = Vec<Machine>;
}
impl QmpCommand for QueryMachines {}

#[derive(Debug, Serialize)]
struct QueryOptions {
    option: &'static str,
}

#[derive(Debug, Deserialize)]
struct OptionGroup {
    parameters: Vec<Named>,
}

impl Command for QueryOptions {
    const NAME: &'static str = "query-command-line-options";
    const ALLOW_OOB: bool = false;
    type Ok = Vec<OptionGroup>;
}
impl QmpCommand for QueryOptions {}

#[derive(Debug, Serialize)]
struct QomListProperties {
    typename: String,
}

#[derive(Debug, Deserialize)]
struct Named {
    name: String,
}

impl Command for QomListProperties {
    const NAME: &'static str = "qom-list-properties";
    const ALLOW_OOB: bool = false;
    type Ok = Vec<Named>;
}
impl QmpCommand for QomListProperties {}

#[derive(Debug, Serialize)]
struct QueryCpuModelExpansion {
    #[serde(rename = "type")]
    kind: &'static str,
    model: CpuModelName,
}

#[derive(Debug, Serialize)]
struct CpuModelName {
    name: &'static str,
}

#[derive(Debug, Deserialize)]
struct Expanded {
    model: ExpandedModel,
}

#[derive(Debug, Deserialize)]
struct ExpandedModel {
    #[serde(default)]
    props: serde_json::Map<String, serde_json::Value>,
}

impl Command for QueryCpuModelExpansion {
    const NAME: &'static str = "query-cpu-model-expansion";
    const ALLOW_OOB: bool = false;
    type Ok = Expanded;
}
impl QmpCommand for QueryCpuModelExpansion {}

#[derive(Debug, Serialize)]
struct QomListTypes {
    implements: &'static str,
}

impl Command for QomListTypes {
    const NAME: &'static str = "qom-list-types";
    const ALLOW_OOB: bool = false;
    type Ok = Vec<Named>;
}
impl QmpCommand for QomListTypes {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::process::find_program;

    #[tokio::test]
    async fn the_installed_qemu_tells_about_itself() {
        let path = std::env::var("PATH").unwrap();
        let qemu = find_program("qemu-system-x86_64", &path).expect("QEMU is installed");
        let about = ask(&qemu).await.unwrap();
        assert!(about.tcg, "{about:?}");
        assert!(about.capabilities.max_cpus >= 255, "{about:?}");
        assert!(about.version.split('.').count() == 3, "{about:?}");
    }

    #[tokio::test]
    async fn a_program_that_is_no_qemu_is_told_in_its_own_words() {
        let error = ask(Path::new("/bin/ls")).await.unwrap_err().to_string();
        assert!(
            error.starts_with("`/bin/ls` ends without an answer: "),
            "{error}"
        );
        assert!(error.contains("invalid option"), "{error}");
    }
}
