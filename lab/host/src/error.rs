//! Errors of starting an environment and of running its guest.

use std::io;
use std::path::PathBuf;
use std::time::Duration;
use trapline_model::Unavailable;

/// An environment cannot be used, or its guest did not end well.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The environment cannot run here.
    #[error("{0}")]
    Unavailable(Unavailable),
    /// A file cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file cannot be loaded as an image.
    #[error("cannot load {}: {reason}", .path.display())]
    Image {
        /// The image.
        path: PathBuf,
        /// The cause.
        reason: String,
    },
    /// A program cannot be started.
    #[error("cannot start {}: {source}", .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The output of a guest, or the monitor of its VMM, cannot be read.
    #[error("cannot read the guest's output: {0}")]
    Output(io::Error),
    /// The guest did not end in time and was killed.
    #[error("guest timed out after {} s and was killed{}", .after.as_secs(), last(.output))]
    TimedOut {
        /// The time limit.
        after: Duration,
        /// Last output of the guest.
        output: String,
    },
    /// The guest did not end in time on the clock of a simulated machine, and init killed it.
    #[error("guest timed out after {} s of the simulated clock and was killed{}", .after.as_secs(), last(.output))]
    SimulatedTimeout {
        /// The time it was given.
        after: Duration,
        /// Last output of the guest.
        output: String,
    },
    /// The guest's kernel measured a wrong rate of its timer and does not use it.
    #[error(
        "the guest's kernel has no timer: this host did not execute it while it measured the rate"
    )]
    NoTimer,
    /// The guest sent more than the limit and was killed.
    #[error("guest flooded its console and was killed{}", last(.output))]
    Flooded {
        /// Last output of the guest.
        output: String,
    },
    /// The guest uses another version of the protocol.
    #[error(
        "guest has protocol version {theirs}, expected {}",
        trapline_abi::VERSION
    )]
    Version {
        /// Version of the guest.
        theirs: u16,
    },
    /// The guest panicked.
    #[error("guest panicked: {message}")]
    Panicked {
        /// Message of the panic.
        message: String,
    },
    /// The guest's CPU was reset: a triple fault or a reboot.
    #[error("guest reset its CPU, as after a triple fault{}", last(.output))]
    Reset {
        /// Last output of the guest.
        output: String,
    },
    /// A signal ended the program that ran the guest.
    #[error("{program} ended by signal {signal}{}", last(.output))]
    Killed {
        /// The program.
        program: String,
        /// Number of the signal.
        signal: i32,
        /// Last output of the guest.
        output: String,
    },
    /// The program that ran the guest failed.
    #[error("{program} ended with status {status}{}", last(.output))]
    Failed {
        /// The program.
        program: String,
        /// Its exit status.
        status: i32,
        /// Last output of the guest.
        output: String,
    },
    /// The guest of a custom VMM sent no record.
    #[error("no record arrived from the guest's serial port: {how}{}{}", last(.output), command_line(.output, .command))]
    NoRecords {
        /// End of the VMM.
        how: String,
        /// The command line of the VMM.
        command: String,
        /// Last output of the VMM.
        output: String,
    },
    /// A custom VMM started its guest again before the guest's last record.
    #[error("guest was started again by {program} before its last record")]
    Restarted {
        /// Name of the VMM.
        program: String,
    },
    /// The guest ended successfully, but without a Done record.
    #[error("guest ended without a Done record{}", last(.output))]
    NoDone {
        /// Last output of the guest.
        output: String,
    },
    /// The Linux or the init of a simulated machine failed.
    #[error("simulated machine failed: {0}")]
    Machine(String),
    /// A load program failed.
    #[error("load {name} {what}{}", last(.output))]
    Load {
        /// The load.
        name: &'static str,
        /// Its failure, as a verb phrase.
        what: String,
        /// Its last output.
        output: String,
    },
    /// The workload `kernel-build` could not be prepared, or `make` failed.
    #[error("kernel build failed: {0}")]
    KernelBuild(String),
    /// A stop was requested.
    #[error("stopped on request")]
    Stopped,
}

/// Formats the last output of a guest as the second part of a message.
fn last(output: &str) -> String {
    match output.trim() {
        "" => String::new(),
        output => format!("; last output:\n  {}", output.replace('\n', "\n  ")),
    }
}

fn command_line(output: &str, command: &str) -> String {
    let separator = if output.trim().is_empty() { "; " } else { "\n" };
    format!("{separator}command: {command}")
}

impl Error {
    /// Returns an error about the file at `path`, for use with `map_err`.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }

    /// Returns an error about the start of `program`, for use with `map_err`.
    pub fn start(program: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let program = program.into();
        move |source| Self::Start { program, source }
    }

    /// Returns the remedy, if there is one.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Self::Unavailable(unavailable) => unavailable.remedy.as_deref(),
            Self::Restarted { .. } => {
                Some("a guest that crashes resets its machine: let the VMM exit then, as QEMU with -no-reboot")
            }
            Self::TimedOut { .. } => Some("--timeout allows more"),
            Self::NoTimer => Some("end other programs of this host, and measure again"),
            Self::Version { .. } => Some("build all parts from one source with 'make build'"),
            _ => None,
        }
    }

    /// Returns the message without the remedy.
    pub fn reason(&self) -> String {
        match self {
            Self::Unavailable(unavailable) => unavailable.reason.clone(),
            other => other.to_string(),
        }
    }

    /// Returns message and remedy, as failures are stored and shown.
    pub fn with_remedy(&self) -> String {
        let reason = self.reason();
        match self.remedy() {
            None => reason,
            Some(remedy) if reason.contains('\n') => format!("{reason}\nhelp: {remedy}"),
            Some(remedy) => format!("{reason}: {remedy}"),
        }
    }

    /// Returns a missing capability without a remedy.
    pub fn unavailable(reason: impl Into<String>) -> Self {
        Self::Unavailable(Unavailable::new(reason))
    }

    /// Returns a missing capability with its remedy.
    pub fn missing(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unavailable(Unavailable::new(reason).help(remedy))
    }
}

impl From<Unavailable> for Error {
    fn from(unavailable: Unavailable) -> Self {
        Self::Unavailable(unavailable)
    }
}

impl From<Error> for Unavailable {
    fn from(error: Error) -> Self {
        Self {
            reason: error.reason(),
            remedy: error.remedy().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_with_the_last_output() {
        let error = Error::TimedOut {
            after: Duration::from_secs(30),
            output: "one\ntwo".to_owned(),
        };
        let text = "guest timed out after 30 s and was killed; last output:\n  one\n  two";
        assert_eq!(error.to_string(), text);
        let text = format!("{text}\nhelp: --timeout allows more");
        assert_eq!(error.with_remedy(), text);
        assert_eq!(Error::Stopped.with_remedy(), Error::Stopped.to_string());
    }

    #[test]
    fn remedy_is_a_field() {
        let error = Error::missing("no QEMU in $PATH", "install it");
        assert_eq!(error.to_string(), "no QEMU in $PATH: install it");
        let unavailable = Unavailable::from(error);
        assert_eq!(unavailable.remedy.as_deref(), Some("install it"));
    }
}
