//! What is heard of a booted guest, and the exit code it leads to.

use std::{io::Write, path::Path, process::ExitCode};

use comfy_table::Table;
use topolab::{
    outcome::Outcome,
    run::{RunEvent, RunResult, RunUnit, clean, command_line},
    topology::{cmdline, proof},
};
use topolab_protocol::{frame::STREAM_STDERR, message::ExitStatus};

use crate::{
    failure::{Failure, Kind},
    terminal::Terminal,
};

use super::{BootArgs, FAILED, NOT_EXECUTABLE};

/// Console lines shown with a failure.
const TAIL: usize = 15;

/// What to paste to debug a guest.
pub fn gdb_command(vmlinux: Option<&Path>, socket: &Path) -> String {
    let vmlinux = vmlinux.map_or("vmlinux".into(), |path| path.display().to_string());
    format!("gdb {vmlinux} -ex 'target remote {}'", socket.display())
}

/// Shows an event of the guest. `console`: its console too; `raw`: the terminal is the guest's.
pub fn hear(event: &RunEvent, terminal: Terminal, console: bool, raw: bool) {
    match event {
        RunEvent::Output { stream, bytes } => {
            // A terminal shows both streams of its guest alike; a reader that
            // went away is no failure of ours.
            if *stream == STREAM_STDERR && !raw {
                let _ = std::io::stderr().write_all(bytes);
            } else {
                let mut out = std::io::stdout().lock();
                let _ = out.write_all(bytes).and_then(|()| out.flush());
            }
        }
        RunEvent::Console(line) if console => {
            let end = if raw { "\r" } else { "" };
            let _ = writeln!(std::io::stderr().lock(), "{line}{end}");
        }
        RunEvent::Hello { after_ms, .. } if !raw => {
            terminal.detail(format_args!("hello after {after_ms} ms"));
        }
        RunEvent::Note(text) if !raw => terminal.detail(text),
        RunEvent::Console(_)
        | RunEvent::Hello { .. }
        | RunEvent::Note(_)
        | RunEvent::Standing { .. }
        | RunEvent::Started { .. }
        | RunEvent::Phase { .. }
        | RunEvent::Sample(_) => {}
    }
}

/// Tells how it ended.
pub fn answer(args: &BootArgs, unit: &RunUnit, result: &RunResult, terminal: Terminal) -> ExitCode {
    if args.verify
        && let Some(observed) = &result.observed
    {
        let words = command_line(unit);
        let rows = proof::rows(&unit.topology, &cmdline::words(&words), observed);
        if args.json {
            terminal.json(&rows);
        } else {
            terminal.table(table(&rows));
        }
        if let Some(ms) = result.hello_ms {
            terminal.say(format_args!("start of QEMU to hello: {ms} ms"));
        }
        if rows.iter().any(|row| !row.same) {
            return ExitCode::from(1);
        }
    }
    let had_command = unit.workload.is_some();
    match (&result.exit, &result.outcome) {
        (None, Outcome::Completed) => ExitCode::SUCCESS,
        (Some(ExitStatus::Exited { code }), outcome) => {
            if let Outcome::GuestSplat { title } = outcome {
                terminal.warn(format_args!("the guest's kernel complained: {title}"));
            }
            ExitCode::from(u8::try_from(*code).unwrap_or(FAILED))
        }
        (Some(ExitStatus::Signalled { signal }), _) => {
            ExitCode::from(128 | u8::try_from(*signal).unwrap_or(0))
        }
        (Some(ExitStatus::Failed { reason }), _) => {
            terminal.explain(&Failure::new(Kind::Guest, clean(reason.as_bytes())));
            ExitCode::from(NOT_EXECUTABLE)
        }
        (None, outcome) => {
            let code = explain(outcome, result, terminal);
            if had_command {
                ExitCode::from(FAILED)
            } else {
                code
            }
        }
    }
}

fn explain(outcome: &Outcome, result: &RunResult, terminal: Terminal) -> ExitCode {
    let kind = match outcome {
        Outcome::LabFailed { .. } => Kind::Lab,
        _ => Kind::Guest,
    };
    let tail = &result.console_tail;
    if !tail.is_empty() {
        terminal.say("last console lines:");
    }
    for line in &tail[tail.len().saturating_sub(TAIL)..] {
        terminal.say(format_args!("  {line}"));
    }
    let text = format!("{}: {}", outcome.class(), outcome.detail());
    terminal.explain(&Failure::new(kind, text))
}

fn table(rows: &[proof::Row]) -> Table {
    let mut table = Table::new();
    table.set_header(["", "asked", "seen", "same?"]);
    for row in rows {
        let same = if row.same { "yes" } else { "NO" };
        table.add_row([&*row.field, &*row.asked, &*row.seen, same]);
    }
    table
}
