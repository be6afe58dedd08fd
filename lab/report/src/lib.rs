//! From cells to text: tables for a terminal, JSON, CSV, Markdown, and a page of HTML.
//!
//! Everything is pure: a [`Report`] and a [`Style`] give the same text on any
//! machine. Each form is a module; [`figures`] is how a number is
//! written for people, [`notes`] what has to be said below a table.
#![forbid(unsafe_code)]

mod against;
mod agreement;
mod bencher;
mod block;
pub mod chance;
mod csv;
pub mod figures;
mod grid;
pub mod history;
mod irq;
mod json;
mod junit;
pub mod kernel_build;
mod markdown;
mod neighbours;
mod notes;
pub mod page;
mod plot;
mod populate;
mod references;
mod sheet;
pub mod study;
mod table;
mod terminal;
mod timelines;
pub mod versus;

pub use crate::csv::csv;
pub use irq::{verdicts, Verdict};
pub use json::json;
pub use markdown::markdown;
pub use neighbours::Neighbour;
pub use plot::plot;
pub use terminal::terminal;
pub use trapline_ci::JunitError;

use std::collections::BTreeMap;
use trapline_abi::{Op, OpSet};
use trapline_model::file::Table;
use trapline_model::irq::Settings;
use trapline_model::{Contender, EnvironmentId, Variant};
use trapline_stats::block::Requests;
use trapline_stats::chance::Chance;
use trapline_stats::irq::Interrupts;
use trapline_stats::{value, Cell, Summary, Value};

/// What there is to report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The version of Trapline that measured.
    pub version: String,
    /// Seed of the order of boots and of resampling, if the wall clock was measured.
    pub seed: Option<u64>,
    /// With which settings.
    pub variant: Variant,
    /// What is known of the host. Of these, `cpu`, `kernel` and `kvm` stand above
    /// the tables.
    pub facts: BTreeMap<String, String>,
    /// The figures.
    pub summary: Summary,
    /// Environments that were asked for and could not be booted, with reasons.
    pub skips: Vec<(EnvironmentId, String)>,
    /// Set of [`Op::bit`]: the operations that were asked for.
    pub operations: OpSet,
    /// What interrupts say, where any were asked for.
    pub interrupts: Vec<Interrupts>,
    /// How they were made, and what was demanded of them.
    pub irq: Settings,
    /// What requests to disks say, where any were asked for.
    pub requests: Vec<Requests>,
    /// Tables that a plan has of its own, in the place of one for all.
    pub tables: Vec<Table>,
    /// What chance does here, where anybody was booted twice.
    pub chance: Option<Chance>,
    /// Guests beside machines that were populated; each was a run of its own.
    pub neighbours: Vec<Neighbour>,
}

/// How a terminal is to be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// Columns that a line may have.
    pub width: usize,
    /// Whether to use colour.
    pub colour: bool,
    /// Whether there are characters beyond ASCII.
    pub unicode: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            width: 80,
            colour: false,
            unicode: true,
        }
    }
}

impl Report {
    /// Who is measured in this environment.
    fn contender(&self, environment: EnvironmentId) -> Contender {
        Contender {
            environment,
            variant: self.variant.fitting(environment),
        }
    }

    /// The cells of the summary, and one with the reason for each operation of
    /// each environment that could not be booted.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = self.summary.cells.clone();
        for (environment, reason) in &self.skips {
            for op in Op::ALL {
                let asked = self.operations & op.bit() != 0;
                let known = |cell: &Cell| cell.environment == *environment && cell.op == op;
                if asked && !cells.iter().any(known) {
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

/// `text` without anything that could command a terminal: what guests say is
/// untrusted.
fn printable(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let plain: String = plain.collect();
    plain.split_whitespace().collect::<Vec<_>>().join(" ")
}
