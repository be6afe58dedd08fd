//! Completions, computed by the program itself: they cover what this version and this store have.

use crate::args::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_complete::env::{CompleteEnv, Shells};
use clap_complete::Shell;

/// Variable that asks the program for completions, set by the script of [`script`].
const VARIABLE: &str = "COMPLETE";

/// Prints completions and exits if a shell asks for them.
pub fn answer() {
    CompleteEnv::with_factory(Cli::command)
        .var(VARIABLE)
        .complete();
}

/// Returns the script that makes `shell` ask this program.
///
/// # Errors
/// The shell is not supported.
pub fn script(shell: Shell) -> Result<String, Failure> {
    let name = shell.to_string();
    let shells = Shells::builtins();
    let unsupported = || {
        Failure::usage(
            format!("no completions for {name}"),
            "use bash, zsh or fish",
        )
    };
    let shell = shells.completer(&name).ok_or_else(unsupported)?;
    let mut text = Vec::new();
    let written = shell.write_registration(VARIABLE, "trapline", "trapline", "trapline", &mut text);
    written.map_err(|error| Failure::new(format!("completions for {name}: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    fn completed(words: &[&str]) -> Vec<String> {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let index = words.len() - 1;
        let all = clap_complete::engine::complete(&mut Cli::command(), words, index, None);
        let values = all.expect("there are candidates").into_iter();
        values
            .map(|candidate| candidate.get_value().to_string_lossy().into_owned())
            .collect()
    }

    #[test]
    fn names_are_completed_also_within_a_list() {
        assert_eq!(completed(&["trapline", "doc"]), ["doctor"]);
        let environments = completed(&["trapline", "run", "--env", "sim,qemu-k"]);
        assert!(
            environments.contains(&"sim,qemu-kvm".to_owned()),
            "{environments:?}"
        );
        let operations = completed(&["trapline", "run", "--workload", "exits/port-"]);
        assert!(
            operations.contains(&"exits/port-out".to_owned()),
            "{operations:?}"
        );
    }

    #[test]
    fn scripts_ask_the_program() {
        for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
            let script = script(shell).unwrap();
            assert!(
                script.contains("COMPLETE") && script.contains("trapline"),
                "{script}"
            );
        }
    }
}
