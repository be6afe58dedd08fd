//! Merges the results of equal guests that ran one job at the same time.

use crate::launch::FinishedLaunch;
use trapline_model::observed::{IdleWork, OperationResult, Outcome, Sample};

/// Smallest share of a guest's batches during which all guests have to measure.
const MIN_SIMULTANEOUS: f64 = 0.9;

const UNEQUAL: &str = "the guests did unequal work";
const NOT_REPORTED: &str = "a guest did not report it";
const NO_OFFSET: &str = "the offset between the clocks of the guests is unknown";

/// Results of guests that ran at the same time.
pub struct Merged {
    /// Launch of the first guest, with the batches of all guests on its clock.
    pub launch: FinishedLaunch,
    /// Smallest share of a guest's batches during which all guests measured; `None` for one guest, or without batches.
    pub simultaneous: Option<f64>,
}

/// Merges the launches of one job. `None` without launches.
pub fn merge(launches: Vec<FinishedLaunch>) -> Option<Merged> {
    let mut launches = launches.into_iter();
    let mut launch = launches.next()?;
    let mut simultaneous: Option<f64> = None;
    let mut spans = spans(&launch.report.operations);
    for other in launches {
        let ahead = launch.exact_offset().zip(other.exact_offset());
        let ahead = ahead.map(|(first, other)| first - other);
        let mut operations = other.report.operations;
        operations
            .iter_mut()
            .for_each(|it| shift(&mut it.outcome, ahead));
        spans.extend(self::spans(&operations));
        for operation in &mut launch.report.operations {
            add(operation, &operations);
        }
        launch.report.problems.extend(other.report.problems);
        launch.report.log.push_str(&other.report.log);
        launch.report.errors.push_str(&other.report.errors);
        simultaneous = share(&spans);
    }
    if let Some(share) = simultaneous.filter(|share| *share < MIN_SIMULTANEOUS) {
        let names: Vec<_> = launch
            .report
            .operations
            .iter()
            .map(|it| it.op.path())
            .collect();
        launch.report.problems.push(format!(
            "{}: the guests measured at the same time for {:.0}% of the batches of one only",
            names.join(","),
            100.0 * share
        ));
    }
    Some(Merged {
        launch,
        simultaneous,
    })
}

/// Returns start and end of the batches of each operation.
fn spans(operations: &[OperationResult]) -> Vec<(u64, u64)> {
    let span = |operation: &OperationResult| {
        let batches = operation.outcome.batches();
        Some((batches.first()?.start, batches.last()?.end))
    };
    operations.iter().filter_map(span).collect()
}

/// Returns the smallest share of a span before the first end of all. Guests start together, and work from there on.
fn share(spans: &[(u64, u64)]) -> Option<f64> {
    let first_end = spans.iter().map(|(_, end)| *end).min()?;
    let share = |(start, end): &(u64, u64)| {
        let common = first_end.saturating_sub(*start) as f64;
        common / (end - start).max(1) as f64
    };
    spans.iter().map(share).reduce(f64::min)
}

/// Moves batches to another clock, which is ahead by this number of ticks.
fn shift(outcome: &mut Outcome, ahead: Option<i64>) {
    let Outcome::Measured { samples, .. } = outcome else {
        return;
    };
    let Some(ahead) = ahead else {
        *outcome = Outcome::Failed(NO_OFFSET.to_owned());
        return;
    };
    for sample in samples {
        sample.start = sample.start.wrapping_add_signed(ahead);
        sample.end = sample.end.wrapping_add_signed(ahead);
    }
}

/// Adds what another guest measured to an operation.
fn add(operation: &mut OperationResult, others: &[OperationResult]) {
    let other = others.iter().find(|other| other.op == operation.op);
    let failed = Outcome::Failed(NOT_REPORTED.to_owned());
    let other = other.map_or(failed, |other| other.outcome.clone());
    operation.outcome = match (operation.outcome.clone(), other) {
        (measured @ Outcome::Measured { .. }, other @ Outcome::Measured { .. }) => {
            pooled(measured, other)
        }
        (Outcome::Measured { .. }, other) => other,
        (own, _) => own,
    };
}

/// Returns the batches of both. The costs are their means, weighted so that the mean over all batches is exact.
fn pooled(one: Outcome, other: Outcome) -> Outcome {
    let (
        Outcome::Measured {
            clock_cost,
            loop_cost,
            mut samples,
            interrupts,
            trials,
            check,
            exits,
            host_cpu_ns,
            idle,
            elapsed,
        },
        Outcome::Measured {
            clock_cost: other_clock_cost,
            loop_cost: other_loop_cost,
            samples: other_samples,
            check: other_check,
            exits: other_exits,
            host_cpu_ns: other_host_cpu_ns,
            idle: other_idle,
            ..
        },
    ) = (one, other)
    else {
        return Outcome::Failed(NOT_REPORTED.to_owned());
    };
    if check != other_check {
        return Outcome::Failed(UNEQUAL.to_owned());
    }
    let batches = [samples.len() as u64, other_samples.len() as u64];
    let counts = [count(&samples), count(&other_samples)];
    samples.extend(other_samples);
    samples.sort_by_key(|sample| sample.start);
    Outcome::Measured {
        clock_cost: weighted_mean([clock_cost, other_clock_cost], batches),
        loop_cost: weighted_mean([loop_cost, other_loop_cost], counts),
        samples,
        interrupts,
        trials,
        check,
        exits: exits.zip(other_exits).map(|(one, other)| one + other),
        host_cpu_ns: host_cpu_ns
            .zip(other_host_cpu_ns)
            .map(|(one, other)| one + other),
        idle: idle.zip(other_idle).map(|(one, other)| IdleWork {
            ticks: one.ticks.saturating_add(other.ticks),
            bytes: one.bytes.saturating_add(other.bytes),
        }),
        elapsed,
    }
}

fn count(samples: &[Sample]) -> u64 {
    samples.iter().map(|sample| sample.count).sum()
}

fn weighted_mean(values: [u64; 2], weights: [u64; 2]) -> u64 {
    let sum = values
        .iter()
        .zip(weights)
        .map(|(value, weight)| u128::from(*value) * u128::from(weight));
    let weight = u128::from(weights[0] + weights[1]).max(1);
    ((sum.sum::<u128>() + weight / 2) / weight) as u64
}

#[cfg(test)]
mod tests;
