//! Input of all sections of a page: the cells, and the environments of each clock.

use super::labels::Row;
use super::{Run, Section, Study};
use crate::printable;
use crate::table::Shown;
use crate::Report;
use crate::{findings, host_noise};
use maud::Markup;
use trapline_abi::{Op, Unit};
use trapline_model::Clock;
use trapline_stats::{Cell, Figure};

/// A study with its cells, skips included.
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

    /// Returns an id that is unique within the page.
    pub fn id(&self, name: &str) -> String {
        match self.number {
            0 => name.to_owned(),
            number => format!("{name}-{number}"),
        }
    }

    /// Returns true for the first study of the page.
    pub fn is_first(&self) -> bool {
        self.number == 0
    }

    /// Returns the settings, unless they are the default.
    pub fn settings(&self) -> Option<String> {
        let overrides = &self.report().overrides;
        (!overrides.is_default()).then(|| printable(&overrides.to_string()))
    }

    /// Returns sentences about what limits the trust in the figures.
    pub fn doubts(&self) -> impl Iterator<Item = String> {
        let noise = host_noise::sentence(&self.cells);
        self.report().unfinished.clone().into_iter().chain(noise)
    }

    /// Creates a section of the page.
    pub fn section(&self, id: &str, title: &str, body: Markup) -> Section {
        Section {
            id: self.id(id),
            title: self.label(title),
            body,
        }
    }

    /// Returns a title with the settings of the study, so that it is unique within the page.
    pub fn label(&self, title: &str) -> String {
        match self.settings() {
            None => title.to_owned(),
            Some(settings) => format!("{title}, {settings}"),
        }
    }

    /// Returns the cells of `clock` that are shown.
    pub fn shown(&self, clock: Clock) -> Option<Shown<'_>> {
        Shown::measured(&self.cells, clock)
    }

    /// Returns the figure of `op` in `row`, if it is above the resolution.
    pub fn figure(&self, row: Row, op: Op) -> Option<&Figure> {
        findings::figure(&self.cells, row, op)
    }
}

/// Returns true if figures of `op` are times, of which less is better.
pub fn is_time(op: Op) -> bool {
    op.unit() == Unit::Time
}
