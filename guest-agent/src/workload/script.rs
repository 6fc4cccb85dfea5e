//! Workloads `script` and `ktap`: forms of `command`.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use topolab_protocol::message::ExitStatus;
use topolab_protocol::workload::{Command, Ktap, Script};

use super::{Session, Stopped, command};

/// Where the script's text lies while it runs.
const FILE: &str = "/run/topolab/script";

/// Writes the script to a file and runs it.
pub fn run(session: &Session, parameters: &Script) -> Result<ExitStatus, Stopped> {
    store(&parameters.text)
        .map_err(|error| Stopped::failed(format!("cannot write {FILE}: {error}")))?;
    command::run(session, &of_script(parameters))
}

fn store(text: &str) -> std::io::Result<()> {
    let file = Path::new(FILE);
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(file, text)?;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755))
}

/// A script without `#!` is one for the shell, as when a shell runs it.
fn of_script(script: &Script) -> Command {
    let mut argv = Vec::new();
    if !script.text.starts_with("#!") {
        argv.push("/bin/sh".to_string());
    }
    argv.push(FILE.to_string());
    argv.extend(script.args.iter().cloned());
    Command {
        argv,
        env: script.env.clone(),
        cwd: script.cwd.clone(),
        timeout: script.timeout,
        cgroup: script.cgroup.clone(),
        ..Command::default()
    }
}

/// The program of a `ktap`; what it prints is read by the host.
pub fn of_ktap(ktap: &Ktap) -> Command {
    Command {
        argv: ktap.argv.clone(),
        env: ktap.env.clone(),
        cwd: ktap.cwd.clone(),
        timeout: ktap.timeout,
        cgroup: ktap.cgroup.clone(),
        ..Command::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_names_its_interpreter_or_is_the_shells() {
        let argv = |text: &str| {
            let script = Script {
                text: text.into(),
                args: vec!["a".into()],
                ..Script::default()
            };
            of_script(&script).argv
        };
        assert_eq!(argv("echo $1\n"), ["/bin/sh", FILE, "a"]);
        assert_eq!(argv("#!/usr/bin/perl\n"), [FILE, "a"]);
    }
}
