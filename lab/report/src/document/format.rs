//! The output formats.

use super::style::Style;
use super::{json, markdown, text, Document};
use std::collections::BTreeSet;
use trapline_ci::{JunitError, Suite};

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

/// Renders the documents of a run, one for each set of settings.
///
/// # Errors
/// The XML cannot be written.
pub fn render(documents: &[Document], format: Format) -> Result<String, JunitError> {
    let joined = |render: &dyn Fn(&Document) -> String| {
        let texts: Vec<String> = documents.iter().map(render).collect();
        texts.join("\n")
    };
    Ok(match format {
        Format::Text(style) => joined(&|document| text::render(document, &style)),
        Format::Brief(style) => joined(&|document| text::render_brief(document, &style)),
        Format::Markdown => joined(&markdown::render),
        Format::Json => {
            let objects: Vec<_> = documents.iter().map(|document| &document.object).collect();
            json::render(&objects, true)
        }
        Format::Csv => csv(documents),
        Format::Junit => junit(documents)?,
        Format::OpenMetrics => {
            let header = documents
                .first()
                .map_or(&[][..], |document| document.header);
            let records = documents
                .iter()
                .flat_map(|document| document.records.clone());
            trapline_ci::openmetrics(header, &records.collect::<Vec<_>>())
        }
        Format::Bencher => {
            let metrics = documents.iter().flat_map(|document| &document.metrics);
            trapline_ci::bencher(metrics.cloned())
        }
    })
}

/// Returns the records of all documents below one header.
fn csv(documents: &[Document]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let header = documents.first().map(|document| document.header);
    // Writing lines of equal length to memory cannot fail.
    let _ = header.map(|header| writer.write_record(header));
    for record in documents.iter().flat_map(|document| &document.records) {
        let _ = writer.write_record(record);
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Returns the suites of all documents, those of one name once: the bare row stands beside every set
/// of settings.
fn junit(documents: &[Document]) -> Result<String, JunitError> {
    let mut names = BTreeSet::new();
    let all = documents.iter().flat_map(|document| &document.suites);
    let suites: Vec<Suite> = all
        .filter(|suite| names.insert(&suite.name))
        .cloned()
        .collect();
    let command = documents.first().map_or("", |document| document.command);
    trapline_ci::junit(command, suites)
}
