//! One processor for a whole simulated machine.
//!
//! When a simulated processor halts, QEMU's main thread moves the machine's clock to the
//! next timer. On another processor than the machine's it may do so a moment too early,
//! before the last instructions are counted, and a digit would depend on that moment. On
//! the same processor the two hardly ever meet.

use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

/// Lets this thread, and all that it starts from here on, run on one processor only: for
/// each `number` another, as far as there are any. Where the kernel refuses, everything
/// works as it did.
pub fn stay_on_one(number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    // Runs that know nothing of each other begin at different ones.
    let number = number + std::process::id() as usize;
    if let Some(only) = one_of(&allowed, number) {
        let _ = sched_setaffinity(None, &only);
    }
}

fn one_of(allowed: &CpuSet, number: usize) -> Option<CpuSet> {
    let all: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    let chosen = all.get(number % all.len().max(1))?;
    let mut only = CpuSet::new();
    only.set(*chosen);
    Some(only)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_go_round_the_processors_that_are_allowed() {
        let mut allowed = CpuSet::new();
        [3, 5, 60].into_iter().for_each(|cpu| allowed.set(cpu));
        let chosen = |number| {
            let only = one_of(&allowed, number).unwrap();
            assert_eq!(only.count(), 1);
            (0..CpuSet::MAX_CPU).find(|cpu| only.is_set(*cpu))
        };
        assert_eq!([0, 1, 2, 3].map(chosen), [3, 5, 60, 3].map(Some));
        assert!(one_of(&CpuSet::new(), 7).is_none());
    }

    #[test]
    fn what_a_thread_starts_stays_where_it_is() {
        let before = sched_getaffinity(None).unwrap().count();
        let counts = std::thread::spawn(|| {
            stay_on_one(1);
            let child = std::thread::spawn(|| sched_getaffinity(None).unwrap().count());
            (
                sched_getaffinity(None).unwrap().count(),
                child.join().unwrap(),
            )
        });
        assert_eq!(counts.join().unwrap(), (1, 1));
        assert_eq!(sched_getaffinity(None).unwrap().count(), before);
    }
}
