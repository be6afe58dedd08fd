//! The output formats.

use super::style::Style;
use super::{json, markdown, text, Document};
use crate::formats::{Case, JunitError, Outcome, Suite};
use trapline_model::line::one_line;

/// An output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text for a terminal.
    Text(Style),
    /// The brief form of a document as text for a terminal, or all of it if there is none.
    Brief(Style),
    /// Markdown.
    Markdown,
    /// JSON, described by `docs/json.md`.
    Json,
    /// CSV (RFC 4180, with plain line feeds): one line for each operation.
    Csv,
    /// JUnit XML.
    Junit,
    /// Bencher Metric Format.
    Bencher,
    /// OpenMetrics text.
    OpenMetrics,
}

/// Renders a document.
///
/// # Errors
/// The XML cannot be written.
pub fn render(document: &Document, format: Format) -> Result<String, JunitError> {
    Ok(match format {
        Format::Text(style) => text::render(document, &style),
        Format::Brief(style) => text::render_brief(document, &style),
        Format::Markdown => markdown::render(document),
        Format::Json => json::render(&document.object, true),
        Format::Csv => csv(document),
        Format::Junit => {
            let suites = document.suites.iter().cloned().map(in_lines);
            crate::formats::junit(document.command, suites.collect())?
        }
        Format::OpenMetrics => crate::formats::openmetrics(&document.records.gauges()),
        Format::Bencher => crate::formats::bencher(document.metrics.iter().cloned()),
    })
}

/// Returns the records below their header.
fn csv(document: &Document) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    // Writing lines of equal length to memory cannot fail.
    let _ = writer.write_record(document.records.header());
    for record in document.records.fields() {
        let _ = writer.write_record(record.into_iter().map(one_line));
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Returns a suite whose texts are lines, except those that may have several.
fn in_lines(suite: Suite) -> Suite {
    let fact = |(name, value): (String, String)| (one_line(name), one_line(value));
    let case = |mut case: Case| {
        (case.class, case.name) = (one_line(case.class), one_line(case.name));
        if let Outcome::Skipped(it) | Outcome::Failed(it) | Outcome::Broken(it) = &mut case.outcome
        {
            it.message = one_line(std::mem::take(&mut it.message));
        }
        case
    };
    Suite {
        name: one_line(suite.name),
        facts: suite.facts.into_iter().map(fact).collect(),
        cases: suite.cases.into_iter().map(case).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::columns::{Column, Get, Records, Role};
    use crate::document::{Look, Marker, Note, Section, Span, Table};
    use crate::formats::Remark;

    const FORGED: &str =
        "a\nsame: 100 figures\r::error::x\u{2028}::error::y\u{202e}z\u{85}::error::v";

    #[test]
    fn texts_of_others_forge_no_line() {
        let mut section = Section::new(FORGED, FORGED);
        let mut table = Table::new(FORGED, [FORGED]);
        table.heading(FORGED, FORGED);
        table.row(FORGED, [Span::plain(FORGED)]);
        section.table(table);
        section.note(Marker::Subject(FORGED.to_owned()), FORGED, Look::Plain);
        let remark = Remark {
            message: FORGED.to_owned(),
            ..Remark::default()
        };
        let case = Case {
            class: FORGED.to_owned(),
            name: FORGED.to_owned(),
            outcome: Outcome::Failed(remark),
            time: None,
            output: String::new(),
        };
        let column = Column {
            name: "a",
            role: Role::Missing,
            help: "",
            get: Get::Sentence(|()| Some(FORGED.to_owned())),
        };
        let document = Document {
            head: vec![Note::new(Marker::Paragraph, FORGED, Look::Plain)],
            sections: vec![section],
            records: Records::new(&[column], [&()]),
            suites: vec![Suite {
                name: FORGED.to_owned(),
                facts: vec![(FORGED.to_owned(), FORGED.to_owned())],
                cases: vec![case],
            }],
            ..Document::default()
        };
        let wide = Style {
            width: 10_000,
            ..Style::default()
        };
        for format in [
            Format::Text(wide),
            Format::Markdown,
            Format::Csv,
            Format::Junit,
        ] {
            let text = render(&document, format).unwrap();
            let is_end = |c: char| matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}');
            let mut lines = text.split(is_end).map(str::trim_start);
            let forged = lines.find(|line| line.starts_with("same") || line.starts_with("::"));
            assert_eq!(forged, None, "{format:?}");
            assert!(
                !text.contains('\u{202e}') && text.contains("::error::"),
                "{format:?}"
            );
        }
    }
}
