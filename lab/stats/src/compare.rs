//! Cells side by side: the same operation in several environments must have
//! done the same work, and is related to the bare row of its clock.

use crate::cell::Draft;
use crate::spread::{chance, quotient_interval};
use crate::value::{self, Work};
use crate::{FailureKind, Figure, Flag, Ratio, Value};
use std::collections::BTreeMap;
use trapline_abi::Op;
use trapline_plan::{Clock, EnvironmentId};

/// Tells the chance of a ratio from that of an estimate.
const OF_RATIOS: u64 = 1 << 32;

/// Which environments have which checksum to show for the same work.
type Rivals = BTreeMap<u64, Vec<EnvironmentId>>;

/// Makes failures of cells whose checksum is not that of most environments that
/// did the same amount of work - on either clock, for work is work. Where no
/// checksum has more environments behind it than every other, nobody knows which
/// is right, and all of them fail.
pub fn require_equal_work(drafts: &mut [Draft]) {
    let mut groups: BTreeMap<(Op, Work), Rivals> = BTreeMap::new();
    for draft in drafts.iter() {
        if let Some((work, check)) = draft.proof.filter(|_| value::is_checked(draft.cell.op)) {
            let rivals = groups.entry((draft.cell.op, work)).or_default();
            rivals
                .entry(check)
                .or_default()
                .push(draft.cell.environment);
        }
    }
    groups.retain(|_, rivals| rivals.len() > 1);
    for draft in drafts {
        let Some((work, check)) = draft.proof else {
            continue;
        };
        if let Some(rivals) = groups.get(&(draft.cell.op, work)) {
            if winner(rivals) != Some(check) {
                draft.cell.value = FailureKind::UnequalWork.because(unequal(rivals));
                draft.proof = None;
            }
        }
    }
}

/// The checksum with the most environments behind it, if there is one.
fn winner(rivals: &Rivals) -> Option<u64> {
    let most = rivals.values().map(Vec::len).max()?;
    let mut best = rivals.iter().filter(|(_, behind)| behind.len() == most);
    let (check, _) = best.next()?;
    best.next().is_none().then_some(*check)
}

fn unequal(rivals: &Rivals) -> String {
    let sides: Vec<String> = rivals
        .iter()
        .map(|(check, behind)| {
            let names: Vec<&str> = behind.iter().map(|id| id.name()).collect();
            format!("{check:#x} in {}", names.join(", "))
        })
        .collect();
    format!("unequal work: checksum {}", sides.join(" and "))
}

/// Gives every figure its ratio to the bare row's, and flags it if the bare row
/// did another amount of work.
pub fn relate_to_bare(drafts: &mut [Draft], seed: u64) {
    let is_figure = |draft: &&Draft| draft.cell.value.figure().is_some();
    let bare = drafts
        .iter()
        .filter(|draft| draft.cell.environment.is_bare());
    let bare: BTreeMap<(Op, Clock), Draft> = bare
        .filter(is_figure)
        .map(|draft| ((draft.cell.op, draft.cell.clock), draft.clone()))
        .collect();
    for draft in drafts {
        if let Some(bare) = bare.get(&(draft.cell.op, draft.cell.clock)) {
            relate(draft, bare, seed);
        }
    }
}

fn relate(draft: &mut Draft, bare: &Draft, seed: u64) {
    let size = other_size(draft, bare);
    let ends = ratio_ends(draft, bare, seed);
    let (Value::Measured(figure), Some(base)) = (&mut draft.cell.value, bare.cell.value.figure())
    else {
        return;
    };
    figure.flags.extend(size);
    if !is_resolved(figure) || !is_resolved(base) {
        return;
    }
    let estimate = figure.estimate / base.estimate;
    let ends = match draft.cell.clock {
        // The quotient of two exact figures has no interval either.
        Clock::Insn | Clock::InsnVmx => None,
        Clock::Wall if draft.cell.environment.is_bare() => Some((estimate, estimate)),
        Clock::Wall => ends,
    };
    figure.ratio = Some(Ratio {
        estimate,
        low: ends.map(|(low, _)| low),
        high: ends.map(|(_, high)| high),
    });
}

fn is_resolved(figure: &Figure) -> bool {
    figure.estimate > 0.0 && figure.resolution().is_none()
}

fn ratio_ends(draft: &Draft, bare: &Draft, seed: u64) -> Option<(f64, f64)> {
    let mut chance = chance(seed, draft.stream() | OF_RATIOS);
    quotient_interval(&draft.medians, &bare.medians, &mut chance)
}

fn other_size(draft: &Draft, bare: &Draft) -> Option<Flag> {
    let ((here, _), (bare, _)) = (draft.proof?, bare.proof?);
    (here != bare).then_some(Flag::OtherSize { here, bare })
}
