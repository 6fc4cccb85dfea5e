//! Whose fault it is, what to do next, and the exit code.
//!
//! | code | meaning |
//! |---|---|
//! | 0 | good |
//! | 1 | a gate failed or a regression was found |
//! | 2 | the request was wrong |
//! | 3 | a build failed |
//! | 4 | the guest failed |
//! | 5 | the lab failed |
//! | 6 | undecided |
//! | 125 | cannot test this one (under `bisect`) |

use std::{error::Error, fmt};

/// Whose fault a failure is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The request was wrong.
    Request,
    /// A build failed.
    Build,
    /// The guest failed.
    Guest,
    /// The lab failed.
    Lab,
}

impl Kind {
    /// Exit code of the contract.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Request => 2,
            Self::Build => 3,
            Self::Guest => 4,
            Self::Lab => 5,
        }
    }
}

/// A failure as it is told.
#[derive(Debug)]
pub struct Failure {
    /// Whose fault it is.
    pub kind: Kind,
    /// What happened. Problems of files bring their own `error:` lines.
    pub message: String,
    /// Deeper causes, outermost first.
    pub causes: Vec<String>,
    /// Next steps the reader can paste.
    pub hints: Vec<String>,
}

impl Failure {
    /// A failure of this kind.
    pub fn new(kind: Kind, message: impl fmt::Display) -> Self {
        Self {
            kind,
            message: message.to_string(),
            causes: Vec::new(),
            hints: Vec::new(),
        }
    }

    /// The request was wrong.
    pub fn request(message: impl fmt::Display) -> Self {
        Self::new(Kind::Request, message)
    }

    /// The lab failed.
    pub fn lab(message: impl fmt::Display) -> Self {
        Self::new(Kind::Lab, message)
    }

    /// A failure with its chain of causes.
    pub fn of(kind: Kind, error: &(dyn Error + 'static)) -> Self {
        let mut failure = Self::new(kind, error);
        let mut source = error.source();
        while let Some(cause) = source {
            failure.causes.push(cause.to_string());
            source = cause.source();
        }
        failure
    }

    /// Adds a next step.
    #[must_use]
    pub fn hint(mut self, hint: impl fmt::Display) -> Self {
        self.hints.push(hint.to_string());
        self
    }
}

impl From<topolab::document::Problems> for Failure {
    fn from(problems: topolab::document::Problems) -> Self {
        Self::request(problems)
    }
}
