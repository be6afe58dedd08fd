//! The figures that a report is built from.

use std::collections::BTreeMap;
use trapline_abi::{Op, OpSet};
use trapline_model::file::Table;
use trapline_model::irq::Settings;
use trapline_model::{Clock, Config, EnvironmentId, Overrides};
use trapline_stats::aa_test::AaTest;
use trapline_stats::block::Requests;
use trapline_stats::irq::Interrupts;
use trapline_stats::{value, Cell, Summary, Value};

/// The figures of a run with one set of settings.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// State of the run in a sentence, unless it is finished.
    pub unfinished: Option<String>,
    /// The version of Trapline that measured.
    pub version: String,
    /// Seed of the order of boots and of resampling, if the wall clock was measured.
    pub seed: Option<u64>,
    /// The settings.
    pub overrides: Overrides,
    /// Facts about the host; `cpu`, `kernel` and `kvm` stand above the tables.
    pub facts: BTreeMap<String, String>,
    /// The figures.
    pub summary: Summary,
    /// Environments that were asked for and could not be booted, with reasons.
    pub skips: Vec<(EnvironmentId, String)>,
    /// The operations that were asked for.
    pub operations: OpSet,
    /// Lateness of interrupts, if any were measured.
    pub interrupts: Vec<Interrupts>,
    /// Settings of the interrupts, and the requirement on them.
    pub irq: Settings,
    /// Requests to disks, if any were measured.
    pub requests: Vec<Requests>,
    /// Tables of the plan, in place of one for all operations.
    pub tables: Vec<Table>,
    /// Optimisations of the plan, with figures of the whole run.
    pub optimisations: Vec<Optimisation>,
    /// False alarms of the A/A control, if there was one.
    pub aa_control: Option<AaTest>,
    /// Guests beside machines that were populated, each from a run of its own.
    pub co_tenants: Vec<CoTenant>,
}

/// A guest beside a machine that is populated.
#[derive(Clone, Debug, PartialEq)]
pub struct CoTenant {
    /// The interrupts.
    pub interrupts: Interrupts,
    /// Their settings, with the load that disturbed them.
    pub settings: Settings,
}

/// An optimisation with its figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Optimisation {
    /// The title.
    pub title: String,
    /// The operation that gains by it.
    pub op: Op,
    /// The clock of both figures.
    pub clock: Clock,
    /// Cost of the operation, or rate, without it.
    pub without: f64,
    /// The same with it, in the same unit.
    pub with: f64,
    /// Its lines of code.
    pub lines: u32,
    /// Lines of the whole.
    pub all_lines: u32,
}

impl Report {
    /// Returns the environment with the settings that apply to it.
    pub(crate) fn config(&self, environment: EnvironmentId) -> Config {
        Config {
            environment,
            overrides: self.overrides.supported_by(environment),
        }
    }

    /// Returns whether the settings are those of everything below the head.
    pub(crate) fn heads_with_settings(&self) -> bool {
        !self.overrides.is_default() && self.optimisations.is_empty()
    }

    /// Returns the cells of the summary, and a skip for each operation of each environment that could
    /// not be booted.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = self.summary.cells.clone();
        for (environment, reason) in &self.skips {
            for op in self.operations.iter() {
                let known = |cell: &Cell| cell.environment == *environment && cell.op == op;
                if !cells.iter().any(known) {
                    cells.push(skipped(*environment, op, reason));
                }
            }
        }
        cells.sort_by_key(|cell| (cell.op, cell.environment));
        cells
    }
}

fn skipped(environment: EnvironmentId, op: Op, reason: &str) -> Cell {
    let clock = environment.clock();
    Cell {
        environment,
        op,
        clock,
        unit: value::unit(op, clock),
        value: Value::Skip(reason.to_owned()),
    }
}
