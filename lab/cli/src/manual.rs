//! Manual pages, generated from the definition of the command line and from [`pages`].

use crate::args::pages::{self, FILES, VARIABLES};
use crate::args::Cli;
use crate::failure::Failure;
use clap::CommandFactory;
use clap_mangen::roff::{bold, roman, Roff};

/// Returns the manual page of a command, or of the program itself, in roff.
///
/// # Errors
/// There is no such command.
pub fn page(name: Option<&str>) -> Result<String, Failure> {
    let mut program = Cli::command();
    program.build();
    let command = match name {
        None => &program,
        Some(name) => program.find_subcommand(name).ok_or_else(|| {
            Failure::usage(format!("unknown command '{name}'"), "see 'trapline --help'")
        })?,
    };
    let title = name.map_or("trapline".to_owned(), |name| format!("trapline-{name}"));
    let mut text = Vec::new();
    render(
        command.clone().display_name(title),
        name.unwrap_or("trapline"),
        &mut text,
    )
    .map_err(|error| Failure::new(format!("manual page: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn render(command: clap::Command, name: &str, text: &mut Vec<u8>) -> std::io::Result<()> {
    let has_commands = command.has_subcommands();
    let page = clap_mangen::Man::new(command);
    page.render_title(text)?;
    page.render_name_section(text)?;
    page.render_synopsis_section(text)?;
    page.render_description_section(text)?;
    page.render_options_section(text)?;
    if has_commands {
        page.render_subcommands_section(text)?;
    }
    let own = pages::page(name);
    let mut roff = Roff::default();
    if !own.notes.is_empty() {
        roff.control("SH", ["NOTES"]).text([roman(own.notes)]);
    }
    let statuses = own.statuses().iter();
    let statuses: Vec<(String, &str)> = statuses
        .map(|(status, meaning)| (status.to_string(), *meaning))
        .collect();
    push_list("EXAMPLES", own.examples, &mut roff);
    push_list("FILES", &FILES, &mut roff);
    push_list("ENVIRONMENT", &VARIABLES, &mut roff);
    push_list("EXIT STATUS", &statuses, &mut roff);
    roff.to_writer(text)
}

/// Adds a section of terms with their meaning.
fn push_list(title: &str, list: &[(impl AsRef<str>, &str)], roff: &mut Roff) {
    if list.is_empty() {
        return;
    }
    roff.control("SH", [title]);
    for (term, meaning) in list {
        roff.control("TP", []);
        roff.text([bold(term.as_ref())]);
        roff.text([roman(*meaning)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_with_all_sections() {
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let page = page(Some(name)).unwrap();
            for section in [
                "NAME",
                "SYNOPSIS",
                "FILES",
                "ENVIRONMENT",
                "\"EXIT STATUS\"",
            ] {
                assert!(
                    page.contains(&format!(".SH {section}")),
                    "{name}: {section}\n{page}"
                );
            }
            let has_examples = !pages::page(name).examples.is_empty();
            assert_eq!(page.contains(".SH EXAMPLES"), has_examples, "{name}");
        }
    }

    #[test]
    fn the_page_of_the_program_has_its_commands() {
        let page = page(None).unwrap();
        for word in [
            "doctor",
            "bisect",
            "XDG_DATA_HOME",
            "trapline.db",
            "interrupted by SIGINT",
        ] {
            assert!(page.contains(word), "{word} is not in\n{page}");
        }
        assert!(super::page(Some("fly")).is_err());
    }
}
