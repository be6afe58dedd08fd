//! Memory hotplug: attaching a region, and touching it.
//!
//! One operation is one region. Attaching and touching are measured with separate regions, because
//! a batch is sent before the next one begins. The length and the content of each region are
//! verified outside of the measured time.

use crate::measure::{ensure, repeat, Bench};
use crate::system::{Block, Reason, System};
use trapline_abi::platform::PAGE;
use trapline_abi::populate::{MemoryRequest, LARGE};
use trapline_abi::Op;

/// Offsets within each page of the word that is written, and of one that is not.
const WRITTEN: usize = 0;
const NOT_WRITTEN: usize = PAGE as usize - 8;

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for request in MemoryRequest::ALL {
        measure(bench, request.attach_op(), request, attach);
        measure(bench, request.touch_op(), request, touch);
    }
}

/// Measures `op` with one region per batch.
fn measure<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    request: MemoryRequest,
    batch: impl Fn(&mut Bench<'_, S>, Op, MemoryRequest) -> Result<(), Reason>,
) {
    if !bench.job.selects(op) {
        return;
    }
    if let Err(reason) = try_once(bench.system, request) {
        return bench.skip(op, reason);
    }
    let regions = if request.order > LARGE {
        bench.job.large_regions
    } else {
        bench.job.batches
    };
    bench.begin(op, 0);
    let outcome = (0..regions).try_for_each(|_| batch(bench, op, request));
    match outcome {
        Ok(()) => bench.end(op, regions, request.pages()),
        Err(reason) => bench.fail(op, reason),
    }
}

/// Attaches and detaches a region, to find out whether it is available. A large one is not
/// populated, because it would take too long.
fn try_once<S: System>(system: &mut S, request: MemoryRequest) -> Result<(), Reason> {
    let prefault = request.prefault && request.order <= LARGE;
    system.attach(MemoryRequest {
        prefault,
        ..request
    });
    region(system, request)?;
    // SAFETY: the region was not used.
    unsafe { system.detach() }
}

/// Returns the attached region, if it has the requested length.
fn region<S: System>(system: &mut S, request: MemoryRequest) -> Result<Block, Reason> {
    let block = system.attached_region()?;
    if block.length as u64 == request.bytes() {
        return Ok(block);
    }
    // SAFETY: the region was not used.
    let _first_error_is_reported = unsafe { system.detach() };
    Err("the region does not have the requested length")
}

/// Times attaching one region. Not inlined, as `malloc_batch`.
#[inline(never)]
fn attach<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    request: MemoryRequest,
) -> Result<(), Reason> {
    bench.timed(op, |system| (1, system.attach(request)));
    let block = region(bench.system, request)?;
    // Checks the first and the last page only; `touch` checks all.
    let ends = [0, block.length / PAGE as usize - 1];
    ends.iter().for_each(|page| write(&block, *page));
    let verified = ends.iter().try_for_each(|page| check(&block, *page));
    // SAFETY: the region was used above, for the last time.
    verified.and(unsafe { bench.system.detach() })
}

/// Times touching one region. Not inlined, as `malloc_batch`.
#[inline(never)]
fn touch<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    request: MemoryRequest,
) -> Result<(), Reason> {
    bench.system.attach(request);
    let block = region(bench.system, request)?;
    // Detaching memory may make the hypervisor unmap all memory of the guest. This maps the code
    // of the timed function again.
    write_all(&Block { length: 0, ..block });
    bench.timed(op, |_| (1, write_all(&block)));
    let mut pages = 0..block.length / PAGE as usize;
    let verified = pages.try_for_each(|page| check(&block, page));
    // SAFETY: as in `attach`.
    verified.and(unsafe { bench.system.detach() })
}

/// Returns the value that is written to a page: unique within the region, and not 0.
fn value_of(page: usize) -> u64 {
    page as u64 + 1
}

/// Writes to each page, in ascending order.
#[inline(never)]
fn write_all(block: &Block) {
    if block.length == 0 {
        return;
    }
    let mut word = block.start.as_ptr().cast::<u64>();
    let mut value = value_of(0);
    repeat(block.length as u64 / PAGE, || {
        // SAFETY: the loop visits the first word of each page of a block that is whole
        // pages long and is attached until `detach`; the address after the last
        // page is not used.
        unsafe { word.write_volatile(value) };
        word = word.wrapping_byte_add(PAGE as usize);
        value += 1;
    });
}

fn write(block: &Block, page: usize) {
    // SAFETY: `page` is within the block, which is attached until `detach`.
    unsafe { word(block, page, WRITTEN).write_volatile(value_of(page)) };
}

fn check(block: &Block, page: usize) -> Result<(), Reason> {
    // SAFETY: as in `write`, for both words.
    let (written, not_written) = unsafe {
        (
            word(block, page, WRITTEN).read_volatile(),
            word(block, page, NOT_WRITTEN).read_volatile(),
        )
    };
    ensure(
        written == value_of(page),
        "a page does not hold what was written to it",
    )?;
    ensure(
        not_written == 0,
        "a page of the attached region was not zero",
    )
}

fn word(block: &Block, page: usize, at: usize) -> *mut u64 {
    let first = block.start.as_ptr();
    first.wrapping_add(page * PAGE as usize + at).cast()
}
