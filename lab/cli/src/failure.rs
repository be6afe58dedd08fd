//! How a command ends: a status, and for a failure a message that names what
//! was wrong and what would help. What clap finds wrong is told in the same form.

use anstyle::{AnsiColor, Style};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::fmt;
use std::process::ExitCode;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done.
    Done,
    /// Something that should have worked failed.
    Failed,
    /// The command line was not understood.
    Usage,
    /// Two runs on the instruction clock gave different digits.
    Undetermined,
    /// What is wanted cannot be measured here.
    Unmeasured,
    /// A requirement is neither met nor violated for certain.
    NotProven,
    /// Ended by this signal.
    Interrupted(i32),
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        ExitCode::from(match status {
            Status::Done => 0,
            Status::Failed => 1,
            Status::Usage => 2,
            Status::Undetermined => 3,
            Status::Unmeasured => 4,
            Status::NotProven => 5,
            Status::Interrupted(signal) => 128 + signal as u8,
        })
    }
}

/// Why a command failed, and what would help.
#[derive(Debug, PartialEq)]
pub struct Failure {
    message: String,
    help: Option<String>,
    status: Status,
}

impl Failure {
    /// A failure with nothing to advise.
    pub fn new(message: impl fmt::Display) -> Self {
        Self {
            message: message.to_string(),
            help: None,
            status: Status::Failed,
        }
    }

    /// The same with advice.
    pub fn help(mut self, help: impl fmt::Display) -> Self {
        self.help = Some(help.to_string());
        self
    }

    /// The same with another status than [`Status::Failed`].
    pub fn status(mut self, status: Status) -> Self {
        self.status = status;
        self
    }

    /// The same, said of something.
    pub fn about(mut self, what: &str) -> Self {
        self.message = format!("{what}: {}", self.message);
        self
    }

    /// The message with its advice, in one line.
    pub fn whole(&self) -> String {
        match &self.help {
            None => self.message.clone(),
            Some(help) => format!("{}; {help}", self.message),
        }
    }

    /// Whether it ends the command with this status.
    pub fn is(&self, status: Status) -> bool {
        self.status == status
    }

    /// From an error of a library. Theirs say what is wrong, and after a
    /// semicolon or in the error below what to do about it.
    pub fn from_error(error: &dyn std::error::Error) -> Self {
        let told = error.to_string();
        match told.split_once("; ") {
            Some((message, help)) => Self::new(message).help(help),
            None => Self::new(with_causes(told, error)),
        }
    }

    /// From what clap found wrong with the command line. Help and version are no
    /// failures: those are `None`.
    pub fn from_clap(error: &clap::Error) -> Option<Self> {
        if matches!(
            error.kind(),
            ErrorKind::DisplayHelp | ErrorKind::DisplayVersion
        ) {
            return None;
        }
        let failure = Self::new(usage_message(error)).status(Status::Usage);
        Some(failure.help(usage_help(error)))
    }

    /// Tells the failure on standard error and gives its status.
    pub fn tell(&self) -> Status {
        let red = Style::new().fg_color(Some(AnsiColor::Red.into())).bold();
        let green = Style::new().fg_color(Some(AnsiColor::Green.into())).bold();
        anstream::eprintln!("{red}error{red:#}: {}", self.message);
        if let Some(help) = &self.help {
            anstream::eprintln!("  {green}help{green:#}: {help}");
        }
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// What caused the error, where it does not say so itself.
fn with_causes(mut told: String, error: &dyn std::error::Error) -> String {
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !told.contains(&cause_text) {
            told = format!("{told}: {cause_text}");
        }
        source = cause.source();
    }
    told
}

/// One text; of several that are near, clap puts the nearest last.
fn text(error: &clap::Error, kind: ContextKind) -> Option<String> {
    texts(error, kind).pop()
}

fn texts(error: &clap::Error, kind: ContextKind) -> Vec<String> {
    match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    }
}

fn usage_message(error: &clap::Error) -> String {
    let about = |kind| text(error, kind).unwrap_or_default();
    match error.kind() {
        ErrorKind::InvalidValue if about(ContextKind::InvalidValue).is_empty() => {
            format!("'{}' needs a value", about(ContextKind::InvalidArg))
        }
        ErrorKind::InvalidValue => format!(
            "unknown value '{}' for '{}'",
            about(ContextKind::InvalidValue),
            about(ContextKind::InvalidArg)
        ),
        ErrorKind::UnknownArgument => {
            format!("unknown argument '{}'", about(ContextKind::InvalidArg))
        }
        ErrorKind::MissingRequiredArgument => {
            let flags = texts(error, ContextKind::InvalidArg);
            format!("this also needs {}", flags.join(" and "))
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "a command is missing".to_owned(),
        ErrorKind::InvalidSubcommand => {
            format!(
                "unknown command '{}'",
                about(ContextKind::InvalidSubcommand)
            )
        }
        _ => first_line(error),
    }
}

/// What clap itself would say first, without its "error: ".
fn first_line(error: &clap::Error) -> String {
    let whole = error.to_string();
    let said = whole.lines().next().unwrap_or_default();
    said.trim_start_matches("error: ").to_owned()
}

fn usage_help(error: &clap::Error) -> String {
    let nearest = [
        ContextKind::SuggestedValue,
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
    ]
    .into_iter()
    .find_map(|kind| text(error, kind));
    if let Some(name) = nearest {
        return format!(
            "did you mean '{}'?",
            name.split([' ', '=']).next().unwrap_or(&name)
        );
    }
    match texts(error, ContextKind::ValidValue).as_slice() {
        [] => "'trapline --help' and 'trapline COMMAND --help' tell what there is".to_owned(),
        values => format!("there are: {}", values.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;

    fn failure(words: &[&str]) -> Failure {
        let words = ["trapline"].iter().chain(words);
        let error = Cli::try_parse_from(words).expect_err("the words are wrong");
        Failure::from_clap(&error).expect("this is a failure")
    }

    #[test]
    fn what_is_wrong_and_what_helps_is_told() {
        for (words, message, help) in [
            (
                &["run", "--env", "qemu-kmv"][..],
                "unknown value 'qemu-kmv' for '--env <A,B>'",
                "did you mean 'qemu-kvm'?",
            ),
            (
                &["run", "--workload", "exits/port-oot"],
                "unknown value 'exits/port-oot' for '--workload <W,W/OP>'",
                "did you mean 'exits/port-out'?",
            ),
            (
                &["run", "--boot", "3"],
                "unknown argument '--boot'",
                "did you mean '--boots'?",
            ),
            (&["runn"], "unknown command 'runn'", "did you mean 'run'?"),
        ] {
            let failure = failure(words);
            assert_eq!(failure.message, message);
            assert_eq!(failure.help.as_deref(), Some(help));
            assert_eq!(failure.status, Status::Usage);
        }
    }

    #[test]
    fn where_nothing_is_near_all_names_are_told() {
        let failure = failure(&["run", "--env", "zzzzz"]);
        let help = failure.help.expect("there is help");
        assert!(help.starts_with("there are: host, kvm, "), "{help}");
    }

    #[test]
    fn a_command_without_its_own_command_is_told() {
        let failure = failure(&["cache"]);
        assert_eq!(failure.message, "a command is missing");
        assert!(failure.help.expect("there is help").contains("--help"));
    }

    #[test]
    fn a_number_out_of_range_is_told_as_clap_tells_it() {
        let failure = failure(&["run", "--boots", "0"]);
        assert!(failure.message.contains("'0'"), "{}", failure.message);
        assert_eq!(failure.status, Status::Usage);
    }

    #[test]
    fn asking_for_help_is_no_failure() {
        let error = Cli::try_parse_from(["trapline", "--help"]).expect_err("help is shown");
        assert_eq!(Failure::from_clap(&error), None);
    }
}
