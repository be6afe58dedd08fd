//! Cells side by side: the same operation in several environments must have
//! done the same work, and is related to the bare row of its clock.

use crate::cell::Draft;
use crate::paired::paired_ratio;
use crate::value::{self, Work};
use crate::{FailureKind, Figure, Flag, Ratio, Value};
use std::collections::BTreeMap;
use trapline_abi::{Op, Workload};
use trapline_model::{Clock, EnvironmentId};

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

/// Gives every figure its ratio to that of the bare row, and flags what a reader has to know about it.
pub fn relate_to_bare(drafts: &mut [Draft]) {
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
            relate(draft, bare);
        }
    }
}

fn relate(draft: &mut Draft, bare: &Draft) {
    let size = other_size(draft, bare);
    let ratio = ratio(draft, bare).filter(|_| size.is_none());
    let mechanism = other_mechanism(draft, bare).filter(|_| ratio.is_some());
    if let Value::Measured(figure) = &mut draft.cell.value {
        figure.ratio = ratio;
        figure.flags.extend(mechanism);
        figure.flags.extend(size);
    }
}

fn ratio(draft: &Draft, bare: &Draft) -> Option<Ratio> {
    let resolved = |draft: &Draft| {
        let figure = draft.cell.value.figure();
        figure
            .filter(|figure| is_resolved(figure))
            .map(|figure| figure.estimate)
    };
    let quotient = resolved(draft)? / resolved(bare)?;
    if draft.cell.clock.is_exact() || draft.cell.environment.is_bare() {
        return Some(Ratio {
            estimate: quotient,
            interval: None,
        });
    }
    let paired = paired_ratio(&draft.medians, &bare.medians)?;
    Some(Ratio {
        estimate: paired.estimate,
        interval: paired.interval,
    })
}

fn is_resolved(figure: &Figure) -> bool {
    figure.estimate > 0.0 && figure.resolution().is_none()
}

fn other_size(draft: &Draft, bare: &Draft) -> Option<Flag> {
    let ((here, _), (bare, _)) = (draft.proof?, bare.proof?);
    (here != bare).then_some(Flag::OtherSize { here, bare })
}

/// The image runs its application in the kernel; the agent is a process of Linux. Some operations are the
/// same question to both but not the same mechanism.
fn other_mechanism(draft: &Draft, bare: &Draft) -> Option<Flag> {
    let (here, bare) = (draft.cell.environment, bare.cell.environment);
    let text = match draft.cell.op {
        _ if here.has_processes() == bare.has_processes() => return None,
        Op::Getpid => "getpid is a function call in the image, a system call in Linux",
        Op::Yield => "yield is a function call in the image, sched_yield between threads in Linux",
        Op::Malloc1m => "malloc-1m is the image's allocator, mmap in Linux",
        Op::FirstTouch4k => "first-touch-4k is a page fault in Linux, none in the image itself",
        Op::TimerWake => {
            "timer-wake is hlt and an interrupt in the image, a sleeping thread in Linux"
        }
        op if op.workload() == Workload::Boot => {
            "boot starts a machine with the image, a process in Linux"
        }
        _ => return None,
    };
    Some(Flag::OtherMechanism(text))
}
