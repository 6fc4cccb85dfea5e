//! Against a real sshd on a port of 127.0.0.1, and against listeners that are none.

use std::{
    fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use super::*;

/// An SSH server of this user, gone with this value.
struct Server {
    folder: tempfile::TempDir,
    child: Child,
    port: u16,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["host", "login", "stranger"] {
            make_key(&folder.path().join(name));
        }
        fs::copy(folder.path().join("login.pub"), folder.path().join("keys")).unwrap();
        let port = free_port();
        let path = folder.path().display();
        let config = format!(
            "ListenAddress 127.0.0.1\nPort {port}\nHostKey {path}/host\n\
             AuthorizedKeysFile {path}/keys\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n\
             StrictModes no\nUsePAM no\nPidFile none\nSubsystem sftp internal-sftp\n"
        );
        fs::write(folder.path().join("config"), config).unwrap();
        // sshd wants this folder when root starts it.
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").unwrap();
        }
        // In the foreground, or it could not be ended with the test.
        let child = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(folder.path().join("config"))
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self {
            folder,
            child,
            port,
        };
        let begin = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                begin.elapsed() < Duration::from_secs(30),
                "sshd does not listen"
            );
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn access(&self) -> Access {
        let user = Command::new("id").arg("-un").output().unwrap().stdout;
        Access {
            target: Target {
                host: "127.0.0.1".into(),
                port: self.port,
                user: String::from_utf8(user).unwrap().trim().into(),
            },
            identity: Identity::Key(self.path("login")),
            host_key: HostKey::Known(fs::read_to_string(self.path("host.pub")).unwrap()),
        }
    }

    fn connect(&self) -> Connection {
        connect(&self.access(), &patience()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn make_key(path: &Path) {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-t", "ed25519", "-N", "", "-C", "", "-f"])
        .arg(path)
        .status()
        .unwrap();
    assert!(made.success());
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

fn patience() -> Patience {
    Patience::of(Duration::from_secs(60))
}

fn refused(access: &Access, patience: &Patience) -> ConnectError {
    match connect(access, patience) {
        Ok(_) => panic!("connected"),
        Err(error) => error,
    }
}

#[test]
fn commands_and_files_go_both_ways() {
    let server = Server::start();
    let connection = server.connect();
    let session = &connection.session;
    let (text, code) = run(session, "echo hi; exit 3", &patience()).unwrap();
    assert_eq!((text.as_str(), code), ("hi\n", 3));
    let there = server.path("there").display().to_string();
    let bytes: Vec<u8> = (0..600_000u32).flat_map(u32::to_le_bytes).collect();
    upload(session, &bytes, &there, 0o700, &patience()).unwrap();
    assert_eq!(fs::read(&there).unwrap(), bytes);
    let back = server.path("back");
    let len = download(session, &there, &back, 3_000_000, &patience()).unwrap();
    assert_eq!(len, bytes.len() as u64);
    assert_eq!(fs::read(&back).unwrap(), bytes);
    let error = download(session, &there, &back, 1000, &patience()).unwrap_err();
    assert!(
        matches!(error, RemoteError::TooLong { limit: 1000, .. }),
        "{error}"
    );
    let error = download(session, "/nowhere/x", &back, 1000, &patience()).unwrap_err();
    let text = "cannot read `/nowhere/x` on the machine: there is no such file or folder";
    assert_eq!(error.to_string(), text);
    let error = upload(session, b"x", "/nowhere/x", 0o600, &patience()).unwrap_err();
    assert!(
        error.to_string().starts_with("cannot write `/nowhere/x`"),
        "{error}"
    );
}

#[test]
fn a_full_disk_is_told_with_its_room() {
    let server = Server::start();
    let connection = server.connect();
    let error = upload(
        &connection.session,
        &[1; 4096],
        "/dev/full",
        0o600,
        &patience(),
    );
    // Every write to this device fails for want of room; the file system it lies
    // on has room, so only the failure is told.
    let text = error.unwrap_err().to_string();
    assert!(
        text.starts_with("cannot write `/dev/full` on the machine: "),
        "{text}"
    );
}

/// An agent that answers in capitals, once; then it ends as it is told.
const ECHO: &str = "#!/bin/sh\n\
    [ \"$1\" = --stdio ] || exit 9\n\
    read -r line\n\
    echo \"$line\" | tr a-z A-Z\n\
    [ \"$line\" = stay ] && cat\n\
    echo 'last words' >&2\n\
    exit 7\n";

fn carried(line: &str) -> (UnixStream, std::thread::JoinHandle<Result<(), CarryError>>) {
    let server = Server::start();
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let thread = std::thread::spawn(move || {
        let access = server.access();
        carry(&access, ECHO.as_bytes(), theirs, &patience())
    });
    ours.write_all(format!("{line}\n").as_bytes()).unwrap();
    (ours, thread)
}

#[test]
fn an_agent_that_ends_is_told_with_its_last_words() {
    let (mut ours, thread) = carried("go");
    let mut text = String::new();
    ours.read_to_string(&mut text).unwrap();
    assert_eq!(text, "GO\n");
    let error = thread.join().unwrap().unwrap_err();
    assert_eq!(
        error.to_string(),
        "the agent ended with exit code 7: last words"
    );
}

#[test]
fn megabytes_pass_in_both_directions_and_our_end_ends_it() {
    let (mut ours, thread) = carried("stay");
    let mut head = [0; 5];
    ours.read_exact(&mut head).unwrap();
    assert_eq!(head, *b"STAY\n");
    let bytes: Vec<u8> = (0..500_000u32).flat_map(u32::to_le_bytes).collect();
    let mut writer = ours.try_clone().unwrap();
    let sent = bytes.clone();
    let sender = std::thread::spawn(move || writer.write_all(&sent).unwrap());
    let mut got = vec![0; bytes.len()];
    ours.read_exact(&mut got).unwrap();
    sender.join().unwrap();
    assert!(got == bytes);
    drop(ours);
    thread.join().unwrap().unwrap();
}

#[test]
fn nothing_is_left_on_the_machine() {
    let before = leftovers();
    let (ours, thread) = carried("stay");
    drop(ours);
    thread.join().unwrap().unwrap();
    let begin = Instant::now();
    // The shell may still be removing it.
    while leftovers().len() > before.len() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "{:?}",
            leftovers()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Folders of agents that this user's servers did not remove; others running at
/// the same time may have theirs.
fn leftovers() -> Vec<PathBuf> {
    let entries = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths
        .filter(|path| path.join("topolab-agent").exists())
        .collect()
}

#[test]
fn a_stranger_is_not_let_in() {
    let server = Server::start();
    let mut access = server.access();
    access.identity = Identity::Key(server.path("stranger"));
    let text = refused(&access, &patience()).to_string();
    assert!(text.contains("not in with the key `"), "{text}");
    assert!(text.ends_with("it takes: publickey"), "{text}");
    access.identity = Identity::Key(server.path("no-such-key"));
    let text = refused(&access, &patience()).to_string();
    assert!(text.contains("no-such-key`: No such file"), "{text}");
    fs::write(server.path("garbage"), "no key").unwrap();
    access.identity = Identity::Key(server.path("garbage"));
    let error = refused(&access, &patience());
    assert!(matches!(error, ConnectError::Identity { .. }), "{error}");
    access.identity = Identity::Agent("/nowhere/agent.sock".into());
    let error = refused(&access, &patience());
    assert!(matches!(error, ConnectError::Identity { .. }), "{error}");
}

#[test]
fn another_host_key_is_refused_and_a_new_machine_is_pinned() {
    let server = Server::start();
    let mut access = server.access();
    access.host_key = HostKey::Known(fs::read_to_string(server.path("stranger.pub")).unwrap());
    let error = refused(&access, &patience());
    let ConnectError::HostKey { seen, .. } = &error else {
        panic!("{error}");
    };
    let listed = Command::new("ssh-keygen")
        .arg("-lf")
        .arg(server.path("host.pub"))
        .output();
    let listed = String::from_utf8(listed.unwrap().stdout).unwrap();
    assert!(listed.contains(seen.as_str()), "{listed} has {seen}");

    let pins = server.path("pins/known_hosts");
    access.host_key = HostKey::Pinned(pins.clone());
    connect(&access, &patience()).unwrap();
    connect(&access, &patience()).unwrap();
    let text = fs::read_to_string(&pins).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(
        text.starts_with(&format!("[127.0.0.1]:{} ssh-ed25519 ", server.port)),
        "{text}"
    );
    let stranger = fs::read_to_string(server.path("stranger.pub")).unwrap();
    fs::write(
        &pins,
        format!("# mine\n[127.0.0.1]:{} {stranger}", server.port),
    )
    .unwrap();
    let error = refused(&access, &patience());
    assert!(matches!(error, ConnectError::HostKey { .. }), "{error}");
}

#[test]
fn nobody_a_stranger_and_a_silent_one_are_told_apart_in_time() {
    let server = Server::start();
    let mut access = server.access();
    let short = || Patience::of(Duration::from_millis(800));
    let begin = Instant::now();
    access.target.port = free_port();
    let error = refused(&access, &short());
    assert!(matches!(error, ConnectError::Refused { .. }), "{error}");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    access.target.port = silent.local_addr().unwrap().port();
    let text = refused(&access, &short()).to_string();
    assert!(
        text.contains("does not greet as an SSH server: no answer within 0."),
        "{text}"
    );

    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    access.target.port = web.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in web.incoming() {
            let _ = stream
                .unwrap()
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let error = refused(&access, &short());
    assert!(matches!(error, ConnectError::NoServer { .. }), "{error}");

    access.target.host = "no-such-host.invalid".into();
    let error = refused(&access, &short());
    assert!(matches!(error, ConnectError::Resolve { .. }), "{error}");
    assert!(
        begin.elapsed() < Duration::from_secs(40),
        "{:?}",
        begin.elapsed()
    );
}

#[test]
fn a_machine_that_comes_up_late_is_waited_for_and_a_stop_ends_the_waiting() {
    let server = Server::start();
    let mut access = server.access();
    let late = free_port();
    let target = server.port;
    access.target.port = late;
    // It closes each connection at once, as QEMU's forwarding does while nobody
    // listens in the guest; after a while it passes them on.
    std::thread::spawn(move || {
        let front = TcpListener::bind(("127.0.0.1", late)).unwrap();
        let begin = Instant::now();
        for stream in front.incoming() {
            let mut inside = stream.unwrap();
            if begin.elapsed() < Duration::from_millis(700) {
                continue;
            }
            let mut outside = TcpStream::connect(("127.0.0.1", target)).unwrap();
            let (mut a, mut b) = (inside.try_clone().unwrap(), outside.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut a, &mut outside));
            std::thread::spawn(move || std::io::copy(&mut b, &mut inside));
        }
    });
    connect(&access, &patience()).unwrap();

    access.target.port = free_port();
    let waiting = patience();
    let stopper = waiting.clone();
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        stopper.stop();
    });
    let error = refused(&access, &waiting);
    assert!(matches!(error, ConnectError::Stopped), "{error}");
}

/// A seat whose typing is all there from the start, and what keeps it open.
fn seat(typed: Vec<Typed>, terminal: Option<TerminalKind>) -> (Seat, Hand) {
    let (seat, hand) = Seat::new(terminal).unwrap();
    for one in typed {
        hand.give(one);
    }
    (seat, hand)
}

fn sat(
    server: &Server,
    command: Option<&str>,
    (seat, _hand): &(Seat, Hand),
) -> (Ended, String, String) {
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let ended = sit(
        &server.connect(),
        command,
        seat,
        &mut |stream, bytes| match stream {
            Stream::Output => out.extend(bytes),
            Stream::Errors => err.extend(bytes),
        },
    );
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (ended.unwrap(), text(out), text(err))
}

#[test]
fn a_command_gets_its_input_and_its_exit_code_comes_back() {
    let server = Server::start();
    let input = seat(vec![Typed::Bytes(b"a\nb\n".to_vec()), Typed::End], None);
    let script = "wc -l; echo complaint >&2; exit 7";
    let (ended, out, err) = sat(&server, Some(script), &input);
    assert_eq!(
        (ended, out.trim(), err.trim()),
        (Ended::Code(7), "2", "complaint")
    );
    let (ended, ..) = sat(
        &server,
        Some("kill -TERM $$"),
        &seat(vec![Typed::End], None),
    );
    assert_eq!(ended, Ended::Code(128 + 15));
    // More than any window holds, both ways at once.
    let much = vec![Typed::Bytes(vec![b'x'; 3 << 20]), Typed::End];
    let (ended, out, _) = sat(&server, Some("cat"), &seat(much, None));
    assert_eq!((ended, out.len()), (Ended::Code(0), 3 << 20));
}

#[test]
fn a_terminal_has_its_size_and_its_keys() {
    let server = Server::start();
    let terminal = || {
        Some(TerminalKind {
            name: "xterm".into(),
            rows: 33,
            cols: 111,
        })
    };
    let (ended, out, _) = sat(&server, Some("stty size"), &seat(Vec::new(), terminal()));
    assert_eq!((ended, out.trim()), (Ended::Code(0), "33 111"));
    // Ctrl-C reaches the command, not us.
    let (sitting, hand) = seat(Vec::new(), terminal());
    let ended = sit(
        &server.connect(),
        Some("echo ready; sleep 60"),
        &sitting,
        &mut |_, _| hand.give(Typed::Bytes(vec![3])),
    );
    assert_eq!(ended.unwrap(), Ended::Code(128 + 2));
    let resized = vec![Typed::Size { rows: 40, cols: 90 }];
    let script = "while [ \"$(stty size)\" != '40 90' ]; do sleep 0.05; done; echo seen";
    let (_, out, _) = sat(&server, Some(script), &seat(resized, terminal()));
    assert_eq!(out.trim(), "seen");
    let (ended, ..) = sat(&server, Some("sleep 60"), &seat(vec![Typed::Leave], None));
    assert_eq!(ended, Ended::Left);
}

#[test]
fn folders_go_there_and_come_back_without_links_and_within_limits() {
    let server = Server::start();
    let connection = server.connect();
    let session = &connection.session;
    let here = server.path("here");
    fs::create_dir_all(here.join("deep")).unwrap();
    fs::write(here.join("deep/a"), "alpha").unwrap();
    fs::write(here.join("b"), vec![1; 300_000]).unwrap();
    let room = Room {
        bytes: 1 << 20,
        files: 10,
    };
    let there = server.path("there");
    let remote = there.to_str().unwrap();
    let copied = copy_in(session, &here, remote, room, &patience()).unwrap();
    assert_eq!((copied.files, copied.bytes), (2, 300_005));
    std::os::unix::fs::symlink("/etc/passwd", there.join("link")).unwrap();
    let back = server.path("back");
    fs::create_dir(&back).unwrap();
    let copied = copy_out(session, remote, &back, room, &patience()).unwrap();
    assert_eq!(copied.left_out, [format!("{remote}/link")]);
    assert_eq!(
        fs::read_to_string(back.join("there/deep/a")).unwrap(),
        "alpha"
    );
    assert!(!back.join("there/link").exists());
    let narrow = Room {
        bytes: 1000,
        ..room
    };
    let error = copy_out(session, remote, &back, narrow, &patience()).unwrap_err();
    assert!(matches!(error, RemoteError::TooLong { .. }), "{error}");
    let few = Room { files: 1, ..room };
    let error = copy_out(session, remote, &back, few, &patience()).unwrap_err();
    assert!(matches!(error, RemoteError::TooMany { .. }), "{error}");
    let error = copy_out(session, "/no/such", &back, room, &patience()).unwrap_err();
    assert!(
        error.to_string().contains("there is no such file"),
        "{error}"
    );
}
