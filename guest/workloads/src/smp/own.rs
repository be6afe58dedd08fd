//! Interrupts between CPUs, and the start of a further one, by the guest's own kernel.

use super::measure_each;
use crate::cpus::several;
use crate::measure::{ensure, repeat, Bench, Work};
use crate::system::System;
use trapline_abi::Op;

/// Starts that are not recorded. They warm up code and caches, and last longer than a grace period of RCU: KVM allocates a map of
/// local APICs at each start, and gets memory that it has freed only after one.
const WARM_UP: u32 = 256;

/// Interrupts to the last CPU, while all others but this one halt, too. Not inlined, because the lab identifies these
/// markers by the name of this module.
#[inline(never)]
pub fn measure_interrupts<S: System>(bench: &mut Bench<'_, S>) {
    let op = Op::SmpIpi;
    let Some(cpus) = several(bench, op) else {
        return;
    };
    if let Err(reason) = cpus.interrupts() {
        return bench.skip(op, reason);
    }
    let handled = || cpus.interrupts().unwrap_or(0);
    bench.measure(
        op,
        |_, repetitions| {
            let before = handled();
            repeat(repetitions, || cpus.interrupt());
            Work::new(repetitions, handled().wrapping_sub(before))
        },
        |_, work| {
            ensure(
                work.evidence == work.count,
                "another CPU handled more or fewer interrupts than were sent to it",
            )
        },
    );
    bench.system.quiesce();
}

/// Starts of the last CPU, while all others but this one halt.
#[inline(never)]
pub fn measure_starts<S: System>(bench: &mut Bench<'_, S>) {
    let op = Op::SmpStart;
    let Some(cpus) = several(bench, op) else {
        return;
    };
    if let Err(reason) = cpus.reset() {
        return bench.skip(op, reason);
    }
    let running = cpus.restart();
    measure_each(bench, op, WARM_UP, |bench| {
        running.and_then(|()| cpus.reset())?;
        bench.timed(op, |_| (1, cpus.restart()))
    });
    bench.system.quiesce();
}
