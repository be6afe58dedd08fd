//! Pins a simulated machine, or one side of a concurrent comparison, to one CPU.
//!
//! When a simulated CPU halts, QEMU's main thread moves the machine's clock to the next timer. On
//! another CPU it may do so before the last instructions are counted, which changes a digit; on the
//! same CPU the two threads hardly ever overlap.

use crate::failure::Failure;
use rustix::thread::{sched_getaffinity, sched_setaffinity, CpuSet};

/// Pins this thread, and all that it starts later, to the allowed CPU with index `number` modulo
/// their count. Without effect where the kernel refuses.
pub fn pin_to_one_cpu(number: usize) {
    let Ok(allowed) = sched_getaffinity(None) else {
        return;
    };
    // Different processes start at different CPUs.
    let number = number + std::process::id() as usize;
    if let Some(only) = select(&allowed, number) {
        let _ = sched_setaffinity(None, &only);
    }
}

fn select(allowed: &CpuSet, number: usize) -> Option<CpuSet> {
    let all: Vec<usize> = (0..CpuSet::MAX_CPU)
        .filter(|cpu| allowed.is_set(*cpu))
        .collect();
    let chosen = all.get(number % all.len().max(1))?;
    let mut only = CpuSet::new();
    only.set(*chosen);
    Some(only)
}

/// Returns the CPU of the ports of trials of packets and that of the forwarder: those that are named, or the last two.
///
/// # Errors
/// This process may not use both.
pub fn packet_cpus(named: &[u32]) -> Result<[u32; 2], Failure> {
    let affinity = sched_getaffinity(None).map_err(|error| Failure::from_error(&error))?;
    let all = 0..CpuSet::MAX_CPU as u32;
    let usable: Vec<u32> = all.filter(|cpu| affinity.is_set(*cpu as usize)).collect();
    match (named, usable.as_slice()) {
        ([], [.., forwarder, ports]) => Ok([*ports, *forwarder]),
        ([], _) => Err(Failure::usage(
            "packets need two CPUs, and this process may use one",
            "allow more, as with 'taskset -c 0,1'",
        )),
        ([ports, forwarder], _)
            if ports != forwarder && named.iter().all(|cpu| usable.contains(cpu)) =>
        {
            Ok([*ports, *forwarder])
        }
        _ => Err(Failure::usage(
            format!("--cpus: expected two of the CPUs of this process, not {named:?}"),
            format!("name two of {usable:?}, as --cpus 1,0"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_wrap_around_the_allowed_cpus() {
        let mut allowed = CpuSet::new();
        [3, 5, 60].into_iter().for_each(|cpu| allowed.set(cpu));
        let chosen = |number| {
            let only = select(&allowed, number).unwrap();
            assert_eq!(only.count(), 1);
            (0..CpuSet::MAX_CPU).find(|cpu| only.is_set(*cpu))
        };
        assert_eq!([0, 1, 2, 3].map(chosen), [3, 5, 60, 3].map(Some));
        assert!(select(&CpuSet::new(), 7).is_none());
    }

    #[test]
    fn a_child_thread_inherits_the_pin() {
        let before = sched_getaffinity(None).unwrap().count();
        let counts = std::thread::spawn(|| {
            pin_to_one_cpu(1);
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
