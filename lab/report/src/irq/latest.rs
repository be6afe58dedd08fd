//! The latest interrupts, with the time of each stage.

use super::tables::{time, NAMES};
use crate::document::{Cell, Look, Section, Span, Table};
use crate::figures;
use trapline_abi::interrupt::WINDOW;
use trapline_stats::irq::{Interrupts, LateInterrupt, Point};

/// Rows for each timer where there are more than two timers.
const FEW: usize = 3;

/// Rows for each timer otherwise.
const ALL: usize = 10;

/// Returns the section of the latest interrupts.
pub fn section(shown: &[&Interrupts]) -> Section {
    let (most, explanation) = match shown.len() {
        0..=2 => (
            ALL,
            format!("the {ALL} of each, how long after they were due"),
        ),
        _ => (FEW, format!("{FEW} of each; --env A --timer T shows ten")),
    };
    let mut section = Section::new("Latest", explanation);
    section.table(table(shown, most));
    section
}

fn table(shown: &[&Interrupts], most: usize) -> Table {
    let points = Point::ALL.into_iter().skip(1).map(|point| point.name());
    let columns = ["expiry", "window"]
        .into_iter()
        .chain(points)
        .chain(["found"]);
    let mut table = Table::new(NAMES, columns);
    for interrupts in shown {
        let mut name = interrupts.name();
        for late in interrupts.latest.iter().take(most) {
            table.row(std::mem::take(&mut name), cells(late, interrupts));
        }
    }
    // Done, window.
    table.with_optional(&[5, 1])
}

fn cells(late: &LateInterrupt, interrupts: &Interrupts) -> Vec<Cell> {
    let faint = |text| Span::new(text, Look::Faint);
    let mut cells = vec![
        faint(figures::count(late.sequence)),
        faint(figures::count(late.sequence / u64::from(WINDOW))),
    ];
    for point in Point::ALL.into_iter().skip(1) {
        let found = late.points.iter().find(|(known, _)| *known == point);
        let text = found.map(|(_, at)| time(*at, interrupts.clock));
        cells.push(match (point, text) {
            (_, None) => Span::absent(),
            (Point::Entered, Some(text)) => Span::new(text, Look::Strong),
            (_, Some(text)) => Span::plain(text),
        });
    }
    cells.push(Span::plain(late.found.name()));
    cells.into_iter().map(Cell::from).collect()
}
