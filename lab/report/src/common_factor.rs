//! Do instructions predict time? One factor between the same operations on two clocks, and how far they are from it.
//!
//! Pairs are the same stack on two machines - on this host and on a simulated one, or on both simulated ones - and KVM on a
//! simulated machine beside cycles that others have published of KVM on a processor. Only times of whole operations of like
//! kind are compared: a factor between a function call and an exit would be that of neither.

use crate::document::{Look, Marker, Section};
use crate::figures;
use crate::references;
use crate::{printable, Report};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::{Unit, Workload};
use trapline_model::{Clock, Config, EnvironmentId, Operation};
use trapline_stats::common_factor::CommonFactor;
use trapline_stats::Cell;

/// Title of the section.
pub const TITLE: &str = "Do instructions predict time?";

/// The method, in one line.
pub const EXPLANATION: &str =
    "what the second clock has for one of the first, and the error of each operation after that factor";

/// Limits of predicting time by instructions.
pub const LIMITS: &str =
    "Instructions leave out misses of caches and TLBs, the world switch (VMRUN \
                          counts 1) and delivery of interrupts, and count string instructions by \
                          the iteration: docs/clocks.md.";

/// Workloads of which operations are compared, each by itself: their operations are of like kind.
const WORKLOADS: [Workload; 2] = [Workload::System, Workload::Exits];

/// Least number of operations that have a common factor.
const LEAST: usize = 3;

const EMULATED: &str = "ring 0 is emulated on this host, so an exit there takes the time of the \
                        emulation and not that of the hardware";

/// One side of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// A configuration of the run.
    Measured(Config),
    /// Published cycles of KVM on this processor.
    Published(String),
}

/// Two sides, and the factor between them.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The one side.
    pub a: Side,
    /// The other one.
    pub b: Side,
    /// The factor of each workload, or why there are none.
    pub outcome: Result<Vec<OfWorkload>, &'static str>,
    /// The difference between figures of this host and of hardware, if there is one.
    pub caveat: Option<String>,
}

/// The factor of the operations of a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct OfWorkload {
    /// The workload.
    pub workload: Workload,
    /// Operations with a figure on both sides, in table order.
    pub operations: Vec<Operation>,
    /// The factor, with the error of each.
    pub common: CommonFactor,
}

impl Side {
    /// Returns its name for people.
    fn name(&self, report: &Report) -> String {
        match self {
            Self::Measured(config) => report.name(config),
            Self::Published(processor) => format!("published cycles of KVM, {processor}"),
        }
    }

    fn figures(&self, cells: &[Cell]) -> BTreeMap<Operation, f64> {
        match self {
            Self::Measured(config) => measured(cells, config),
            Self::Published(processor) => references::cycles(processor).into_iter().collect(),
        }
    }

    /// Returns the unit of its figures.
    fn unit(&self) -> &'static str {
        match self {
            Self::Measured(config) if config.clock().is_exact() => "insn",
            Self::Measured(_) => "ns",
            Self::Published(_) => "cycles",
        }
    }

    fn is_this_host(&self) -> bool {
        matches!(self, Self::Measured(config) if config.clock() == Clock::Wall)
    }

    fn needs_hardware(&self) -> bool {
        matches!(self, Self::Measured(config) if config.environment.has_hardware_virtualization())
    }
}

/// Returns the pairs of which enough operations were measured on both sides.
pub fn pairs(report: &Report, cells: &[Cell]) -> Vec<Pair> {
    let pairs = sides(cells).into_iter();
    pairs
        .filter_map(|(a, b)| pair(a, b, report, cells))
        .collect()
}

/// The fact is of `trapline doctor`, which times a loop in ring 0.
fn ring0_is_emulated(report: &Report) -> bool {
    let kvm = report.facts.get("kvm");
    kvm.is_some_and(|kvm| kvm.contains("ring 0") && kvm.contains("emulated"))
}

/// Returns every pair of configurations of the same stack and settings on two clocks.
fn sides(cells: &[Cell]) -> Vec<(Side, Side)> {
    let configs: BTreeSet<&Config> = cells.iter().map(|cell| &cell.config).collect();
    let measured = |config: &Config| Side::Measured(config.clone());
    let mut sides = Vec::new();
    for a in &configs {
        let is_same = |b: &&&Config| {
            let has_stack = stack(a.environment) == stack(b.environment);
            let has_settings = a.in_environment(b.environment) == ***b;
            a < *b && a.clock() != b.clock() && has_stack && has_settings
        };
        for b in configs.iter().filter(is_same) {
            sides.push((measured(a), measured(b)));
        }
    }
    for id in [EnvironmentId::SIM_KVM, EnvironmentId::SIM_VMX_KVM] {
        // The one with default settings is the first.
        let first = configs.iter().find(|config| config.environment == id);
        let processors = references::processors().into_iter().map(Side::Published);
        sides.extend(first.into_iter().flat_map(|config| {
            processors
                .clone()
                .map(|published| (measured(config), published))
        }));
    }
    sides
}

/// The layers on a machine, whichever machine that is.
fn stack(environment: EnvironmentId) -> &'static str {
    let name = environment.name();
    match environment {
        id if id.is_native_linux() => "linux",
        id if id.is_native() => "image",
        _ => name
            .strip_prefix("sim-vmx/")
            .or_else(|| name.strip_prefix("sim/"))
            .unwrap_or(name),
    }
}

/// Resolved times of a configuration.
fn measured(cells: &[Cell], config: &Config) -> BTreeMap<Operation, f64> {
    let is_compared = |cell: &&Cell| {
        cell.config == *config
            && cell.op.unit() == Unit::Time
            && cell.op.workload().is_some_and(|it| WORKLOADS.contains(&it))
    };
    let cells = cells.iter().filter(is_compared);
    let figures = cells.filter_map(|cell| {
        let figure = cell.value.figure()?;
        let is_resolved = figure.resolution().is_none() && figure.estimate > 0.0;
        is_resolved.then_some((cell.op, figure.estimate))
    });
    figures.collect()
}

/// A host that is a guest itself pays for its own exits.
fn nested(report: &Report) -> Option<String> {
    let outer = report.facts.get("nested in")?;
    Some(format!(
        "this host is itself a guest of {}: cpuid and interrupts leave it, too",
        printable(outer)
    ))
}

fn pair(a: Side, b: Side, report: &Report, cells: &[Cell]) -> Option<Pair> {
    let (of_a, of_b) = (a.figures(cells), b.figures(cells));
    let both = of_a
        .iter()
        .filter_map(|(op, figure)| Some((*op, (*figure, *of_b.get(op)?))));
    let both: Vec<(Operation, (f64, f64))> = both.collect();
    let factors = WORKLOADS.into_iter().filter_map(|workload| {
        let own = both.iter().filter(|(op, _)| op.is_of(workload));
        let (operations, figures): (Vec<Operation>, Vec<(f64, f64)>) = own.copied().unzip();
        let common = CommonFactor::of(&figures).filter(|_| operations.len() >= LEAST)?;
        Some(OfWorkload {
            workload,
            operations,
            common,
        })
    });
    let factors: Vec<OfWorkload> = factors.collect();
    if factors.is_empty() {
        return None;
    }
    let refused = (a.needs_hardware() || b.needs_hardware()) && ring0_is_emulated(report);
    let of_host = a.is_this_host() || b.is_this_host();
    Some(Pair {
        outcome: if refused { Err(EMULATED) } else { Ok(factors) },
        caveat: nested(report).filter(|_| of_host && !refused),
        a,
        b,
    })
}

impl OfWorkload {
    /// Returns the operation that is farthest from the factor, with its error.
    pub fn worst(&self) -> (Operation, f64) {
        let (place, error) = self.common.worst();
        (self.operations[place], error)
    }
}

impl Pair {
    /// Returns its name for people.
    pub fn name(&self, report: &Report) -> String {
        format!("{} and {}", self.a.name(report), self.b.name(report))
    }

    /// Returns the unit of its factors: that of the second side by that of the first.
    pub fn unit(&self) -> String {
        format!("{}/{}", self.b.unit(), self.a.unit())
    }

    /// Its figures in a sentence.
    pub fn sentence(&self) -> String {
        let factors = match &self.outcome {
            Ok(factors) => factors,
            Err(reason) => return format!("refused: {reason}"),
        };
        let unit = self.unit();
        let parts = factors.iter().map(|of| {
            let (op, error) = of.worst();
            let typical = of.common.typical.map_or_else(
                || "too few operations for an error".to_owned(),
                |typical| format!("typical error {}", figures::times(typical)),
            );
            format!(
                "{}: {} {unit}; {typical}, worst {} {}; {} operations",
                of.workload.name(),
                figures::quantity(of.common.factor),
                op.name(),
                figures::times(error),
                of.operations.len()
            )
        });
        let parts: Vec<String> = parts.chain(self.caveat.clone()).collect();
        parts.join("; ")
    }
}

/// Returns the section, if any pair has enough operations in common.
pub(crate) fn section(report: &Report, cells: &[Cell]) -> Option<Section> {
    let mut section = Section::new(TITLE, EXPLANATION);
    for pair in pairs(report, cells) {
        section.note(
            Marker::Subject(pair.name(report)),
            &pair.sentence(),
            Look::Plain,
        );
    }
    let has_pairs = !section.blocks.is_empty();
    section.note(Marker::Item, LIMITS, Look::Faint);
    has_pairs.then_some(section)
}

#[derive(Serialize)]
pub(crate) struct JsonPair {
    a: String,
    b: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caveat: Option<String>,
    unit: String,
    factors: Vec<JsonFactor>,
}

#[derive(Serialize)]
struct JsonFactor {
    workload: &'static str,
    factor: f64,
    typical_error: Option<f64>,
    /// By operation.
    errors: BTreeMap<String, f64>,
}

impl JsonPair {
    pub fn new(report: &Report, pair: &Pair) -> Self {
        let factors = pair.outcome.iter().flatten().map(|of| {
            let names = of.operations.iter().map(|op| op.path());
            JsonFactor {
                workload: of.workload.name(),
                factor: of.common.factor,
                typical_error: of.common.typical,
                errors: names.zip(of.common.errors.iter().copied()).collect(),
            }
        });
        Self {
            a: pair.a.name(report),
            b: pair.b.name(report),
            refused: pair.outcome.as_ref().err().copied(),
            caveat: pair.caveat.clone(),
            unit: pair.unit(),
            factors: factors.collect(),
        }
    }
}

#[cfg(test)]
mod tests;
