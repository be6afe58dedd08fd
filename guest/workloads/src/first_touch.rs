//! First touches of memory: of each page of 4 KiB in blocks that `basic` allocates, and of one word in every 2 MiB of one
//! block.

use crate::measure::{repeat, Bench};
use crate::system::{Block, Reason, System};
use trapline_abi::{Job, Op};

const PAGE: usize = 4096;
const HUGE_PAGE: usize = 2 << 20;

/// Blocks that `first-touch-4k` touches without recording them.
const WARM_UP_BLOCKS: usize = 1;

/// Touches of `first-touch-2m` that are not recorded: the block can begin inside a huge page that is touched already, and
/// the next touch executes the handler of its fault for the first time.
const WARM_UP_HUGE_PAGES: usize = 2;

/// Touches of `first-touch-2m`, at most.
const HUGE_PAGES: usize = WARM_UP_HUGE_PAGES + 14;

/// Returns the number of blocks of `bytes` that `first-touch-4k` touches, with the warm-up.
pub fn blocks(job: &Job, bytes: usize) -> usize {
    WARM_UP_BLOCKS + job.pages as usize / (bytes / PAGE)
}

/// Measures `first-touch-4k`, one block per batch. The first [`WARM_UP_BLOCKS`] are not recorded, so that no batch executes
/// the page fault handler for the first time.
pub fn run<S: System>(bench: &mut Bench<'_, S>, blocks: &[Option<Block>]) {
    measure(bench, Op::FirstTouch4k, PAGE, WARM_UP_BLOCKS, blocks);
}

/// Measures `first-touch-2m` if the job selects it. The block need not be aligned: as its addresses are adjacent, each touch
/// is in another huge page than the one before.
pub fn run_huge<S: System>(bench: &mut Bench<'_, S>) {
    let op = Op::FirstTouch2m;
    if !bench.job.selects(op) {
        return;
    }
    let all = match bench.system.allocate_huge(HUGE_PAGES * HUGE_PAGE) {
        Ok(Some(all)) => all,
        Ok(None) => return bench.fail(op, "memory is too small for 32 MiB"),
        Err(reason) => return bench.skip(op, reason),
    };
    let mut blocks = [None; HUGE_PAGES];
    let mut start = all.start;
    for block in &mut blocks {
        let length = HUGE_PAGE;
        *block = Some(Block { start, length });
        // SAFETY: at most the end of the block.
        start = unsafe { start.byte_add(length) };
    }
    measure(bench, op, HUGE_PAGE, WARM_UP_HUGE_PAGES, &blocks);
    // SAFETY: allocated above, and `measure` has returned.
    unsafe { bench.system.release(all) };
}

/// Writes to each page of `blocks`, one block per batch, the first `warm_up` unrecorded, and reads all of it back afterwards.
/// Not inlined, so that its markers exist once: the debugger of Bochs has 32 breakpoints.
#[inline(never)]
fn measure<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    page: usize,
    warm_up: usize,
    blocks: &[Option<Block>],
) {
    let (warm_up, targets) = blocks.split_at(warm_up.min(blocks.len()));
    for block in warm_up.iter().flatten() {
        touch(block, page, 0);
    }
    bench.begin(op, bench.loop_cost());
    let mut samples = 0;
    for block in targets.iter().flatten() {
        if !bench.continues(samples, u32::MAX) {
            break;
        }
        bench.timed(op, |_| (touch(block, page, samples), ()));
        samples += 1;
    }
    let pages = targets
        .first()
        .copied()
        .flatten()
        .map_or(0, |block| block.length / page);
    match verify(&targets[..samples as usize], page) {
        _ if samples == 0 => bench.fail(op, "memory is too small for two blocks of 1 MiB"),
        Ok(()) => bench.end(op, samples, pages as u64),
        Err(reason) => bench.fail(op, reason),
    }
}

/// Writes to each page of `block`. Returns the number of pages.
fn touch(block: &Block, size: usize, number: u32) -> u64 {
    let mut page = block.start.as_ptr().cast::<u64>();
    let pages = (block.length / size) as u64;
    repeat(pages, || {
        // SAFETY: the loop visits the first word of each page of a block that is
        // whole pages long and stays allocated; stepping behind the last page
        // computes an address that is not used.
        unsafe { page.write_volatile(u64::from(number) + 1) };
        page = page.wrapping_byte_add(size);
    });
    pages
}

/// Reads back what [`touch`] wrote.
fn verify(targets: &[Option<Block>], size: usize) -> Result<(), Reason> {
    for (number, block) in targets.iter().flatten().enumerate() {
        for page in 0..block.length / size {
            let word = block.start.as_ptr().wrapping_add(page * size).cast::<u64>();
            // SAFETY: `word` is the first word of a page of a live block, which
            // `touch` has written.
            let value = unsafe { word.read_volatile() };
            if value != number as u64 + 1 {
                return Err("a page does not hold what was written to it");
            }
        }
    }
    Ok(())
}
