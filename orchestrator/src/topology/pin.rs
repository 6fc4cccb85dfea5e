//! Where vCPUs run on the host, as it is written.

use std::str::FromStr;

use serde::Serialize;

use super::{
    CpuList, CpuListError,
    spec::{Pin, PinRule},
};

/// Where vCPUs run on the host. A wish: the bench may override it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PinPolicy {
    /// Paired where the host can, else each vCPU on a CPU of its own, else none.
    #[default]
    Auto,
    /// Siblings on siblings and nodes on nodes, or fail.
    Paired,
    /// The host's scheduler decides.
    None,
    /// Guest CPUs to host CPUs: one to one where both lists are equally long,
    /// else each vCPU anywhere on the host CPUs.
    Map(Vec<(CpuList, CpuList)>),
}

/// Why a text or a map says nothing about pinning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PinPolicyError {
    /// Neither a rule nor a pair.
    #[error(
        "`{text}` is neither `auto`, `paired`, `none` nor a pair of vCPUs and host CPUs like `0-3=2-5`"
    )]
    Syntax {
        /// The text.
        text: String,
    },
    /// One side of a pair is no list of CPUs.
    #[error("in `{pair}`: {error}")]
    List {
        /// The pair.
        pair: String,
        /// What is wrong with the list.
        error: CpuListError,
    },
    /// One side of a pair is empty.
    #[error("`{pair}` pins nothing, or to nothing")]
    Nothing {
        /// The pair.
        pair: String,
    },
    /// Two pairs name a vCPU.
    #[error("vCPUs {vcpus} are pinned twice")]
    Twice {
        /// Which.
        vcpus: CpuList,
    },
}

impl PinPolicy {
    /// A map from pairs of lists. Whether a machine has these vCPUs, and a host
    /// these CPUs, is known to those who know the machine and the host.
    fn map<'a>(pairs: impl IntoIterator<Item = (&'a str, String)>) -> Result<Self, PinPolicyError> {
        let mut map: Vec<(CpuList, CpuList)> = Vec::new();
        let mut taken = CpuList::new();
        for (guest, host) in pairs {
            let pair = format!("{guest}={host}");
            let list = |text: &str| {
                text.parse::<CpuList>()
                    .map_err(|error| PinPolicyError::List {
                        pair: pair.clone(),
                        error,
                    })
            };
            let (vcpus, cpus) = (list(guest)?, list(&host)?);
            if vcpus.is_empty() || cpus.is_empty() {
                return Err(PinPolicyError::Nothing { pair });
            }
            let twice = taken.and(&vcpus);
            if !twice.is_empty() {
                return Err(PinPolicyError::Twice { vcpus: twice });
            }
            taken = taken.or(&vcpus);
            map.push((vcpus, cpus));
        }
        Ok(Self::Map(map))
    }
}

impl From<PinRule> for PinPolicy {
    fn from(rule: PinRule) -> Self {
        match rule {
            PinRule::Auto => Self::Auto,
            PinRule::Paired => Self::Paired,
            PinRule::None => Self::None,
        }
    }
}

impl TryFrom<&Pin> for PinPolicy {
    type Error = PinPolicyError;

    fn try_from(pin: &Pin) -> Result<Self, PinPolicyError> {
        match pin {
            Pin::Rule(rule) => Ok((*rule).into()),
            Pin::Map(map) => Self::map(
                map.iter()
                    .map(|(guest, host)| (guest.as_str(), host.to_string())),
            ),
        }
    }
}

impl FromStr for PinPolicy {
    type Err = PinPolicyError;

    /// Reads `auto`, `paired`, `none`, or pairs separated by blanks: `0-3=2-5 4=7`.
    fn from_str(text: &str) -> Result<Self, PinPolicyError> {
        match text.trim() {
            "auto" => return Ok(Self::Auto),
            "paired" => return Ok(Self::Paired),
            "none" => return Ok(Self::None),
            _ => {}
        }
        let syntax = || PinPolicyError::Syntax { text: text.into() };
        let mut pairs = Vec::new();
        for pair in text.split_whitespace() {
            let (guest, host) = pair.split_once('=').ok_or_else(syntax)?;
            pairs.push((guest, host.to_string()));
        }
        if pairs.is_empty() {
            return Err(syntax());
        }
        Self::map(pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PinPolicy, String> {
        text.parse().map_err(|e: PinPolicyError| e.to_string())
    }

    #[test]
    fn rules_and_maps_are_read() {
        assert_eq!(read("paired"), Ok(PinPolicy::Paired));
        let list = |text: &str| text.parse::<CpuList>().unwrap();
        assert_eq!(
            read("0-3=2-5 4,5=7"),
            Ok(PinPolicy::Map(vec![
                (list("0-3"), list("2-5")),
                (list("4-5"), list("7")),
            ]))
        );
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, error) in [
            (
                "tight",
                "`tight` is neither `auto`, `paired`, `none` nor a pair of vCPUs and host CPUs like `0-3=2-5`",
            ),
            (
                "0-3=5-2",
                "in `0-3=5-2`: the range `5-2` ends before it begins",
            ),
            ("0=", "`0=` pins nothing, or to nothing"),
            ("0-3=4 2-5=6", "vCPUs 2-3 are pinned twice"),
        ] {
            assert_eq!(read(text), Err(error.to_string()));
        }
    }
}
