//! Two contenders at the same time, each on a processor of its own: whatever the host does
//! meanwhile, it does to both. From block to block they change places, for no two processors
//! are quite the same. Which boot of a block starts first follows the plan's balanced order.

use crate::failure::Failure;
use crate::measure::{do_boot, keep, Keeper, Task};
use crate::place;
use std::time::Instant;
use trapline_abi::{block, OpSet, Workload};
use trapline_model::observed::UNREST;
use trapline_model::{irq, names, populate, PlannedBoot};

/// Why two cannot be measured so, if they cannot.
pub fn misfit(operations: OpSet, processors: usize) -> Option<(String, &'static str)> {
    let apart =
        Workload::Stream.set() | irq::operations() | populate::operations() | block::operations();
    match operations & apart {
        0 if processors < 2 => Some((
            "--duet needs a processor for each of the two, and this process may use one".to_owned(),
            "leave it out: boots in turns need one only",
        )),
        0 => None,
        shared => Some((
            format!(
                "--duet would let the two take {} from each other",
                names::describe(shared)
            ),
            "name other operations with --workload: memory's bandwidth, interrupts and disks are shared",
        )),
    }
}

/// Does the boots of each block at the same time.
///
/// # Errors
/// Nothing can be stored any more.
pub fn in_pairs(
    task: &Task<'_>,
    boots: &[&PlannedBoot],
    keeper: &mut dyn Keeper,
) -> Result<(), Failure> {
    for pair in boots.chunk_by(|one, other| one.block == other.block) {
        if task.deadline.is_some_and(|end| Instant::now() >= end) {
            break;
        }
        let booted: Vec<_> = std::thread::scope(|scope| {
            let started: Vec<_> = pair
                .iter()
                .map(|boot| scope.spawn(move || together(task, boot, pair)))
                .collect();
            let ended = started.into_iter().map(|thread| thread.join());
            ended.flatten().collect()
        });
        let all_came_back = booted.len() == pair.len();
        for one in booted {
            if !keep(keeper, one)? {
                return Ok(());
            }
        }
        if !all_came_back {
            return Err(Failure::new("a boot ended in a panic; please report it"));
        }
    }
    Ok(())
}

/// One of a pair, on its processor. Places follow from the order of names, which the order
/// of boots does not change.
fn together(task: &Task<'_>, boot: &PlannedBoot, pair: &[&PlannedBoot]) -> crate::measure::Booted {
    let before = pair
        .iter()
        .filter(|other| other.contender() < boot.contender());
    let number = before.count() + boot.block as usize;
    place::stay_on_one(number);
    let mut booted = do_boot(task, boot);
    if let Some(seen) = booted.observation() {
        // The other one is no stranger.
        seen.facts.remove(&format!("{UNREST}others"));
        let others = pair
            .iter()
            .filter(|other| other.contender() != boot.contender());
        let others: Vec<_> = others.map(|other| other.contender().to_string()).collect();
        seen.facts.insert("beside".to_owned(), others.join(" "));
    }
    booted
}

#[cfg(test)]
mod tests {
    use super::*;
    use trapline_abi::Op;

    #[test]
    fn what_two_would_take_from_each_other_is_refused() {
        assert_eq!(misfit(Op::PortOut.bit() | Op::Getpid.bit(), 2), None);
        let (told, _) = misfit(Op::Triad.bit() | Op::Getpid.bit(), 2).unwrap();
        assert!(told.contains("take stream/triad from each other"), "{told}");
        assert!(misfit(Op::OwnTimer.bit(), 2).is_some());
        let (told, _) = misfit(Op::Getpid.bit(), 1).unwrap();
        assert!(told.contains("may use one"), "{told}");
    }
}
