//! The agent's program, spoken to over pipes as a host does over the port.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command as Process, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use topolab_protocol::frame::{
    Decoder, Frame, STREAM_FILE, STREAM_STDERR, STREAM_STDIN, STREAM_STDOUT, encode_message,
    parse_message,
};
use topolab_protocol::message::{AgentMessage, ExitStatus, HostMessage};
use topolab_protocol::settings::{Scalar, Settings};
use topolab_protocol::workload::{Command, Monitors, NumaScan, Workload};

/// Far longer than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Agent {
    process: Child,
    stdin: Option<ChildStdin>,
    frames: Receiver<Frame>,
}

/// What a run said between its start and its end.
#[derive(Debug, Default)]
struct Run {
    output: BTreeMap<u16, Vec<u8>>,
    messages: Vec<AgentMessage>,
}

impl Agent {
    fn start() -> Self {
        let mut process = Process::new(env!("CARGO_BIN_EXE_topolab-agent"))
            .arg("--stdio")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut output = process.stdout.take().unwrap();
        let (sender, frames) = channel();
        std::thread::spawn(move || {
            let mut decoder = Decoder::new();
            let mut buffer = vec![0; 65536];
            while let Ok(n) = output.read(&mut buffer) {
                if n == 0 {
                    return;
                }
                decoder.push(&buffer[..n]);
                while let Some(frame) = decoder.next_frame() {
                    if sender.send(frame.unwrap()).is_err() {
                        return;
                    }
                }
            }
        });
        let agent = Self {
            stdin: process.stdin.take(),
            process,
            frames,
        };
        let AgentMessage::Hello { observed, .. } = agent.message() else {
            panic!("hello comes first");
        };
        assert!(!observed.kernel_release.is_empty());
        agent
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    fn say(&mut self, message: &HostMessage) {
        self.send(&encode_message(message).unwrap());
    }

    fn data(&mut self, stream: u16, bytes: &[u8]) {
        let frame = Frame::Data {
            stream,
            bytes: bytes.to_vec(),
        };
        self.send(&frame.encode().unwrap());
    }

    /// The next frame that is neither hello nor heartbeat, unless it is the first.
    fn frame(&self) -> Frame {
        self.frames.recv_timeout(PATIENCE).unwrap()
    }

    fn message(&self) -> AgentMessage {
        match self.frame() {
            Frame::Message(json) => parse_message(&json).unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn answer(&self) -> AgentMessage {
        loop {
            match self.message() {
                AgentMessage::Heartbeat { .. } | AgentMessage::Hello { .. } => {}
                other => return other,
            }
        }
    }

    fn start_run(&mut self, workload: Workload) {
        self.say(&HostMessage::Start {
            run: "r1".into(),
            workload,
            monitors: Box::new(Monitors::default()),
            sets: BTreeMap::new(),
            seed: 1,
        });
    }

    /// Collects until the run's last message.
    fn finish(&self) -> Run {
        let mut run = Run::default();
        loop {
            match self.frame() {
                Frame::Data { stream, bytes } => {
                    run.output.entry(stream).or_default().extend(bytes);
                }
                Frame::Message(json) => {
                    let message = parse_message(&json).unwrap();
                    let last = matches!(
                        message,
                        AgentMessage::Exit { .. } | AgentMessage::NotTestable { .. }
                    );
                    run.messages.push(message);
                    if last {
                        return run;
                    }
                }
            }
        }
    }

    fn run(&mut self, workload: Workload) -> Run {
        self.start_run(workload);
        self.finish()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        // Closing its input ends the agent.
        drop(self.stdin.take());
        assert!(self.process.wait().unwrap().success());
    }
}

impl Run {
    fn status(&self) -> &ExitStatus {
        match self.messages.last().unwrap() {
            AgentMessage::Exit { status, run, .. } => {
                assert_eq!(run, "r1");
                status
            }
            other => panic!("{other:?}"),
        }
    }

    fn text(&self, stream: u16) -> &str {
        let bytes = self.output.get(&stream).map_or(&[][..], Vec::as_slice);
        std::str::from_utf8(bytes).unwrap()
    }
}

fn command(argv: &[&str]) -> Command {
    Command {
        argv: argv.iter().map(|&word| word.into()).collect(),
        ..Command::default()
    }
}

fn shell(script: &str) -> Command {
    command(&["sh", "-c", script])
}

#[test]
fn output_and_exit_codes_are_exact() {
    let mut agent = Agent::start();
    let run = agent.run(Workload::Command(shell("echo out; echo err >&2; exit 3")));
    assert_eq!(run.status(), &ExitStatus::Exited { code: 3 });
    assert_eq!(run.text(STREAM_STDOUT), "out\n");
    assert_eq!(run.text(STREAM_STDERR), "err\n");
    let samples = run
        .messages
        .iter()
        .filter(|message| matches!(message, AgentMessage::Sample(_)))
        .count();
    let Some(AgentMessage::Exit { samples: told, .. }) = run.messages.last() else {
        panic!("the exit message is last");
    };
    assert_eq!(*told, samples as u64);

    let run = agent.run(Workload::Command(shell("kill -TERM $$")));
    assert_eq!(run.status(), &ExitStatus::Signalled { signal: 15 });
    let run = agent.run(Workload::Command(command(&["/no/such/program"])));
    assert_eq!(run.status(), &ExitStatus::Exited { code: 127 });
    let run = agent.run(Workload::Command(command(&["/etc/passwd"])));
    assert_eq!(run.status(), &ExitStatus::Exited { code: 126 });
}

#[test]
fn what_cannot_begin_says_why() {
    let mut agent = Agent::start();
    for (parameters, part) in [
        (command(&[]), "argv is empty"),
        (
            Command {
                cwd: Some("/no/such".into()),
                ..shell("true")
            },
            "cwd /no/such",
        ),
        (
            Command {
                cgroup: Some("no/such/group".into()),
                ..shell("true")
            },
            "no/such/group",
        ),
    ] {
        let run = agent.run(Workload::Command(parameters));
        let ExitStatus::Failed { reason } = run.status() else {
            panic!("{run:?}");
        };
        assert!(reason.contains(part), "{reason}");
    }
}

#[test]
fn the_environment_is_as_asked() {
    let mut agent = Agent::start();
    let run = agent.run(Workload::Command(Command {
        env: [("COLOUR".into(), "blue".into())].into(),
        cwd: Some("/usr".into()),
        ..shell("echo $COLOUR $HOME $PWD; echo ${CARGO-unset}")
    }));
    assert_eq!(run.text(STREAM_STDOUT), "blue /root /usr\nunset\n");
}

#[test]
fn standard_input_arrives_and_ends() {
    let mut agent = Agent::start();
    agent.start_run(Workload::Command(command(&["cat"])));
    agent.data(STREAM_STDIN, b"hello ");
    agent.data(STREAM_STDIN, b"there");
    agent.say(&HostMessage::CloseStdin);
    let run = agent.finish();
    assert_eq!(run.status(), &ExitStatus::Exited { code: 0 });
    assert_eq!(run.text(STREAM_STDOUT), "hello there");
    let taken = run.messages.iter().filter_map(|message| match message {
        AgentMessage::StdinTaken { bytes } => Some(*bytes),
        _ => None,
    });
    assert_eq!(taken.max(), Some(11));
}

#[test]
fn a_terminal_has_the_hosts_size_and_changes_with_it() {
    let mut agent = Agent::start();
    agent.say(&HostMessage::Resize { rows: 33, cols: 99 });
    agent.start_run(Workload::Command(Command {
        tty: true,
        ..shell(
            "stty size; trap 'stty size; exit 7' WINCH; echo ready; while :; do sleep 0.05; done",
        )
    }));
    let mut seen = String::new();
    while !seen.contains("ready") {
        if let Frame::Data { bytes, .. } = agent.frame() {
            seen.push_str(&String::from_utf8_lossy(&bytes));
        }
    }
    assert!(seen.contains("33 99"), "{seen}");
    agent.say(&HostMessage::Resize { rows: 44, cols: 11 });
    let run = agent.finish();
    assert_eq!(run.status(), &ExitStatus::Exited { code: 7 });
    assert!(run.text(STREAM_STDOUT).contains("44 11"), "{run:?}");
}

#[test]
fn limits_and_signals_end_a_command() {
    let mut agent = Agent::start();
    let run = agent.run(Workload::Command(Command {
        timeout: 0.3,
        ..shell("sleep 1000 & sleep 1000")
    }));
    let ExitStatus::Failed { reason } = run.status() else {
        panic!("{run:?}");
    };
    assert!(reason.contains("0.3 s"), "{reason}");

    // No shell: one that is hit between its words keeps the signal until its
    // next program has ended.
    agent.start_run(Workload::Command(command(&["cat", "/proc/version", "-"])));
    while !matches!(agent.frame(), Frame::Data { .. }) {}
    agent.say(&HostMessage::Signal { signal: 2 });
    let run = agent.finish();
    assert_eq!(run.status(), &ExitStatus::Signalled { signal: 2 });
}

#[test]
fn what_a_command_leaves_running_is_killed() {
    let mut agent = Agent::start();
    let run = agent.run(Workload::Command(shell("sleep 1000 & echo $!")));
    assert_eq!(run.status(), &ExitStatus::Exited { code: 0 });
    let left = run.text(STREAM_STDOUT).trim().to_string();
    let state = std::fs::read_to_string(format!("/proc/{left}/stat")).unwrap_or_default();
    let dead = state.is_empty() || state.contains(") Z");
    assert!(dead, "{state}");
}

#[test]
fn one_run_at_a_time() {
    let mut agent = Agent::start();
    agent.start_run(Workload::Command(command(&["cat"])));
    agent.start_run(Workload::Command(command(&["cat"])));
    let refused = loop {
        match agent.answer() {
            AgentMessage::Failed { request, reason } => break (request, reason),
            AgentMessage::Phase { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(
        refused,
        ("start".into(), "run r1 has not ended".to_string())
    );
    agent.say(&HostMessage::CloseStdin);
    agent.finish();
}

#[test]
fn files_go_in_and_come_out() {
    let mut agent = Agent::start();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("in/tool").display().to_string();
    let content: Vec<u8> = (0..100_000u32).map(|n| n as u8).collect();
    agent.say(&HostMessage::Put {
        path: path.clone(),
        mode: 0o755,
        size: content.len() as u64,
    });
    for piece in content.chunks(30_000) {
        agent.data(STREAM_FILE, piece);
    }
    let stored = AgentMessage::Stored { path: path.clone() };
    assert_eq!(agent.answer(), stored);

    let get = HostMessage::Get {
        path: path.clone(),
        limit: 70_000,
    };
    agent.say(&get);
    let head = AgentMessage::File {
        path,
        size: 70_000,
        cut: true,
    };
    assert_eq!(agent.answer(), head);
    let mut got = Vec::new();
    while got.len() < 70_000 {
        if let Frame::Data {
            stream: STREAM_FILE,
            bytes,
        } = agent.frame()
        {
            got.extend(bytes);
        }
    }
    assert_eq!(got, content[..70_000]);

    for path in ["/proc/no-such-file", "/proc"] {
        agent.say(&HostMessage::Get {
            path: path.into(),
            limit: 10,
        });
        assert!(matches!(agent.answer(), AgentMessage::Failed { .. }));
    }
}

#[test]
fn a_setting_the_kernel_lacks_is_not_testable() {
    let mut agent = Agent::start();
    agent.say(&HostMessage::Apply {
        settings: Settings {
            sysctl: [("kernel.no_such_thing".into(), Scalar::Int(1))].into(),
            ..Settings::default()
        },
    });
    let AgentMessage::NotTestable { reason } = agent.answer() else {
        panic!("not testable expected");
    };
    assert!(
        reason.contains("/proc/sys/kernel/no_such_thing"),
        "{reason}"
    );
    agent.say(&HostMessage::Undo);
    assert_eq!(agent.answer(), AgentMessage::Undone { failed: vec![] });
}

#[test]
fn numa_scan_measures_or_says_what_the_kernel_lacks() {
    let mut agent = Agent::start();
    let run = agent.run(Workload::NumaScan(NumaScan {
        memory: "4M".into(),
        seconds: 0.2,
        threads: 2,
        scans: 0,
        cgroup: None,
    }));
    let counts = std::fs::read_to_string("/proc/vmstat")
        .unwrap()
        .contains("numa_pte_updates");
    match run.messages.last().unwrap() {
        AgentMessage::Exit {
            status, samples, ..
        } if counts => {
            assert_eq!(status, &ExitStatus::Exited { code: 0 });
            assert_eq!(*samples, 5);
        }
        AgentMessage::NotTestable { reason } if !counts => {
            assert!(reason.contains("CONFIG_NUMA_BALANCING"), "{reason}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn noise_is_noted_and_the_next_message_still_understood() {
    let mut agent = Agent::start();
    agent.send(b"\xd7TLnoise");
    agent.say(&HostMessage::Observe);
    let mut noted = false;
    loop {
        match agent.answer() {
            AgentMessage::Note { text } => noted |= text.contains("no frame"),
            AgentMessage::Observed { .. } => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(noted);
}
