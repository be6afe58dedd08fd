//! Allocation of memory that is zero.
//!
//! A batch allocates 2 MiB in blocks of one size. Before it the system may zero memory while it is idle, which is
//! timed apart ([`Record::Idle`]). After it every byte of the blocks must be zero, and is overwritten before they
//! are released, so that released memory is allocated again only if it was zeroed.

use crate::basic::BLOCKS_PER_BATCH;
use crate::measure::{ensure, ticks, Bench};
use crate::system::{Block, Reason, System};
use core::hint::black_box;
use core::slice;
use trapline_abi::{Op, Record};

/// Bytes that a batch allocates.
const BATCH: usize = 2 << 20;

/// Bytes of the smallest block.
const SMALLEST: usize = 64 << 10;

/// Content of released blocks.
const OVERWRITTEN: u64 = 0xa5a5_a5a5_a5a5_a5a5;

/// Blocks of a batch.
type Blocks = [Option<Block>; BATCH / SMALLEST];

/// Work of the system while it was idle.
#[derive(Default)]
struct Idle {
    ticks: u64,
    bytes: u64,
}

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for (op, size) in [(Op::Calloc64k, SMALLEST), (Op::Calloc1m, 1 << 20)] {
        if bench.job.selects(op) {
            measure(bench, op, size);
        }
    }
}

/// Records at most as many batches as `malloc-1m`, after one that executes everything for the first time.
fn measure<S: System>(bench: &mut Bench<'_, S>, op: Op, size: usize) {
    let mut held: Blocks = [None; BATCH / SMALLEST];
    let held = &mut held[..BATCH / size];
    let wanted = (bench.job.blocks / BLOCKS_PER_BATCH).max(1);
    let mut verified = bench.warm_up(|bench| batch(bench, op, size, held).map(drop));
    bench.begin(op, 0);
    let mut idle = Idle::default();
    let mut samples = 0;
    while bench.continues(samples, wanted) {
        let prepared = verified.and_then(|()| batch(bench, op, size, held));
        verified = prepared.map(|more| {
            idle.ticks += more.ticks;
            idle.bytes += more.bytes;
        });
        samples += 1;
    }
    let Idle { ticks, bytes } = idle;
    if bytes != 0 {
        bench.system.send(&Record::Idle { op, ticks, bytes });
    }
    match verified {
        Ok(()) => bench.end(op, samples, u64::from(op.number())),
        Err(reason) => bench.fail(op, reason),
    }
}

/// Lets the system zero memory while it is idle, allocates the blocks of a batch, checks and releases them. Returns
/// the work while idle.
fn batch<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    size: usize,
    held: &mut [Option<Block>],
) -> Result<Idle, Reason> {
    let start = ticks();
    let bytes = bench.system.zero_while_idle(BATCH);
    let ticks = ticks() - start;
    let is_complete = allocate(bench, op, size, held);
    let mut is_zero = true;
    for block in held.iter_mut().filter_map(Option::take) {
        is_zero &= overwrite(&block);
        // SAFETY: allocated in this batch, taken out of the table here, and no longer used.
        unsafe { bench.system.release(block) };
    }
    ensure(is_complete, "memory is too small for 2 MiB of blocks")?;
    ensure(is_zero, "an allocated byte is not zero")?;
    Ok(Idle { ticks, bytes })
}

/// Times the allocation of a batch. Not inlined, so that its markers exist once.
#[inline(never)]
fn allocate<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    size: usize,
    held: &mut [Option<Block>],
) -> bool {
    bench.timed(op, |system| {
        let is_complete = held.iter_mut().all(|slot| {
            *slot = system.allocate_zeroed(size).map(black_box);
            slot.is_some()
        });
        let count = held.len() as u64 * u64::from(is_complete);
        (count, is_complete)
    })
}

/// Overwrites a block. Returns true if all of it was zero.
fn overwrite(block: &Block) -> bool {
    let words = block.start.as_ptr().cast::<u64>();
    // SAFETY: the block is whole pages of initialised memory, and nothing else refers to it.
    let words = unsafe { slice::from_raw_parts_mut(words, block.length / size_of::<u64>()) };
    let any = words.iter().fold(0, |any, word| any | word);
    black_box(words).fill(OVERWRITTEN);
    any == 0
}
