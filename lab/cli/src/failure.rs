//! Prints failures, and converts those of the command line parser.

use crate::terminal::{printable, write_error};
use anstyle::{AnsiColor, Style};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use std::process::ExitCode;

pub use trapline_runner::{Failure, Status};

/// Returns the exit code of a command.
pub fn exit_code(status: Status) -> ExitCode {
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

/// Prints a failure to standard error and returns its status.
pub fn print(failure: &Failure) -> Status {
    let red = Style::new().fg_color(Some(AnsiColor::Red.into())).bold();
    let green = Style::new().fg_color(Some(AnsiColor::Green.into())).bold();
    let message = printable(&failure.message);
    write_error(format_args!("{red}error{red:#}: {message}\n"));
    if let Some(help) = &failure.help {
        let help = printable(help);
        write_error(format_args!("  {green}help{green:#}: {help}\n"));
    }
    failure.status
}

/// Returns the failure for an invalid command line; `None` for `--help` and `--version`.
pub fn from_clap(error: &clap::Error) -> Option<Failure> {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => None,
        _ => Some(Failure::usage(usage_message(error), usage_help(error))),
    }
}

/// Returns whether the command line ends where a command is expected: the error is the help that lists the commands.
pub fn lacks_command(error: &clap::Error) -> bool {
    error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
}

/// Returns one text of a context. Clap sorts suggestions by similarity, the nearest last.
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
        ErrorKind::UnknownArgument if is_negative(&about(ContextKind::InvalidArg)) => {
            format!("negative value '{}'", about(ContextKind::InvalidArg))
        }
        ErrorKind::UnknownArgument => {
            format!("unknown argument '{}'", about(ContextKind::InvalidArg))
        }
        ErrorKind::MissingRequiredArgument => {
            let flags = texts(error, ContextKind::InvalidArg);
            format!("this also needs {}", flags.join(" and "))
        }
        _ if lacks_command(error) => "a command is missing".to_owned(),
        ErrorKind::InvalidSubcommand => {
            format!(
                "unknown command '{}'",
                about(ContextKind::InvalidSubcommand)
            )
        }
        _ => first_line(error),
    }
}

/// Returns true for `-5`, which clap takes for an option.
fn is_negative(argument: &str) -> bool {
    let digits = argument.strip_prefix('-').unwrap_or_default();
    digits.starts_with(|c: char| c.is_ascii_digit())
}

/// Returns the first line of clap's own message without its "error: ".
fn first_line(error: &clap::Error) -> String {
    let whole = error.to_string();
    let said = whole.lines().next().unwrap_or_default();
    said.trim_start_matches("error: ").to_owned()
}

fn usage_help(error: &clap::Error) -> String {
    if let Some(hint) = text(error, ContextKind::Custom) {
        return hint;
    }
    if text(error, ContextKind::InvalidArg).is_some_and(|argument| is_negative(&argument)) {
        return "numbers, times and sizes are not negative".to_owned();
    }
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
        [] => "see 'trapline --help' and 'trapline COMMAND --help'".to_owned(),
        values => format!("choose from {}", values.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;
    use clap::Parser;
    use expect_test::expect;

    fn failure(words: &[&str]) -> Failure {
        let words = ["trapline"].iter().chain(words);
        let error = Cli::try_parse_from(words).expect_err("the words are wrong");
        from_clap(&error).expect("this is a failure")
    }

    #[test]
    fn usage_errors_have_message_and_help() {
        let cases = [
            "run --env qemu-kmv",
            "run --env kmv",
            "run --workload exits/port-oot",
            "run --workload all",
            "run --boot 3",
            "run --boots 0",
            "irq --period -5ms",
            "runn",
            "cache",
        ];
        let texts = cases.map(|words| {
            let failure = failure(&words.split(' ').collect::<Vec<_>>());
            assert_eq!(failure.status, Status::Usage);
            let help = failure.help.unwrap_or_default();
            format!("{words} -> {}\n  help: {help}\n", failure.message)
        });
        expect![[r#"
            run --env qemu-kmv -> unknown value 'qemu-kmv' for '--env <A,B>'
              help: did you mean 'qemu-kvm'?
            run --env kmv -> unknown value 'kmv' for '--env <A,B>'
              help: did you mean 'kvm'?
            run --workload exits/port-oot -> unknown value 'exits/port-oot' for '--workload <W,W/OP>'
              help: did you mean 'exits/port-out'?
            run --workload all -> unknown value 'all' for '--workload <W,W/OP>'
              help: leave it out for the default selection, or list what to measure: basic,system,stream,memory,exits,boot,irq,populate,block,files,net,ipc,smp
            run --boot 3 -> unknown argument '--boot'
              help: did you mean '--boots'?
            run --boots 0 -> invalid value '0' for '--boots <N>': 0 is not in 1..=10000
              help: see 'trapline --help' and 'trapline COMMAND --help'
            irq --period -5ms -> negative value '-5'
              help: numbers, times and sizes are not negative
            runn -> unknown command 'runn'
              help: did you mean 'run'?
            cache -> a command is missing
              help: see 'trapline --help' and 'trapline COMMAND --help'
        "#]].assert_eq(&texts.concat());
    }

    #[test]
    fn the_page_has_every_status() {
        let page = include_str!("../../../docs/exit-status.md");
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| ")).collect();
        let statuses = crate::args::pages::PAGES[0].statuses.iter();
        let expected = statuses.map(|(status, meaning)| format!("| {status} | {meaning} |"));
        let header = "| status | meaning |".to_owned();
        assert_eq!(
            rows,
            std::iter::once(header).chain(expected).collect::<Vec<_>>()
        );
    }

    #[test]
    fn without_a_similar_name_all_names_are_listed() {
        let failure = failure(&["run", "--env", "zzzzz"]);
        let help = failure.help.expect("there is help");
        assert!(help.starts_with("choose from host, kvm, "), "{help}");
    }

    #[test]
    fn without_a_command_the_error_is_the_help_that_lists_the_commands() {
        let error = Cli::try_parse_from(["trapline"]).expect_err("a command is missing");
        assert!(lacks_command(&error), "{error:?}");
        assert!(error.to_string().contains("Commands:"), "{error}");
    }

    #[test]
    fn help_is_not_a_failure() {
        let error = Cli::try_parse_from(["trapline", "--help"]).expect_err("help is shown");
        assert_eq!(from_clap(&error), None);
    }
}
