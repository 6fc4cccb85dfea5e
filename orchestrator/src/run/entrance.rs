//! How others enter a guest that runs: by SSH through a port of this host, or on its
//! serial console. A file in the run's folder says so as long as the guest lives.

use std::{
    fs, io,
    os::fd::AsRawFd,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    sync::{broadcast, mpsc},
};

use crate::{
    guest::ssh::{Access, HostKey, Identity, Target},
    image::{LoginKey, SshLogin},
    qemu::qmp::{Qmp, QmpError},
};

/// File in the folder of a run whose guest lives.
const FILE: &str = "guest.json";
/// Socket in that folder: the guest's serial line.
const CONSOLE: &str = "console.sock";

/// How a guest that runs is entered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entrance {
    /// QEMU's process number.
    pub qemu: u32,
    /// By SSH, when its image has a server.
    pub ssh: Option<SshEntrance>,
}

/// A guest's SSH server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshEntrance {
    /// Port of 127.0.0.1 that leads to it.
    pub port: u16,
    /// Who logs in.
    pub user: String,
    /// With what.
    pub key: LoginKey,
    /// The server's public key, `TYPE BASE64`, when it is known.
    pub host_key: Option<String>,
}

impl SshEntrance {
    /// The way in through a port.
    pub fn new(login: &SshLogin, port: u16) -> Self {
        Self {
            port,
            user: login.user.clone(),
            key: login.key.clone(),
            host_key: login.host_key.clone(),
        }
    }

    /// What a connection needs.
    pub fn access(&self) -> Access {
        Access {
            target: Target {
                host: "127.0.0.1".into(),
                port: self.port,
                user: self.user.clone(),
            },
            identity: match &self.key {
                LoginKey::File(path) => Identity::Key(path.clone()),
                LoginKey::Agent(socket) => Identity::Agent(socket.clone()),
            },
            // The port is QEMU's own, so nobody else can answer on it: a guest that
            // makes its key at first boot may show any.
            host_key: match &self.host_key {
                Some(key) => HostKey::Known(key.clone()),
                None => HostKey::Unknown,
            },
        }
    }
}

impl Entrance {
    /// Puts it into the folder of a run. It is private, as the folder is.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self).map_err(io::Error::other)?;
        fs::write(folder.join(FILE), text)
    }

    /// The guest is gone: nobody can enter it any more.
    pub(super) fn remove(folder: &Path) {
        for name in [FILE, CONSOLE] {
            // What was never made need not be removed.
            let _ = fs::remove_file(folder.join(name));
        }
    }

    /// The way into the guest of a run's folder; nothing when no guest lives there.
    pub fn read(folder: &Path) -> Option<Self> {
        let text = fs::read(folder.join(FILE)).ok()?;
        let entrance: Self = serde_json::from_slice(&text).ok()?;
        // Who was killed leaves the file behind, and its number to others.
        let works_in = fs::read_link(format!("/proc/{}/cwd", entrance.qemu)).ok()?;
        let same = fs::canonicalize(folder).is_ok_and(|folder| folder == works_in);
        same.then_some(entrance)
    }
}

/// Guests that run below `folder`, and `folder` itself if one runs in it: the
/// folders of their runs, sorted. Two levels are looked through, as results folders
/// have them.
pub fn living(folder: &Path) -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    };
    let mut candidates = vec![folder.to_path_buf()];
    for child in inside(folder).into_iter().filter(|path| path.is_dir()) {
        if child.file_name().is_some_and(|name| name == "runs") {
            candidates.extend(inside(&child));
        }
        candidates.push(child);
    }
    candidates.retain(|folder| Entrance::read(folder).is_some());
    candidates.sort();
    candidates
}

/// The host's port in the answer to `info usernet`:
/// `TCP[HOST_FORWARD]  12  127.0.0.1 43210  10.0.2.15  22  0  0`.
fn port_in(told: &str) -> Option<u16> {
    let line = told
        .lines()
        .find(|line| line.contains("TCP[HOST_FORWARD]"))?;
    line.split_whitespace().nth(3)?.parse().ok()
}

/// Asks QEMU for the port that the host's kernel chose.
pub(super) async fn forwarded_port(qmp: &Qmp) -> Result<u16, String> {
    let told = qmp.monitor("info usernet").await;
    let told = told.map_err(|error: QmpError| error.to_string())?;
    port_in(&told).ok_or_else(|| format!("QEMU forwards no port: {}", told.trim()))
}

/// Bytes of the console that a slow reader may be behind.
const BEHIND: usize = 256;

/// The desk at which others sit down at a guest's serial line.
#[derive(Debug)]
pub(super) struct ConsoleDesk {
    shown: broadcast::Sender<Vec<u8>>,
    serving: tokio::task::JoinHandle<()>,
}

impl ConsoleDesk {
    /// Opens it in a run's folder; what is typed there goes to `typed`.
    pub(super) fn open<T: Send + 'static>(
        folder: &Path,
        typed: mpsc::Sender<T>,
        wrap: fn(Vec<u8>) -> T,
    ) -> io::Result<Self> {
        let listener = {
            let _ = fs::remove_file(folder.join(CONSOLE));
            let handle = fs::File::open(folder)?;
            UnixListener::bind(near(&handle))?
        };
        let (shown, _) = broadcast::channel(BEHIND);
        let for_guests = shown.clone();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, for_guests.subscribe(), typed.clone(), wrap));
            }
        });
        Ok(Self { shown, serving })
    }

    /// Shows bytes of the console to everybody who sits there.
    pub(super) fn show(&self, bytes: &[u8]) {
        if self.shown.receiver_count() > 0 {
            // Whoever left in between is no loss.
            let _ = self.shown.send(bytes.to_vec());
        }
    }
}

impl Drop for ConsoleDesk {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// The socket of a folder, by a name short enough for any folder.
fn near(folder: &fs::File) -> String {
    format!("/proc/self/fd/{}/{CONSOLE}", folder.as_raw_fd())
}

async fn serve<T: Send + 'static>(
    stream: UnixStream,
    mut shown: broadcast::Receiver<Vec<u8>>,
    typed: mpsc::Sender<T>,
    wrap: fn(Vec<u8>) -> T,
) {
    let (mut read, mut write) = stream.into_split();
    let mut buffer = vec![0; 1024];
    loop {
        tokio::select! {
            bytes = shown.recv() => match bytes {
                Ok(bytes) => if write.write_all(&bytes).await.is_err() { return },
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return,
            },
            count = read.read(&mut buffer) => match count {
                Ok(count @ 1..) => if typed.send(wrap(buffer[..count].to_vec())).await.is_err() { return },
                _ => return,
            },
        }
    }
}

/// Sits down at the serial line of the guest of a run's folder.
///
/// # Errors
/// No guest lives there.
pub async fn console(folder: &Path) -> io::Result<UnixStream> {
    let handle = fs::File::open(folder)?;
    UnixStream::connect(near(&handle)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_qemus_table() {
        let told = "Hub -1 (net):\r\n  Protocol[State]    FD  Source Address  Port   Dest. Address  Port RecvQ SendQ\r\n  TCP[HOST_FORWARD]  16       127.0.0.1 43811       10.0.2.15    22     0     0\r\n";
        assert_eq!(port_in(told), Some(43811));
        assert_eq!(port_in("no such thing"), None);
    }

    #[test]
    fn a_file_that_a_killed_run_left_is_no_entrance() {
        let folder = tempfile::tempdir().unwrap();
        let runs = folder.path().join("results/runs");
        let run = runs.join("0001");
        fs::create_dir_all(&run).unwrap();
        let mut entrance = Entrance { qemu: 0, ssh: None };
        entrance.write(&run).unwrap();
        assert_eq!(Entrance::read(&run), None);
        let mut child = std::process::Command::new("/bin/sleep")
            .arg("60")
            .current_dir(&run)
            .spawn()
            .unwrap();
        entrance.qemu = child.id();
        entrance.write(&run).unwrap();
        // The child changes its folder before it becomes the other program.
        let read = Entrance::read(&run);
        assert_eq!(
            living(&folder.path().join("results")),
            std::slice::from_ref(&run)
        );
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(read, Some(entrance));
        assert_eq!(living(folder.path()), Vec::<PathBuf>::new());
    }

    #[tokio::test]
    async fn who_sits_at_the_console_sees_and_types() {
        let folder = tempfile::tempdir().unwrap();
        let (sender, mut typed) = mpsc::channel(4);
        let desk = ConsoleDesk::open(folder.path(), sender, |bytes| bytes).unwrap();
        let mut seat = console(folder.path()).await.unwrap();
        seat.write_all(b"root\n").await.unwrap();
        assert_eq!(typed.recv().await.unwrap(), b"root\n");
        desk.show(b"Password: ");
        let mut buffer = [0; 10];
        seat.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"Password: ");
        Entrance::remove(folder.path());
        assert!(console(folder.path()).await.is_err());
    }
}
