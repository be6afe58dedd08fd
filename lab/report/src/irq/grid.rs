//! A table of plain numbers: names at the left, columns with a heading each.

use crate::sheet::{width, Look, Span};
use crate::Style;

/// Spaces between columns.
const GAP: usize = 2;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// The headings of the columns.
    pub columns: Vec<String>,
    /// Names of rows, and what stands in their columns.
    pub rows: Vec<(String, Vec<Span>)>,
}

impl Grid {
    /// A table with these columns and no rows yet.
    pub fn new(columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            columns: columns.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, name: impl Into<String>, cells: Vec<Span>) {
        self.rows.push((name.into(), cells));
    }

    /// The table without one of its columns.
    pub fn without(mut self, heading: &str) -> Self {
        if let Some(at) = self.columns.iter().position(|column| column == heading) {
            self.columns.remove(at);
            for (_, cells) in &mut self.rows {
                if at < cells.len() {
                    cells.remove(at);
                }
            }
        }
        self
    }

    /// Columns of a terminal that it takes.
    pub fn width(&self) -> usize {
        let columns: usize = self.widths().iter().map(|width| width + GAP).sum();
        self.name_width() + columns
    }

    /// The table as lines.
    pub fn render(&self, style: &Style) -> String {
        let heads = self.columns.iter().map(|head| Span::new(head, Look::Faint));
        let mut text = self.line("", &heads.collect::<Vec<_>>(), style);
        for (name, cells) in &self.rows {
            text.push_str(&self.line(name, cells, style));
        }
        text
    }

    fn name_width(&self) -> usize {
        let names = self.rows.iter().map(|(name, _)| width(name) + 1);
        names.max().unwrap_or(0)
    }

    fn widths(&self) -> Vec<usize> {
        let of_column = |(at, heading): (usize, &String)| {
            let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(at));
            let widest = cells.map(Span::width).max().unwrap_or(0);
            widest.max(width(heading))
        };
        self.columns.iter().enumerate().map(of_column).collect()
    }

    fn line(&self, name: &str, cells: &[Span], style: &Style) -> String {
        let mut line = format!(" {name:<rest$}", rest = self.name_width().saturating_sub(1));
        for (cell, width) in cells.iter().zip(self.widths()) {
            line.push_str(&" ".repeat(GAP + width - cell.width()));
            line.push_str(&cell.painted(style));
        }
        line.truncate(line.trim_end().len());
        line.push('\n');
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(["mean", "max"]);
        let cell = |text: &str| Span::new(text, Look::Plain);
        grid.row("kvm own", vec![cell("1.5"), cell("1,022")]);
        grid.row("host", vec![cell("12.25"), cell("3")]);
        grid
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let text = grid().render(&Style::default());
        let expected = "           mean    max\n kvm own    1.5  1,022\n host     12.25      3\n";
        assert_eq!(text, expected);
        let longest = text.lines().map(width).max().unwrap();
        assert_eq!(grid().width(), longest);
    }

    #[test]
    fn a_column_can_be_left_out() {
        let text = grid()
            .without("mean")
            .without("none")
            .render(&Style::default());
        assert_eq!(text, "            max\n kvm own  1,022\n host         3\n");
    }
}
