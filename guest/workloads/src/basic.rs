//! Everyday operations of a kernel: a call, a thread switch, an allocation, the first touch of a
//! page.

use crate::first_touch;
use crate::measure::{repeat, Bench, Work};
use crate::null_device::{verify as verify_null, write_and_read};
use crate::system::{Block, System};
use core::hint::black_box;
use trapline_abi::Op;

const BLOCK: usize = 1 << 20;

/// Maximum number of blocks that are held at a time.
const MOST_BLOCKS: usize = 512;

/// Allocations in one batch of `malloc-1m`.
pub const BLOCKS_PER_BATCH: u32 = 8;

/// Maximum number of yields without a switch. A scheduler may prefer the yielding thread for a
/// while, because the peer used up its share while this thread slept.
const MOST_YIELDS: u64 = 100_000;

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    let expected = bench.system.getpid();
    bench.measure(
        Op::Getpid,
        |system, repetitions| getpid(system, expected, repetitions),
        |_, work| work.check_equal("the process number changed"),
    );
    null_io(bench);
    run_yield(bench);
    run_memory(bench);
}

fn null_io<S: System>(bench: &mut Bench<'_, S>) {
    if !bench.job.selects(Op::NullIo) {
        return;
    }
    match bench.system.open_null() {
        Ok(()) => bench.measure(Op::NullIo, write_and_read, |_, work| verify_null(&work)),
        Err(reason) => bench.skip(Op::NullIo, reason),
    }
}

fn getpid<S: System>(system: &mut S, expected: u32, repetitions: u64) -> Work {
    let mut differences = 0;
    repeat(repetitions, || differences |= system.getpid() ^ expected);
    Work::new(repetitions, differences)
}

fn run_yield<S: System>(bench: &mut Bench<'_, S>) {
    if !bench.job.selects(Op::Yield) {
        return;
    }
    match bench.system.start_peer() {
        Ok(()) => {
            let reason = "a yield did not switch to the other thread";
            bench.measure(Op::Yield, yields, |_, work| work.check_equal(reason));
            bench.system.stop_peer();
        }
        Err(reason) => bench.skip(Op::Yield, reason),
    }
}

/// Yields until the peer has run `repetitions` times. Counts switches, to the peer and back, not
/// yields.
fn yields<S: System>(system: &mut S, repetitions: u64) -> Work {
    let before = system.peer_turns();
    let mut left = repetitions.saturating_add(MOST_YIELDS);
    let mut turns = 0;
    while turns < repetitions && left != 0 {
        system.yield_now();
        turns = system.peer_turns() - before;
        left -= 1;
    }
    Work::new((2 * turns).max(1), repetitions.saturating_sub(turns))
}

/// Blocks that `malloc-1m` allocates and `first-touch-4k` writes.
struct Blocks {
    held: [Option<Block>; MOST_BLOCKS],
    used: usize,
}

fn run_memory<S: System>(bench: &mut Bench<'_, S>) {
    let mut blocks = Blocks {
        held: [None; MOST_BLOCKS],
        used: 0,
    };
    if bench.job.selects(Op::Malloc1m) {
        malloc(bench, &mut blocks);
    }
    if bench.job.selects(Op::FirstTouch4k) {
        let wanted = first_touch::blocks(bench.job, BLOCK);
        while blocks.used < wanted && blocks.add(bench.system) {}
        first_touch::run(bench, &blocks.held[..blocks.used.min(wanted)]);
    }
    for block in blocks.held.iter_mut().filter_map(Option::take) {
        // SAFETY: the block came from `Blocks::add`, is taken out of the table
        // here, and `first_touch::run` has returned.
        unsafe { bench.system.release(block) };
    }
}

impl Blocks {
    /// Allocates one more block. Returns false if memory or the table is exhausted.
    fn add<S: System>(&mut self, system: &mut S) -> bool {
        let Some(slot) = self.held.get_mut(self.used) else {
            return false;
        };
        *slot = system.allocate(BLOCK).map(black_box);
        self.used += usize::from(slot.is_some());
        slot.is_some()
    }

    /// Allocates a batch of blocks. The count of an incomplete batch is 0.
    fn add_batch<S: System>(&mut self, system: &mut S) -> (u64, bool) {
        let complete = (0..BLOCKS_PER_BATCH).all(|_| self.add(system));
        (u64::from(BLOCKS_PER_BATCH) * u64::from(complete), complete)
    }
}

/// Allocates blocks in batches. If memory is exhausted early, the batches so far are the
/// measurement.
///
/// The first batch is not recorded: it executes the allocator for the first time, once per boot.
/// The memory is fresh in every batch.
fn malloc<S: System>(bench: &mut Bench<'_, S>, blocks: &mut Blocks) {
    let op = Op::Malloc1m;
    let batches = bench.job.blocks / BLOCKS_PER_BATCH;
    let mut samples = 0;
    blocks.add_batch(bench.system);
    bench.begin(op, 0);
    while bench.continues(samples, batches) && malloc_batch(bench, blocks) {
        samples += 1;
    }
    match samples {
        0 => bench.fail(op, "memory is too small for sixteen blocks of 1 MiB"),
        _ => bench.end(op, samples, u64::from(op.number())),
    }
}

/// Not inlined, so that its markers exist once: the debugger of Bochs has 32 breakpoints.
#[inline(never)]
fn malloc_batch<S: System>(bench: &mut Bench<'_, S>, blocks: &mut Blocks) -> bool {
    bench.timed(Op::Malloc1m, |system| blocks.add_batch(system))
}
