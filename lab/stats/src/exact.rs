//! What is exact is the same twice: the proof of figures on the instruction
//! clock. Where the digits differ there is no figure, however small the
//! difference, because nobody could say which of the two it is.

use crate::cell::Told;
use crate::{FailureKind, Value};
use trapline_abi::Interrupt;
use trapline_model::{Outcome, Sample};

/// That every boot says of the operation what the first says.
pub fn require_agreement(told: &[Told<'_>]) -> Result<(), Value> {
    let Some((first, others)) = told.split_first() else {
        return Ok(());
    };
    let difference = others.iter().find_map(|other| {
        difference(first.outcome, other.outcome).map(|found| (other.replicate, found))
    });
    match difference {
        None => Ok(()),
        Some((replicate, found)) => Err(FailureKind::NotDeterministic.because(format!(
            "not deterministic: boots {} and {replicate} differ in {found}",
            first.replicate
        ))),
    }
}

/// In what two boots differ. When a batch began is no part of its figure, and
/// the host's stamps are not of this clock.
fn difference(one: &Outcome, other: &Outcome) -> Option<String> {
    match (one, other) {
        (Outcome::Measured { .. }, Outcome::Measured { .. }) => measured_difference(one, other),
        (Outcome::Skipped(_), Outcome::Skipped(_)) => None,
        (Outcome::Failed(_), Outcome::Failed(_)) => None,
        (Outcome::Failed(reason), _) | (_, Outcome::Failed(reason)) => {
            Some(format!("whether it succeeds ({reason})"))
        }
        (Outcome::Skipped(reason), _) | (_, Outcome::Skipped(reason)) => {
            Some(format!("whether it is measured ({reason})"))
        }
    }
}

fn measured_difference(one: &Outcome, other: &Outcome) -> Option<String> {
    let (
        Outcome::Measured {
            clock_cost,
            loop_cost,
            samples,
            interrupts,
            check,
            ..
        },
        Outcome::Measured {
            clock_cost: clock_cost2,
            loop_cost: loop_cost2,
            samples: samples2,
            interrupts: interrupts2,
            check: check2,
            ..
        },
    ) = (one, other)
    else {
        return None;
    };
    let numbers = [
        ("the checksum of the work", check, check2),
        ("the cost of the clock", clock_cost, clock_cost2),
        ("the cost of the empty loop", loop_cost, loop_cost2),
    ];
    if let Some((what, one, other)) = numbers.into_iter().find(|(_, one, other)| one != other) {
        return Some(format!("{what}: {one} and {other}"));
    }
    if samples.len() != samples2.len() {
        let (one, other) = (samples.len(), samples2.len());
        return Some(format!("the number of batches: {one} and {other}"));
    }
    batch_difference(samples, samples2).or_else(|| interrupt_difference(interrupts, interrupts2))
}

/// Of interrupts every stage has to agree, and when they came: all but the moment from
/// which the machine counts.
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

/// The interrupt, its times counted from `start`.
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

fn batch_difference(one: &[Sample], other: &[Sample]) -> Option<String> {
    let digits = |sample: &Sample| {
        let ticks = sample.end.wrapping_sub(sample.start);
        (ticks, sample.count)
    };
    let pairs = one.iter().map(digits).zip(other.iter().map(digits));
    let differing: Vec<_> = pairs.enumerate().filter(|(_, (a, b))| a != b).collect();
    let (number, ((ticks, count), (ticks2, count2))) = differing.first()?;
    Some(format!(
        "{} of {} batches, first in batch {number}: \
         {ticks} insn for {count} and {ticks2} insn for {count2}",
        differing.len(),
        one.len()
    ))
}
