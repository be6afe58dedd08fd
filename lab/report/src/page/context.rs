//! Input of all sections of a page: the report with its cells, and the observations.

use super::Run;
use crate::table::Shown;
use crate::Report;
use crate::{findings, host_noise};
use trapline_abi::Unit;
use trapline_model::{Clock, Config, Observation, Operation};
use trapline_stats::{Cell, Figure};

/// A run with its cells, skips included.
pub struct Context<'a> {
    pub run: &'a Run,
    pub report: &'a Report,
    pub observations: &'a [Observation],
    pub cells: Vec<Cell>,
}

impl<'a> Context<'a> {
    pub fn new(run: &'a Run, report: &'a Report, observations: &'a [Observation]) -> Self {
        Self {
            run,
            report,
            observations,
            cells: report.cells(),
        }
    }

    /// Returns the name of a configuration in the report.
    pub fn name(&self, config: &Config) -> String {
        self.report.name(config)
    }

    /// Returns sentences about what limits the trust in the figures.
    pub fn doubts(&self) -> impl Iterator<Item = String> {
        let noise = host_noise::sentence(self.report, &self.cells);
        self.report.unfinished.clone().into_iter().chain(noise)
    }

    /// Returns the cells of `clock` that are shown.
    pub fn shown(&self, clock: Clock) -> Option<Shown<'_>> {
        Shown::measured(&self.cells, clock)
    }

    /// Returns the figure of `op` in `config`, if it is above the resolution.
    pub fn figure(&self, config: &Config, op: impl Into<Operation>) -> Option<&Figure> {
        findings::figure(&self.cells, config, op)
    }
}

/// Returns true if figures of `op` are times, of which less is better.
pub fn is_time(op: Operation) -> bool {
    op.unit() == Unit::Time
}
