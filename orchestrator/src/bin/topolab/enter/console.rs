//! `topolab console`: what a guest printed, and its serial line while it runs.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use topolab::run::{Typed, clean, entrance};

use super::{Machine, machine, unknown};
use crate::{failure::Failure, folders::Folders, interrupt, lab, terminal::Terminal, tty};

/// Arguments of `topolab console`.
#[derive(Debug, Args)]
pub struct ConsoleArgs {
    /// A run's folder, or `boot` for the one guest that `topolab boot` runs
    run: String,
    /// Print what is there and do not wait for more
    #[arg(long)]
    no_follow: bool,
}

/// The log of the console in a run's folder.
const LOG: &str = "console.log";

/// Shows a console.
pub fn run(args: &ConsoleArgs, terminal: Terminal) -> Result<ExitCode, Failure> {
    let folders = Folders::from_environment()?;
    let ended = PathBuf::from(&args.run);
    if ended.join(LOG).is_file() && entrance::Entrance::read(&ended).is_none() {
        print_log(&ended)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(machine) = machine(&args.run, &folders)? else {
        return Err(unknown(&args.run, &folders).hint("topolab boot TOPOLOGY --console"));
    };
    let Machine::Guest(folder, _) = machine else {
        return Err(Failure::request(
            "the console of a machine behind ssh:// is not ours to show",
        ));
    };
    print_log(&folder)?;
    if !args.no_follow {
        let runtime = lab::runtime()?;
        runtime.block_on(follow(&folder, terminal))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was printed so far. A terminal gets it without what would steer it.
fn print_log(folder: &Path) -> Result<(), Failure> {
    let path = folder.join(LOG);
    let bytes = fs::read(&path)
        .map_err(|error| Failure::lab(format_args!("cannot read {}: {error}", path.display())))?;
    let mut out = std::io::stdout().lock();
    let mut lines = bytes.split(|&byte| byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        let end = if lines.peek().is_some() { "\n" } else { "" };
        // A reader that went away is no failure of ours.
        let _ = write!(out, "{}{end}", clean(line));
    }
    let _ = out.flush();
    Ok(())
}

/// Sits at the serial line until the guest is gone or the user leaves.
async fn follow(folder: &Path, terminal: Terminal) -> Result<(), Failure> {
    let seat = entrance::console(folder).await;
    let mut seat = seat.map_err(|error| {
        Failure::lab(format_args!("no console in {}: {error}", folder.display()))
    })?;
    let mut cancel = interrupt::leave()?;
    let (guard, mut typed) = if tty::is_ours() {
        tty::raw(terminal, "Ctrl-A x leaves; the guest goes on")?
    } else {
        (None, tty::plain())
    };
    let mut buffer = vec![0; 4096];
    let mut listening = true;
    loop {
        tokio::select! {
            count = seat.read(&mut buffer) => match count {
                Ok(count @ 1..) => {
                    let mut out = std::io::stdout().lock();
                    let _ = out.write_all(&buffer[..count]).and_then(|()| out.flush());
                }
                _ => break,
            },
            bytes = typed.recv(), if listening => match bytes {
                Some(Typed::Bytes(bytes)) => {
                    if seat.write_all(&bytes).await.is_err() {
                        break;
                    }
                }
                Some(_) => {}
                None => listening = false,
            },
            () = cancel.told() => break,
        }
    }
    drop(guard);
    Ok(())
}
