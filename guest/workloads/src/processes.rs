//! Operations of kernels with processes: children, programs, copy-on-write pages, switches between
//! processes, pipes, mappings, system calls, page tables.
//!
//! Each operation is verified by its effect: a child exits with the given status, a byte is changed
//! by the other process, a page has the expected content on both sides of a copy.

use crate::measure::{ensure, repeat, Bench, Work};
use crate::null_device::{verify, write_and_read};
use crate::script;
use crate::system::{Block, Processes, Reason, System, MAPPED_PAGES};
use core::cell::Cell;
use core::hint::black_box;
use core::mem;
use trapline_abi::platform::PAGE;
use trapline_abi::Op;

/// Bytes of memory whose pages fault in one batch.
const BYTES: usize = 1 << 20;
const PAGES: u64 = BYTES as u64 / PAGE;

/// Not inlined, because the lab identifies these markers by the name of this module.
#[inline(never)]
pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    fork(bench);
    exec(bench);
    // Before operations that allocate: what a process has allocated is part of the cost of a fork.
    make(bench);
    faults(bench, Op::PageFault, read_fresh);
    faults(bench, Op::PageFaultCow, write_shared);
    context_switch(bench);
    pipe(bench);
    mmap(bench);
    syscall(bench);
    null_io(bench);
    page_table_update(bench);
}

/// Prepares the system for `op` and calls `measure`, or skips `op`.
fn with_processes<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    measure: impl FnOnce(&mut Bench<'_, S>),
) {
    if !bench.job.selects(op) {
        return;
    }
    let ready = bench.system.processes();
    if let Err(reason) = ready.and_then(|processes| processes.prepare(op)) {
        return bench.skip(op, reason);
    }
    measure(bench);
    if let Ok(processes) = bench.system.processes() {
        processes.finish();
    }
}

/// Measures `op`. `one` performs `operations` operations with a byte that changes each time, and
/// returns true if the result is right.
fn each<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    operations: u64,
    one: impl Fn(&mut S::Processes, u8) -> bool,
    mut verify: impl FnMut(&mut S::Processes, u64) -> Result<(), Reason>,
) {
    let mut byte = 0_u8;
    bench.measure(
        op,
        |system, repetitions| {
            let Ok(processes) = system.processes() else {
                return Work::new(repetitions, 1_u8);
            };
            let mut wrong = false;
            repeat(repetitions, || {
                byte = byte.wrapping_add(1);
                wrong |= !one(processes, byte);
            });
            Work::new(operations * repetitions, wrong)
        },
        |system, work| {
            work.check_equal("an operation returned a wrong result")?;
            verify(system.processes()?, work.count)
        },
    );
}

fn fork<S: System>(bench: &mut Bench<'_, S>) {
    with_processes(bench, Op::Fork, |bench| {
        let one = |p: &mut S::Processes, status| p.fork(status) == Some(status);
        each(bench, Op::Fork, 1, one, |_, _| Ok(()));
    });
}

fn exec<S: System>(bench: &mut Bench<'_, S>) {
    with_processes(bench, Op::Exec, |bench| {
        let one = |p: &mut S::Processes, status| p.exec(status) == Some(status);
        each(bench, Op::Exec, 1, one, |_, _| Ok(()));
    });
}

/// A byte to the other process and its answer are two switches. The number of answers is compared
/// with the kernel's count of voluntary switches.
fn context_switch<S: System>(bench: &mut Bench<'_, S>) {
    with_processes(bench, Op::ContextSwitch, |bench| {
        let mut before = bench.system.processes().map_or(0, |p| p.switch_count());
        let one = |p: &mut S::Processes, byte: u8| p.ping(byte) == Some(!byte);
        each(bench, Op::ContextSwitch, 2, one, |p, switched| {
            let now = p.switch_count();
            let away = now - mem::replace(&mut before, now);
            ensure(2 * away >= switched, "the kernel counted fewer switches")
        });
    });
}

fn pipe<S: System>(bench: &mut Bench<'_, S>) {
    with_processes(bench, Op::Pipe, |bench| {
        let one = |p: &mut S::Processes, byte| p.pipe(byte) == Some(byte);
        each(bench, Op::Pipe, 1, one, |_, _| Ok(()));
    });
}

fn mmap<S: System>(bench: &mut Bench<'_, S>) {
    with_processes(bench, Op::Mmap, |bench| {
        each(bench, Op::Mmap, 1, |p, _| map_and_unmap(p), |_, _| Ok(()));
    });
}

fn syscall<S: System>(bench: &mut Bench<'_, S>) {
    with_processes(bench, Op::Syscall, |bench| {
        let expected = bench.system.getpid();
        bench.measure(
            Op::Syscall,
            |system, repetitions| {
                let mut differences = 0;
                repeat(repetitions, || differences |= system.getpid() ^ expected);
                Work::new(repetitions, differences)
            },
            |_, work| work.check_equal("the process number changed"),
        );
    });
}

fn null_io<S: System>(bench: &mut Bench<'_, S>) {
    with_processes(bench, Op::NullIoProcess, |bench| {
        match bench.system.open_null() {
            Ok(()) => bench.measure(Op::NullIoProcess, write_and_read, |_, work| verify(&work)),
            Err(reason) => bench.skip(Op::NullIoProcess, reason),
        }
    });
}

/// The kernel writes to the page after each batch, which succeeds if the last change made it
/// writable.
fn page_table_update<S: System>(bench: &mut Bench<'_, S>) {
    with_processes(bench, Op::PageTableUpdate, |bench| {
        let writable = Cell::new(true);
        let one = |p: &mut S::Processes, _| {
            writable.set(!writable.get());
            p.protect(writable.get())
        };
        each(bench, Op::PageTableUpdate, 1, one, |p, _| {
            let has_effect = p.is_writable() == Some(writable.get());
            ensure(has_effect, "a page does not have the protection set last")
        });
    });
}

/// Not inlined, so that the other operations use as many pages of the stack as without it.
#[inline(never)]
fn make<S: System>(bench: &mut Bench<'_, S>) {
    with_processes(bench, Op::Make, |bench| {
        each(bench, Op::Make, 1, run_script, |_, _| Ok(()));
    });
}

/// Runs the steps of the script, each with the sum of the one before. Returns true if all sums are right.
fn run_script(processes: &mut impl Processes, byte: u8) -> bool {
    let mut number = u64::from(byte);
    (0..script::STEPS).all(|step| {
        let expected = script::sum(number);
        let sum = processes.step(number, byte.wrapping_add(step));
        number = expected;
        sum == Some(expected)
    })
}

/// Maps and unmaps the file. Returns true if the first and the last page have the right content.
fn map_and_unmap(processes: &mut impl Processes) -> bool {
    let Some(mapped) = processes.map() else {
        return false;
    };
    const LAST: u64 = MAPPED_PAGES - 1;
    // SAFETY: the first words of two pages of a mapping that is there until `unmap`.
    let ends = [0, LAST].map(|page| unsafe { word(&mapped, page).read_volatile() });
    // SAFETY: nothing points into it any more.
    let gone = unsafe { processes.unmap(mapped) };
    gone && ends == [0, LAST]
}

/// Measures `op`, a fault at each page of a block. The first block is not recorded.
fn faults<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    batch: fn(&mut Bench<'_, S>, Op, &Block) -> Result<(), Reason>,
) {
    with_processes(bench, op, |bench| {
        let warmed_up = bench.warm_up(|bench| on_fresh_block(bench, op, batch));
        bench.begin(op, bench.loop_cost());
        let mut done = warmed_up;
        let mut recorded = 0;
        while done.is_ok() && bench.continues(recorded, bench.job.batches) {
            done = on_fresh_block(bench, op, batch);
            recorded += 1;
        }
        match done {
            Ok(()) => bench.end(op, recorded, PAGES),
            Err(reason) => bench.fail(op, reason),
        }
    });
}

fn on_fresh_block<S: System>(
    bench: &mut Bench<'_, S>,
    op: Op,
    batch: fn(&mut Bench<'_, S>, Op, &Block) -> Result<(), Reason>,
) -> Result<(), Reason> {
    let block = bench.system.allocate(BYTES);
    let block = block.ok_or("not enough memory for a block of 1 MiB")?;
    let done = batch(bench, op, &block);
    // SAFETY: allocated above, and `batch` has returned.
    unsafe { bench.system.release(block) };
    done
}

/// Reads a word of each page of `block`, which is untouched and so zero.
fn read_fresh<S: System>(bench: &mut Bench<'_, S>, op: Op, block: &Block) -> Result<(), Reason> {
    let read = bench.timed(op, |_| {
        let mut read = 0;
        visit(block, |word, _| {
            // SAFETY: `visit` gives a word of the block.
            read |= unsafe { word.read_volatile() };
        });
        (PAGES, read)
    });
    ensure(read == 0, "a page of fresh memory was not zero")
}

/// Writes to each page of `block` while a child shares them. Verifies that the child's pages are
/// unchanged and that this process has the new values.
fn write_shared<S: System>(bench: &mut Bench<'_, S>, op: Op, block: &Block) -> Result<(), Reason> {
    write(block, 0);
    bench.system.processes()?.fork_with_copy(*block)?;
    bench.timed(op, |_| (PAGES, write(block, PAGES)));
    let kept = bench.system.processes()?.copy_sum();
    let mut own = true;
    visit(block, |word, page| {
        // SAFETY: `visit` gives a word of the block.
        own &= unsafe { word.read_volatile() } == PAGES + page;
    });
    ensure(own, "a page does not hold what was written to it")?;
    ensure(
        kept? == PAGES * (PAGES - 1) / 2,
        "a write changed a page of the child",
    )
}

/// Writes to each page its index plus `more`.
#[inline(never)]
fn write(block: &Block, more: u64) {
    let more = black_box(more);
    visit(block, |word, page| {
        // SAFETY: `visit` gives a word of the block.
        unsafe { word.write_volatile(more + page) };
    });
}

/// Calls `body` with the first word and the index of each page of `block`, in ascending order.
#[inline(always)]
fn visit(block: &Block, mut body: impl FnMut(*mut u64, u64)) {
    let mut at = word(block, 0);
    let mut page = 0;
    repeat(block.length as u64 / PAGE, || {
        body(at, page);
        at = at.wrapping_byte_add(PAGE as usize);
        page += 1;
    });
}

fn word(block: &Block, page: u64) -> *mut u64 {
    let first = block.start.as_ptr();
    first.wrapping_add((page * PAGE) as usize).cast()
}
