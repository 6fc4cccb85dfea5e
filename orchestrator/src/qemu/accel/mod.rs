//! Which accelerator a guest runs on. `/dev/kvm` that opens proves nothing: a
//! guest must have run.

mod payload;
mod probe;

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::args::{Accel, TcgThread};

/// What the user asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Wish {
    /// KVM where it works, else emulation.
    #[default]
    Auto,
    /// KVM or nothing.
    Kvm,
    /// Emulation.
    Tcg,
}

impl std::str::FromStr for Wish {
    type Err = WishError;

    fn from_str(text: &str) -> Result<Self, WishError> {
        match text {
            "auto" => Ok(Self::Auto),
            "kvm" => Ok(Self::Kvm),
            "tcg" => Ok(Self::Tcg),
            _ => Err(WishError { text: text.into() }),
        }
    }
}

/// An accelerator that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no accelerator: write auto, kvm or tcg")]
pub struct WishError {
    /// What was written.
    pub text: String,
}

/// Why there is no accelerator as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("KVM was asked for and does not work here: {reason}")]
pub struct KvmError {
    /// Why not.
    pub reason: String,
}

/// What was decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The accelerator.
    pub accel: Accel,
    /// Why it is not KVM although that might have been expected.
    pub fallback: Option<String>,
}

/// What is known about KVM on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kvm", rename_all = "kebab-case", deny_unknown_fields)]
pub enum KvmState {
    /// A guest ran.
    Works {
        /// Milliseconds from the start of QEMU to its end.
        took_ms: u64,
    },
    /// A guest did not run.
    Broken {
        /// What happened.
        reason: String,
    },
}

/// Whose answer is looked for: a host, a QEMU and a CPU model.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The QEMU program.
    pub qemu: &'a Path,
    /// What this host is, in one text that changes when the host boots: a
    /// reloaded module or another kernel may change the answer.
    pub host: &'a str,
    /// Folder with `dev`; `/` but for tests.
    pub root: &'a Path,
    /// The CPU model guests will get, as in `-cpu`.
    pub cpu: &'a str,
    /// Folder in which answers are remembered.
    pub cache: &'a Path,
    /// Whether a remembered answer will do.
    pub memory: Memory,
}

/// Whether a remembered answer will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// A remembered answer is as good as a new one.
    Use,
    /// Try again and remember the new answer.
    Renew,
}

/// How long the probe may take. A working host needs a tenth of a second; one
/// whose nested paging is emulated needs more than ten.
pub const PROBE: Duration = Duration::from_secs(5);

/// Decides. `thread` is how an emulated guest's vCPUs share host threads.
///
/// # Errors
/// When KVM is insisted on and does not work.
pub async fn choose(
    wish: Wish,
    thread: TcgThread,
    question: &Question<'_>,
) -> Result<Choice, KvmError> {
    let tcg = Accel::Tcg { thread };
    if wish == Wish::Tcg {
        return Ok(Choice {
            accel: tcg,
            fallback: None,
        });
    }
    match (kvm_state(question).await, wish) {
        (KvmState::Works { .. }, _) => Ok(Choice {
            accel: Accel::Kvm,
            fallback: None,
        }),
        (KvmState::Broken { reason }, Wish::Kvm) => Err(KvmError { reason }),
        (KvmState::Broken { reason }, _) => Ok(Choice {
            accel: tcg,
            fallback: Some(reason),
        }),
    }
}

/// Whether KVM works, by opening the device and then running a guest. The
/// answer of a guest is remembered until the host boots again.
pub async fn kvm_state(question: &Question<'_>) -> KvmState {
    let device = question.root.join("dev/kvm");
    if let Err(error) = fs::OpenOptions::new().read(true).write(true).open(&device) {
        let device = device.display();
        let reason = match error.kind() {
            io::ErrorKind::NotFound => format!("there is no `{device}`"),
            io::ErrorKind::PermissionDenied => format!("no permission to use `{device}`"),
            _ => format!("cannot open `{device}`: {error}"),
        };
        return KvmState::Broken { reason };
    }
    let memory = remembered(question);
    if question.memory == Memory::Use
        && let Some(state) = recall(&memory)
    {
        return state;
    }
    let state = probe::run(question.qemu, question.cpu, PROBE).await;
    // An answer that cannot be remembered is asked for again, nothing worse.
    let _ = remember(&memory, &state);
    state
}

/// The file of an answer.
fn remembered(question: &Question<'_>) -> PathBuf {
    let program = fs::metadata(question.qemu).ok();
    let changed = program.and_then(|meta| meta.modified().ok());
    let Question {
        qemu, host, cpu, ..
    } = question;
    let key = format!("{host}\n{}\n{changed:?}\n{cpu}", qemu.display());
    let name: String = Sha256::digest(key)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    question.cache.join("kvm").join(name + ".json")
}

fn recall(file: &Path) -> Option<KvmState> {
    serde_json::from_slice(&fs::read(file).ok()?).ok()
}

fn remember(file: &Path, state: &KvmState) -> io::Result<()> {
    let folder = file.parent().expect("a file in the cache has a folder");
    fs::create_dir_all(folder)?;
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut temporary, state)?;
    temporary.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask<'a>(root: &'a Path, host: &'a str) -> Question<'a> {
        Question {
            qemu: Path::new("/nowhere/qemu"),
            host,
            root,
            cpu: "host",
            cache: root,
            memory: Memory::Use,
        }
    }

    const MULTI: Accel = Accel::Tcg {
        thread: TcgThread::Multi,
    };

    #[tokio::test]
    async fn without_the_device_auto_emulates_and_kvm_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let question = ask(dir.path(), "");
        let choice = choose(Wish::Auto, TcgThread::Multi, &question)
            .await
            .unwrap();
        assert_eq!(choice.accel, MULTI);
        assert!(choice.fallback.unwrap().starts_with("there is no `"));
        let error = choose(Wish::Kvm, TcgThread::Multi, &question)
            .await
            .unwrap_err();
        assert!(error.to_string().contains("/dev/kvm`"), "{error}");
        let choice = choose(Wish::Tcg, TcgThread::Multi, &question)
            .await
            .unwrap();
        assert_eq!(choice.fallback, None);
    }

    #[tokio::test]
    async fn an_answer_is_remembered_until_the_host_boots_again() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("dev")).unwrap();
        fs::write(root.join("dev/kvm"), "").unwrap();
        let mut question = ask(root, "boot one");
        let works = KvmState::Works { took_ms: 3 };
        remember(&remembered(&question), &works).unwrap();
        assert_eq!(kvm_state(&question).await, works);
        question.cpu = "EPYC";
        let asked = kvm_state(&question).await;
        assert!(
            matches!(&asked, KvmState::Broken { reason } if reason.contains("/nowhere/qemu")),
            "{asked:?}"
        );
        question.cpu = "host";
        question.host = "boot two";
        assert!(matches!(
            kvm_state(&question).await,
            KvmState::Broken { .. }
        ));
        assert_eq!(
            "fast".parse::<Wish>().unwrap_err().to_string(),
            "`fast` is no accelerator: write auto, kvm or tcg"
        );
    }
}
