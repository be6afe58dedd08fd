//! Standard output: width, colour, character set, and closed pipes.

use crate::args::Color;
use std::borrow::Cow;
use std::fmt::Arguments;
use std::io::{self, IsTerminal, Write};
use trapline_model::line::is_control;
use trapline_runner::Failure;

pub use trapline_model::line::one_line;

/// Columns without a terminal.
const DEFAULT_WIDTH: usize = 80;

/// Sets the use of colour for the whole process.
pub fn choose_color(color: Color) {
    match color {
        Color::Auto => {}
        Color::Always => anstream::ColorChoice::Always.write_global(),
        Color::Never => anstream::ColorChoice::Never.write_global(),
    }
}

/// Returns whether standard output supports colour.
pub fn shows_color() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}

/// Returns whether the locale has characters beyond ASCII.
pub fn shows_unicode() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter();
    let locale = set
        .filter_map(std::env::var_os)
        .find(|text| !text.is_empty());
    // Without a locale, as in many containers, UTF-8 is assumed.
    locale.is_none_or(|name| {
        let name = name.to_string_lossy().to_lowercase();
        name.contains("utf") || name == "c" || name == "posix"
    })
}

/// Returns whether standard error is a terminal.
pub fn is_watched() -> bool {
    io::stderr().is_terminal()
}

/// Returns the columns of the terminal; in a pipe `COLUMNS`, or 80.
pub fn width() -> usize {
    let terminal = terminal_size::terminal_size_of(io::stdout());
    if let Some((terminal_size::Width(columns), _)) = terminal {
        return usize::from(columns).max(40);
    }
    let columns = std::env::var("COLUMNS")
        .ok()
        .and_then(|text| text.parse().ok());
    columns.map_or(DEFAULT_WIDTH, |columns: usize| columns.clamp(40, 1000))
}

/// Returns the columns to which lines are cut: those of the terminal. Programs that read a pipe need whole names.
pub fn cut_width() -> usize {
    if io::stdout().is_terminal() {
        width()
    } else {
        usize::MAX
    }
}

/// Writes to standard output. A closed pipe (`trapline list | head`) is not an error.
///
/// # Errors
/// Output cannot be written.
fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    let written = write(&mut out).and_then(|()| out.flush());
    match written {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(format!(
            "cannot write to standard output: {error}"
        ))),
        _ => Ok(()),
    }
}

/// Writes text to standard output, without control characters ([`printable`]).
///
/// # Errors
/// Output cannot be written.
pub fn print_text(text: &str) -> Result<(), Failure> {
    print(|out| out.write_all(printable(text).as_bytes()))
}

/// Writes text with our own colours to standard output. Texts of others in it have no control characters; all that are
/// not part of a colour are replaced nevertheless.
///
/// # Errors
/// Output cannot be written.
pub fn print_styled(text: &str) -> Result<(), Failure> {
    let mut clean = String::with_capacity(text.len());
    let mut pieces = text.split(COLOUR_START);
    clean.push_str(&printable(pieces.next().unwrap_or_default()));
    for piece in pieces {
        let end = piece.find(|c: char| !c.is_ascii_digit() && c != ';');
        let is_colour = end.is_some_and(|end| piece[end..].starts_with('m'));
        let start = if is_colour { COLOUR_START } else { "\u{fffd}[" };
        clean.push_str(start);
        clean.push_str(&printable(piece));
    }
    print(|out| out.write_all(clean.as_bytes()))
}

/// Writes text with our own colours to standard error. A failure cannot be reported.
pub fn write_error(text: Arguments<'_>) {
    let mut errors = anstream::stderr().lock();
    let _ = errors.write_fmt(text).and_then(|()| errors.flush());
}

/// Writes a line to standard error ([`one_line`]).
pub fn print_error(line: &str) {
    write_error(format_args!("{}\n", one_line(line)));
}

/// Prints a question to standard error and returns the line that is typed; an end of input or a signal is `n`.
pub fn answer(question: &str) -> String {
    write_error(format_args!("{question}"));
    let mut line = String::new();
    match io::stdin().read_line(&mut line) {
        Ok(length) if length > 0 => line,
        _ => "n".to_owned(),
    }
}

/// Begins the escape sequence of a colour (ECMA-48, SGR).
const COLOUR_START: &str = "\x1b[";

/// Returns text in which all control characters ([`is_control`]) but line feeds and tabs are replaced by U+FFFD. Texts of
/// stores, plans, baselines, guests and file names pass here on their way to a terminal, which could execute them; each was
/// put into its line by [`one_line`] or the like.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_hidden = |c: char| is_control(c) && c != '\n' && c != '\t';
    if text.contains(is_hidden) {
        text.replace(is_hidden, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// Writes one JSON value to standard output.
///
/// # Errors
/// Output cannot be written.
pub fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print_text(&format!("{value:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends of lines and controls of the direction of writing that are no control characters of Unicode.
    const CONTROLS: &str = "\u{2028}\u{2029}\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";

    #[test]
    fn every_control_character_is_replaced() {
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let text = format!("a{c}b");
            let expected = match c {
                '\n' | '\t' => text.clone(),
                c if c.is_control() => "a\u{fffd}b".to_owned(),
                _ if CONTROLS.contains(c) => "a\u{fffd}b".to_owned(),
                _ => text.clone(),
            };
            assert_eq!(printable(&text), expected);
            let is_kept = expected == text && !c.is_control();
            assert_eq!(one_line(text.as_str()) == text, is_kept);
        }
    }
}
