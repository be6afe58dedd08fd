//! The report model: sections of tables, bars and notes, independent of the output format.
//!
//! The modules of the workload families build it; the renderers read it and depend on no family. Texts
//! contain Unicode; [`text`] replaces it for terminals that show ASCII only.

mod format;
pub mod html;
pub mod json;
mod layout;
pub mod markdown;
pub mod style;
pub mod text;

pub use format::{render, Format};

use crate::columns::Records;
use crate::formats::{Metric, Suite};
use std::collections::BTreeMap;
use trapline_model::line::{is_control, one_line};

/// A report.
#[derive(Default)]
pub struct Document {
    /// The command that measured.
    pub command: &'static str,
    /// Version, host and settings.
    pub head: Vec<Note>,
    /// The sections, in reading order.
    pub sections: Vec<Section>,
    /// A shorter form of head and sections for terminals; empty if there is none.
    pub brief: Vec<Section>,
    /// Raw figures, one record for each operation.
    pub records: Records,
    /// A case for each operation, in suites.
    pub suites: Vec<Suite>,
    /// Figures by name of the benchmark.
    pub metrics: Vec<(String, Metric)>,
    /// All data, for programs.
    pub object: json::Object,
}

/// Tables, bars and notes under a title.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// The title; empty for none.
    pub title: Span,
    /// Method and units, in one line.
    pub explanation: String,
    /// The contents, in reading order.
    pub blocks: Vec<Block>,
}

/// A part of a section.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A table.
    Table(Table),
    /// Stacked bars.
    Bars(Bars),
    /// A sentence or two.
    Note(Note),
}

/// A sentence or two.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// Its role.
    pub marker: Marker,
    /// The text, without control characters.
    pub text: String,
    /// Its emphasis.
    pub look: Look,
}

/// The role of a note.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Marker {
    /// A paragraph.
    Paragraph,
    /// An item of a list.
    Item,
    /// Explains the block or the item above.
    Detail,
    /// Limits the validity of the block above.
    Warning,
    /// The footnote of this number.
    Footnote(usize),
    /// Concerns what it names.
    Subject(String),
}

/// Bars to one scale, stacked from parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bars {
    /// Names of the kinds of parts.
    pub legend: Vec<String>,
    /// The bars.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The name.
    pub label: String,
    /// The total, formatted.
    pub total: String,
    /// The parts, in stacking order.
    pub parts: Vec<Part>,
    /// The total.
    pub length: f64,
}

/// One part of a bar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Index into [`Bars::legend`].
    pub kind: usize,
    /// The length; a negative part is not drawn.
    pub length: f64,
    /// The length, formatted.
    pub text: String,
    /// True if parts before it are missing, so that its length has several causes.
    pub is_gap: bool,
}

impl Note {
    /// Creates the line that names version, host and seed.
    pub fn origin(version: &str, facts: &BTreeMap<String, String>, seed: Option<u64>) -> Self {
        let mut parts = vec![format!("Trapline {version}")];
        let known = ["cpu", "kernel", "kvm"].into_iter();
        parts.extend(known.filter_map(|name| facts.get(name).cloned()));
        parts.extend(seed.map(|seed| format!("seed {seed}")));
        Self::new(Marker::Paragraph, &parts.join(" · "), Look::Faint)
    }

    /// Creates a note; control characters and repeated spaces of `text` become single spaces.
    pub fn new(marker: Marker, text: &str, look: Look) -> Self {
        let marker = match marker {
            Marker::Subject(subject) => Marker::Subject(one_line(subject)),
            other => other,
        };
        Self {
            marker,
            text: printable(text),
            look,
        }
    }
}

impl Section {
    /// Creates an empty section.
    pub fn new(title: &str, explanation: impl Into<String>) -> Self {
        Self {
            title: Span::new(printable(title), Look::Strong),
            explanation: one_line(explanation),
            blocks: Vec::new(),
        }
    }

    /// Returns the number of rows of tables and of notes that belong to no table.
    pub fn len(&self) -> usize {
        let rows = |block: &Block| match block {
            Block::Table(table) => table.labels().count(),
            Block::Bars(bars) => bars.bars.len(),
            Block::Note(note) => {
                usize::from(matches!(note.marker, Marker::Item | Marker::Subject(_)))
            }
        };
        self.blocks.iter().map(rows).sum()
    }

    /// Adds a table.
    pub fn table(&mut self, table: Table) {
        self.blocks.push(Block::Table(table));
    }

    /// Adds a note.
    pub fn note(&mut self, marker: Marker, text: &str, look: Look) {
        self.blocks.push(Block::Note(Note::new(marker, text, look)));
    }

    /// Adds secondary explanations.
    pub fn details(&mut self, texts: impl IntoIterator<Item = impl AsRef<str>>) {
        for text in texts {
            self.note(Marker::Detail, text.as_ref(), Look::Faint);
        }
    }

    /// Adds warnings.
    pub fn warnings(&mut self, texts: impl IntoIterator<Item = impl AsRef<str>>) {
        for text in texts {
            self.note(Marker::Warning, text.as_ref(), Look::Faint);
        }
    }

    /// Adds the footnotes of the table above, numbered from 1.
    pub fn footnotes(&mut self, texts: impl IntoIterator<Item = impl AsRef<str>>) {
        for (number, text) in (1..).zip(texts) {
            self.note(Marker::Footnote(number), text.as_ref(), Look::Faint);
        }
    }
}

/// Stands in place of a value that is not known.
pub const ABSENT: &str = "–";

/// Text with an emphasis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    /// The text.
    pub text: String,
    /// Its emphasis.
    pub look: Look,
}

/// Emphasis of a text; renderers map it to a colour or a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// No emphasis.
    #[default]
    Plain,
    /// A main figure or a title.
    Strong,
    /// The name of a group of rows.
    Heading,
    /// Secondary information.
    Faint,
    /// A good value.
    Good,
    /// Neither good nor bad.
    Middling,
    /// A bad value.
    Bad,
}

impl Span {
    /// Creates a span.
    pub fn new(text: impl Into<String>, look: Look) -> Self {
        Self {
            text: one_line(text),
            look,
        }
    }

    /// Creates a span without emphasis.
    pub fn plain(text: impl Into<String>) -> Self {
        Self::new(text, Look::Plain)
    }

    /// Creates the span of a value that is not known.
    pub fn absent() -> Self {
        Self::new(ABSENT, Look::Faint)
    }
}

/// One cell of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// A figure and what belongs to it, at most one span for each [`Column::parts`].
    pub parts: Vec<Span>,
    /// Numbers of the footnotes on the first part, from 1.
    pub notes: Vec<usize>,
    /// A second line, across the parts.
    pub below: String,
}

impl From<Span> for Cell {
    fn from(span: Span) -> Self {
        vec![span].into()
    }
}

impl From<Vec<Span>> for Cell {
    fn from(parts: Vec<Span>) -> Self {
        Self {
            parts,
            ..Self::default()
        }
    }
}

/// Horizontal alignment of a part of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// One column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// The heading.
    pub title: String,
    /// Alignment of each part of its cells.
    pub parts: Vec<Align>,
}

/// One row of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Names the rows below it.
    Heading {
        /// The name.
        name: String,
        /// An explanation, shown where there is room.
        remark: String,
    },
    /// Cells, at most one for each column.
    Cells {
        /// The name of the row.
        label: String,
        /// The cells.
        cells: Vec<Cell>,
    },
}

/// Labelled rows by columns.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// The heading of the labels.
    pub corner: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Indices of columns that may be left out where there is no room, the least important first.
    pub optional: Vec<usize>,
    /// Indices of parts that may be left out of all columns, the least important first.
    pub optional_parts: Vec<usize>,
    /// True if columns consist of several parts and have a rule below their title.
    pub is_grouped: bool,
}

impl Table {
    /// Creates a table without rows, whose columns hold one number each.
    pub fn new(
        corner: impl Into<String>,
        columns: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let columns = columns.into_iter().map(|title| Column {
            title: one_line(title),
            parts: vec![Align::Right],
        });
        Self {
            corner: one_line(corner),
            columns: columns.collect(),
            ..Self::default()
        }
    }

    /// Creates a table without rows, whose columns hold several `parts` each.
    pub fn grouped(columns: impl IntoIterator<Item = impl Into<String>>, parts: &[Align]) -> Self {
        let mut table = Self::new("", columns);
        for column in &mut table.columns {
            column.parts = parts.to_vec();
        }
        table.is_grouped = true;
        table
    }

    /// Returns the labels of rows with cells.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.rows.iter().filter_map(|row| match row {
            Row::Cells { label, .. } => Some(label.as_str()),
            Row::Heading { .. } => None,
        })
    }

    /// Marks columns as optional, the least important first.
    pub fn with_optional(mut self, columns: &[usize]) -> Self {
        self.optional = columns.to_vec();
        self
    }

    /// Adds a row.
    pub fn row(
        &mut self,
        label: impl Into<String>,
        cells: impl IntoIterator<Item = impl Into<Cell>>,
    ) {
        self.rows.push(Row::Cells {
            label: one_line(label),
            cells: cells.into_iter().map(Into::into).collect(),
        });
    }

    /// Adds a heading for the rows that follow.
    pub fn heading(&mut self, name: impl Into<String>, remark: impl Into<String>) {
        self.rows.push(Row::Heading {
            name: one_line(name),
            remark: one_line(remark),
        });
    }
}

/// Returns `text` without control characters, with single spaces: texts of guests are untrusted.
pub fn printable(text: &str) -> String {
    let words = text.split(|c: char| is_control(c) || c.is_whitespace());
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join(" ")
}
