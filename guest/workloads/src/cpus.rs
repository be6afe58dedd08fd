//! Operations of several CPUs.

use crate::measure::Bench;
use crate::semaphore::Cpu;
use crate::system::{Cpus, System};
use trapline_abi::{platform, Op};

/// Part of this CPU in an operation. Returns the number of operations of all its batches.
pub type First<'a, 'b, S> = &'a mut dyn FnMut(&mut Bench<'b, S>, &dyn Cpu) -> u64;

/// Returns the CPUs of the system, or skips `op`. `None` unless it is selected.
pub fn cpus<S: System>(bench: &mut Bench<'_, S>, op: Op) -> Option<&'static dyn Cpus> {
    if !bench.job.selects(op) {
        return None;
    }
    let found = bench.system.cpus(bench.job);
    found.map_err(|reason| bench.skip(op, reason)).ok()
}

/// Returns the CPUs if there are several, or skips `op`.
pub fn several<S: System>(bench: &mut Bench<'_, S>, op: Op) -> Option<&'static dyn Cpus> {
    let found = cpus(bench, op)?;
    if found.count() < 2 {
        bench.skip(op, "this process may use one CPU");
        return None;
    }
    Some(found)
}

/// Runs `op` on this CPU and `count - 1` others, or skips it. Prints how often they have woken each other.
pub fn run_beside<'b, S: System>(
    bench: &mut Bench<'b, S>,
    op: Op,
    (cpus, count): (&dyn Cpus, u32),
    others: &(dyn Fn(u32, &dyn Cpu) + Sync),
    first: First<'_, 'b, S>,
) {
    let before = cpus.wakes();
    let mut operations = 0;
    let ran = cpus.run_beside(count, others, &mut |cpu| operations = first(bench, cpu));
    match ran {
        Ok(()) => {
            let (workload, name) = (op.workload().name(), op.name());
            let wakes = cpus.wakes() - before;
            bench.system.print_fact(format_args!(
                "{}{workload}-{name} {wakes} in {operations} operations",
                platform::WAKES_FACT_PREFIX
            ));
        }
        Err(reason) => bench.skip(op, reason),
    }
    bench.system.quiesce();
}
