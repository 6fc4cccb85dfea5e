//! From nothing to a logged-in session, with a limit on every wait and a cause
//! for every failure.

use std::{
    io::{self, Write},
    net::{TcpStream, ToSocketAddrs},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use ssh2::{CheckResult, ErrorCode, HashType, KnownHostFileKind, Session};

use super::{Target, patience::Patience};

/// Who we say we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A private key without a passphrase.
    Key(PathBuf),
    /// The keys an SSH agent holds, reached through this socket.
    Agent(PathBuf),
}

/// Whose answer is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostKey {
    /// This key, `TYPE BASE64`, and no other.
    Known(String),
    /// What stands in this file, laid out like `known_hosts` (sshd(8)). A machine
    /// that does not stand in it yet is added.
    Pinned(PathBuf),
    /// Whatever answers. Only for a guest that we started a moment ago and whose
    /// key nobody knows: it was made at its first boot.
    Unknown,
}

/// Everything a connection needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The machine.
    pub target: Target,
    /// Who we are.
    pub identity: Identity,
    /// Who it must be.
    pub host_key: HostKey,
}

/// Why there is no session.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The name has no address.
    #[error("cannot find an address of `{host}`")]
    Resolve {
        /// The name.
        host: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nobody takes the connection.
    #[error("nobody answers on port {port} of `{host}`")]
    Refused {
        /// The machine.
        host: String,
        /// The port.
        port: u16,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Somebody takes the connection and is no SSH server, or a very slow one.
    #[error("port {port} of `{host}` does not greet as an SSH server: {reason}")]
    NoServer {
        /// The machine.
        host: String,
        /// The port.
        port: u16,
        /// What came instead.
        reason: String,
    },
    /// The machine shows another key than the one that is known.
    #[error("`{host}` shows another host key than {known} has: {seen}")]
    HostKey {
        /// The machine.
        host: String,
        /// Where the known key stands.
        known: String,
        /// Fingerprint of what was shown, as `ssh-keygen -l` prints it.
        seen: String,
    },
    /// The pinned keys cannot be used.
    #[error("cannot use the known host keys in {known}: {reason}")]
    Pins {
        /// Where they stand.
        known: String,
        /// Why.
        reason: String,
    },
    /// The key cannot be used.
    #[error("cannot use {identity}: {reason}")]
    Identity {
        /// Which key or agent.
        identity: String,
        /// Why.
        reason: String,
    },
    /// The machine does not let us in.
    #[error("`{host}` lets `{user}` not in with {identity}; it takes: {methods}")]
    Denied {
        /// The machine.
        host: String,
        /// Who wanted in.
        user: String,
        /// Which key or agent was shown.
        identity: String,
        /// Ways to log in that it names.
        methods: String,
    },
    /// We were told to stop.
    #[error("stopped")]
    Stopped,
}

impl ConnectError {
    /// Whether the machine may merely not be up yet.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Refused { .. } | Self::NoServer { .. })
    }
}

/// A session whose user is logged in.
pub struct Connection {
    /// The session.
    pub session: Session,
    /// Its socket, for waiting on.
    pub stream: TcpStream,
}

/// Longest wait for one answer while connecting.
const ANSWER: Duration = Duration::from_secs(20);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(200);

/// Connects, tries again while the machine may not be up yet, and gives the last
/// failure when patience is over. Blocks.
///
/// # Errors
/// The machine cannot be reached, is another, or does not let us in.
pub fn connect(access: &Access, patience: &Patience) -> Result<Connection, ConnectError> {
    loop {
        let error = match attempt(access, patience) {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        if patience.is_stopped() {
            return Err(ConnectError::Stopped);
        }
        if !error.may_pass() || patience.left() <= PAUSE {
            return Err(error);
        }
        std::thread::sleep(PAUSE);
    }
}

fn attempt(access: &Access, patience: &Patience) -> Result<Connection, ConnectError> {
    let Target { host, port, user } = &access.target;
    let limit = patience.left().min(ANSWER).max(Duration::from_millis(1));
    let stream = open(&access.target, Instant::now() + limit)?;
    let no_server = |error: &ssh2::Error| ConnectError::NoServer {
        host: host.clone(),
        port: *port,
        reason: describe(error, limit),
    };
    let mut session = Session::new().map_err(|error| no_server(&error))?;
    let waited_on = stream.try_clone().map_err(|error| ConnectError::NoServer {
        host: host.clone(),
        port: *port,
        reason: error.to_string(),
    })?;
    session.set_tcp_stream(stream);
    session.set_timeout(u32::try_from(limit.as_millis()).unwrap_or(u32::MAX));
    session.handshake().map_err(|error| no_server(&error))?;
    check_host_key(&session, access)?;
    log_in(&session, access).map_err(|error| match error {
        Some(error) => error,
        None => ConnectError::Denied {
            host: host.clone(),
            user: user.clone(),
            identity: access.identity.to_string(),
            methods: session.auth_methods(user).unwrap_or("nothing").into(),
        },
    })?;
    Ok(Connection {
        session,
        stream: waited_on,
    })
}

fn open(target: &Target, deadline: Instant) -> Result<TcpStream, ConnectError> {
    let Target { host, port, .. } = target;
    let addresses = (host.as_str(), *port).to_socket_addrs();
    let addresses = addresses.map_err(|source| ConnectError::Resolve {
        host: host.clone(),
        source,
    })?;
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in addresses {
        let left = deadline.saturating_duration_since(Instant::now());
        match TcpStream::connect_timeout(&address, left.max(Duration::from_millis(1))) {
            Ok(stream) => {
                // Frames are small and each is waited for.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(ConnectError::Refused {
        host: host.clone(),
        port: *port,
        source: last,
    })
}

fn describe(error: &ssh2::Error, limit: Duration) -> String {
    // LIBSSH2_ERROR_TIMEOUT and LIBSSH2_ERROR_SOCKET_TIMEOUT of libssh2.h.
    match error.code() {
        ErrorCode::Session(-9 | -30) => format!("no answer within {} s", limit.as_secs_f64()),
        _ => error.message().to_string(),
    }
}

fn check_host_key(session: &Session, access: &Access) -> Result<(), ConnectError> {
    let Target { host, port, .. } = &access.target;
    let (known, text) = match &access.host_key {
        HostKey::Unknown => return Ok(()),
        HostKey::Known(key) => ("the image".to_string(), format!("{host} {key}\n")),
        HostKey::Pinned(file) => {
            let text = match std::fs::read_to_string(file) {
                Ok(text) => text,
                Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
                Err(error) => {
                    return Err(ConnectError::Pins {
                        known: format!("`{}`", file.display()),
                        reason: error.to_string(),
                    });
                }
            };
            (format!("`{}`", file.display()), text)
        }
    };
    let pins = |reason: String| ConnectError::Pins {
        known: known.clone(),
        reason,
    };
    let mut hosts = session
        .known_hosts()
        .map_err(|error| pins(error.to_string()))?;
    for line in text
        .lines()
        .filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
    {
        hosts
            .read_str(line, KnownHostFileKind::OpenSSH)
            .map_err(|error| pins(format!("{error}: {line}")))?;
    }
    let (key, kind) = session
        .host_key()
        .ok_or_else(|| pins("the server has no key".into()))?;
    // A key that is given for this one image stands for any port.
    let check = match access.host_key {
        HostKey::Known(_) => hosts.check(host, key),
        _ => hosts.check_port(host, *port, key),
    };
    match (check, &access.host_key) {
        (CheckResult::Match, _) => Ok(()),
        (CheckResult::NotFound, HostKey::Pinned(file)) => {
            let name = format!("[{host}]:{port}");
            hosts
                .add(&name, key, "", kind.into())
                .map_err(|error| pins(error.to_string()))?;
            pin(&hosts, &name, file).map_err(pins)
        }
        (CheckResult::Failure, _) => Err(pins("the key cannot be compared".into())),
        (CheckResult::Mismatch | CheckResult::NotFound, _) => Err(ConnectError::HostKey {
            host: host.clone(),
            known,
            seen: fingerprint(session),
        }),
    }
}

/// Adds one line to the file: what a user wrote there stays as it is.
fn pin(hosts: &ssh2::KnownHosts, name: &str, file: &Path) -> Result<(), String> {
    let entries = hosts.hosts().map_err(|error| error.to_string())?;
    let entry = entries.iter().find(|entry| entry.name() == Some(name));
    let entry = entry.expect("it was added a moment ago");
    let line = hosts
        .write_string(entry, KnownHostFileKind::OpenSSH)
        .map_err(|error| error.to_string())?;
    let write = || {
        if let Some(folder) = file.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.append(true).create(true).open(file)?;
        file.write_all(line.as_bytes())
    };
    write().map_err(|error| error.to_string())
}

/// `SHA256:` and base64 without padding, as OpenSSH prints it.
fn fingerprint(session: &Session) -> String {
    let hash = session.host_key_hash(HashType::Sha256).unwrap_or_default();
    let mut text = String::from("SHA256:");
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for chunk in hash.chunks(3) {
        let word = chunk
            .iter()
            .fold(0u32, |word, byte| word << 8 | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        for at in 0..=chunk.len() {
            let letter = (word >> (18 - 6 * at)) & 63;
            text.push(char::from(LETTERS[letter as usize]));
        }
    }
    text
}

/// `None` in the error: the server refused.
fn log_in(session: &Session, access: &Access) -> Result<(), Option<ConnectError>> {
    let unusable = |reason: String| {
        Some(ConnectError::Identity {
            identity: access.identity.to_string(),
            reason,
        })
    };
    let user = &access.target.user;
    match &access.identity {
        Identity::Key(path) => {
            // libssh2 tells a missing file and a refusal apart badly.
            let key = std::fs::read_to_string(path).map_err(|error| unusable(error.to_string()))?;
            session
                .userauth_pubkey_memory(user, None, &key, None)
                .map_err(|error| match error.code() {
                    // LIBSSH2_ERROR_AUTHENTICATION_FAILED, LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED
                    ErrorCode::Session(-18 | -19) => None,
                    _ => unusable(error.message().to_string()),
                })
        }
        Identity::Agent(socket) => {
            let failed = |error: ssh2::Error| unusable(error.message().to_string());
            let mut agent = session.agent().map_err(failed)?;
            agent.set_identity_path(socket).map_err(failed)?;
            agent.connect().map_err(failed)?;
            agent.list_identities().map_err(failed)?;
            let keys = agent.identities().map_err(failed)?;
            if keys.is_empty() {
                return Err(unusable("it holds no key".into()));
            }
            let taken = keys.iter().any(|key| agent.userauth(user, key).is_ok());
            if taken { Ok(()) } else { Err(None) }
        }
    }
}

impl std::fmt::Display for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Key(path) => write!(f, "the key `{}`", path.display()),
            Self::Agent(socket) => write!(f, "the keys of the agent at `{}`", socket.display()),
        }
    }
}
