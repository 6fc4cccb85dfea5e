//! `topolab shell`: a session in a machine that runs, or in a guest booted for it.

use std::{io::Write, process::ExitCode, thread};

use clap::Args;
use topolab::{
    guest::ssh::{Connection, Ended, Hand, Seat, Stream, Typed, sit, with_causes},
    run,
};

use super::{Machine, connect, machine};
use crate::{
    boot::{BootArgs, FAILED},
    failure::{Failure, Kind},
    folders::Folders,
    image::Choice,
    interrupt, lab,
    terminal::Terminal,
    tty,
};

/// Arguments of `topolab shell`.
#[derive(Debug, Args)]
pub struct ShellArgs {
    /// A run's folder, `boot` for the one guest that `topolab boot` runs, ssh://[USER@]HOST[:PORT],
    /// or a topology to boot a guest of
    machine: String,
    /// Image of a guest that is booted
    #[arg(long, default_value = "debian", value_name = "IMAGE")]
    image: Choice,
    /// Kernel of a guest that is booted
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<String>,
    /// Command to run; without one, a shell
    #[arg(last = true, value_name = "CMD")]
    command: Vec<String>,
}

/// Opens a session.
pub fn run(args: &ShellArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let Some(machine) = machine(&args.machine, &folders)? else {
        if let Err(error) = lab::library().topology(&args.machine) {
            return Err(
                Failure::request(error).hint("a run's folder, `boot`, ssh://HOST, or a topology")
            );
        }
        let mut boot = BootArgs::shell(
            args.machine.clone(),
            args.image.clone(),
            args.kernel.clone(),
        );
        boot.command.clone_from(&args.command);
        return crate::boot::run(&boot, terminal);
    };
    match session(args, &machine, &folders, terminal) {
        Ok(code) => Ok(code),
        // The codes of the machine pass through, so ours must not look like them.
        Err(failure) if !args.command.is_empty() => {
            terminal.explain(&failure);
            Ok(ExitCode::from(FAILED))
        }
        Err(failure) => Err(failure),
    }
}

fn session(
    args: &ShellArgs,
    machine: &Machine,
    folders: &Folders,
    terminal: Terminal,
) -> Result<ExitCode, Failure> {
    let access = machine.access(folders)?;
    let connection = connect(&access)?;
    let command = (!args.command.is_empty()).then(|| quoted(&args.command));
    let runtime = lab::runtime()?;
    let ended = runtime.block_on(sit_down(connection, command, terminal))?;
    Ok(match ended {
        Ended::Code(code) => ExitCode::from(u8::try_from(code).unwrap_or(FAILED)),
        // As a shell says it of a command that Ctrl-C ended.
        Ended::Left => ExitCode::from(130),
    })
}

async fn sit_down(
    connection: Connection,
    command: Option<String>,
    terminal: Terminal,
) -> Result<Ended, Failure> {
    let mut cancel = interrupt::leave()?;
    let is_terminal = tty::is_ours();
    let (guard, typed) = if is_terminal {
        tty::raw(terminal, "Ctrl-A x leaves")?
    } else {
        (None, tty::plain())
    };
    let (seat, hand) = Seat::new(is_terminal.then(tty::description)).map_err(Failure::lab)?;
    let stop = hand.clone();
    thread::spawn(move || forward(typed, &hand));
    let sitting =
        tokio::task::spawn_blocking(move || sit(&connection, command.as_deref(), &seat, &mut show));
    tokio::pin!(sitting);
    let ended = tokio::select! {
        ended = &mut sitting => ended,
        () = cancel.told() => {
            stop.give(Typed::Leave);
            sitting.await
        }
    };
    drop(guard);
    let ended = ended.map_err(Failure::lab)?;
    ended.map_err(|error| Failure::new(Kind::Lab, with_causes(&error)))
}

fn forward(mut typed: tokio::sync::mpsc::Receiver<run::Typed>, hand: &Hand) {
    while let Some(typed) = typed.blocking_recv() {
        let typed = match typed {
            run::Typed::Bytes(bytes) => Typed::Bytes(bytes),
            run::Typed::End => Typed::End,
            run::Typed::Size { rows, cols } => Typed::Size { rows, cols },
            run::Typed::Signal(_) => continue,
        };
        hand.give(typed);
    }
}

fn show(stream: Stream, bytes: &[u8]) {
    // A reader that went away is no failure of ours.
    let _ = match stream {
        Stream::Output => {
            let mut out = std::io::stdout().lock();
            out.write_all(bytes).and_then(|()| out.flush())
        }
        Stream::Errors => std::io::stderr().lock().write_all(bytes),
    };
}

/// One line for the machine's shell in which every word stays a word.
fn quoted(words: &[String]) -> String {
    let quote = |word: &String| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-./=:,@%+".contains(c);
        if !word.is_empty() && word.chars().all(plain) {
            return word.clone();
        }
        format!("'{}'", word.replace('\'', r"'\''"))
    };
    words.iter().map(quote).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_stay_words() {
        let words = ["echo", "a b", "it's", "", "$x"].map(String::from);
        assert_eq!(quoted(&words), r#"echo 'a b' 'it'\''s' '' '$x'"#);
    }
}
