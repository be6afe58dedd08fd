//! Reproducibility check of exact clocks: any difference between two boots is a failure.

use crate::{BootOutcome, FailureKind, Value};
use std::collections::BTreeMap;
use trapline_abi::Interrupt;
use trapline_model::{Outcome, Sample};

/// Checks that every boot has the same outcome as the first.
pub fn require_agreement(boots: &[BootOutcome<'_>]) -> Result<(), Value> {
    let Some(((first, expected), others)) = boots.split_first() else {
        return Ok(());
    };
    for (boot, outcome) in others {
        if let Some(found) = difference(expected, outcome) {
            let who = match hosts(boots) {
                hosts if hosts.len() > 1 => disagreement_of_hosts(&hosts),
                _ => {
                    let (first, other) = (first.replicate, boot.replicate);
                    format!("boots {first} and {other} differ in")
                }
            };
            let reason = format!("not deterministic: {who} {found}");
            return Err(Value::failed(FailureKind::NotDeterministic, reason));
        }
    }
    Ok(())
}

/// Returns the boots of each host.
fn hosts<'a, 'b>(boots: &'b [BootOutcome<'a>]) -> BTreeMap<&'a str, Vec<&'b BootOutcome<'a>>> {
    let mut hosts = BTreeMap::<_, Vec<_>>::new();
    for boot in boots {
        hosts.entry(boot.0.host.as_str()).or_default().push(boot);
    }
    hosts
}

/// Says which hosts differ: those that do not have the outcome of most hosts, if most have one.
fn disagreement_of_hosts(hosts: &BTreeMap<&str, Vec<&BootOutcome<'_>>>) -> String {
    let agree = |one: &[&BootOutcome<'_>], other: &[&BootOutcome<'_>]| {
        let pairs = one.iter().flat_map(|a| other.iter().map(move |b| (a, b)));
        pairs
            .into_iter()
            .all(|((_, a), (_, b))| difference(a, b).is_none())
    };
    let like = |one: &Vec<&BootOutcome<'_>>| -> Vec<&str> {
        let all = hosts.iter().filter(|(_, other)| agree(one, other));
        all.map(|(host, _)| host.get(..8).unwrap_or(host)).collect()
    };
    let all = || hosts.keys().map(|host| host.get(..8).unwrap_or(host));
    let most = hosts
        .values()
        .map(like)
        .max_by_key(Vec::len)
        .unwrap_or_default();
    if most.len() * 2 > hosts.len() && most.len() > 1 {
        let others: Vec<&str> = all().filter(|host| !most.contains(host)).collect();
        let (most, others) = (most.join(", "), others.join(", "));
        format!("hosts {most} agree, and {others} differs in")
    } else {
        let all: Vec<&str> = all().collect();
        format!(
            "hosts {} differ, and a further host would decide, in",
            all.join(", ")
        )
    }
}

/// Describes the first difference of two outcomes. Start times of batches are not compared, nor host
/// timestamps, which are of another clock.
fn difference(one: &Outcome, other: &Outcome) -> Option<String> {
    match (one, other) {
        (Outcome::Measured { .. }, Outcome::Measured { .. }) => measured_difference(one, other),
        (Outcome::Skipped(_), Outcome::Skipped(_)) | (Outcome::Failed(_), Outcome::Failed(_)) => {
            None
        }
        (Outcome::Failed(reason), _) | (_, Outcome::Failed(reason)) => {
            Some(format!("whether it succeeds ({reason})"))
        }
        (Outcome::Skipped(reason), _) | (_, Outcome::Skipped(reason)) => {
            Some(format!("whether it is measured ({reason})"))
        }
    }
}

fn measured_difference(one: &Outcome, other: &Outcome) -> Option<String> {
    let (numbers, samples, interrupts) = parts(one)?;
    let (numbers2, samples2, interrupts2) = parts(other)?;
    let names = [
        "the checksum of the work",
        "the cost of the clock",
        "the cost of the empty loop",
        "the number of batches",
        "the ticks of work between batches",
        "the bytes written between batches",
    ];
    let mut pairs = names.iter().zip(numbers.iter().zip(&numbers2));
    match pairs.find(|(_, (one, other))| one != other) {
        Some((name, (one, other))) => Some(format!("{name}: {one} and {other}")),
        None => batch_difference(samples, samples2)
            .or_else(|| interrupt_difference(interrupts, interrupts2)),
    }
}

/// Returns checksum, calibration, number of batches, and work between them; the batches; the interrupts.
fn parts(outcome: &Outcome) -> Option<([u64; 6], &[Sample], &[Interrupt])> {
    match outcome {
        Outcome::Measured {
            clock_cost,
            loop_cost,
            samples,
            interrupts,
            check,
            idle,
            ..
        } => {
            let (ticks, bytes) = idle.map_or((0, 0), |work| (work.ticks, work.bytes));
            let batches = samples.len() as u64;
            let numbers = [*check, *clock_cost, *loop_cost, batches, ticks, bytes];
            Some((numbers, samples, interrupts))
        }
        _ => None,
    }
}

fn batch_difference(one: &[Sample], other: &[Sample]) -> Option<String> {
    let digits = |sample: &Sample| {
        let ticks = sample.end.wrapping_sub(sample.start);
        (ticks, sample.excluded, sample.count)
    };
    let pairs = one.iter().map(digits).zip(other.iter().map(digits));
    let differing: Vec<_> = pairs.enumerate().filter(|(_, (a, b))| a != b).collect();
    let (number, (one_batch, other_batch)) = differing.first()?;
    let of = |(ticks, excluded, count): &(u64, u64, u64)| match excluded {
        0 => format!("{ticks} insn for {count}"),
        _ => format!("{ticks} insn for {count}, {excluded} of them excluded"),
    };
    Some(format!(
        "{} of {} batches, first in batch {number}: {} and {}",
        differing.len(),
        one.len(),
        of(one_batch),
        of(other_batch)
    ))
}

/// Compares all timestamps of the interrupts, relative to the first expiry.
fn interrupt_difference(one: &[Interrupt], other: &[Interrupt]) -> Option<String> {
    if one.len() != other.len() {
        let (one, other) = (one.len(), other.len());
        return Some(format!("the number of interrupts: {one} and {other}"));
    }
    let (first, first2) = (one.first()?.due, other.first()?.due);
    let differs = |(a, b): &(&Interrupt, &Interrupt)| since(a, first) != since(b, first2);
    let differing: Vec<_> = one.iter().zip(other).filter(differs).collect();
    let (a, b) = differing.first()?;
    let lateness = |interrupt: &Interrupt| interrupt.entered.wrapping_sub(interrupt.due) as i64;
    Some(format!(
        "{} of {} interrupts, first in that of expiry {}: {} insn late and {}",
        differing.len(),
        one.len(),
        a.sequence,
        lateness(a),
        lateness(b)
    ))
}

/// Returns the interrupt with its timestamps relative to `start`.
fn since(interrupt: &Interrupt, start: u64) -> Interrupt {
    let from = |at: u64| at.wrapping_sub(start);
    Interrupt {
        due: from(interrupt.due),
        woke: interrupt.woke.map(from),
        marked: interrupt.marked.map(from),
        entered: from(interrupt.entered),
        done: from(interrupt.done),
        resumed: from(interrupt.resumed),
        ..*interrupt
    }
}
