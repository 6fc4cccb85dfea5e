//! What can happen in a run, and the tasks that bring it.

use tokio::{
    io::AsyncReadExt,
    net::unix::{OwnedReadHalf, pipe},
    sync::mpsc,
};

use crate::{
    guest::{FromAgent, ssh::CarryError},
    qemu::{process::QemuExit, qmp::QmpEvent},
    run::event::Typed,
};

/// What arrives in the inbox.
pub(super) enum Input {
    Console(Vec<u8>),
    ConsoleClosed,
    /// Typed on the serial line by somebody who sits there.
    ConsoleTyped(Vec<u8>),
    Agent(FromAgent),
    Words(Vec<u8>),
    WordsEnd,
}

/// What one turn of the loop took.
pub(super) enum Turn {
    Input(Input),
    Qmp(QmpEvent),
    Exited(QemuExit),
    Typed(Option<Typed>),
    Lost(CarryError),
    Cancelled,
    Deadline,
}

/// Which streams may still bring something.
pub(super) struct Open {
    pub console: bool,
    pub agent: bool,
    pub words: bool,
}

/// Brings the console's bytes in.
pub(super) async fn read_console(mut stream: OwnedReadHalf, inbox: mpsc::Sender<Input>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        let bytes = buffer[..count].to_vec();
        if inbox.send(Input::Console(bytes)).await.is_err() {
            return;
        }
    }
    let _ = inbox.send(Input::ConsoleClosed).await;
}

/// Brings in what QEMU writes.
pub(super) async fn read_words(mut pipe: pipe::Receiver, inbox: mpsc::Sender<Input>) {
    let mut buffer = vec![0; 4096];
    while let Ok(count @ 1..) = pipe.read(&mut buffer).await {
        if inbox
            .send(Input::Words(buffer[..count].to_vec()))
            .await
            .is_err()
        {
            return;
        }
    }
    let _ = inbox.send(Input::WordsEnd).await;
}
