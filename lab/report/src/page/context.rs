//! What all sections of a page look at: the cells, and who is shown by which clock.

use super::who::{self, Cast, Row};
use super::{Run, Section, Study};
use crate::printable;
use crate::table::Shown;
use crate::Report;
use maud::Markup;
use trapline_abi::{Op, Unit};
use trapline_model::Clock;
use trapline_stats::{Cell, Figure};

/// What was measured with one set of settings, with its cells, those of what was skipped
/// among them.
pub struct Context<'a> {
    pub run: &'a Run,
    pub study: &'a Study,
    pub cells: Vec<Cell>,
    number: usize,
}

impl<'a> Context<'a> {
    pub fn new(run: &'a Run, study: &'a Study, number: usize) -> Self {
        let cells = study.report.cells();
        Self {
            run,
            study,
            cells,
            number,
        }
    }

    pub fn report(&self) -> &'a Report {
        &self.study.report
    }

    /// An address of its own within the page.
    pub fn id(&self, name: &str) -> String {
        match self.number {
            0 => name.to_owned(),
            number => format!("{name}-{number}"),
        }
    }

    /// Whether the page begins with it.
    pub fn is_first(&self) -> bool {
        self.number == 0
    }

    /// With which settings, where they are not the usual ones.
    pub fn settings(&self) -> Option<String> {
        let variant = &self.report().variant;
        (!variant.is_usual()).then(|| printable(&variant.to_string()))
    }

    /// A part of the page.
    pub fn section(&self, id: &str, title: &str, body: Markup) -> Section {
        let with = self.settings();
        let with = with.map_or_else(String::new, |settings| format!(", {settings}"));
        Section {
            id: self.id(id),
            title: format!("{title}{with}"),
            body,
        }
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
