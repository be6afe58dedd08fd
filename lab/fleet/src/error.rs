//! Errors with remedies.

use std::path::Path;

/// An error of a fleet, with its remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FleetError {
    /// Failure, with the input.
    pub message: String,
    /// Instruction to the user.
    pub remedy: String,
}

impl FleetError {
    pub(crate) fn new(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            remedy: remedy.into(),
        }
    }

    /// Returns a conversion of errors about a file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + '_ {
        move |error| {
            Self::new(
                format!("{}: {error}", path.display()),
                "make it readable and writable for the user of all machines",
            )
        }
    }
}
