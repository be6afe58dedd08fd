//! A table of plain numbers: names at the left, columns with a heading each.

use crate::sheet::{width, Look, Span};
use crate::Style;

/// Spaces between columns.
const GAP: usize = 2;

/// A table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Grid {
    /// The heading of the names.
    pub names: &'static str,
    /// The headings of the columns.
    pub columns: Vec<String>,
    /// Names of rows, and what stands in their columns.
    pub rows: Vec<(String, Vec<Span>)>,
    /// Columns that may be left out.
    give_way: Vec<usize>,
}

/// A table with what there is to say of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Titled {
    pub title: &'static str,
    /// What its figures are, in a few words.
    pub explanation: String,
    pub grid: Grid,
}

impl Grid {
    /// A table with these columns and no rows yet.
    pub fn new(names: &'static str, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            names,
            columns: columns.into_iter().map(Into::into).collect(),
            rows: Vec::new(),
            give_way: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, name: impl Into<String>, cells: Vec<Span>) {
        self.rows.push((name.into(), cells));
    }

    /// The same, with columns that are left out where it would be too wide, the first
    /// first.
    pub fn giving_way(mut self, columns: &[usize]) -> Self {
        self.give_way = columns.to_vec();
        self
    }

    /// The columns that are shown in a line of this width.
    fn shown(&self, width: usize) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..self.columns.len()).collect();
        for column in &self.give_way {
            if self.width(&shown) > width {
                shown.retain(|kept| kept != column);
            }
        }
        shown
    }

    /// Columns of a terminal that it takes with these of its own.
    fn width(&self, shown: &[usize]) -> usize {
        let columns = shown.iter().map(|column| self.column_width(*column) + GAP);
        self.name_width() + columns.sum::<usize>()
    }

    /// The table as lines.
    pub fn render(&self, style: &Style) -> String {
        let shown = self.shown(style.width);
        let faint = |text: &str| Span::new(text, Look::Faint);
        let heads: Vec<Span> = self.columns.iter().map(|head| faint(head)).collect();
        let mut text = self.line(&faint(self.names), &heads, &shown, style);
        for (name, cells) in &self.rows {
            let name = Span::new(name, Look::Plain);
            text.push_str(&self.line(&name, cells, &shown, style));
        }
        text
    }

    fn name_width(&self) -> usize {
        let names = self.rows.iter().map(|(name, _)| name.as_str());
        let widths = names.chain([self.names]).map(|name| width(name) + 1);
        widths.max().unwrap_or(0)
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|(_, cells)| cells.get(column));
        let heading = width(&self.columns[column]);
        cells.map(Span::width).max().unwrap_or(0).max(heading)
    }

    fn line(&self, name: &Span, cells: &[Span], shown: &[usize], style: &Style) -> String {
        let rest = self.name_width().saturating_sub(1 + name.width());
        let mut line = format!(" {}{:rest$}", name.painted(style), "");
        for column in shown {
            let Some(cell) = cells.get(*column) else {
                break;
            };
            let padding = GAP + self.column_width(*column) - cell.width();
            line.push_str(&" ".repeat(padding));
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
        let mut grid = Grid::new("who", ["mean", "max"]);
        let cell = |text: &str| Span::new(text, Look::Plain);
        grid.row("kvm own", vec![cell("1.5"), cell("1,022")]);
        grid.row("host", vec![cell("12.25"), cell("3")]);
        grid
    }

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let text = grid().render(&Style::default());
        let expected = " who       mean    max\n kvm own    1.5  1,022\n host     12.25      3\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn columns_give_way_where_there_is_no_room() {
        let narrow = |width| {
            let style = Style {
                width,
                ..Style::default()
            };
            grid().giving_way(&[0]).render(&style)
        };
        assert_eq!(narrow(22), grid().render(&Style::default()));
        assert_eq!(
            narrow(21),
            " who        max\n kvm own  1,022\n host         3\n"
        );
    }
}
