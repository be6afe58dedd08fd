//! Lays a table out for a line width.
//!
//! Optional columns and parts are left out first; the columns that still do not fit follow below, each
//! time beside the labels, without the rows that have nothing there. A column is never split. No table crate lays out cells of several aligned
//! parts with a second line, or drops columns by importance.

use super::style::{marks, width, Style};
use super::{Align, Cell, Look, Row, Span, Table, ABSENT};

/// Spaces between columns.
const GAP: usize = 2;

/// Returns the lines of `table`, none longer than the style allows unless a single column is.
pub fn render(table: &Table, style: &Style) -> String {
    let layout = Layout::fitting(table, style);
    let mut text = String::new();
    for (index, block) in layout.blocks().into_iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        layout.push_titles(block, &mut text);
        layout.push_rows(block, index == 0, &mut text);
    }
    text
}

struct Layout<'a> {
    table: &'a Table,
    style: &'a Style,
    label_width: usize,
    columns: Vec<Measured>,
}

/// A column with its cells as they are shown.
struct Measured {
    index: usize,
    title: Span,
    /// A span for each part of each row, footnote marks as a part of their own.
    rows: Vec<Vec<Span>>,
    below: Vec<Span>,
    aligns: Vec<Align>,
    /// Widths of the parts.
    widths: Vec<usize>,
    /// Width of all parts together.
    inner: usize,
    /// Width of the column.
    width: usize,
    is_numeric: bool,
    /// The sign of what is not known, as it is shown.
    absent: String,
}

impl Measured {
    fn new(table: &Table, index: usize, dropped: &[usize], style: &Style) -> Self {
        let column = &table.columns[index];
        let empty = Cell::default();
        let cells: Vec<&Cell> = cells(table)
            .map(|cells| cells.get(index).unwrap_or(&empty))
            .collect();
        let mut aligns = column.parts.clone();
        aligns.insert(1.min(aligns.len()), Align::Left);
        let rows: Vec<Vec<Span>> = cells
            .iter()
            .map(|cell| spans(cell, aligns.len(), dropped, style))
            .collect();
        let below: Vec<Span> = cells
            .iter()
            .map(|cell| style.span(&cell.below, Look::Faint))
            .collect();
        let widths = widths(&rows, aligns.len(), !table.optional_parts.is_empty());
        let inner = rows.iter().map(|row| inner(row, &widths)).max();
        let inner = inner.unwrap_or(0);
        let look = if table.is_grouped {
            Look::Strong
        } else {
            Look::Faint
        };
        let title = style.span(&column.title, look);
        let below_width = below.iter().map(Span::width).max().unwrap_or(0);
        Self {
            index,
            width: inner.max(title.width()).max(below_width),
            inner,
            is_numeric: !table.is_grouped && aligns.first() == Some(&Align::Right),
            title,
            absent: style.text(ABSENT),
            rows,
            below,
            aligns,
            widths,
        }
    }

    /// Returns true if nothing is known of the row.
    fn is_absent(&self, index: usize) -> bool {
        let absent = self.absent.as_str();
        self.rows[index]
            .iter()
            .all(|span| span.text.is_empty() || span.text == absent)
    }

    fn put_row(&self, index: usize, at: usize, line: &mut Line<'_>) {
        let mut at = at + self.padding(self.inner);
        for (part, span) in self.rows[index].iter().enumerate() {
            let width = self.widths[part];
            if width.max(span.width()) > 0 {
                let padding = match self.aligns[part] {
                    Align::Left => 0,
                    Align::Right => width.saturating_sub(span.width()),
                };
                line.put(span, at + padding);
                at += width + 1;
            }
        }
    }

    /// Spaces before content of a width: columns of plain numbers are aligned right with their title.
    fn padding(&self, content: usize) -> usize {
        if self.is_numeric {
            self.width - content
        } else {
            0
        }
    }
}

/// Returns the width of each part. In a dense table the last part of a cell is not counted where other
/// cells of the column have more parts: it can extend into those.
fn widths(rows: &[Vec<Span>], count: usize, is_dense: bool) -> Vec<usize> {
    let most = rows.iter().filter_map(|row| last(row)).max();
    let in_row = |row: &Vec<Span>, part: usize| match last(row) {
        Some(last) if is_dense && last == part && Some(last) < most => 0,
        _ => row[part].width(),
    };
    let of_part = |part: usize| rows.iter().map(|row| in_row(row, part)).max();
    (0..count).map(|part| of_part(part).unwrap_or(0)).collect()
}

/// Returns the index of the last part that holds anything.
fn last(row: &[Span]) -> Option<usize> {
    row.iter().rposition(|span| span.width() > 0)
}

fn inner(row: &[Span], widths: &[usize]) -> usize {
    let last = last(row).unwrap_or(0);
    // Parts that hold nothing take no room, not even a space.
    let before = widths[..last].iter().filter(|width| **width > 0);
    let start: usize = before.map(|width| width + 1).sum();
    start + row[last].width().max(widths[last])
}

/// The spans of a cell: its parts but the `dropped` ones, with the marks of its footnotes behind the first.
fn spans(cell: &Cell, count: usize, dropped: &[usize], style: &Style) -> Vec<Span> {
    let shown = |part: usize| {
        let span = cell.parts.get(part).filter(|_| !dropped.contains(&part));
        span.map_or_else(Span::default, |span| style.span(&span.text, span.look))
    };
    let mut spans: Vec<Span> = (0..count.saturating_sub(1)).map(shown).collect();
    let marks = Span::new(marks(&cell.notes, style.unicode), Look::Faint);
    spans.insert(1.min(spans.len()), marks);
    spans
}

fn cells(table: &Table) -> impl Iterator<Item = &Vec<Cell>> {
    table.rows.iter().filter_map(|row| match row {
        Row::Cells { cells, .. } => Some(cells),
        Row::Heading { .. } => None,
    })
}

impl<'a> Layout<'a> {
    /// Returns the layout with as few optional columns and parts left out as the width needs.
    fn fitting(table: &'a Table, style: &'a Style) -> Self {
        let mut layout = Self::new(table, &[], style);
        for dropped in 1..=table.optional_parts.len() {
            if !layout.fits() {
                layout = Self::new(table, &table.optional_parts[..dropped], style);
            }
        }
        for index in &table.optional {
            if !layout.fits() {
                layout.columns.retain(|column| column.index != *index);
            }
        }
        layout
    }

    fn new(table: &'a Table, dropped: &[usize], style: &'a Style) -> Self {
        let labels = table.labels();
        let labels = labels.chain((!table.corner.is_empty()).then_some(table.corner.as_str()));
        let label_width = labels.map(|label| width(label) + 1).max().unwrap_or(0);
        let columns = 0..table.columns.len();
        Self {
            table,
            style,
            label_width,
            columns: columns
                .map(|index| Measured::new(table, index, dropped, style))
                .collect(),
        }
    }

    /// Returns true if all columns fit side by side.
    fn fits(&self) -> bool {
        let columns = self.columns.iter().map(|column| column.width + GAP);
        self.label_width + columns.sum::<usize>() <= self.style.width
    }

    /// The columns, as many together as fit.
    fn blocks(&self) -> Vec<&[Measured]> {
        let mut blocks = Vec::new();
        let (mut start, mut used) = (0, self.label_width);
        for (index, column) in self.columns.iter().enumerate() {
            let needed = GAP + column.width;
            if used + needed > self.style.width && index > start {
                blocks.push(&self.columns[start..index]);
                (start, used) = (index, self.label_width);
            }
            used += needed;
        }
        if start < self.columns.len() {
            blocks.push(&self.columns[start..]);
        }
        blocks
    }

    /// Calls `put` with each column of a block and the place where it begins.
    fn line<'b>(
        &self,
        block: &'b [Measured],
        mut put: impl FnMut(&'b Measured, usize, &mut Line<'_>),
        label: &Span,
    ) -> Line<'a> {
        let mut line = Line::new(self.style);
        line.put(label, 1);
        let mut at = self.label_width + GAP;
        for column in block {
            put(column, at, &mut line);
            at += GAP + column.width;
        }
        line
    }

    fn push_titles(&self, block: &[Measured], text: &mut String) {
        let corner = self.style.span(&self.table.corner, Look::Faint);
        let titles = |column: &Measured, at: usize, line: &mut Line<'_>| {
            line.put(&column.title, at + column.padding(column.title.width()));
        };
        self.line(block, titles, &corner).push_to(text);
        if self.table.is_grouped {
            let rule = |column: &Measured, at: usize, line: &mut Line<'_>| {
                line.put(&self.style.span(&"─".repeat(column.width), Look::Faint), at);
            };
            self.line(block, rule, &Span::default()).push_to(text);
        }
    }

    /// Writes the rows with anything in the block, and the headings above these.
    fn push_rows(&self, block: &[Measured], remarks: bool, text: &mut String) {
        let is_whole = block.len() == self.columns.len();
        let mut heading = None;
        let mut index = 0;
        for row in &self.table.rows {
            match row {
                Row::Heading { name, remark } => heading = Some((name, remark)),
                Row::Cells { label, .. } => {
                    if is_whole || block.iter().any(|column| !column.is_absent(index)) {
                        if let Some((name, remark)) = heading.take() {
                            self.push_heading(name, if remarks { remark } else { "" }, text);
                        }
                        self.push_row(block, index, label, text);
                    }
                    index += 1;
                }
            }
        }
    }

    fn push_heading(&self, name: &str, remark: &str, text: &mut String) {
        let mut line = Line::new(self.style);
        let name = self.style.span(name, Look::Heading);
        let remark = self.style.span(remark, Look::Faint);
        line.put(&name, 0);
        if name.width() + 2 + remark.width() <= self.style.width {
            line.put(&remark, name.width() + 2);
        }
        line.push_to(text);
    }

    fn push_row(&self, block: &[Measured], index: usize, label: &str, text: &mut String) {
        let label = self.style.span(label, Look::Plain);
        let cells = |column: &Measured, at: usize, line: &mut Line<'_>| {
            column.put_row(index, at, line);
        };
        self.line(block, cells, &label).push_to(text);
        if block.iter().any(|column| column.below[index].width() > 0) {
            let below = |column: &Measured, at: usize, line: &mut Line<'_>| {
                line.put(&column.below[index], at);
            };
            self.line(block, below, &Span::default()).push_to(text);
        }
    }
}

/// A line that is filled from left to right; escape sequences take no room.
struct Line<'a> {
    style: &'a Style,
    text: String,
    used: usize,
}

impl<'a> Line<'a> {
    fn new(style: &'a Style) -> Self {
        Self {
            style,
            text: String::new(),
            used: 0,
        }
    }

    /// Adds `span` at column `at`.
    fn put(&mut self, span: &Span, at: usize) {
        if span.text.is_empty() {
            return;
        }
        self.text
            .push_str(&" ".repeat(at.saturating_sub(self.used)));
        self.text.push_str(&self.style.paint(span));
        self.used = self.used.max(at) + span.width();
    }

    fn push_to(&self, text: &mut String) {
        text.push_str(self.text.trim_end());
        text.push('\n');
    }
}
