//! Runs the payload under KVM and a short clock.

use std::{
    fs::File,
    io::Write,
    os::fd::AsRawFd,
    path::Path,
    time::{Duration, Instant},
};

use rustix::fs::{MemfdFlags, memfd_create};
use tokio::io::AsyncReadExt;

use super::{
    KvmState,
    payload::{self, EXIT_CODE, EXIT_PORT, MEMORY_MIB},
};
use crate::qemu::process::{Launch, Qemu, QemuExit};

/// Runs it.
pub async fn run(qemu: &Path, cpu: &str, limit: Duration) -> KvmState {
    boot(qemu, "kvm", cpu, limit).await
}

async fn boot(qemu: &Path, accel: &str, cpu: &str, limit: Duration) -> KvmState {
    let broken = |reason: String| KvmState::Broken { reason };
    let Some(elf) = payload::elf() else {
        return broken("x86 guests cannot use KVM on this host's processor".into());
    };
    // A file in memory that QEMU inherits: nothing is left when we are killed.
    let file = memfd_create("topolab-probe", MemfdFlags::CLOEXEC).map(File::from);
    let file = file.map_err(std::io::Error::from).and_then(|mut file| {
        file.write_all(&elf)?;
        Ok(file)
    });
    let file = match file {
        Ok(file) => file,
        Err(error) => return broken(format!("cannot write the probe: {error}")),
    };
    let memory = format!("{MEMORY_MIB}M");
    let exit = format!("isa-debug-exit,iobase={EXIT_PORT:#x},iosize=1");
    let kernel = format!("/proc/self/fd/{}", file.as_raw_fd());
    let args = [
        "-nodefaults",
        "-no-user-config",
        "-display",
        "none",
        "-no-reboot",
        "-M",
        "q35",
        "-accel",
        accel,
        "-cpu",
        cpu,
        "-m",
        &memory,
        "-kernel",
        &kernel,
        "-device",
        &exit,
        "-serial",
        "stdio",
    ];
    let launch = Launch {
        program: qemu.into(),
        args: args.map(String::from).to_vec(),
        folder: "/".into(),
    };
    let started = Instant::now();
    let (mut process, mut output) = match Qemu::start(&launch, vec![file.into()]).await {
        Ok(started) => started,
        Err(error) => return broken(error.to_string()),
    };
    let ended = process.wait_for(limit).await;
    let took = started.elapsed();
    if ended.is_none() {
        process.kill();
        process.wait().await;
    }
    let mut words = Vec::new();
    // The process is gone, so that the pipe ends.
    let _ = output.read_to_end(&mut words).await;
    let words = String::from_utf8_lossy(&words);
    let last = words.lines().map(str::trim).rfind(|line| line.len() > 2);
    match ended {
        Some(QemuExit::Code(EXIT_CODE)) => KvmState::Works {
            took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        },
        Some(exit) => broken(match last {
            Some(last) => format!("KVM opens, but QEMU ends with {exit}: {last}"),
            None => format!("KVM opens, but QEMU ends with {exit}"),
        }),
        None => broken(format!(
            "KVM opens, but a guest of a few instructions {} within {} s",
            if words.contains('L') {
                "is not done"
            } else {
                "does not start"
            },
            limit.as_secs_f64()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::qemu::process::find_program;

    fn qemu() -> std::path::PathBuf {
        let path = std::env::var("PATH").unwrap();
        find_program("qemu-system-x86_64", &path).expect("QEMU is installed")
    }

    /// The payload itself is sound: the emulator finishes it.
    #[tokio::test]
    async fn the_payload_runs_to_its_end_under_emulation() {
        let state = boot(&qemu(), "tcg", "max", Duration::from_secs(60)).await;
        assert!(matches!(state, KvmState::Works { .. }), "{state:?}");
    }

    #[tokio::test]
    async fn a_model_that_does_not_exist_is_told_in_qemus_words() {
        let state = boot(&qemu(), "tcg", "no-such-model", Duration::from_secs(60)).await;
        let KvmState::Broken { reason } = state else {
            panic!("{state:?}");
        };
        assert!(
            reason.contains("exit code 1") && reason.contains("no-such-model"),
            "{reason}"
        );
    }

    #[tokio::test]
    async fn a_guest_that_is_not_done_in_time_is_no_working_one() {
        let state = boot(&qemu(), "tcg", "max", Duration::from_millis(1)).await;
        let KvmState::Broken { reason } = state else {
            panic!("{state:?}");
        };
        assert!(reason.contains("does not start within 0.001 s"), "{reason}");
    }
}
