//! `topolab-agent`: runs in the guest, as PID 1 of an initramfs or as a service.

mod agent;
mod children;
mod cpulist;
mod door;
mod files;
mod init;
mod kmsg;
mod launch;
mod link;
mod modules;
mod monitor;
mod observe;
mod own_cpus;
mod own_memory;
mod port;
mod realtime;
mod settings;
mod trace;
mod welcome;
mod workload;

use std::process::ExitCode;
use std::time::Duration;

use topolab_protocol::PORT_NAME;

use agent::{End, Role};
use kmsg::Level;
use link::{AtEnd, Ends};

/// A missing port is reported after this long and given up after the second.
const PORT_PATIENCE: Duration = Duration::from_secs(3);
const PORT_LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    own_cpus::remember();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [workload::FLAG, part, parameters] => workload::child_main(part, parameters),
        // The kernel hands PID 1 whatever it did not understand itself.
        _ if std::process::id() == 1 => {
            own_memory::keep_still();
            init()
        }
        ["--service"] => service(),
        ["--stdio"] => stdio(),
        ["--version"] => {
            println!("topolab-agent {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("usage: topolab-agent --service | --stdio | --version (or run it as PID 1)");
            ExitCode::from(2)
        }
    }
}

/// PID 1 must never end: the kernel would panic and be blamed for it.
fn init() -> ExitCode {
    std::panic::set_hook(Box::new(|panic| {
        kmsg::say(Level::Error, &format!("internal error: {panic}"));
    }));
    if let Err(error) = init::prepare() {
        // The host reads this on the console, and sees the guest switch off.
        kmsg::say(Level::Error, &format!("no way to the root: {error}"));
        init::power_off();
    }
    // The panic was reported by the hook; what is left is to switch off.
    let _ = std::panic::catch_unwind(|| talk(Role::Init));
    init::power_off();
    loop {
        std::thread::park();
    }
}

fn service() -> ExitCode {
    match talk(Role::Service) {
        Some(End::PowerOff) => {
            agent::power_off_service();
            ExitCode::SUCCESS
        }
        Some(End::PortLost) | None => ExitCode::FAILURE,
    }
}

fn talk(role: Role) -> Option<End> {
    let complain = |error: &port::PortError| kmsg::say(Level::Error, &error.to_string());
    let ends = port::open(PORT_NAME, PORT_PATIENCE, PORT_LIMIT, complain)
        .map_err(|error| error.to_string())
        .and_then(|port| {
            Ok(Ends {
                read: port.try_clone().map_err(|error| error.to_string())?,
                write: port,
                at_end: AtEnd::MayReturn,
            })
        });
    match ends {
        Ok(ends) => Some(agent::converse(ends, role)),
        Err(error) => {
            kmsg::say(Level::Error, &format!("giving up: {error}"));
            None
        }
    }
}

/// Serves a host at the other end of standard input and output, such as an SSH
/// connection, until it closes them.
fn stdio() -> ExitCode {
    let ends = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).and_then(|read| {
        Ok(Ends {
            read,
            write: rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), 3)?,
            at_end: AtEnd::Over,
        })
    });
    match ends.map(|ends| agent::converse(ends, Role::Service)) {
        Ok(End::PowerOff) => {
            agent::power_off_service();
            ExitCode::SUCCESS
        }
        Ok(End::PortLost) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("cannot use standard input and output: {error}");
            ExitCode::FAILURE
        }
    }
}
