//! Rows of labels beside groups of columns, laid out for a width.
//!
//! A sheet knows nothing of what it shows. Its groups are never torn apart:
//! as many as fit stand side by side, the others follow below, each time beside
//! the labels.

use crate::Style;
use anstyle::{AnsiColor, Style as Paint};

/// Spaces between groups.
const GAP: usize = 2;

/// Text with a look.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Span {
    pub text: String,
    pub look: Look,
}

/// What colour is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    #[default]
    Plain,
    Strong,
    Heading,
    Faint,
    Good,
    Middling,
    Bad,
}

impl Look {
    fn paint(self) -> Paint {
        match self {
            Self::Plain => Paint::new(),
            Self::Strong => Paint::new().bold(),
            Self::Heading => AnsiColor::Cyan.on_default().bold(),
            Self::Faint => Paint::new().dimmed(),
            Self::Good => AnsiColor::Green.on_default(),
            Self::Middling => AnsiColor::Yellow.on_default(),
            Self::Bad => AnsiColor::Red.on_default(),
        }
    }
}

impl Span {
    pub fn new(text: impl Into<String>, look: Look) -> Self {
        Self {
            text: text.into(),
            look,
        }
    }

    pub fn width(&self) -> usize {
        width(&self.text)
    }

    /// The text, in colour if the style has any.
    pub fn painted(&self, style: &Style) -> String {
        let paint = self.look.paint();
        if style.colour && self.look != Look::Plain && !self.text.is_empty() {
            format!("{paint}{}{paint:#}", self.text)
        } else {
            self.text.clone()
        }
    }
}

/// Columns of a terminal that `text` takes: everything we print takes one a
/// character.
pub fn width(text: &str) -> usize {
    text.chars().count()
}

/// One column of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    Left,
    Right,
}

/// What stands at the left of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Label {
    /// A row of its own, with a remark where there is room.
    Heading(Span, Span),
    /// Names the row.
    Row(Span),
}

/// Columns that belong together, under a title.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    pub title: Span,
    pub columns: Vec<Align>,
    /// A row of spans for each [`Label::Row`], one a column. One more span is a second line
    /// below the row, across the columns.
    pub rows: Vec<Vec<Span>>,
}

impl Group {
    fn widths(&self) -> Vec<usize> {
        let of_column = |column: usize| {
            let spans = self.rows.iter().filter_map(move |row| row.get(column));
            spans.map(Span::width).max().unwrap_or(0)
        };
        (0..self.columns.len()).map(of_column).collect()
    }

    /// Columns that hold nothing take no room, not even a space.
    fn width(&self) -> usize {
        let used: Vec<usize> = self
            .widths()
            .into_iter()
            .filter(|width| *width > 0)
            .collect();
        let inner = used.iter().sum::<usize>() + used.len().saturating_sub(1);
        let second = (0..self.rows.len()).map(|row| self.second_line(row).map_or(0, Span::width));
        inner.max(self.title.width()).max(second.max().unwrap_or(0))
    }

    fn second_line(&self, row: usize) -> Option<&Span> {
        let second = self.rows[row].get(self.columns.len());
        second.filter(|span| !span.text.is_empty())
    }

    /// Text of a row, not padded on the right, and its width.
    fn row(&self, index: usize, style: &Style) -> (String, usize) {
        let (mut text, mut used) = (String::new(), 0);
        let widths = self.widths();
        let mut separator = "";
        for (column, align) in self
            .columns
            .iter()
            .enumerate()
            .filter(|(c, _)| widths[*c] > 0)
        {
            let span = &self.rows[index][column];
            let padding = widths[column] - span.width();
            let (before, after) = match align {
                Align::Left => (0, padding),
                Align::Right => (padding, 0),
            };
            text.push_str(separator);
            text.push_str(&" ".repeat(before));
            text.push_str(&span.painted(style));
            text.push_str(&" ".repeat(after));
            used += separator.len() + widths[column];
            separator = " ";
        }
        (text, used)
    }
}

/// A sheet.
#[derive(Clone, Debug, PartialEq)]
pub struct Sheet {
    pub labels: Vec<Label>,
    pub groups: Vec<Group>,
}

impl Sheet {
    /// The sheet as lines, none longer than the style allows unless a single
    /// group is.
    pub fn render(&self, style: &Style) -> String {
        let mut text = String::new();
        for block in self.blocks(style.width) {
            if !text.is_empty() {
                text.push('\n');
            }
            let remarks = text.is_empty();
            self.render_block(block, remarks, style, &mut text);
        }
        text
    }

    fn label_width(&self) -> usize {
        let labels = self.labels.iter().map(|label| match label {
            Label::Heading(..) => 0,
            Label::Row(span) => span.width() + 1,
        });
        labels.max().unwrap_or(0)
    }

    /// The groups, as many together as fit into `width`.
    fn blocks(&self, width: usize) -> Vec<&[Group]> {
        let mut blocks = Vec::new();
        let (mut start, mut used) = (0, self.label_width());
        for (index, group) in self.groups.iter().enumerate() {
            let needed = GAP + group.width();
            if used + needed > width && index > start {
                blocks.push(&self.groups[start..index]);
                (start, used) = (index, self.label_width());
            }
            used += needed;
        }
        if start < self.groups.len() {
            blocks.push(&self.groups[start..]);
        }
        blocks
    }

    fn render_block(&self, block: &[Group], remarks: bool, style: &Style, text: &mut String) {
        self.render_titles(block, style, text);
        let mut row = 0;
        for label in &self.labels {
            match label {
                Label::Heading(name, remark) => {
                    let mut line = name.painted(style);
                    let room = style.width.saturating_sub(name.width() + 2);
                    if remarks && remark.width() > 0 && remark.width() <= room {
                        line.push_str("  ");
                        line.push_str(&remark.painted(style));
                    }
                    push_line(text, &line);
                }
                Label::Row(name) => {
                    let mut line = Line::default();
                    line.put(&name.painted(style), name.width(), 1);
                    let mut at = self.label_width();
                    for group in block {
                        let (cells, used) = group.row(row, style);
                        line.put(&cells, used, at + GAP);
                        at += GAP + group.width();
                    }
                    push_line(text, &line.text);
                    self.render_second_line(block, row, style, text);
                    row += 1;
                }
            }
        }
    }

    fn render_second_line(&self, block: &[Group], row: usize, style: &Style, text: &mut String) {
        let mut line = Line::default();
        let mut at = self.label_width();
        for group in block {
            if let Some(span) = group.second_line(row) {
                line.put(&span.painted(style), span.width(), at + GAP);
            }
            at += GAP + group.width();
        }
        if line.used > 0 {
            push_line(text, &line.text);
        }
    }

    fn render_titles(&self, block: &[Group], style: &Style, text: &mut String) {
        let rule = if style.unicode { "─" } else { "-" };
        let mut titles = Line::default();
        let mut rules = Line::default();
        let mut at = self.label_width();
        for group in block {
            let width = group.width();
            titles.put(&group.title.painted(style), group.title.width(), at + GAP);
            let line = Span::new(rule.repeat(width), Look::Faint);
            rules.put(&line.painted(style), width, at + GAP);
            at += GAP + width;
        }
        push_line(text, &titles.text);
        push_line(text, &rules.text);
    }
}

/// A line that is filled from left to right. Escape sequences take no room, so
/// the room is counted apart.
#[derive(Default)]
struct Line {
    text: String,
    used: usize,
}

impl Line {
    /// Adds `text`, which takes `width` columns, at column `at`.
    fn put(&mut self, text: &str, width: usize, at: usize) {
        self.text
            .push_str(&" ".repeat(at.saturating_sub(self.used)));
        self.text.push_str(text);
        self.used = self.used.max(at) + width;
    }
}

fn push_line(text: &mut String, line: &str) {
    text.push_str(line.trim_end());
    text.push('\n');
}
