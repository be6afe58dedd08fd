//! What a kernel does all day: a call into it, a switch of threads, an
//! allocation, the first touch of a page.

use crate::measure::{repeat, Bench, Work};
use crate::system::{Block, Reason, System};
use core::hint::black_box;
use trapline_abi::Op;

const PAGE: usize = 4096;
const BLOCK: usize = 1 << 20;

/// The most blocks that are held at a time.
const MOST_BLOCKS: usize = 512;

/// Allocations in one batch of `malloc-1m`.
const BLOCKS_PER_BATCH: u32 = 8;

/// Blocks that `first-touch-4k` touches without recording it.
const WARM_UP_BLOCKS: usize = 1;

/// So many yields are tried for a switch before it counts as one that never
/// comes. A scheduler may owe the yielding thread some turns - the peer used its
/// own up while this thread was asleep - but not for ever.
const MOST_YIELDS: u64 = 100_000;

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    let expected = bench.system.getpid();
    bench.measure(
        Op::Getpid,
        |system, repetitions| getpid(system, expected, repetitions),
        |_, work| work.alike("the process number changed"),
    );
    run_yield(bench);
    run_memory(bench);
}

fn getpid<S: System>(system: &mut S, expected: u32, repetitions: u64) -> Work {
    let mut differences = 0;
    repeat(repetitions, || differences |= system.getpid() ^ expected);
    Work::compared(repetitions, differences)
}

fn run_yield<S: System>(bench: &mut Bench<'_, S>) {
    if !bench.job.wants(Op::Yield) {
        return;
    }
    match bench.system.start_peer() {
        Ok(()) => {
            let reason = "a yield did not switch to the other thread";
            bench.measure(Op::Yield, yields, |_, work| work.alike(reason));
            bench.system.stop_peer();
        }
        Err(reason) => bench.skip(Op::Yield, reason),
    }
}

/// Yields until the peer has run `repetitions` times: what is counted is
/// switches, to the peer and back, not yields.
fn yields<S: System>(system: &mut S, repetitions: u64) -> Work {
    let before = system.peer_turns();
    let mut left = repetitions.saturating_add(MOST_YIELDS);
    let mut turns = 0;
    while turns < repetitions && left != 0 {
        system.yield_now();
        turns = system.peer_turns() - before;
        left -= 1;
    }
    Work::compared((2 * turns).max(1), repetitions.saturating_sub(turns))
}

/// The blocks that `malloc-1m` allocated and `first-touch-4k` writes.
struct Blocks {
    held: [Option<Block>; MOST_BLOCKS],
    used: usize,
}

fn run_memory<S: System>(bench: &mut Bench<'_, S>) {
    let mut blocks = Blocks {
        held: [None; MOST_BLOCKS],
        used: 0,
    };
    if bench.job.wants(Op::Malloc1m) {
        malloc(bench, &mut blocks);
    }
    if bench.job.wants(Op::FirstTouch4k) {
        let wanted = WARM_UP_BLOCKS + bench.job.pages as usize / (BLOCK / PAGE);
        while blocks.used < wanted && blocks.add(bench.system) {}
        first_touch(bench, &blocks.held[..blocks.used.min(wanted)]);
    }
    for block in blocks.held.iter_mut().filter_map(Option::take) {
        // SAFETY: the block came from `Blocks::add`, is taken out of the table
        // here, and `first_touch` has returned.
        unsafe { bench.system.release(block) };
    }
}

impl Blocks {
    /// Allocates one more block; false if memory or the table has ended.
    fn add<S: System>(&mut self, system: &mut S) -> bool {
        let Some(slot) = self.held.get_mut(self.used) else {
            return false;
        };
        *slot = system.allocate(BLOCK).map(black_box);
        self.used += usize::from(slot.is_some());
        slot.is_some()
    }

    /// Allocates a batch of blocks. One that memory ends in counts nothing.
    fn add_batch<S: System>(&mut self, system: &mut S) -> (u64, bool) {
        let complete = (0..BLOCKS_PER_BATCH).all(|_| self.add(system));
        (u64::from(BLOCKS_PER_BATCH) * u64::from(complete), complete)
    }
}

/// Allocates blocks in batches. Memory may end before: then what was allocated
/// until then is the measurement.
///
/// One batch before is not recorded. The memory is fresh in every batch, which is what is
/// measured. That the first batch also executes the allocator for the first time is no part
/// of it: that would be the cost of a cold path, once a boot, in one batch of many.
fn malloc<S: System>(bench: &mut Bench<'_, S>, blocks: &mut Blocks) {
    let op = Op::Malloc1m;
    let batches = bench.job.blocks / BLOCKS_PER_BATCH;
    let mut samples = 0;
    blocks.add_batch(bench.system);
    bench.begin(op, 0);
    while samples < batches {
        if !malloc_batch(bench, blocks) {
            break;
        }
        samples += 1;
    }
    match samples {
        0 => bench.fail(op, "memory is too small for sixteen blocks of 1 MiB"),
        _ => bench.end(op, samples, u64::from(op.number())),
    }
}

/// A function of its own, so that its marks exist once: the debugger of Bochs has breakpoints for 32.
#[inline(never)]
fn malloc_batch<S: System>(bench: &mut Bench<'_, S>, blocks: &mut Blocks) -> bool {
    bench.timed(Op::Malloc1m, |system| blocks.add_batch(system))
}

/// Writes to each page of `targets`, a block a batch, and reads all of it back
/// afterwards. The first [`WARM_UP_BLOCKS`] are not recorded: each page is touched for the
/// first time in every batch, and the path of a fault is executed for the first time in none.
fn first_touch<S: System>(bench: &mut Bench<'_, S>, blocks: &[Option<Block>]) {
    let op = Op::FirstTouch4k;
    let (warm_up, targets) = blocks.split_at(WARM_UP_BLOCKS.min(blocks.len()));
    for block in warm_up.iter().flatten() {
        touch(block, 0);
    }
    bench.begin(op, bench.loop_cost());
    let mut samples = 0;
    for block in targets.iter().flatten() {
        bench.timed(op, |_| (touch(block, samples), ()));
        samples += 1;
    }
    match verify(targets) {
        _ if samples == 0 => bench.fail(op, "memory is too small for two blocks of 1 MiB"),
        Ok(sum) => bench.end(op, samples, sum),
        Err(reason) => bench.fail(op, reason),
    }
}

/// Writes to each page of `block`; returns how many there are.
fn touch(block: &Block, number: u32) -> u64 {
    let mut page = block.start.as_ptr().cast::<u64>();
    let pages = (block.length / PAGE) as u64;
    repeat(pages, || {
        // SAFETY: the loop visits the first word of each page of a block that is
        // whole pages long and stays allocated; stepping behind the last page
        // computes an address that is not used.
        unsafe { page.write_volatile(u64::from(number) + 1) };
        page = page.wrapping_byte_add(PAGE);
    });
    pages
}

/// Reads back what [`touch`] wrote; the sum proves how many pages were touched.
fn verify(targets: &[Option<Block>]) -> Result<u64, Reason> {
    let mut sum = 0u64;
    for (number, block) in targets.iter().flatten().enumerate() {
        for page in 0..block.length / PAGE {
            let word = block.start.as_ptr().wrapping_add(page * PAGE).cast::<u64>();
            // SAFETY: `word` is the first word of a page of a live block, which
            // `touch` has written.
            let value = unsafe { word.read_volatile() };
            if value != number as u64 + 1 {
                return Err("a page does not hold what was written to it");
            }
            sum = sum.wrapping_add(value);
        }
    }
    Ok(sum)
}
