//! What a kernel does all day: a call into it, a switch of threads, an
//! allocation, the first touch of a page.

use crate::measure::{repeat, ticks, Bench, Work};
use crate::system::{Block, Reason, System};
use core::hint::black_box;
use trapline_abi::Op;

const PAGE: usize = 4096;
const BLOCK: usize = 1 << 20;

/// The most blocks that are held at a time.
const MOST_BLOCKS: usize = 512;

/// Allocations in one batch of `malloc-1m`.
const BLOCKS_PER_BATCH: usize = 8;

/// At least this share of yields must have switched to the peer, in percent.
const SWITCHED: u64 = 90;

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    bench.measure(Op::Getpid, getpid);
    run_yield(bench);
    run_memory(bench);
}

fn getpid<S: System>(system: &mut S, repetitions: u64) -> Work {
    let expected = system.getpid();
    let mut differences = 0;
    repeat(repetitions, || differences |= system.getpid() ^ expected);
    let proved = if differences == 0 {
        Ok(())
    } else {
        Err("the process number changed")
    };
    Work {
        count: repetitions,
        proved,
    }
}

fn run_yield<S: System>(bench: &mut Bench<'_, S>) {
    if !bench.job.wants(Op::Yield) {
        return;
    }
    match bench.system.start_peer() {
        Ok(()) => {
            bench.measure(Op::Yield, yields);
            bench.system.stop_peer();
        }
        Err(reason) => bench.skip(Op::Yield, reason),
    }
}

/// Counts a switch to the peer and a switch back for each time the peer ran.
fn yields<S: System>(system: &mut S, repetitions: u64) -> Work {
    let before = system.peer_turns();
    repeat(repetitions, || system.yield_now());
    let turns = system.peer_turns() - before;
    let enough = turns.saturating_mul(100) >= repetitions.saturating_mul(SWITCHED);
    let proved = if enough {
        Ok(())
    } else {
        Err("a yield did not switch to the other thread")
    };
    Work {
        count: (2 * turns).max(1),
        proved,
    }
}

/// The blocks that `malloc-1m` allocated and `first-touch-4k` writes.
struct Blocks {
    held: [Option<Block>; MOST_BLOCKS],
    used: usize,
}

fn run_memory<S: System>(bench: &mut Bench<'_, S>) {
    let (malloc, touch) = (
        bench.job.wants(Op::Malloc1m),
        bench.job.wants(Op::FirstTouch4k),
    );
    if !malloc && !touch {
        return;
    }
    let mut blocks = Blocks {
        held: [None; MOST_BLOCKS],
        used: 0,
    };
    let touched = if touch {
        bench.job.pages as usize / (BLOCK / PAGE)
    } else {
        0
    };
    let allocated = if malloc { bench.job.blocks as usize } else { 0 };
    allocate(bench, &mut blocks, touched.max(allocated).min(MOST_BLOCKS));
    if touch {
        first_touch(bench, &blocks, touched);
    }
    for block in blocks.held.iter_mut().filter_map(Option::take) {
        // SAFETY: the block was allocated by `allocate`, is taken out of the
        // table here, and `first_touch` has returned.
        unsafe { bench.system.release(block) };
    }
}

/// Allocates up to `wanted` blocks in batches. Memory may end before: then what
/// was allocated until then is the measurement.
fn allocate<S: System>(bench: &mut Bench<'_, S>, blocks: &mut Blocks, wanted: usize) {
    let op = Op::Malloc1m;
    let tell = bench.job.wants(op);
    if tell {
        bench.begin(op, 0);
    }
    let mut samples = 0;
    while blocks.used + BLOCKS_PER_BATCH <= wanted {
        let start = ticks();
        let complete = allocate_batch(bench.system, blocks);
        let end = ticks();
        if !complete {
            break;
        }
        samples += 1;
        if tell {
            bench.sample(op, start, end, BLOCKS_PER_BATCH as u64);
        }
    }
    match samples {
        _ if !tell => {}
        0 => bench.fail(op, "memory is too small for eight blocks of 1 MiB"),
        _ => bench.end(op, samples, u64::from(op.number())),
    }
}

fn allocate_batch<S: System>(system: &mut S, blocks: &mut Blocks) -> bool {
    for _ in 0..BLOCKS_PER_BATCH {
        let Some(block) = system.allocate(BLOCK) else {
            return false;
        };
        blocks.held[blocks.used] = Some(black_box(block));
        blocks.used += 1;
    }
    true
}

/// Writes to each page of up to `wanted` blocks, a block a batch, and reads all
/// of it back afterwards.
fn first_touch<S: System>(bench: &mut Bench<'_, S>, blocks: &Blocks, wanted: usize) {
    let op = Op::FirstTouch4k;
    let targets = &blocks.held[..blocks.used.min(wanted)];
    bench.begin(op, bench.loop_cost());
    let mut samples = 0;
    for block in targets.iter().flatten() {
        let start = ticks();
        touch(block, samples);
        let end = ticks();
        bench.sample(op, start, end, (block.length / PAGE) as u64);
        samples += 1;
    }
    match verify(targets) {
        _ if samples == 0 => bench.fail(op, "memory is too small for one block of 1 MiB"),
        Ok(sum) => bench.end(op, samples, sum),
        Err(reason) => bench.fail(op, reason),
    }
}

fn touch(block: &Block, number: u32) {
    let mut page = block.start.as_ptr().cast::<u64>();
    repeat((block.length / PAGE) as u64, || {
        // SAFETY: the loop visits the first word of each page of a block that is
        // whole pages long and stays allocated; stepping behind the last page
        // computes an address that is not used.
        unsafe { page.write_volatile(u64::from(number) + 1) };
        page = page.wrapping_byte_add(PAGE);
    });
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
