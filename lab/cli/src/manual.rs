//! Completions and the manual page, generated from the definition of the command line.

use crate::args::Cli;
use clap::CommandFactory;

/// Returns the completions for a shell.
pub fn completions(shell: clap_complete::Shell) -> String {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "trapline", &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// Returns the manual page of all commands, in roff.
pub fn page() -> String {
    let mut text = Vec::new();
    let mut command = Cli::command();
    command.build();
    render(&command, &mut text);
    for subcommand in command.get_subcommands() {
        if subcommand.get_name() != "help" {
            render_options(subcommand, &mut text);
        }
    }
    String::from_utf8_lossy(&text).into_owned()
}

/// Writing to memory cannot fail.
const IN_MEMORY: &str = "memory can be written to";

fn render(command: &clap::Command, text: &mut Vec<u8>) {
    let page = clap_mangen::Man::new(command.clone());
    page.render_title(text).expect(IN_MEMORY);
    page.render_name_section(text).expect(IN_MEMORY);
    page.render_synopsis_section(text).expect(IN_MEMORY);
    page.render_description_section(text).expect(IN_MEMORY);
    page.render_options_section(text).expect(IN_MEMORY);
    page.render_subcommands_section(text).expect(IN_MEMORY);
    page.render_extra_section(text).expect(IN_MEMORY);
}

/// Renders the section of a command.
fn render_options(command: &clap::Command, text: &mut Vec<u8>) {
    let title = command.get_name().to_uppercase();
    text.extend_from_slice(format!(".SH \"TRAPLINE {title}\"\n").as_bytes());
    if let Some(about) = command.get_about() {
        text.extend_from_slice(format!("{about}.\n").as_bytes());
    }
    let mut options = Vec::new();
    clap_mangen::Man::new(command.clone())
        .render_options_section(&mut options)
        .expect(IN_MEMORY);
    let options = String::from_utf8_lossy(&options).replace(".SH OPTIONS", ".SS Options");
    text.extend_from_slice(options.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_commands_and_options() {
        let page = page();
        for word in [
            "doctor",
            "TRAPLINE RUN",
            "\\-\\-preset",
            "\\-\\-store",
            "Exit status",
        ] {
            assert!(page.contains(word), "{word} is not in the manual");
        }
    }

    #[test]
    fn completions_have_environments() {
        for shell in [clap_complete::Shell::Bash, clap_complete::Shell::Zsh] {
            assert!(completions(shell).contains("qemu-kvm"));
        }
    }
}
