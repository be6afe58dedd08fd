//! Summary of one operation in one configuration over its boots.

use crate::components::Components;
use crate::order::median_interval;
use crate::sorted::Sorted;
use crate::value::{self, Calibration, Work};
use crate::{
    boots_of, exact, outcomes, serial, BootOutcome, Cell, FailureKind, Figure, Flag, Idle, Value,
};
use std::borrow::Cow;
use std::collections::BTreeMap;
use trapline_abi::{Unit, Workload};
use trapline_model::observed::HOST_NOISE;
use trapline_model::{Clock, Config, EnvironmentId, Observation, Operation, Outcome, Sample};

/// Shortest host interval, in nanoseconds, against which a guest's clock is checked.
const LEAST_ELAPSED_NS: u64 = 5_000_000;

/// Jitter between sending and receiving a record, in nanoseconds.
const DELIVERY_NS: f64 = 1_000_000.0;

/// Largest difference of guest and host clock, as a share of the host's interval.
const CLOCKS_AGREE: f64 = 0.01;

/// A cell with the data needed to compare it with others.
#[derive(Clone, Debug)]
pub struct ComparableCell {
    pub cell: Cell,
    /// The work that was done and its checksum.
    pub proof: Option<(Work, u64)>,
}

impl ComparableCell {
    /// Summarises `op` in `config`; `None` if no boot has an outcome.
    pub fn new<'a>(
        observations: impl IntoIterator<Item = &'a Observation>,
        config: &'a Config,
        op: Operation,
    ) -> Option<Self> {
        let mut all: Vec<_> = outcomes(boots_of(observations, config), op).collect();
        // A latency needs frames that are sampled.
        let is_empty = |outcome: &Outcome| {
            matches!(outcome, Outcome::Measured { trials, samples, .. }
            if samples.is_empty() && !trials.is_empty() && outcome.damaged_frames() == 0)
        };
        all.retain(|(_, outcome)| !is_empty(outcome));
        if let Operation::Packets(of) = op {
            let is_measured =
                |(_, outcome): &BootOutcome<'_>| matches!(outcome, Outcome::Measured { .. });
            if !of.has_figure() && all.iter().all(is_measured) {
                return None;
            }
        }
        if all.is_empty() {
            return None;
        }
        all.sort_by_key(|(boot, _)| (boot.replicate, &boot.host));
        let clock = config.clock();
        let mut comparable = Self {
            cell: Cell {
                config: config.clone(),
                op,
                clock,
                unit: value::unit(op, clock),
                value: Value::Skip(String::new()),
            },
            proof: None,
        };
        comparable.cell.value = match measured_boots(&all, op, clock) {
            Ok(boots) => comparable.measured(&boots, &all),
            Err(value) => value,
        };
        Some(comparable)
    }

    fn measured(&mut self, boots: &[MeasuredBoot<'_>], all: &[BootOutcome<'_>]) -> Value {
        let clock = self.cell.clock;
        // On an exact clock the other boots only confirm the first.
        let counted = if clock.is_exact() { &boots[..1] } else { boots };
        let medians: Vec<f64> = counted.iter().map(|boot| boot.values.median()).collect();
        self.proof = Some((boots[0].work, boots[0].check));
        let (Some(over_boots), Some(batches)) = (
            Sorted::new(medians.clone()),
            Sorted::new(counted.iter().flat_map(|boot| boot.values.iter()).collect()),
        ) else {
            return no_figure(all);
        };
        // A mean includes work that only some batches do. An exact figure has no interval: all boots
        // agree.
        let (estimate, interval) = if clock.is_exact() {
            (boots[0].mean, None)
        } else {
            (over_boots.median(), median_interval(&medians))
        };
        let by_block = if clock.is_exact() {
            Vec::new()
        } else {
            let blocks = counted.iter().map(|boot| boot.replicate);
            blocks.zip(medians).collect()
        };
        Value::Measured(Box::new(Figure {
            estimate,
            interval,
            raw: boots[0].raw,
            min: batches.min(),
            max: batches.max(),
            p50: batches.nearest_rank(50_000),
            p90: batches.percentile(90_000),
            p99: batches.percentile(99_000),
            samples: batches.count(),
            boots: boots.len(),
            hosts: 1,
            medians: by_block,
            ratio: None,
            exits: median(counted.iter().filter_map(|boot| boot.exits)),
            host_cpu_ns: median(counted.iter().filter_map(|boot| boot.host_cpu_ns)),
            idle: idle(counted),
            layouts: None,
            components: if clock.is_exact() {
                None
            } else {
                let batches = boots.iter().map(|boot| boot.batches.clone());
                Components::of(&batches.collect::<Vec<_>>(), cost_of_boot(boots, all))
            },
            flags: flags(&self.cell, estimate, boots, all),
        }))
    }
}

/// A measured boot with its values.
struct MeasuredBoot<'a> {
    replicate: u32,
    samples: Cow<'a, [Sample]>,
    work: Work,
    check: u64,
    values: Sorted,
    /// The values in order of time.
    batches: Vec<f64>,
    mean: f64,
    /// The mean with what is excluded, if anything is.
    raw: Option<f64>,
    resolution: f64,
    exits: Option<f64>,
    host_cpu_ns: Option<f64>,
    idle: Option<Idle>,
    /// Difference of guest and host interval as a share of the host's, if it exceeds the limit.
    disagreement: Option<f64>,
}

impl<'a> MeasuredBoot<'a> {
    /// Returns `None` if the operation was not measured.
    fn new((boot, outcome): BootOutcome<'a>, op: Operation) -> Result<Option<Self>, Value> {
        let calibration = Calibration::of(op, outcome, boot.unit_per_tick);
        let (
            Outcome::Measured {
                check,
                exits,
                host_cpu_ns,
                idle,
                elapsed,
                ..
            },
            Some(calibration),
        ) = (outcome, calibration)
        else {
            return Ok(None);
        };
        let damaged = outcome.damaged_frames();
        if damaged > 0 {
            let reason = format!("{damaged} damaged frames");
            return Err(Value::failed(FailureKind::Broken, reason));
        }
        let samples = outcome.batches();
        let values = samples
            .iter()
            .map(|sample| calibration.value(op.unit(), sample))
            .collect::<Option<Vec<f64>>>();
        let batches = values.clone().unwrap_or_default();
        let values = values.and_then(Sorted::new);
        let (Some(values), Some(mean)) = (values, calibration.mean(op.unit(), &samples)) else {
            return Err(invalid_samples(boot.replicate, samples.len()));
        };
        let count = value::operations(op, &samples);
        let share = value::share_of_batches(op, &samples);
        let resolutions = samples.iter().map(|sample| calibration.resolution(sample));
        Ok(Some(Self {
            replicate: boot.replicate,
            check: *check,
            values,
            batches,
            mean,
            raw: raw(&calibration, op, &samples),
            resolution: median(resolutions).unwrap_or(0.0),
            exits: exits.map(|exits| exits as f64 / count),
            host_cpu_ns: host_cpu_ns.map(|ns| ns as f64 * share / count),
            idle: idle.map(|work| Idle {
                time: work.ticks as f64 * boot.unit_per_tick / count,
                bytes: work.bytes as f64 / count,
            }),
            disagreement: elapsed.and_then(|elapsed| disagreement(elapsed, boot.unit_per_tick)),
            work: Work::of(op, outcome),
            samples,
        }))
    }
}

/// Returns the mean over batches with what is excluded from them; `None` if nothing is.
fn raw(calibration: &Calibration, op: Operation, samples: &[Sample]) -> Option<f64> {
    if samples.iter().all(|sample| sample.excluded == 0) {
        return None;
    }
    let whole = samples.iter().map(|sample| Sample {
        excluded: 0,
        ..*sample
    });
    calibration.mean(op.unit(), &whole.collect::<Vec<_>>())
}

/// Returns the measured boots, or the value of a cell without a figure.
fn measured_boots<'a>(
    all: &[BootOutcome<'a>],
    op: Operation,
    clock: Clock,
) -> Result<Vec<MeasuredBoot<'a>>, Value> {
    if clock.is_exact() {
        exact::require_agreement(all)?;
    }
    let boots = all
        .iter()
        .filter_map(|one| MeasuredBoot::new(*one, op).transpose())
        .collect::<Result<Vec<_>, _>>()?;
    if boots.is_empty() {
        return Err(no_figure(all));
    }
    if value::is_checked(op) {
        require_equal_checksums(&boots)?;
    }
    if clock == Clock::Wall {
        require_different_samples(&boots)?;
    }
    Ok(boots)
}

/// Returns the first failure, or else the first skip.
fn no_figure(all: &[BootOutcome<'_>]) -> Value {
    let outcomes = || all.iter().map(|(_, outcome)| outcome);
    let failure = outcomes().find_map(|outcome| match outcome {
        Outcome::Failed(reason) => Some(Value::failed(FailureKind::Broken, reason.clone())),
        _ => None,
    });
    let skip = || {
        outcomes().find_map(|outcome| match outcome {
            Outcome::Skipped(reason) => Some(Value::Skip(reason.clone())),
            _ => None,
        })
    };
    failure.or_else(skip).unwrap_or(Value::Skip(String::new()))
}

/// Checks that boots of one environment that did the same work have the same checksum.
fn require_equal_checksums(boots: &[MeasuredBoot<'_>]) -> Result<(), Value> {
    let first = &boots[0];
    let other = boots
        .iter()
        .find(|boot| boot.check != first.check && boot.work == first.work);
    match other {
        None => Ok(()),
        Some(other) => Err(Value::failed(
            FailureKind::UnequalWork,
            format!(
                "unequal work: checksum {:#x} in boot {}, {:#x} in boot {}",
                first.check, first.replicate, other.check, other.replicate
            ),
        )),
    }
}

/// Checks that no boot on the wall clock repeats the samples of another one, to the tick: it would be a recording. Samples that
/// no host has received are not compared.
fn require_different_samples(boots: &[MeasuredBoot<'_>]) -> Result<(), Value> {
    let mut known = BTreeMap::new();
    for boot in boots {
        let is_received = boot.samples.iter().all(|sample| sample.host_ns.is_some());
        let ticks = boot.samples.iter();
        let ticks: Vec<_> = ticks.map(|it| (it.start, it.end, it.count)).collect();
        let other = known.insert(ticks, boot.replicate);
        if let Some(other) = other.filter(|_| is_received) {
            let boot = boot.replicate;
            let reason = format!(
                "boot {boot} has the samples of boot {other}, to the tick: it was not measured"
            );
            return Err(Value::failed(FailureKind::Broken, reason));
        }
    }
    Ok(())
}

fn invalid_samples(replicate: u32, samples: usize) -> Value {
    let reason = if samples == 0 {
        format!("boot {replicate} gave no sample")
    } else {
        format!("boot {replicate} gave a batch that counts nothing or takes no time")
    };
    Value::failed(FailureKind::Broken, reason)
}

/// See [`MeasuredBoot::disagreement`].
fn disagreement((ticks, host_ns): (u64, u64), unit_per_tick: f64) -> Option<f64> {
    let difference = ticks as f64 * unit_per_tick - host_ns as f64;
    let allowed = CLOCKS_AGREE * host_ns as f64 + DELIVERY_NS;
    let exceeds = host_ns >= LEAST_ELAPSED_NS && difference.abs() > allowed;
    exceeds.then(|| difference / host_ns as f64)
}

/// Returns the medians over boots.
fn idle(boots: &[MeasuredBoot<'_>]) -> Option<Idle> {
    let of = |part: fn(Idle) -> f64| median(boots.iter().filter_map(|boot| boot.idle.map(part)));
    Some(Idle {
        time: of(|idle| idle.time)?,
        bytes: of(|idle| idle.bytes)?,
    })
}

fn flags(
    cell: &Cell,
    estimate: f64,
    boots: &[MeasuredBoot<'_>],
    all: &[BootOutcome<'_>],
) -> Vec<Flag> {
    let unproved = cell.clock.is_exact() && boots.len() < 2;
    [
        below_resolution(cell, estimate, boots),
        // A process of the host has the host's clock.
        clocks_disagree(boots).filter(|_| cell.config.environment != EnvironmentId::HOST),
        unproved.then_some(Flag::Unproved),
        host_noise(all),
        boots_lost(boots, all),
        (!cell.clock.is_exact() && is_autocorrelated(boots)).then_some(Flag::Autocorrelated),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Returns the time of a boot without its batches as a multiple of that of a batch of this operation; `None` if it is not
/// known.
fn cost_of_boot(boots: &[MeasuredBoot<'_>], all: &[BootOutcome<'_>]) -> Option<f64> {
    let ticks = |samples: &[Sample]| {
        let lengths = samples.iter().map(Sample::elapsed);
        lengths.sum::<u64>() as f64
    };
    let batch = median(
        boots
            .iter()
            .map(|boot| ticks(&boot.samples) / boot.samples.len() as f64),
    )?;
    let overheads = all.iter().filter_map(|(boot, _)| {
        let launches = boot.launches.iter().map(|it| it.timeline.values().max());
        let elapsed: u64 = launches.map(|last| last.copied().unwrap_or(0)).sum();
        let outcomes = boot.operations.iter().map(|it| &it.outcome);
        let measured: f64 = outcomes.map(|outcome| ticks(&outcome.batches())).sum();
        let overhead = elapsed as f64 - measured * boot.unit_per_tick;
        (elapsed > 0 && batch > 0.0).then(|| overhead.max(0.0) / (batch * boot.unit_per_tick))
    });
    median(overheads)
}

/// Returns the other load of the host in measured boots.
fn host_noise(all: &[BootOutcome<'_>]) -> Option<Flag> {
    let is_measured = |one: &&BootOutcome<'_>| matches!(one.1, Outcome::Measured { .. });
    let mut what = BTreeMap::new();
    let mut boots = 0;
    for (boot, _) in all.iter().filter(is_measured) {
        let mut is_noisy = false;
        for (name, value) in &boot.facts {
            if let Some(name) = name.strip_prefix(HOST_NOISE) {
                is_noisy = true;
                what.entry(name.to_owned()).or_insert_with(|| value.clone());
            }
        }
        boots += usize::from(is_noisy);
    }
    (boots > 0).then_some(Flag::HostNoise { what, boots })
}

/// Flags operations repeated in a loop that cost no more than the loop. On an exact clock the loop does
/// not overlap with the operation, so any remaining instruction is the operation's. Nothing remains if
/// the loop around the operation was shorter than the calibrated one.
fn below_resolution(cell: &Cell, estimate: f64, boots: &[MeasuredBoot<'_>]) -> Option<Flag> {
    if cell.op.unit() != Unit::Time || cell.op.is_of(Workload::Boot) {
        return None;
    }
    let resolution = median(boots.iter().map(|boot| boot.resolution))?;
    let limit = if cell.clock.is_exact() {
        0.0
    } else {
        resolution
    };
    (estimate <= limit).then_some(Flag::BelowResolution(resolution))
}

fn is_autocorrelated(boots: &[MeasuredBoot<'_>]) -> bool {
    let medians: Vec<f64> = boots.iter().map(|boot| boot.values.median()).collect();
    serial::is_autocorrelated(&medians)
}

fn clocks_disagree(boots: &[MeasuredBoot<'_>]) -> Option<Flag> {
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

fn boots_lost(boots: &[MeasuredBoot<'_>], all: &[BootOutcome<'_>]) -> Option<Flag> {
    let lost = all.len() - boots.len();
    let reason = match no_figure(all) {
        Value::Skip(reason) => reason,
        Value::Failed(failure) => failure.reason,
        Value::Measured(_) => return None,
    };
    (lost > 0).then_some(Flag::BootsLost {
        boots: lost,
        of: all.len(),
        reason,
    })
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Sorted::new(values.collect()).map(|sorted| sorted.median())
}
