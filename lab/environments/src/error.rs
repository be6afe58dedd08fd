//! What can go wrong when an environment is started or its guest is heard. Every
//! error names what it is about and, where there is one, the remedy.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// Why an environment could not be used, or why its guest did not end well.
#[derive(Debug, thiserror::Error)]
pub enum EnvError {
    /// The environment is not ready; what [`crate::Environment::supports`] said.
    #[error("{0}")]
    Missing(String),
    /// A part of Trapline is not where it should be.
    #[error("{name} is not in {}: build it with 'make build', or set TRAPLINE_PARTS to the directory that has it", .directory.display())]
    PartMissing {
        /// The file's name.
        name: &'static str,
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// A file could not be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The image cannot be made a bzImage.
    #[error("{} cannot be made a bzImage: {source}", .path.display())]
    NotWrapped {
        /// The image.
        path: PathBuf,
        /// Why.
        source: crate::bzimage::NotWrapped,
    },
    /// A program could not be started.
    #[error("{} cannot be started: {source}", .program.display())]
    Start {
        /// Which.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The guest was heard no more, or its VMM watched no more.
    #[error("the guest can no longer be heard: {0}")]
    Deaf(io::Error),
    /// The guest did not end in time, and was killed.
    #[error("the guest had not ended after {} s and was killed (--timeout gives it more){}", .after.as_secs(), last(.words))]
    Hung {
        /// How long it was waited for.
        after: Duration,
        /// The last that was heard of it.
        words: String,
    },
    /// The same by the clock of a simulated machine, whose init killed it: the guest
    /// waits for something that does not come, however fast the host is.
    #[error("the guest had not ended after {} s of the machine's clock and was killed{}", .after.as_secs(), last(.words))]
    Lingered {
        /// How long it was waited for.
        after: Duration,
        /// The last that was heard of it.
        words: String,
    },
    /// The guest sent more than any honest guest would, and was killed.
    #[error("the guest flooded its console and was killed{}", last(.words))]
    Flooded {
        /// The last that was heard of it.
        words: String,
    },
    /// The guest is of another version than the lab.
    #[error("the guest speaks version {theirs}, this lab version {}: build both from one source with 'make build'", trapline_abi::VERSION)]
    Version {
        /// Its version.
        theirs: u16,
    },
    /// The guest panicked.
    #[error("the guest panicked: {message}")]
    Panicked {
        /// Its last words.
        message: String,
    },
    /// The guest's CPU reset itself: a triple fault, or a reboot.
    #[error("the guest reset its CPU, as after a triple fault{}", last(.words))]
    Reset {
        /// The last that was heard of it.
        words: String,
    },
    /// The program that ran the guest was ended by a signal.
    #[error("{program} was ended by signal {signal}{}", last(.words))]
    Killed {
        /// Which program.
        program: String,
        /// Number of the signal.
        signal: i32,
        /// The last that was heard of it.
        words: String,
    },
    /// The program that ran the guest gave up.
    #[error("{program} ended with status {status}{}", last(.words))]
    Failed {
        /// Which program.
        program: String,
        /// Its exit status.
        status: i32,
        /// The last that was heard of it.
        words: String,
    },
    /// The guest of a VMM that we know nothing about was never heard.
    #[error("the guest never said a word on its serial port: {how}{}{}", last(.words), started(.words, .command))]
    NeverSpoke {
        /// How it ended.
        how: String,
        /// The command, as one would type it.
        command: String,
        /// The last that the VMM said.
        words: String,
    },
    /// The guest ended as if all were well but had not said that it was done.
    #[error("the guest ended without a last word{}", last(.words))]
    Silent {
        /// The last that was heard of it.
        words: String,
    },
    /// The simulated machine's Linux, or our init on it, failed.
    #[error("the simulated machine failed: {0}")]
    Machine(String),
    /// What was to disturb the guest did not.
    #[error("load {name} {what}{}", last(.words))]
    Load {
        /// Which.
        name: &'static str,
        /// What it did instead.
        what: String,
        /// The last that it said.
        words: String,
    },
    /// The workload `kernel-build` could not be prepared, or `make` failed.
    #[error("the kernel was not built: {0}")]
    NotBuilt(String),
    /// No kernel for the simulated machine.
    #[error(transparent)]
    Kernel(#[from] crate::sim::kernel::KernelError),
    /// The lab was told to stop.
    #[error("stopped on request")]
    Stopped,
}

fn last(words: &str) -> String {
    match words.trim() {
        "" => String::new(),
        words => format!("; the last it said:\n  {}", words.replace('\n', "\n  ")),
    }
}

fn started(words: &str, command: &str) -> String {
    let before = if words.trim().is_empty() { "; " } else { "\n" };
    format!("{before}it was started with: {command}")
}

impl EnvError {
    /// An error about the file at `path`.
    pub(crate) fn file(path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { path, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_carry_the_last_words_and_the_remedy() {
        let hung = EnvError::Hung {
            after: Duration::from_secs(30),
            words: "one\ntwo".to_owned(),
        };
        let text =
            "the guest had not ended after 30 s and was killed (--timeout gives it more); the last it said:\n  one\n  two";
        assert_eq!(hung.to_string(), text);
        let missing = EnvError::PartMissing {
            name: "trapline-vmm",
            directory: "/parts".into(),
        };
        assert!(missing.to_string().contains("make build"));
    }
}
