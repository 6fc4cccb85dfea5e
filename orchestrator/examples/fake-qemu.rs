//! A stand-in for QEMU in tests. It takes QEMU's arguments, speaks QMP, and
//! plays a guest with its console and agent on a one-core machine, in the way
//! that the word `fake=WAY` on the kernel's command line asks for.
//!
//! What needs exact timing or a guest that cannot be made to happen is tested
//! with it; everything else is tested with the real one.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::{fd::FromRawFd, unix::net::UnixStream},
    process::exit,
    sync::mpsc,
    thread::sleep,
    time::Duration,
};

use serde_json::{Value, json};
use topolab_protocol::{
    PROTOCOL_VERSION,
    frame::{Decoder, Frame, MAGIC, STREAM_STDOUT, encode_message, parse_message},
    message::{AgentMessage, ExitStatus, HostMessage},
    observed::{CpuView, NodeView, Observed},
    sample::{Better, MetricKind, Sample},
};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let after = |flag: &str| {
        let at = args.iter().position(|arg| arg == flag)?;
        args.get(at + 1).cloned()
    };
    let append = after("-append").unwrap_or_default();
    let mut words = append.split_whitespace();
    let way = words.find_map(|word| word.strip_prefix("fake="));
    let way = way.unwrap_or("good").to_string();
    match &*way {
        "exits-at-once" => {
            eprintln!("qemu-system-x86_64: -cpu nonsense: unable to find CPU model 'nonsense'");
            exit(1);
        }
        "never-greets" => loop {
            sleep(Duration::from_secs(1));
        },
        "floods-stderr" => {
            for line in 0..200_000 {
                eprintln!("qemu-system-x86_64: warning: line {line} of a flood");
            }
        }
        _ => {}
    }
    let socket = |id: &str| {
        let prefix = format!("socket,id={id},fd=");
        let number = args.iter().find_map(|arg| arg.strip_prefix(&prefix));
        let number: i32 = number.expect("a channel").parse().expect("a number");
        // SAFETY: the caller passed this open socket for us alone to own.
        unsafe { UnixStream::from_raw_fd(number) }
    };
    let monitor = Monitor::new(socket("control"));
    if after("-M").as_deref() == Some("none") {
        // Nothing but questions about what this QEMU can do.
        monitor.serve(&mpsc::channel().0, false, 0);
    }
    let mut guest = Guest {
        agent: socket("agent"),
        console: socket("console"),
        monitor: monitor.writer(),
        append,
        decoder: Decoder::new(),
        heard: Vec::new(),
        time: 0,
    };
    let (resumed, resume) = mpsc::channel();
    let ignores_quit = way == "ignores-quit";
    // No process has a number this large (`PID_MAX_LIMIT`).
    let vcpu = match &*way {
        "vcpu-vanishes" => 1 << 30,
        _ => std::process::id(),
    };
    std::thread::spawn(move || monitor.serve(&resumed, ignores_quit, vcpu));
    let _ = resume.recv();
    guest.play(&way);
}

/// The control socket.
struct Monitor(UnixStream);

impl Monitor {
    fn new(stream: UnixStream) -> Self {
        let mut monitor = Self(stream);
        let version = json!({"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": "fake"});
        monitor.say(&json!({"QMP": {"version": version, "capabilities": ["oob"]}}));
        monitor
    }

    fn writer(&self) -> Self {
        Self(self.0.try_clone().expect("a second handle"))
    }

    fn say(&mut self, value: &Value) {
        let _ = self.0.write_all(format!("{value}\r\n").as_bytes());
    }

    fn event(&mut self, name: &str, data: &Value) {
        let timestamp = json!({"seconds": 1, "microseconds": 0});
        self.say(&json!({"timestamp": timestamp, "event": name, "data": data}));
    }

    fn shutdown(&mut self, reason: &str) -> ! {
        let guest = reason.starts_with("guest");
        self.event("SHUTDOWN", &json!({"guest": guest, "reason": reason}));
        exit(0)
    }

    fn serve(mut self, resumed: &mpsc::Sender<()>, ignores_quit: bool, vcpu: u32) -> ! {
        let lines = BufReader::new(self.0.try_clone().expect("a second handle"));
        for line in lines.lines().map_while(Result::ok) {
            let Ok(command) = serde_json::from_str::<Value>(&line) else {
                continue;
            };
            let name = command["execute"].as_str().unwrap_or_default();
            let answer = match name {
                "query-cpus-fast" => {
                    json!([{"cpu-index": 0, "thread-id": vcpu, "qom-path": "/cpu", "target": "x86_64"}])
                }
                "query-machines" => {
                    json!([{"name": "pc-q35-7.2", "alias": "q35", "cpu-max": 288}])
                }
                "query-command-line-options" | "qom-list-properties" => json!([]),
                "qom-list-types" => json!([{"name": "tcg-accel"}]),
                "quit" if ignores_quit => continue,
                _ => json!({}),
            };
            self.say(&json!({"return": answer, "id": command["id"]}));
            match name {
                "cont" => {
                    let _ = resumed.send(());
                }
                "quit" => self.shutdown("host-qmp-quit"),
                _ => {}
            }
        }
        // Nobody controls us any more.
        exit(0);
    }
}

/// The guest with its console and agent.
struct Guest {
    agent: UnixStream,
    console: UnixStream,
    monitor: Monitor,
    append: String,
    decoder: Decoder,
    heard: Vec<HostMessage>,
    time: u32,
}

impl Guest {
    fn print(&mut self, text: &str) {
        self.time += 1;
        let line = format!("[ {:4}.000000] {text}\r\n", self.time);
        self.raw(line.as_bytes());
    }

    fn raw(&mut self, bytes: &[u8]) {
        let _ = self.console.write_all(bytes);
    }

    fn say(&mut self, message: &AgentMessage) {
        let bytes = encode_message(message).expect("a message");
        let _ = self.agent.write_all(&bytes);
    }

    /// Waits until the host says something that fits.
    fn wait(&mut self, fits: fn(&HostMessage) -> bool) -> HostMessage {
        loop {
            if let Some(at) = self.heard.iter().position(fits) {
                return self.heard.remove(at);
            }
            let mut buffer = [0; 4096];
            match self.agent.read(&mut buffer) {
                Ok(count @ 1..) => self.decoder.push(&buffer[..count]),
                _ => exit(0),
            }
            while let Some(frame) = self.decoder.next_frame() {
                if let Ok(Frame::Message(json)) = frame {
                    self.heard
                        .push(parse_message(&json).expect("the host speaks well"));
                }
            }
        }
    }

    fn forever(&self) -> ! {
        loop {
            sleep(Duration::from_secs(1));
        }
    }

    fn hello(&mut self) {
        let cpu = CpuView {
            cpu: 0,
            smt_siblings: Some("0".into()),
            package_siblings: Some("0".into()),
            die_siblings: Some("0".into()),
            llc: Some("0".into()),
            ..CpuView::default()
        };
        let node = NodeView {
            node: 0,
            cpus: "0".into(),
            mem_total: 480 << 20,
            distances: vec![10],
            ..NodeView::default()
        };
        let observed = Observed {
            kernel_release: "6.12.0-fake".into(),
            build_id: "f00d".into(),
            cmdline: self.append.clone(),
            possible: "0".into(),
            online: "0".into(),
            cpus: vec![cpu],
            nodes: vec![node],
            isolated: Some(String::new()),
            nohz_full: Some(String::new()),
            mem_total: 480 << 20,
            ..Observed::default()
        };
        self.say(&AgentMessage::Hello {
            protocol: PROTOCOL_VERSION,
            agent: "fake".into(),
            uptime_ms: 100,
            observed: Box::new(observed),
        });
    }

    fn sample(&mut self, value: f64) {
        self.say(&AgentMessage::Sample(Sample {
            metric: "things".into(),
            value,
            kind: MetricKind::Count,
            unit: "count".into(),
            better: Better::Lower,
            labels: topolab_protocol::labels::Labels::new(),
        }));
    }

    fn exit(&mut self, run: &str, samples: u64) {
        self.say(&AgentMessage::Exit {
            run: run.into(),
            status: ExitStatus::Exited { code: 0 },
            samples,
        });
    }

    /// Is alive for so long.
    fn beat(&mut self, time: Duration) {
        let until = std::time::Instant::now() + time;
        while std::time::Instant::now() < until {
            self.say(&AgentMessage::Heartbeat {
                seq: 0,
                uptime_ms: 0,
            });
            sleep(Duration::from_millis(20));
        }
    }

    fn play(&mut self, way: &str) {
        self.print("Linux version 6.12.0-fake");
        match way {
            "silent-boot" => self.forever(),
            "boot-panic" => self.panic("VFS: Unable to mount root fs on unknown-block(0,0)"),
            "boot-reset" => self.monitor.shutdown("guest-reset"),
            "endless-boot" => loop {
                self.print("still booting");
            },
            _ => {}
        }
        self.hello();
        self.wait(|m| matches!(m, HostMessage::Welcome { .. }));
        let start = self.wait(|m| matches!(m, HostMessage::Start { .. }));
        let HostMessage::Start { run, .. } = start else {
            unreachable!("it was waited for");
        };
        self.say(&AgentMessage::Phase {
            name: "measure".into(),
        });
        self.workload(way, &run);
        let said = |m: &HostMessage| matches!(m, HostMessage::PowerOff | HostMessage::KernelLog);
        while self.wait(said) == HostMessage::KernelLog {
            let lines = match way {
                "forged-splat" => vec!["Linux version 6.12.0-fake".into()],
                _ => vec!["BUG: kernel NULL pointer dereference, address: 0000000000000010".into()],
            };
            self.say(&AgentMessage::KernelLog { first: 0, lines });
        }
        if way == "ignores-power-off" || way == "ignores-quit" {
            self.forever();
        }
        self.say(&AgentMessage::Bye);
        self.monitor.shutdown("guest-shutdown");
    }

    fn panic(&mut self, why: &str) -> ! {
        self.print(&format!("Kernel panic - not syncing: {why}"));
        self.monitor
            .event("GUEST_PANICKED", &json!({"action": "run"}));
        self.print("CPU: 0 UID: 0 PID: 1 Comm: init Not tainted 6.12.0-fake #1");
        self.print(&format!("---[ end Kernel panic - not syncing: {why} ]---"));
        sleep(Duration::from_millis(50));
        self.monitor.shutdown("guest-reset")
    }

    fn oops(&mut self) {
        self.print("BUG: kernel NULL pointer dereference, address: 0000000000000010");
        self.print("Oops: Oops: 0000 [#1] PREEMPT SMP NOPTI");
        self.print("RIP: 0010:do_thing+0x12/0x80");
        self.print("---[ end trace 0000000000000000 ]---");
    }

    fn workload(&mut self, way: &str, run: &str) {
        match way {
            "panic" => self.panic("sysrq triggered crash"),
            "oops-panic" => {
                self.oops();
                self.panic("Fatal exception");
            }
            "int3" => {
                self.print("Oops: int3: 0000 [#1] PREEMPT SMP");
                self.print("RIP: 0010:foo+0x1/0x5");
                self.panic("Fatal exception in interrupt");
            }
            "oops" => self.oops(),
            "forged-panic" => {
                self.print("Kernel panic - not syncing: printed by a workload");
                self.beat(Duration::from_millis(3500));
            }
            "forged-splat" => self.print("BUG: printed by a workload"),
            "forged" => self.raw(b"Kernel panic - not syncing: printed by a workload\r\n"),
            "crashes" => std::process::abort(),
            // Runs work in a folder of their own, which is named after the try.
            "first-try-crashes" => {
                let folder = std::env::current_dir().unwrap_or_default();
                if !folder.to_string_lossy().contains("-try1") {
                    std::process::abort();
                }
            }
            // A value that the place in the order and the seed decide.
            "works" => {
                self.beat(Duration::from_millis(120));
                let value = run.bytes().fold(7, |sum: u32, byte| {
                    sum.wrapping_mul(31).wrapping_add(byte.into()) % 10_007
                });
                self.sample(f64::from(value));
                return self.exit(run, 1);
            }
            "killed" => {
                let _ = rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::KILL,
                );
            }
            "stopped" => {
                let _ = rustix::process::kill_process(
                    rustix::process::getpid(),
                    rustix::process::Signal::STOP,
                );
            }
            "power-off" => self.monitor.shutdown("guest-shutdown"),
            "reset" => self.monitor.shutdown("guest-reset"),
            "port-closes" => {
                let data = json!({"id": "port", "open": false});
                self.monitor.event("VSERPORT_CHANGE", &data);
                self.forever();
            }
            "silent" => self.forever(),
            "endless-console" => loop {
                self.print("this goes on and on");
            },
            "endless-work" => loop {
                self.beat(Duration::from_secs(1));
            },
            "endless-samples" => loop {
                self.sample(1.0);
            },
            "endless-output" => {
                let frame = Frame::Data {
                    stream: STREAM_STDOUT,
                    bytes: vec![b'x'; 32 << 10],
                };
                let frame = frame.encode().expect("a frame");
                for _ in 0..4 * 1024 {
                    let _ = self.agent.write_all(&frame);
                }
            }
            "garbage" => {
                let mut noise = MAGIC.repeat(10_000);
                noise.extend(vec![0xff; 100_000]);
                let _ = self.agent.write_all(&noise);
            }
            "giant-length" => {
                let mut header = encode_message(&AgentMessage::Bye).expect("a message");
                header[8..12].copy_from_slice(&u32::MAX.to_le_bytes());
                let crc = crc32fast::hash(&header[..16]);
                header[16..20].copy_from_slice(&crc.to_le_bytes());
                let _ = self.agent.write_all(&header[..20]);
            }
            "unknown-words" => {
                let frame = Frame::Message(br#"{"say":"surrender"}"#.to_vec());
                let _ = self.agent.write_all(&frame.encode().expect("a frame"));
            }
            "other-run" => return self.exit("another", 0),
            "wrong-count" => return self.exit(run, 7),
            "evil-names" => {
                for name in [
                    "../escaped",
                    "/etc/escaped",
                    "a/b",
                    "..",
                    "\u{1b}[31mred",
                    "",
                ] {
                    self.say(&AgentMessage::Evidence {
                        name: name.into(),
                        text: "evil".into(),
                    });
                }
                self.say(&AgentMessage::Note {
                    text: "\u{1b}]0;title\u{7}\u{202e}gnp.exe <script>".into(),
                });
            }
            "many-evidence" => {
                for number in 0..100_000 {
                    self.say(&AgentMessage::Evidence {
                        name: format!("{number}"),
                        text: String::new(),
                    });
                }
            }
            "not-testable" => {
                self.say(&AgentMessage::NotTestable {
                    reason: "no ITMT here".into(),
                });
                return;
            }
            _ => {}
        }
        self.sample(42.0);
        self.exit(run, 1);
    }
}
