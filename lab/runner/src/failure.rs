//! Failures with a remedy, and the status that they give a command.

use std::error::Error;
use std::fmt;
use trapline_environments::EnvError;
use trapline_model::Unavailable;
use trapline_store::{Problem, StoreError};

/// Outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success.
    Done,
    /// An operation that should work failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// Two runs on an exact clock gave different figures.
    Undetermined,
    /// The request cannot be measured on this host.
    Unmeasured,
    /// A requirement is neither met nor violated with confidence.
    NotProven,
    /// Ended by this signal.
    Interrupted(i32),
}

/// An error message, its remedy, and the resulting [`Status`].
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// `<what failed>: <input>: <cause>`.
    pub message: String,
    /// Remedy, printed on a line of its own.
    pub help: Option<String>,
    /// Outcome of the command.
    pub status: Status,
}

impl Failure {
    /// Creates a failure without a remedy, of status [`Status::Failed`].
    pub fn new(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            help: None,
            status: Status::Failed,
        }
    }

    /// Creates a failure of status [`Status::Usage`].
    pub fn usage(message: impl fmt::Display, help: impl fmt::Display) -> Self {
        Self::new(message).help(help).status(Status::Usage)
    }

    /// Creates the failure of a command that `signal` ended.
    pub fn interrupted(signal: i32) -> Self {
        Self::new("interrupted").status(Status::Interrupted(signal))
    }

    /// Sets the remedy.
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.help = Some(help.to_string());
        self
    }

    /// Sets the status.
    pub fn status(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    /// Prefixes the message with `subject`.
    pub fn about(mut self, subject: &str) -> Self {
        self.message = format!("{subject}: {}", self.message);
        self
    }

    /// Returns message and remedy in one line.
    pub fn one_line(&self) -> String {
        match &self.help {
            None => self.message.clone(),
            Some(help) => format!("{}; {help}", self.message),
        }
    }

    /// Creates a failure from an error and its causes.
    pub fn from_error(error: &dyn Error) -> Self {
        Self::new(with_causes(error.to_string(), error))
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let status = match error.problem {
            Problem::OtherHost { .. } => Status::Usage,
            _ => Status::Failed,
        };
        Self {
            help: error.problem.remedy().map(str::to_owned),
            status,
            ..Self::new(error)
        }
    }
}

impl From<EnvError> for Failure {
    fn from(error: EnvError) -> Self {
        Self::from(&error)
    }
}

impl From<&EnvError> for Failure {
    fn from(error: &EnvError) -> Self {
        Self {
            help: error.remedy().map(str::to_owned),
            ..Self::new(with_causes(error.reason(), error))
        }
    }
}

impl From<&Unavailable> for Failure {
    fn from(unavailable: &Unavailable) -> Self {
        Self {
            help: unavailable.remedy.clone(),
            ..Self::new(&unavailable.reason)
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Appends the causes of `error` that `text` does not contain.
fn with_causes(mut text: String, error: &dyn Error) -> String {
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
