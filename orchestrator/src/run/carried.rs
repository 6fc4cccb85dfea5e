//! Guests whose image does not have our agent: it is carried there over SSH while
//! the guest boots, and what goes wrong with that becomes the end of the run.

use std::{os::fd::OwnedFd, time::Duration};

use tokio::sync::oneshot;

use super::judge::Why;
use crate::{
    guest::ssh::{self, Access, CarryError, ConnectError, Patience},
    outcome::Outcome,
};

/// The agent on its way into one guest.
#[derive(Debug)]
pub struct Carrier {
    /// The agent's program.
    pub agent: Vec<u8>,
    /// How long the guest may take until it lets us in.
    pub limit: Duration,
}

/// The thread that carries it.
#[derive(Debug)]
pub struct Carrying {
    patience: Patience,
    end: oneshot::Receiver<Result<(), CarryError>>,
}

impl Carrier {
    /// Begins. `wire` is the far end of the socket that would be QEMU's if the agent
    /// were in the image.
    ///
    /// # Errors
    /// This host gives us no thread.
    pub fn begin(self, access: Access, wire: OwnedFd) -> Result<Carrying, Why> {
        let patience = Patience::of(self.limit);
        let (sender, end) = oneshot::channel();
        let waiting = patience.clone();
        std::thread::Builder::new()
            .name("ssh".into())
            .spawn(move || {
                let end = ssh::carry(&access, &self.agent, wire.into(), &waiting);
                // A run that is over does not ask any more.
                let _ = sender.send(end);
            })
            .map_err(|error| Why::Lab {
                part: "ssh",
                reason: error.to_string(),
            })?;
        Ok(Carrying { patience, end })
    }
}

impl Carrying {
    /// Waits for its end; never comes back when it ends well.
    pub async fn failure(&mut self) -> CarryError {
        match (&mut self.end).await {
            Ok(Err(error)) => error,
            Ok(Ok(())) | Err(_) => std::future::pending().await,
        }
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        self.patience.stop();
    }
}

/// What a failure to carry the agent says about the run.
pub fn why(error: &CarryError) -> Why {
    let text = ssh::with_causes(error);
    match error {
        CarryError::Connect(ConnectError::Refused { .. } | ConnectError::NoServer { .. }) => {
            let reason = format!("no SSH server in the guest let us in: {text}");
            Why::Said(Outcome::BootFailed { reason })
        }
        CarryError::Remote(ssh::RemoteError::Processor { .. }) => {
            Why::Said(Outcome::NotTestable { reason: text })
        }
        CarryError::Remote(_) => Why::Lab {
            part: "image",
            reason: text,
        },
        CarryError::Connect(_) | CarryError::Broken { .. } => Why::Lab {
            part: "ssh",
            reason: text,
        },
        CarryError::Ended { .. } => Why::Lab {
            part: "agent",
            reason: text,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_is_somebodys() {
        let class = |error: CarryError| match why(&error) {
            Why::Said(outcome) => outcome.class().to_string(),
            Why::Lab { part, .. } => part.to_string(),
            other => panic!("{other:?}"),
        };
        let silent = ConnectError::NoServer {
            host: "127.0.0.1".into(),
            port: 1,
            reason: "no answer within 20 s".into(),
        };
        assert_eq!(class(silent.into()), "boot-failed");
        let key = ConnectError::HostKey {
            host: "127.0.0.1".into(),
            known: "the image".into(),
            seen: "SHA256:x".into(),
        };
        assert_eq!(class(key.into()), "ssh");
        let seen = "aarch64".into();
        assert_eq!(
            class(ssh::RemoteError::Processor { seen }.into()),
            "not-testable"
        );
        let full = ssh::RemoteError::Full {
            path: "/tmp/x".into(),
            free: 0,
            needed: 9,
        };
        assert_eq!(class(full.into()), "image");
        let said = String::new();
        assert_eq!(class(CarryError::Ended { code: 1, said }), "agent");
    }
}
