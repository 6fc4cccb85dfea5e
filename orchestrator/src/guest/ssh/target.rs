//! Machines named as `ssh://USER@HOST:PORT`.

use std::{fmt, str::FromStr};

/// A machine that is reached over SSH.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Target {
    /// Name or address; IPv6 without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Who logs in.
    pub user: String,
}

/// The port of SSH servers (RFC 4253, 4.1).
pub const SSH_PORT: u16 = 22;

/// Why a text names no machine.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` names no machine: {reason}; such as `ssh://root@lab1` or `ssh://lab1:2222`")]
pub struct TargetError {
    /// The text.
    pub text: String,
    /// What is wrong with it.
    pub reason: &'static str,
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let wrong = |reason| TargetError {
            text: text.into(),
            reason,
        };
        let rest = text
            .strip_prefix("ssh://")
            .ok_or_else(|| wrong("it does not begin with `ssh://`"))?;
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (user, place) = rest.rsplit_once('@').unwrap_or(("root", rest));
        let (host, port) = match place.strip_prefix('[') {
            Some(inner) => {
                let (host, after) = inner
                    .split_once(']')
                    .ok_or_else(|| wrong("its `[` is not closed"))?;
                (
                    host,
                    after
                        .strip_prefix(':')
                        .or((!after.is_empty()).then_some("?")),
                )
            }
            None => match place.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (place, None),
            },
        };
        let port = match port {
            None => SSH_PORT,
            Some(port) => match port.parse() {
                Ok(port) if port != 0 => port,
                _ => return Err(wrong("its port is no number from 1 to 65535")),
            },
        };
        let plain = |word: &str| {
            let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.:%".contains(c);
            !word.is_empty() && !word.starts_with('-') && word.chars().all(allowed)
        };
        if !plain(host) {
            return Err(wrong("its host is no name and no address"));
        }
        if !plain(user) || user.contains(':') {
            return Err(wrong("its user is no name (passwords are not taken)"));
        }
        Ok(Self {
            host: host.into(),
            port,
            user: user.into(),
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, user } = self;
        let (open, close) = if host.contains(':') {
            ("[", "]")
        } else {
            ("", "")
        };
        write!(f, "ssh://{user}@{open}{host}{close}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_read_and_written() {
        let read = |text: &str| text.parse::<Target>().unwrap().to_string();
        assert_eq!(read("ssh://lab1"), "ssh://root@lab1:22");
        assert_eq!(
            read("ssh://me@lab1.example:2222/"),
            "ssh://me@lab1.example:2222"
        );
        assert_eq!(
            read("ssh://[fe80::1%eth0]:23"),
            "ssh://root@[fe80::1%eth0]:23"
        );
        assert_eq!(read("ssh://[::1]"), "ssh://root@[::1]:22");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let wrong = |text: &str| text.parse::<Target>().unwrap_err().reason;
        assert_eq!(wrong("lab1"), "it does not begin with `ssh://`");
        for text in [
            "ssh://lab1:0",
            "ssh://lab1:x",
            "ssh://lab1:99999",
            "ssh://[::1]22",
        ] {
            assert_eq!(wrong(text), "its port is no number from 1 to 65535");
        }
        for text in ["ssh://", "ssh://-oProxyCommand=x", "ssh://a b", "ssh://a/b"] {
            assert_eq!(wrong(text), "its host is no name and no address");
        }
        assert_eq!(wrong("ssh://[::1"), "its `[` is not closed");
        assert!(wrong("ssh://me:secret@lab1").starts_with("its user is no name"));
    }
}
