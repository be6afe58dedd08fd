//! Renders for a terminal.

use super::style::{marks, width, Style};
use super::{layout, Bars, Block, Document, Look, Marker, Note, Part, Section, Span};

/// Characters for the parts of a bar, in Unicode and in ASCII.
const SHADES: [[char; 5]; 2] = [['█', '▓', '▒', '░', '·'], ['#', '=', '+', ':', '.']];

/// The fewest columns of a bar.
const LEAST: usize = 10;

/// Renders `document`, each line at most `style.width` columns wide unless one column of a table
/// is wider.
pub fn render(document: &Document, style: &Style) -> String {
    render_parts(&document.head, &document.sections, style)
}

/// Renders the brief form of `document`, or all of it if it has none.
pub fn render_brief(document: &Document, style: &Style) -> String {
    if document.brief.is_empty() {
        render(document, style)
    } else {
        render_parts(&[], &document.brief, style)
    }
}

fn render_parts(head: &[Note], sections: &[Section], style: &Style) -> String {
    let mut writer = Writer {
        style,
        text: String::new(),
    };
    for note in head {
        writer.note(note);
    }
    for section in sections {
        writer.section(section);
    }
    writer.text
}

struct Writer<'a> {
    style: &'a Style,
    text: String,
}

impl Writer<'_> {
    fn section(&mut self, section: &Section) {
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.heading(&section.title, &section.explanation);
        for block in &section.blocks {
            match block {
                Block::Table(table) => self.text.push_str(&layout::render(table, self.style)),
                Block::Bars(bars) => self.bars(bars),
                Block::Note(note) => self.note(note),
            }
        }
    }

    /// Writes title and explanation to one line if they fit.
    fn heading(&mut self, title: &Span, explanation: &str) {
        let title = self.style.span(&title.text, title.look);
        let explanation = self.style.span(explanation, Look::Faint);
        match (title.width(), explanation.width()) {
            (0, _) => {}
            (_, 0) => self.line(&title),
            (one, other) if one + 2 + other <= self.style.width => {
                let (title, explanation) =
                    (self.style.paint(&title), self.style.paint(&explanation));
                self.text.push_str(&format!("{title}: {explanation}\n"));
            }
            _ => {
                self.line(&title);
                self.wrapped("", &explanation);
            }
        }
    }

    fn note(&mut self, note: &Note) {
        let prefix = match &note.marker {
            Marker::Paragraph => String::new(),
            Marker::Item => " ".to_owned(),
            Marker::Detail => "   ".to_owned(),
            Marker::Warning => " ! ".to_owned(),
            Marker::Footnote(number) => format!(" {} ", marks(&[*number], self.style.unicode)),
            Marker::Subject(subject) => format!(" {subject}: "),
        };
        self.wrapped(&prefix, &self.style.span(&note.text, note.look));
    }

    /// Writes wrapped text; further lines are indented below what comes before it.
    fn wrapped(&mut self, prefix: &str, span: &Span) {
        let text = format!("{prefix}{}", span.text);
        let options = textwrap::Options::new(self.style.width)
            .subsequent_indent(if prefix.is_empty() { "" } else { "   " })
            .word_separator(textwrap::WordSeparator::AsciiSpace)
            .word_splitter(textwrap::WordSplitter::NoHyphenation);
        for line in textwrap::wrap(&text, options) {
            self.line(&Span::new(line, span.look));
        }
    }

    fn line(&mut self, span: &Span) {
        self.text.push_str(&self.style.paint(span));
        self.text.push('\n');
    }

    fn bars(&mut self, bars: &Bars) {
        let all = || bars.bars.iter();
        let labels = all().map(|bar| width(&bar.label)).max().unwrap_or(0);
        let totals = all().map(|bar| width(&bar.total)).max().unwrap_or(0);
        let longest = all()
            .map(|bar| bar.length)
            .fold(f64::MIN_POSITIVE, f64::max);
        let room = self.style.width.saturating_sub(labels + totals + 4);
        let scale = room.max(LEAST) as f64 / longest;
        let shades = SHADES[usize::from(!self.style.unicode)];
        let shade = |kind: usize| shades[kind % shades.len()];
        for bar in &bars.bars {
            let drawn = drawn(&bar.parts, scale, shade);
            let line = format!(" {:<labels$}  {:>totals$} {drawn}", bar.label, bar.total);
            self.line(&Span::plain(line));
        }
        let legend = bars.legend.iter().enumerate();
        let legend = legend.map(|(kind, name)| format!("{} {name}", shade(kind)));
        let legend = legend.collect::<Vec<_>>().join("  ");
        self.line(&Span::plain(format!(" {legend}")));
    }
}

/// Returns the characters of a bar. Every part ends at the rounded sum of all parts up to it, so
/// that rounding errors do not add up; a negative part has no length.
fn drawn(parts: &[Part], scale: f64, shade: impl Fn(usize) -> char) -> String {
    let mut bar = String::new();
    let (mut sum, mut drawn) = (0.0, 0);
    for part in parts {
        sum += part.length;
        let end = (sum * scale).round() as usize;
        let width = end.saturating_sub(drawn);
        bar.extend(std::iter::repeat_n(shade(part.kind), width));
        drawn += width;
    }
    bar
}
