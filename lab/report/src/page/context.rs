//! What all sections of a page look at: the cells, and who is shown by which clock.

use super::who::{self, Cast, Row};
use super::Source;
use crate::table::Shown;
use crate::Report;
use trapline_abi::{Op, Unit};
use trapline_plan::Clock;
use trapline_stats::{Cell, Figure};

/// The source of a page with its cells, those of what was skipped among them.
pub struct Context<'a> {
    pub source: Source<'a>,
    pub cells: Vec<Cell>,
}

impl<'a> Context<'a> {
    pub fn new(source: Source<'a>) -> Self {
        let cells = source.report.cells();
        Self { source, cells }
    }

    pub fn report(&self) -> &'a Report {
        self.source.report
    }

    /// What has anything to show on `clock`.
    pub fn shown(&self, clock: Clock) -> Option<Shown<'_>> {
        Shown::measured(&self.cells, clock)
    }

    /// Those who are shown on `clock`, in order.
    pub fn cast(&self, clock: Clock) -> Cast {
        let shown = self.shown(clock);
        Cast::new(shown.map_or_else(Vec::new, |shown| shown.environments))
    }

    /// The figure of `op` in `row`, if there is one that was resolved.
    pub fn figure(&self, row: Row, op: Op) -> Option<&Figure> {
        let is_it = |cell: &&Cell| who::row(cell) == row && cell.op == op;
        let cell = self.cells.iter().find(is_it)?;
        let figure = cell.value.figure()?;
        figure.resolution().is_none().then_some(figure)
    }
}

/// Whether figures of `op` are times, of which less is better.
pub fn is_time(op: Op) -> bool {
    op.unit() == Unit::Time
}
