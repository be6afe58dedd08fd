//! The latest interrupts, with their way.

use super::tables::{name, time, NAMES};
use crate::figures;
use crate::grid::Grid;
use crate::sheet::{Look, Span};
use trapline_abi::interrupt::WINDOW;
use trapline_stats::irq::{Interrupts, Late, Point};

/// How many are shown where there are many environments, and where there are few.
pub const FEW: usize = 3;
pub const ALL: usize = 10;

/// The latest of each, a row for each.
pub fn grid(shown: &[&Interrupts], most: usize) -> Grid {
    let points = Point::ALL.into_iter().skip(1).map(|point| point.name());
    let columns = ["expiry", "window"]
        .into_iter()
        .chain(points)
        .chain(["found"]);
    let mut grid = Grid::new(NAMES, columns);
    for interrupts in shown {
        let mut name = name(interrupts);
        for late in interrupts.latest.iter().take(most) {
            grid.row(std::mem::take(&mut name), cells(late, interrupts));
        }
    }
    // When the handler was done, then the window.
    grid.giving_way(&[5, 1])
}

fn cells(late: &Late, interrupts: &Interrupts) -> Vec<Span> {
    let plain = |text| Span::new(text, Look::Plain);
    let faint = |text| Span::new(text, Look::Faint);
    let mut cells = vec![
        faint(figures::count(late.sequence)),
        faint(figures::count(late.sequence / u64::from(WINDOW))),
    ];
    for point in Point::ALL.into_iter().skip(1) {
        let told = late.points.iter().find(|(known, _)| *known == point);
        let text = told.map(|(_, at)| time(*at, interrupts.clock));
        cells.push(match (point, text) {
            (_, None) => faint("-".to_owned()),
            (Point::Entered, Some(text)) => Span::new(text, Look::Strong),
            (_, Some(text)) => plain(text),
        });
    }
    cells.push(plain(late.found.name().to_owned()));
    cells
}
