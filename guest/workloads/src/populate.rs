//! What it costs to be given memory: until it is there, and to touch it.
//!
//! One operation is one region. Giving and touching are measured apart, each with
//! regions of its own, because a batch is told before the next begins. What is not timed
//! is checked: a region has as many pages as were asked for, each is as it was written
//! where it was written, and zero where it was not.

use crate::measure::{proved, repeat, Bench};
use crate::system::{Block, Reason, System};
use trapline_abi::platform::PAGE;
use trapline_abi::populate::{Wish, LARGE};
use trapline_abi::Op;

/// Where the first word of each page is, and one that nobody writes.
const WRITTEN: usize = 0;
const NOT_WRITTEN: usize = PAGE as usize - 8;

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for wish in Wish::ALL {
        measure(bench, wish.attach(), |bench, op| attach(bench, op, wish));
        measure(bench, wish.touch(), |bench, op| touch(bench, op, wish));
    }
}

/// Measures `op`, a region after the other.
fn measure<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    mut one: impl FnMut(&mut Bench<'_, S>, Op) -> Result<(), Reason>,
) {
    if !bench.job.wants(op) {
        return;
    }
    // One that is not measured shows whether it can be had.
    let Some(wish) = wish_of(op) else { return };
    if let Err(reason) = rehearse(bench.system, wish) {
        return bench.skip(op, reason);
    }
    let regions = match wish.order > LARGE {
        true => bench.job.large_regions,
        false => bench.job.batches,
    };
    bench.begin(op, 0);
    let outcome = (0..regions).try_for_each(|_| one(bench, op));
    match outcome {
        Ok(()) => bench.end(op, regions, wish.pages()),
        Err(reason) => bench.fail(op, reason),
    }
}

fn wish_of(op: Op) -> Option<Wish> {
    let of = |wish: &Wish| wish.attach() == op || wish.touch() == op;
    Wish::ALL.into_iter().find(of)
}

/// Asks for a region and gives it back as it came. A large one is not populated for
/// that: it takes too long.
fn rehearse<S: System>(system: &mut S, wish: Wish) -> Result<(), Reason> {
    let prefault = wish.prefault && wish.order <= LARGE;
    system.attach(Wish { prefault, ..wish });
    region(system, wish)?;
    // SAFETY: nobody has used it.
    unsafe { system.detach() }
}

/// The region that was asked for, if it is as it was wanted.
fn region<S: System>(system: &mut S, wish: Wish) -> Result<Block, Reason> {
    let block = system.attached()?;
    if block.length as u64 == wish.bytes() {
        return Ok(block);
    }
    // SAFETY: nobody has used it.
    let _the_first_reason_counts = unsafe { system.detach() };
    Err("the region has another length than was asked for")
}

/// Times the giving of one region. Not inlined, as in `malloc_batch`.
#[inline(never)]
fn attach<S: System>(bench: &mut Bench<'_, S>, op: Op, wish: Wish) -> Result<(), Reason> {
    bench.timed(op, |system| (1, system.attach(wish)));
    let block = region(bench.system, wish)?;
    // That it is there shows at its ends; to look at all of it is what `touch` does.
    let ends = [0, block.length / PAGE as usize - 1];
    ends.iter().for_each(|page| write(&block, *page));
    let proof = ends.iter().try_for_each(|page| check(&block, *page));
    // SAFETY: it was used above, for the last time.
    proof.and(unsafe { bench.system.detach() })
}

/// Times touching one region. Not inlined, as in `malloc_batch`.
#[inline(never)]
fn touch<S: System>(bench: &mut Bench<'_, S>, op: Op, wish: Wish) -> Result<(), Reason> {
    bench.system.attach(wish);
    let block = region(bench.system, wish)?;
    // A hypervisor that takes memory away may forget all else of the guest's that it had
    // mapped: what is timed would first have to be mapped again.
    write_all(&Block { length: 0, ..block });
    bench.timed(op, |_| (1, write_all(&block)));
    let mut pages = 0..block.length / PAGE as usize;
    let proof = pages.try_for_each(|page| check(&block, page));
    // SAFETY: as in `attach`.
    proof.and(unsafe { bench.system.detach() })
}

/// What is written to a page: never zero, and no two of a region get the same.
fn mark(page: usize) -> u64 {
    page as u64 + 1
}

/// Writes to each page, in the order of addresses.
#[inline(never)]
fn write_all(block: &Block) {
    if block.length == 0 {
        return;
    }
    let mut word = block.start.as_ptr().cast::<u64>();
    let mut value = mark(0);
    repeat(block.length as u64 / PAGE, || {
        // SAFETY: the loop visits the first word of each page of a block that is whole
        // pages long and is there until `detach`; stepping behind the last page computes
        // an address that is not used.
        unsafe { word.write_volatile(value) };
        word = word.wrapping_byte_add(PAGE as usize);
        value += 1;
    });
}

fn write(block: &Block, page: usize) {
    // SAFETY: `page` is one of the block's, which is there until `detach`.
    unsafe { word(block, page, WRITTEN).write_volatile(mark(page)) };
}

fn check(block: &Block, page: usize) -> Result<(), Reason> {
    // SAFETY: as in `write`, for both words.
    let (written, not_written) = unsafe {
        (
            word(block, page, WRITTEN).read_volatile(),
            word(block, page, NOT_WRITTEN).read_volatile(),
        )
    };
    proved(
        written == mark(page),
        "a page does not hold what was written to it",
    )?;
    proved(not_written == 0, "a page that was given was not zero")
}

fn word(block: &Block, page: usize, at: usize) -> *mut u64 {
    let first = block.start.as_ptr();
    first.wrapping_add(page * PAGE as usize + at).cast()
}
