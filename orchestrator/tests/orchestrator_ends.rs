//! However topolab ends, no guest survives it and nothing is left behind.

#[path = "real/kernel.rs"]
mod kernel;

use std::{
    fs,
    io::Read,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

/// A `topolab boot` whose guest runs something endless.
struct Booted {
    topolab: Child,
    /// A word on its guest's command line that no other guest has.
    marker: String,
    /// HOME, cache, runtime and temporary folders of its own.
    home: tempfile::TempDir,
}

/// Long enough for a boot on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

impl Booted {
    async fn new(name: &str) -> Self {
        let kernel = kernel::kernel().await.path;
        let home = tempfile::tempdir().unwrap();
        for folder in ["run", "tmp"] {
            fs::create_dir(home.path().join(folder)).unwrap();
        }
        let marker = format!("marker={name}-{}", std::process::id());
        let shout = "echo ready; exec sleep 100000";
        let mut command = Command::new(env!("CARGO_BIN_EXE_topolab"));
        command
            .args([
                "boot", "one-core", "--accel", "tcg", "--append", &marker, "--kernel",
            ])
            .arg(kernel)
            .args(["--", "sh", "-c", shout])
            .current_dir(kernel::checkout())
            .env("HOME", home.path())
            .env("TOPOLAB_CACHE", home.path().join("cache"))
            .env("XDG_RUNTIME_DIR", home.path().join("run"))
            .env("TMPDIR", home.path().join("tmp"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        let mut booted = Self {
            topolab: command.spawn().unwrap(),
            marker,
            home,
        };
        let mut ready = [0; 6];
        let stdout = booted.topolab.stdout.as_mut().unwrap();
        if stdout.read_exact(&mut ready).is_err() {
            let mut words = String::new();
            let stderr = booted.topolab.stderr.as_mut().unwrap();
            stderr.read_to_string(&mut words).unwrap();
            panic!("the guest never came: {words}");
        }
        assert_eq!(booted.guests(), 1);
        booted
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.topolab.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// QEMUs of this guest that are alive.
    fn guests(&self) -> usize {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let lines = processes.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        lines
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .filter(|line| line.starts_with("qemu") || line.contains("/qemu-system"))
            .filter(|line| line.contains(&self.marker))
            .count()
    }

    fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.topolab.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "topolab does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn no_guest_is_left(&self) {
        let until = Instant::now() + Duration::from_secs(10);
        while self.guests() > 0 {
            assert!(Instant::now() < until, "a guest is left");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Files outside the cache.
    fn leftovers(&self) -> Vec<String> {
        let mut found = Vec::new();
        for folder in ["run", "tmp"] {
            list(&self.home.path().join(folder), &mut found);
        }
        found
    }
}

impl Drop for Booted {
    fn drop(&mut self) {
        let _ = self.topolab.kill();
        let _ = self.topolab.wait();
    }
}

fn list(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap().flatten() {
        if entry.file_type().unwrap().is_dir() {
            list(&entry.path(), found);
        } else {
            found.push(entry.path().display().to_string());
        }
    }
}

#[tokio::test]
async fn signals_tidy_up() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let mut booted = Booted::new("once").await;
        booted.signal(signal);
        assert_eq!(booted.wait().code(), Some(125), "{signal:?}");
        booted.no_guest_is_left();
        assert_eq!(booted.leftovers(), Vec::<String>::new(), "{signal:?}");
    }
}

#[tokio::test]
async fn the_second_ctrl_c_leaves_at_once_and_takes_the_guest_along() {
    let mut booted = Booted::new("twice").await;
    booted.signal(Signal::INT);
    booted.signal(Signal::TERM);
    let status = booted.wait();
    // The first may already have done its work.
    assert!(matches!(status.code(), Some(125 | 130)), "{status:?}");
    booted.no_guest_is_left();
}

#[tokio::test]
async fn kill_9_leaves_no_guest_and_the_next_start_sweeps_its_folder() {
    let mut booted = Booted::new("killed").await;
    booted.signal(Signal::KILL);
    assert_eq!(booted.wait().signal(), Some(9));
    booted.no_guest_is_left();
    let parent = booted.home.path().join("run/topolab");
    let next = topolab::host::Scratch::new(&parent).unwrap();
    drop(next);
    assert_eq!(booted.leftovers(), Vec::<String>::new());
}
