//! The boots of one environment -> the cell of one operation.

use crate::exact;
use crate::order::median_interval;
use crate::spread::Sorted;
use crate::value::{self, Calibration, Work};
use crate::{Cell, FailureKind, Figure, Flag, Value};
use std::borrow::Cow;
use std::collections::BTreeMap;
use trapline_abi::{Op, Unit, Workload};
use trapline_model::observed::UNREST;
use trapline_model::{Clock, EnvironmentId, Observation, Operation, Outcome, Sample};

/// Host intervals shorter than this (in nanoseconds) say nothing about the
/// guest's clock.
const LEAST_ELAPSED_NS: u64 = 5_000_000;

/// How irregularly the arrival of a record follows its sending, in nanoseconds.
const DELIVERY_NS: f64 = 1_000_000.0;

/// By how much guest and host may differ, as a share of the host's interval.
const CLOCKS_AGREE: f64 = 0.01;

/// A cell with what is needed to compare it with others.
#[derive(Clone, Debug)]
pub struct Draft {
    pub cell: Cell,
    /// Each boot's block and median; empty unless measured.
    pub medians: Vec<(u32, f64)>,
    /// What was done, and the checksum that proves it.
    pub proof: Option<(Work, u64)>,
}

/// What one boot says of one operation.
pub struct Told<'a> {
    pub replicate: u32,
    unit_per_tick: f64,
    pub outcome: &'a Outcome,
    facts: &'a BTreeMap<String, String>,
}

impl<'a> Told<'a> {
    pub fn new(seen: &'a Observation, operation: &'a Operation) -> Self {
        Self {
            replicate: seen.replicate,
            unit_per_tick: seen.unit_per_tick,
            outcome: &operation.outcome,
            facts: &seen.facts,
        }
    }
}

/// A boot's measurement, its values computed.
struct Boot<'a> {
    replicate: u32,
    samples: Cow<'a, [Sample]>,
    check: u64,
    values: Sorted,
    mean: f64,
    resolution: f64,
    exits: Option<f64>,
    host_cpu_ns: Option<f64>,
    /// By how much guest's and host's interval differ, as a share of the host's,
    /// if it is more than it may be.
    disagreement: Option<f64>,
}

/// The cell of `op` in `environment`; `None` if no boot says anything of it.
pub fn draft(observations: &[Observation], environment: EnvironmentId, op: Op) -> Option<Draft> {
    let told = tell(observations, environment, op);
    if told.is_empty() {
        return None;
    }
    let clock = environment.clock();
    let mut draft = Draft {
        cell: Cell {
            environment,
            op,
            clock,
            unit: value::unit(op, clock),
            value: Value::Skip(String::new()),
        },
        medians: Vec::new(),
        proof: None,
    };
    draft.cell.value = match measured(&told, op, clock) {
        Ok(boots) => draft.fill(&boots, &told),
        Err(value) => value,
    };
    Some(draft)
}

fn tell(observations: &[Observation], environment: EnvironmentId, op: Op) -> Vec<Told<'_>> {
    let mut told = Vec::new();
    for seen in observations {
        let of_op = seen
            .operations
            .iter()
            .filter(|operation| operation.op == op);
        if seen.environment == environment {
            told.extend(of_op.map(|operation| Told::new(seen, operation)));
        }
    }
    told.sort_by_key(|told| told.replicate);
    told
}

/// The boots that were measured, or why the cell has no figure.
fn measured<'a>(told: &[Told<'a>], op: Op, clock: Clock) -> Result<Vec<Boot<'a>>, Value> {
    if clock.is_exact() {
        exact::require_agreement(told)?;
    }
    let boots = told
        .iter()
        .filter_map(|told| Boot::new(told, op).transpose())
        .collect::<Result<Vec<_>, _>>()?;
    if boots.is_empty() {
        return Err(no_figure(told));
    }
    if value::is_checked(op) {
        require_one_check(&boots, op)?;
    }
    Ok(boots)
}

/// A failure counts for more than a skip: it has to be looked at.
fn no_figure(told: &[Told<'_>]) -> Value {
    let mut value = Value::Skip(String::new());
    for told in told {
        match told.outcome {
            Outcome::Failed(reason) => return FailureKind::Broken.because(reason.clone()),
            Outcome::Skipped(reason) if value == Value::Skip(String::new()) => {
                value = Value::Skip(reason.clone());
            }
            _ => {}
        }
    }
    value
}

/// Boots of one environment that did the same must have the same to show.
fn require_one_check(boots: &[Boot<'_>], op: Op) -> Result<(), Value> {
    let first = &boots[0];
    let work = Work::of(op, &first.samples);
    let other = boots
        .iter()
        .find(|boot| boot.check != first.check && Work::of(op, &boot.samples) == work);
    match other {
        None => Ok(()),
        Some(other) => Err(FailureKind::UnequalWork.because(format!(
            "unequal work: checksum {:#x} in boot {}, {:#x} in boot {}",
            first.check, first.replicate, other.check, other.replicate
        ))),
    }
}

impl<'a> Boot<'a> {
    /// `None` if it was not measured.
    fn new(told: &Told<'a>, op: Op) -> Result<Option<Self>, Value> {
        let calibration = Calibration::of(op, told.outcome, told.unit_per_tick);
        let (
            Outcome::Measured {
                check,
                exits,
                host_cpu_ns,
                elapsed,
                ..
            },
            Some(calibration),
        ) = (told.outcome, calibration)
        else {
            return Ok(None);
        };
        let samples = told.outcome.batches();
        let values = samples
            .iter()
            .map(|sample| calibration.value(op.unit(), sample))
            .collect::<Option<Vec<f64>>>()
            .and_then(Sorted::new);
        let (Some(values), Some(mean)) = (values, calibration.mean(op.unit(), &samples)) else {
            return Err(no_measurement(told.replicate, samples.len()));
        };
        let count = value::operations(op, &samples);
        let share = value::share_of_batches(op, &samples);
        let resolutions = samples.iter().map(|sample| calibration.resolution(sample));
        let resolution = Sorted::new(resolutions.collect()).map_or(0.0, |all| all.median());
        Ok(Some(Self {
            replicate: told.replicate,
            samples,
            check: *check,
            values,
            mean,
            resolution,
            exits: exits.map(|exits| exits as f64 / count),
            host_cpu_ns: host_cpu_ns.map(|ns| ns as f64 * share / count),
            disagreement: elapsed.and_then(|elapsed| disagreement(elapsed, told.unit_per_tick)),
        }))
    }
}

fn no_measurement(replicate: u32, samples: usize) -> Value {
    FailureKind::Broken.because(if samples == 0 {
        format!("boot {replicate} gave no sample")
    } else {
        format!("boot {replicate} gave a batch that counts nothing or takes no time")
    })
}

/// See [`Boot::disagreement`].
fn disagreement((ticks, host_ns): (u64, u64), unit_per_tick: f64) -> Option<f64> {
    let difference = ticks as f64 * unit_per_tick - host_ns as f64;
    let allowed = CLOCKS_AGREE * host_ns as f64 + DELIVERY_NS;
    let is_judged = host_ns >= LEAST_ELAPSED_NS && difference.abs() > allowed;
    is_judged.then(|| difference / host_ns as f64)
}

impl Draft {
    fn fill(&mut self, boots: &[Boot<'_>], told: &[Told<'_>]) -> Value {
        let Cell { op, clock, .. } = self.cell;
        // On the instruction clock the other boots are only proof of the first.
        let counted = match clock {
            Clock::Wall => boots,
            Clock::Insn | Clock::InsnVmx => &boots[..1],
        };
        let medians: Vec<f64> = counted.iter().map(|boot| boot.values.median()).collect();
        let blocks = counted.iter().map(|boot| boot.replicate);
        self.medians = blocks.zip(medians.iter().copied()).collect();
        self.proof = Some((Work::of(op, &boots[0].samples), boots[0].check));
        let (Some(over_boots), Some(batches)) = (
            Sorted::new(medians.clone()),
            Sorted::new(counted.iter().flat_map(|boot| boot.values.iter()).collect()),
        ) else {
            return no_figure(told);
        };
        // An exact figure is a mean, so that work which only some batches do is part of it. It
        // has no interval: that all boots agree was checked before.
        let (estimate, interval) = match clock {
            Clock::Wall => (over_boots.median(), median_interval(&medians)),
            Clock::Insn | Clock::InsnVmx => (boots[0].mean, None),
        };
        Value::Measured(Box::new(Figure {
            estimate,
            interval,
            min: batches.min(),
            max: batches.max(),
            p50: batches.percentile(0.50),
            p90: batches.percentile(0.90),
            p99: batches.percentile(0.99),
            samples: batches.count(),
            boots: boots.len(),
            ratio: None,
            exits: median(counted.iter().filter_map(|boot| boot.exits)),
            host_cpu_ns: median(counted.iter().filter_map(|boot| boot.host_cpu_ns)),
            flags: flags(&self.cell, estimate, boots, told),
        }))
    }
}

fn flags(cell: &Cell, estimate: f64, boots: &[Boot<'_>], told: &[Told<'_>]) -> Vec<Flag> {
    let unproved = cell.clock.is_exact() && boots.len() < 2;
    [
        below_resolution(cell, estimate, boots),
        clocks_disagree(boots),
        unproved.then_some(Flag::Unproved),
        unrest(told),
        boots_lost(boots, told),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What else the host did, in any boot that the figure is of.
fn unrest(told: &[Told<'_>]) -> Option<Flag> {
    let measured = told
        .iter()
        .filter(|told| matches!(told.outcome, Outcome::Measured { .. }));
    let mut what = BTreeMap::new();
    let mut boots = 0;
    for told in measured {
        let here = told.facts.iter().filter_map(|(name, value)| {
            Some((name.strip_prefix(UNREST)?.to_owned(), value.clone()))
        });
        let here: Vec<_> = here.collect();
        boots += usize::from(!here.is_empty());
        for (name, value) in here {
            what.entry(name).or_insert(value);
        }
    }
    (boots > 0).then_some(Flag::Unrest { what, boots })
}

/// Only what is repeated in a loop is short enough for this to matter. On an exact clock
/// the loop does not overlap with the operation, so any instruction that is left is the
/// operation's. Where none is left, the loop around the operation was shorter than the
/// calibrated one.
fn below_resolution(cell: &Cell, estimate: f64, boots: &[Boot<'_>]) -> Option<Flag> {
    if cell.op.unit() != Unit::Time || cell.op.workload() == Workload::Boot {
        return None;
    }
    let resolution = median(boots.iter().map(|boot| boot.resolution))?;
    let limit = match cell.clock {
        Clock::Wall => resolution,
        Clock::Insn | Clock::InsnVmx => 0.0,
    };
    (estimate <= limit).then_some(Flag::BelowResolution(resolution))
}

fn clocks_disagree(boots: &[Boot<'_>]) -> Option<Flag> {
    let wrong: Vec<f64> = boots.iter().filter_map(|boot| boot.disagreement).collect();
    let worst = wrong
        .iter()
        .copied()
        .max_by(|a, b| a.abs().total_cmp(&b.abs()))?;
    Some(Flag::ClocksDisagree {
        share: worst,
        boots: wrong.len(),
    })
}

fn boots_lost(boots: &[Boot<'_>], told: &[Told<'_>]) -> Option<Flag> {
    let lost = told.len() - boots.len();
    let reason = match no_figure(told) {
        Value::Skip(reason) => reason,
        Value::Failed(failure) => failure.reason,
        Value::Measured(_) => return None,
    };
    (lost > 0).then_some(Flag::BootsLost {
        boots: lost,
        reason,
    })
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Sorted::new(values.collect()).map(|sorted| sorted.median())
}
