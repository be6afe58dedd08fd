//! The figures that a report is built from.

use crate::rates::Rates;
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::OpSet;
use trapline_model::file::Table;
use trapline_model::irq::Settings;
use trapline_model::kernel_build::Column;
use trapline_model::{Config, EnvironmentId, Host, Operation, Overrides};
use trapline_stats::aa_test::AaTest;
use trapline_stats::block::Requests;
use trapline_stats::builds::OverBase;
use trapline_stats::irq::Interrupts;
use trapline_stats::{value, Cell, Figure, Flag, Summary, Value};

/// The figures of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// State of the run in a sentence, unless it is finished.
    pub unfinished: Option<String>,
    /// The version of Trapline that measured.
    pub version: String,
    /// Seed of the order of boots and of resampling, if the wall clock was measured.
    pub seed: Option<u64>,
    /// Settings that all configurations have, as far as their environments support them.
    pub settings: Overrides,
    /// Facts about the host; `cpu`, `kernel` and `kvm` stand above the tables.
    pub facts: BTreeMap<String, String>,
    /// The hosts of its boots.
    pub hosts: Vec<HostOfRun>,
    /// The figures.
    pub summary: Summary,
    /// Configurations that were asked for and could not be booted, with reasons.
    pub skips: Vec<(Config, String)>,
    /// The operations of guests that were asked for.
    pub operations: OpSet,
    /// The kernel builds and packets that were asked for.
    pub long: Vec<Operation>,
    /// Lateness of interrupts, if any were measured.
    pub interrupts: Vec<Interrupts>,
    /// Settings of the interrupts, and the requirement on them.
    pub irq: Settings,
    /// Requests to disks, if any were measured.
    pub requests: Vec<Requests>,
    /// Ratios of kernel builds, if there were any.
    pub builds: OverBase,
    /// Rates of packets, if any were measured.
    pub packets: Rates,
    /// Tables of the plan, in place of one for all operations.
    pub tables: Vec<Table>,
    /// False alarms of the A/A control, if there was one.
    pub aa_control: Option<AaTest>,
    /// Guests beside machines that were populated, each from a run of its own.
    pub co_tenants: Vec<CoTenant>,
    /// Lost boots of an operation that are no failure.
    pub allowed_losses: usize,
}

/// A host of a run, and its boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostOfRun {
    /// The host.
    pub host: Host,
    /// Number of its boots.
    pub boots: usize,
}

/// A guest beside a machine that is populated.
#[derive(Clone, Debug, PartialEq)]
pub struct CoTenant {
    /// The interrupts.
    pub interrupts: Interrupts,
    /// Their settings, with the load that disturbed them.
    pub settings: Settings,
}

impl Report {
    /// Returns the flag of a figure that more boots did not give than are allowed.
    pub fn lost_too_many<'a>(&self, figure: &'a Figure) -> Option<&'a Flag> {
        let (lost, _) = figure.lost();
        figure.boots_lost().filter(|_| lost > self.allowed_losses)
    }

    /// Returns the name of a configuration: its environment, and its settings that not all have.
    pub fn name(&self, config: &Config) -> String {
        Config {
            environment: config.environment,
            overrides: self.own_settings(config),
        }
        .to_string()
    }

    /// Returns the names of configurations, separated by commas. All that the report has of an environment are named by
    /// the environment alone.
    pub(crate) fn names(&self, configs: &BTreeSet<&Config>) -> String {
        let all = self.configs();
        let mut names: Vec<String> = Vec::new();
        for config in configs {
            let beside = all.iter().filter(|it| it.environment == config.environment);
            let beside: Vec<&&Config> = beside.collect();
            let is_all = beside.len() > 1 && beside.iter().all(|it| configs.contains(*it));
            let name = if is_all {
                config.environment.to_string()
            } else {
                self.name(config)
            };
            if names.last() != Some(&name) {
                names.push(name);
            }
        }
        names.join(", ")
    }

    /// Returns all configurations, in table order.
    pub(crate) fn configs(&self) -> BTreeSet<&Config> {
        let measured = self.summary.cells.iter().map(|cell| &cell.config);
        measured
            .chain(self.skips.iter().map(|(config, _)| config))
            .collect()
    }

    /// Returns the first configuration of an environment: that with the default settings, if there is one.
    pub(crate) fn first(&self, environment: EnvironmentId) -> Option<&Config> {
        let mut configs = self.configs().into_iter();
        configs.find(|config| config.environment == environment)
    }

    /// Returns the settings of a configuration that not all have.
    pub(crate) fn own_settings(&self, config: &Config) -> Overrides {
        config.overrides.without(&self.settings)
    }

    /// Returns the cells of the summary, and a skip for each operation of each configuration that could
    /// not be booted.
    pub fn cells(&self) -> Vec<Cell> {
        let mut cells = self.summary.cells.clone();
        for (config, reason) in &self.skips {
            let of_guests = self.operations.iter().map(Operation::from);
            let all = of_guests.chain(self.long.iter().copied());
            for op in all.filter(|op| is_for(config, *op)) {
                let known = |cell: &Cell| cell.config == *config && cell.op == op;
                if !cells.iter().any(known) {
                    cells.push(skipped(config, op, reason));
                }
            }
        }
        cells.sort_by(|a, b| (a.op, &a.config).cmp(&(b.op, &b.config)));
        cells
    }
}

/// Returns whether a configuration is one in which an operation is measured.
fn is_for(config: &Config, op: Operation) -> bool {
    let (builds, forwards) = (
        Column::of(config).is_some(),
        config.environment.forwarder().is_some(),
    );
    match op {
        Operation::Guest(_) => !builds && !forwards,
        Operation::Build(_) => builds,
        Operation::Packets(of) => forwards && of.has_figure(),
    }
}

fn skipped(config: &Config, op: Operation, reason: &str) -> Cell {
    let clock = config.clock();
    Cell {
        config: config.clone(),
        op,
        clock,
        unit: value::unit(op, clock),
        value: Value::Skip(reason.to_owned()),
    }
}
