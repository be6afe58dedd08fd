//! Do instructions predict time? Rank correlations of the same operations on two clocks.
//!
//! Figures of two clocks are never divided by each other, but their orders may be compared. Pairs
//! are the same stack on two machines - on this host and on a simulated one, or on both
//! simulated ones - and KVM on a simulated machine beside cycles that others have published of
//! KVM on hardware. Only times of whole operations are compared: the stages of a boot and the
//! orders of regions grow by construction, and a correlation of them would say nothing.

use crate::document::{Look, Marker, Section};
use crate::references;
use crate::{printable, Report};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use trapline_abi::{Unit, Workload};
use trapline_model::{Clock, Config, EnvironmentId, Operation};
use trapline_stats::agreement::{Agreement, LEAST};
use trapline_stats::Cell;

/// Title of the section.
pub const TITLE: &str = "Do instructions predict time?";

/// The method, in one line.
pub const EXPLANATION: &str = "rank correlation of operations with a figure on both sides";

/// Limits of a correlation of instructions with time.
pub const LIMITS: &str =
    "Instructions leave out misses of caches and TLBs, the world switch (VMRUN \
                          counts 1) and delivery of interrupts, and count string instructions by \
                          the iteration: docs/clocks.md.";

/// Workloads of which operations are compared.
const WORKLOADS: [Workload; 3] = [Workload::Basic, Workload::System, Workload::Exits];

const EMULATED: &str = "ring 0 is emulated on this host, so an exit there takes the time of the \
                        emulation and not that of the hardware";

/// One side of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Side {
    /// A configuration of the run.
    Measured(Config),
    /// Published cycles of KVM on hardware.
    Published,
}

/// Two sides, and how far they agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    /// The one side.
    pub a: Side,
    /// The other one.
    pub b: Side,
    /// Operations with a figure on both sides, in table order.
    pub operations: Vec<Operation>,
    /// The correlations, or why there are none.
    pub outcome: Result<Correlations, &'static str>,
    /// The difference between figures of this host and of hardware, if there is one.
    pub caveat: Option<String>,
}

/// The correlations of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Correlations {
    /// The correlation of all operations.
    pub all: Agreement,
    /// The correlation and the number of operations of each workload, if there are several
    /// workloads: a wide range of figures alone makes a high correlation of all.
    pub within: Vec<(Workload, usize, Agreement)>,
}

impl Side {
    /// Returns its name for people.
    fn name(&self, report: &Report) -> String {
        match self {
            Self::Measured(config) => report.name(config),
            Self::Published => "published cycles".to_owned(),
        }
    }

    fn figures(&self, cells: &[Cell]) -> BTreeMap<Operation, f64> {
        match self {
            Self::Measured(config) => measured(cells, config),
            Self::Published => references::cycles(EnvironmentId::KVM).into_iter().collect(),
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
        sides.extend(first.map(|config| (measured(config), Side::Published)));
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
    if both.len() < LEAST {
        return None;
    }
    let refused = (a.needs_hardware() || b.needs_hardware()) && ring0_is_emulated(report);
    let of_host = a.is_this_host() || b.is_this_host();
    let outcome = if refused {
        Err(EMULATED)
    } else {
        Ok(correlations(&both)?)
    };
    Some(Pair {
        a,
        b,
        operations: both.iter().map(|(op, _)| *op).collect(),
        outcome,
        caveat: nested(report).filter(|_| of_host && !refused),
    })
}

fn correlations(both: &[(Operation, (f64, f64))]) -> Option<Correlations> {
    let of = |wanted: &dyn Fn(Operation) -> bool| -> Vec<(f64, f64)> {
        let chosen = both.iter().filter(|(op, _)| wanted(*op));
        chosen.map(|(_, figures)| *figures).collect()
    };
    let within = WORKLOADS.into_iter().filter_map(|workload| {
        let figures = of(&|op| op.is_of(workload));
        let is_part = figures.len() < both.len();
        let agreement = Agreement::of(&figures).filter(|_| is_part)?;
        Some((workload, figures.len(), agreement))
    });
    Some(Correlations {
        all: Agreement::of(&of(&|_| true))?,
        within: within.collect(),
    })
}

impl Pair {
    /// Returns its name for people.
    pub fn name(&self, report: &Report) -> String {
        format!("{} and {}", self.a.name(report), self.b.name(report))
    }

    /// Returns the operation whose ranks differ most, with these ranks; `None` if none do.
    pub fn farthest(&self) -> Option<(Operation, (f64, f64))> {
        let ranks = &self.outcome.as_ref().ok()?.all.ranks;
        let apart = |ranks: &(f64, f64)| (ranks.0 - ranks.1).abs();
        let ranked = self.operations.iter().copied().zip(ranks.iter().copied());
        ranked
            .filter(|(_, ranks)| apart(ranks) > 0.0)
            .max_by(|one, other| apart(&one.1).total_cmp(&apart(&other.1)))
    }

    /// Its figures in a sentence.
    pub fn sentence(&self) -> String {
        let correlations = match &self.outcome {
            Ok(correlations) => correlations,
            Err(reason) => return format!("refused: {reason}"),
        };
        let all = &correlations.all;
        let mut parts = vec![format!(
            "rho {:.2}{}, p {}, {} operations",
            all.rho,
            all.interval.map_or(String::new(), |ends| format!(
                ", 95% interval {}",
                range(ends)
            )),
            probability(all.p),
            self.operations.len()
        )];
        for (workload, count, agreement) in &correlations.within {
            let name = workload.name();
            parts.push(format!("within {name} {:.2} of {count}", agreement.rho));
        }
        if let Some((op, (a, b))) = self.farthest() {
            let path = op.path();
            parts.push(format!("farthest apart {path}, ranks {a} and {b}"));
        }
        parts.extend(self.caveat.clone());
        parts.join("; ")
    }
}

/// Both ends of an interval.
pub fn range((low, high): (f64, f64)) -> String {
    format!("{low:.2} to {high:.2}")
}

/// Four digits, or a bound.
pub fn probability(p: f64) -> String {
    if p < 0.0001 {
        "below 0.0001".to_owned()
    } else {
        format!("{p:.4}")
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
    operations: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    caveat: Option<String>,
    #[serde(flatten)]
    all: Option<JsonAgreement>,
    /// By workload.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    within: BTreeMap<&'static str, JsonAgreement>,
    /// Ranks of the operations, on both sides.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    ranks: Vec<(f64, f64)>,
}

#[derive(Serialize)]
struct JsonAgreement {
    n: usize,
    rho: f64,
    low: Option<f64>,
    high: Option<f64>,
    p: f64,
}

impl JsonAgreement {
    fn new(n: usize, agreement: &Agreement) -> Self {
        Self {
            n,
            rho: agreement.rho,
            low: agreement.interval.map(|(low, _)| low),
            high: agreement.interval.map(|(_, high)| high),
            p: agreement.p,
        }
    }
}

impl JsonPair {
    pub fn new(report: &Report, pair: &Pair) -> Self {
        let correlations = pair.outcome.as_ref().ok();
        let within = correlations.into_iter().flat_map(|all| &all.within);
        let n = pair.operations.len();
        Self {
            a: pair.a.name(report),
            b: pair.b.name(report),
            operations: pair.operations.iter().map(|op| op.path()).collect(),
            refused: pair.outcome.as_ref().err().copied(),
            caveat: pair.caveat.clone(),
            all: correlations.map(|it| JsonAgreement::new(n, &it.all)),
            within: within
                .map(|(workload, n, one)| (workload.name(), JsonAgreement::new(*n, one)))
                .collect(),
            ranks: correlations.map_or_else(Vec::new, |it| it.all.ranks.clone()),
        }
    }
}

#[cfg(test)]
mod tests;
