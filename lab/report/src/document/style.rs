//! Capabilities of a terminal: width, colours and characters.

use super::{Look, Span};
use anstyle::{AnsiColor, Style as Paint};

/// Capabilities of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns of a line.
    pub width: usize,
    /// True if colours are shown.
    pub colour: bool,
    /// True if characters beyond ASCII are shown.
    pub unicode: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            unicode: true,
        }
    }
}

impl Style {
    /// Returns `text` with the characters that the terminal shows.
    pub fn text(&self, text: &str) -> String {
        if self.unicode {
            text.to_owned()
        } else {
            ascii(text)
        }
    }

    pub(super) fn span(&self, text: &str, look: Look) -> Span {
        Span::new(self.text(text), look)
    }

    /// Returns the text of `span`, coloured if the terminal shows colours.
    pub fn paint(&self, span: &Span) -> String {
        let paint = paint(span.look);
        if self.colour && span.look != Look::Plain && !span.text.is_empty() {
            format!("{paint}{}{paint:#}", span.text)
        } else {
            span.text.clone()
        }
    }
}

fn paint(look: Look) -> Paint {
    match look {
        Look::Plain => Paint::new(),
        Look::Strong => Paint::new().bold(),
        Look::Heading => AnsiColor::Cyan.on_default().bold(),
        Look::Faint => Paint::new().dimmed(),
        Look::Good => AnsiColor::Green.on_default(),
        Look::Middling => AnsiColor::Yellow.on_default(),
        Look::Bad => AnsiColor::Red.on_default(),
    }
}

impl Span {
    /// Returns the number of terminal columns of the text; every character that reports contain
    /// takes one.
    pub fn width(&self) -> usize {
        width(&self.text)
    }
}

/// Returns the number of terminal columns of `text`.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// Replaces the signs that reports use by ASCII.
fn ascii(text: &str) -> String {
    let mut plain = String::new();
    for c in text.replace(" · ", ", ").chars() {
        match c {
            '×' => plain.push('x'),
            '±' => plain.push_str("+-"),
            '≥' => plain.push_str(">="),
            'µ' => plain.push('u'),
            '–' | '─' => plain.push('-'),
            other => plain.push(other),
        }
    }
    plain
}

/// Returns the numbers of footnotes as a mark: superscript, or in brackets in ASCII.
pub fn marks(numbers: &[usize], unicode: bool) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
    let text = numbers.join(",");
    let raised = |c: char| c.to_digit(10).map_or('⋅', |digit| DIGITS[digit as usize]);
    match unicode {
        _ if text.is_empty() => text,
        true => text.chars().map(raised).collect(),
        false => format!("[{text}]"),
    }
}
