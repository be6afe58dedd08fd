//! Memory bandwidth, after McCalpin's STREAM: four loops over three arrays of
//! doubles, far larger than a cache on hardware.
//!
//! One batch is one pass. The arrays hold small integers that depend on the
//! index, so that every result is exact and can be verified element by element;
//! the checksum is the same wherever the arrays are of the same length.

use crate::measure::Bench;
use crate::system::{Block, Reason, System};
use core::arch::asm;
use core::arch::x86_64::{__m128d, _mm_add_pd, _mm_load_pd, _mm_mul_pd, _mm_set1_pd, _mm_store_pd};
use trapline_abi::{Op, Workload};

const SCALAR: f64 = 3.0;

/// Divisor of the length of the arrays.
const DOUBLES_PER_TURN: usize = 8;

struct Arrays<'a> {
    a: &'a mut [f64],
    b: &'a mut [f64],
    c: &'a mut [f64],
}

/// Not inlined, because the lab identifies these markers by the name of this module.
#[inline(never)]
pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    let wanted = || {
        Workload::Stream
            .operations()
            .filter(|op| bench.job.selects(*op))
    };
    if wanted().next().is_none() {
        return;
    }
    let mut blocks = [None; 3];
    let doubles = bench.job.doubles as usize / DOUBLES_PER_TURN * DOUBLES_PER_TURN;
    for slot in &mut blocks {
        *slot = bench.system.allocate(doubles * size_of::<f64>());
    }
    match blocks {
        [Some(a), Some(b), Some(c)] => run_all(bench, [a, b, c], doubles),
        _ => {
            for op in Workload::Stream.operations() {
                bench.skip(
                    op,
                    "not enough memory for three arrays; give the machine more",
                );
            }
        }
    }
    for block in blocks.into_iter().flatten() {
        // SAFETY: allocated above; the slices made of it ended with `run_all`.
        unsafe { bench.system.release(block) };
    }
}

fn run_all<S: System>(bench: &mut Bench<'_, S>, blocks: [Block; 3], doubles: usize) {
    let [a, b, c] = blocks.map(|block| {
        // SAFETY: the block is page-aligned, at least `doubles` doubles long, ours
        // alone until `run` releases it, and any bytes are a double.
        unsafe { core::slice::from_raw_parts_mut(block.start.as_ptr().cast(), doubles) }
    });
    let mut arrays = Arrays { a, b, c };
    run_one(
        bench,
        &mut arrays,
        Op::Copy,
        copy,
        |(a, _, _), (_, _, c)| c == a,
    );
    run_one(
        bench,
        &mut arrays,
        Op::Scale,
        scale,
        |(_, _, c), (_, b, _)| b == SCALAR * c,
    );
    run_one(bench, &mut arrays, Op::Add, add, |(a, b, _), (_, _, c)| {
        c == a + b
    });
    run_one(
        bench,
        &mut arrays,
        Op::Triad,
        triad,
        |(_, b, c), (a, _, _)| a == b + SCALAR * c,
    );
}

/// Values of the three arrays at one index.
type Row = (f64, f64, f64);

/// Measures one loop. `is_right` checks a row after the loop against the row before it; running the
/// loop again must not change the result.
fn run_one<S: System>(
    bench: &mut Bench<'_, S>,
    arrays: &mut Arrays<'_>,
    op: Op,
    kernel: fn(&mut Arrays<'_>) -> u64,
    is_right: fn(Row, Row) -> bool,
) {
    if !bench.job.selects(op) {
        return;
    }
    fill(arrays);
    // STREAM does not count its first pass.
    kernel(arrays);
    bench.begin(op, 0);
    for _ in 0..bench.job.passes {
        bench.timed(op, |_| (kernel(arrays), ()));
    }
    match verify(arrays, is_right) {
        Ok(sum) => bench.end(op, bench.job.passes, sum),
        Err(reason) => bench.fail(op, reason),
    }
}

fn initial(index: usize) -> Row {
    let small = (index & 1023) as f64;
    (small + 1.0, small + 2.0, small + 4.0)
}

fn fill(arrays: &mut Arrays<'_>) {
    for index in 0..arrays.a.len() {
        (arrays.a[index], arrays.b[index], arrays.c[index]) = initial(index);
    }
}

fn verify(arrays: &Arrays<'_>, is_right: fn(Row, Row) -> bool) -> Result<u64, Reason> {
    let mut sum = 0u64;
    let rows = arrays.a.iter().zip(arrays.b.iter()).zip(arrays.c.iter());
    for (index, ((&a, &b), &c)) in rows.enumerate() {
        if !is_right(initial(index), (a, b, c)) {
            return Err("an element of the result is wrong");
        }
        sum =
            sum.wrapping_add(a.to_bits() ^ b.to_bits().rotate_left(1) ^ c.to_bits().rotate_left(2));
    }
    Ok(sum)
}

/// Defines one pass over the arrays, eight doubles per turn in SSE2 registers. Written out, so that
/// image and agent execute the same instructions: the compiler would call `memcpy`, which differs
/// between them.
macro_rules! pass {
    ($name:ident, $to:ident = |$($from:ident),+| $value:expr) => {
        #[inline(never)]
        fn $name(arrays: &mut Arrays<'_>) -> u64 {
            let to = arrays.$to.as_mut_ptr();
            $(let $from = arrays.$from.as_ptr();)+
            for turn in 0..arrays.a.len() / DOUBLES_PER_TURN {
                for pair in 0..DOUBLES_PER_TURN / 2 {
                    let at = turn * DOUBLES_PER_TURN + 2 * pair;
                    // SAFETY: `at + 1` is below the length that the three arrays
                    // share, and each is page-aligned, so `at` is 16-byte aligned.
                    unsafe {
                        $(let $from = opaque(_mm_load_pd($from.add(at)));)+
                        _mm_store_pd(to.add(at), $value);
                    }
                }
            }
            moved(arrays, 1 + [$(stringify!($from)),+].len())
        }
    };
}

pass!(copy, c = |a| a);
pass!(scale, b = |c| _mm_mul_pd(_mm_set1_pd(SCALAR), c));
pass!(add, c = |a, b| _mm_add_pd(a, b));
pass!(
    triad,
    a = |b, c| _mm_add_pd(b, _mm_mul_pd(_mm_set1_pd(SCALAR), c))
);

/// Hides the origin of a value from the compiler, so that a loop of loads and stores does not become
/// a `memcpy`. Takes no instruction.
#[inline(always)]
fn opaque(mut value: __m128d) -> __m128d {
    // SAFETY: no instruction at all.
    unsafe { asm!("/* {0} */", inout(xmm_reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// Returns the bytes that a pass moves. As in STREAM, each array that is read or written counts
/// once.
fn moved(arrays: &Arrays<'_>, touched: usize) -> u64 {
    (touched * size_of_val(arrays.a)) as u64
}
