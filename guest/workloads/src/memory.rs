//! Latency of loads: chains of pointers over working sets from the first cache to memory.
//!
//! Each cache line of the working set has the address of the next one of the chain, so that a load has to wait for
//! the one before. In the next word it has its place in the chain, by which the number of loads is verified.

use crate::arch::loads::{self, LOADS};
use crate::measure::{ensure, repeat, Bench, Work};
use crate::system::{Block, System};
use core::slice;
use trapline_abi::sweep::{Pattern, Sweep, LINE};
use trapline_abi::{Op, Workload};

/// Lines of a page of 4 KiB.
const LINES_PER_PAGE: usize = 64;

/// Seed of random chains.
const SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Cache line of a working set.
#[repr(C, align(64))]
struct Line {
    /// Address of the next line; its index while the chain is built.
    next: u64,
    /// Place in the chain.
    place: u64,
    rest: [u64; LINE as usize / 8 - 2],
}

pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    for op in Workload::Memory.operations() {
        if let Some(sweep) = Sweep::of(op).filter(|_| bench.job.selects(op)) {
            run_one(bench, op, sweep);
        }
    }
}

fn run_one<S: System>(bench: &mut Bench<'_, S>, op: Op, sweep: Sweep) {
    let Some(block) = bench.system.allocate(sweep.bytes as usize) else {
        return bench.skip(
            op,
            "not enough memory for the working set; give the machine more",
        );
    };
    measure(bench, op, build(&block, sweep));
    // SAFETY: allocated above, and `measure` has returned.
    unsafe { bench.system.release(block) };
}

/// Not inlined, so that its markers exist once.
#[inline(never)]
fn measure<S: System>(bench: &mut Bench<'_, S>, op: Op, lines: &[Line]) {
    let mut at: *const Line = lines.as_ptr();
    let mut expected = 0;
    bench.measure(
        op,
        |_, repetitions| {
            repeat(repetitions, || at = follow(at));
            Work::new(LOADS * repetitions, at as u64)
        },
        |_, work| {
            expected = (expected + work.count) % lines.len() as u64;
            // SAFETY: the chain consists of addresses of `lines`.
            let place = unsafe { (*(work.evidence as *const Line)).place };
            ensure(place == expected, "a chain of loads ended in another place")
        },
    );
}

/// Follows the chain for [`LOADS`] loads.
#[inline(always)]
fn follow(at: *const Line) -> *const Line {
    // SAFETY: the first word of each line is the address of another line of the same block.
    unsafe { loads::follow(at.cast()).cast() }
}

/// Writes the chain of `sweep` into `block`, starting at its first line.
fn build<'a>(block: &Block, sweep: Sweep) -> &'a [Line] {
    let count = (sweep.bytes / LINE) as usize;
    // SAFETY: the block is page-aligned, of at least this length, and the caller's alone until it is released after
    // the measurement; any bytes are lines.
    let lines = unsafe { slice::from_raw_parts_mut(block.start.as_ptr().cast::<Line>(), count) };
    match sweep.pattern {
        Pattern::Sequential => step(lines, 1),
        Pattern::Stride => step(lines, LINES_PER_PAGE + 1),
        Pattern::Random => shuffle(lines),
    }
    link(lines);
    lines
}

/// Each line is followed by the one `by` further. All are reached, because `by` is odd and their number a power of
/// two.
fn step(lines: &mut [Line], by: usize) {
    let count = lines.len();
    for (index, line) in lines.iter_mut().enumerate() {
        line.next = ((index + by) % count) as u64;
    }
}

/// Makes a random permutation of one cycle (Sattolo 1986, An algorithm to generate a random cyclic permutation), with
/// random numbers by Marsaglia's xorshift (2003).
fn shuffle(lines: &mut [Line]) {
    for (index, line) in lines.iter_mut().enumerate() {
        line.next = index as u64;
    }
    let mut random = SEED;
    for last in (1..lines.len()).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let other = (random % last as u64) as usize;
        let next = lines[last].next;
        lines[last].next = lines[other].next;
        lines[other].next = next;
    }
}

/// Numbers the lines along the chain and replaces indexes by addresses.
fn link(lines: &mut [Line]) {
    let first = lines.as_ptr() as u64;
    let mut index = 0;
    for place in 0..lines.len() as u64 {
        let line = &mut lines[index];
        index = line.next as usize;
        line.next = first + line.next * LINE;
        line.place = place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn lines(count: usize) -> Vec<Line> {
        let empty = |_| Line {
            next: 0,
            place: u64::MAX,
            rest: [0; 6],
        };
        (0..count).map(empty).collect()
    }

    #[test]
    fn a_chain_reaches_every_line_once() {
        let build: [fn(&mut [Line]); 3] = [|it| step(it, 1), |it| step(it, 65), shuffle];
        for build in build {
            for count in [256, 1024] {
                let mut lines = lines(count);
                build(&mut lines);
                link(&mut lines);
                assert!(lines.iter().all(|line| line.place < count as u64));
                let start = lines.as_ptr();
                let turns = count as u64 / LOADS;
                let end = (0..turns).fold(start, |at, _| follow(at));
                assert_eq!(end, start, "one cycle");
            }
        }
    }

    #[test]
    fn random_chains_rarely_continue_with_the_next_line() {
        let mut lines = lines(1 << 12);
        shuffle(&mut lines);
        let near = lines.iter().enumerate();
        let near = near.filter(|(index, line)| line.next.abs_diff(*index as u64) < 4);
        assert!(near.count() < 40);
    }
}
