//! TLB shootdowns: this CPU maps another frame at the address of a page that all others read.
//!
//! The word of each new frame is the number of the shootdown. Every other CPU reads it over and over: it must not read an
//! older number than that of the last shootdown that had ended before. The next one begins when all of them have read the
//! new number, so that all of them use the translation that it removes.

use super::measure_each;
use crate::cpus::{run_beside, several};
use crate::measure::{ensure, Bench};
use crate::semaphore::Cpu;
use crate::system::{Cpus, Reason, System};
use core::sync::atomic::{AtomicU64, Ordering::SeqCst};
use trapline_abi::job::MOST_CPUS;
use trapline_abi::Op;

/// Shootdowns that are not recorded. They warm up code and caches, and wait for all other CPUs.
const WARM_UP: u32 = 4;

/// Value of [`State::ended`] that ends the other CPUs' part.
const STOP: u64 = u64::MAX;

/// Not inlined, because the lab identifies these markers by the name of this module.
#[inline(never)]
pub fn measure<S: System>(bench: &mut Bench<'_, S>) {
    let op = Op::SmpShootdown;
    let Some(cpus) = several(bench, op) else {
        return;
    };
    let page = match cpus.page().and_then(|page| cpus.remap(0).map(|()| page)) {
        Ok(page) => page,
        Err(reason) => return bench.skip(op, reason),
    };
    let state = State::new();
    let count = cpus.count();
    let others = |number: u32, _: &dyn Cpu| state.read_until_stopped(number, page);
    run_beside(bench, op, (cpus, count), &others, &mut |bench, _| {
        let number = measure_on_first(bench, op, cpus, &state, count);
        state.ended.store(STOP, SeqCst);
        number
    });
}

/// Returns the number of shootdowns.
fn measure_on_first<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    cpus: &dyn Cpus,
    state: &State,
    count: u32,
) -> u64 {
    let mut number = 0;
    measure_each(bench, op, WARM_UP, |bench| {
        number += 1;
        let remapped = bench.timed(op, |_| (1, cpus.remap(number)));
        remapped.and_then(|()| state.check(number, count))
    });
    number
}

/// State of all CPUs.
struct State {
    /// Number of the last shootdown that has ended.
    ended: AtomicU64,
    /// The last number that each CPU has read.
    seen: [AtomicU64; MOST_CPUS as usize],
    /// Numbers read that were older than [`Self::ended`].
    stale: AtomicU64,
}

impl State {
    fn new() -> Self {
        Self {
            ended: AtomicU64::new(0),
            seen: [const { AtomicU64::new(0) }; MOST_CPUS as usize],
            stale: AtomicU64::new(0),
        }
    }

    /// Part of another CPU.
    fn read_until_stopped(&self, cpu: u32, page: &AtomicU64) {
        loop {
            let ended = self.ended.load(SeqCst);
            if ended == STOP {
                return;
            }
            let number = page.load(SeqCst);
            if number < ended {
                self.stale.fetch_add(1, SeqCst);
            }
            self.seen[cpu as usize].store(number, SeqCst);
            core::hint::spin_loop();
        }
    }

    /// Notes the end of a shootdown, and waits until each of `count` CPUs has read its number.
    ///
    /// # Errors
    /// One has read an older number.
    fn check(&self, number: u64, count: u32) -> Result<(), Reason> {
        self.ended.store(number, SeqCst);
        let stale = || self.stale.load(SeqCst) != 0;
        for seen in &self.seen[1..count as usize] {
            while seen.load(SeqCst) != number && !stale() {
                core::hint::spin_loop();
            }
        }
        ensure(
            !stale(),
            "another CPU still used the old translation of the page",
        )
    }
}
