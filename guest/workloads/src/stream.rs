//! Memory bandwidth, after McCalpin's STREAM: four loops over three arrays of
//! doubles, far larger than a cache on hardware.
//!
//! One batch is one pass. The arrays hold small integers that depend on the
//! index, so that every result is exact and can be verified element by element;
//! the checksum is the same wherever the arrays are of the same length.

use crate::arch::pair;
use crate::measure::Bench;
use crate::system::{Block, Reason, System};
use trapline_abi::{Op, Workload};

const SCALAR: f64 = 3.0;

/// Divisor of the length of the arrays.
const DOUBLES_PER_TURN: usize = 8;

/// Arrays of equal length, or a part of them.
#[derive(Clone, Copy)]
pub struct Arrays {
    a: *mut f64,
    b: *mut f64,
    c: *mut f64,
    /// Number of doubles, a multiple of [`DOUBLES_PER_TURN`].
    length: usize,
}

// SAFETY: addresses, whose accesses are unsafe functions.
unsafe impl Sync for Arrays {}

impl Arrays {
    /// Returns a part of `count`. The last one has the rest.
    pub fn part(&self, index: usize, count: usize) -> Self {
        let length = self.length / count / DOUBLES_PER_TURN * DOUBLES_PER_TURN;
        let start = index * length;
        let [a, b, c] = [self.a, self.b, self.c].map(|array| array.wrapping_add(start));
        Self {
            a,
            b,
            c,
            length: if index + 1 == count {
                self.length - start
            } else {
                length
            },
        }
    }
}

/// Not inlined, because the lab identifies these markers by the name of this module.
#[inline(never)]
pub fn run<S: System>(bench: &mut Bench<'_, S>) {
    let mut wanted = Workload::Stream.operations();
    if wanted.any(|op| bench.job.selects(op)) {
        with_arrays(bench, Workload::Stream.operations(), run_all);
    }
}

/// Runs `operations`, or skips them if there is not enough memory.
pub fn with_arrays<S: System>(
    bench: &mut Bench<'_, S>,
    operations: impl Iterator<Item = Op>,
    run: impl FnOnce(&mut Bench<'_, S>, Arrays),
) {
    let mut blocks = [None; 3];
    let length = bench.job.doubles as usize / DOUBLES_PER_TURN * DOUBLES_PER_TURN;
    for slot in &mut blocks {
        *slot = bench.system.allocate(length * size_of::<f64>());
    }
    match blocks {
        [Some(a), Some(b), Some(c)] => {
            let [a, b, c] = [a, b, c].map(|block: Block| block.start.as_ptr().cast());
            run(bench, Arrays { a, b, c, length });
        }
        _ => {
            for op in operations {
                bench.skip(
                    op,
                    "not enough memory for three arrays; give the machine more",
                );
            }
        }
    }
    for block in blocks.into_iter().flatten() {
        // SAFETY: allocated above, and not used any more.
        unsafe { bench.system.release(block) };
    }
}

fn run_all<S: System>(bench: &mut Bench<'_, S>, arrays: Arrays) {
    let all = &arrays;
    // SAFETY: the blocks are page-aligned and of this length, ours alone until they are released, and any bytes are a double.
    unsafe {
        let pass = || copy(all);
        run_one(bench, all, Op::Copy, pass, |(a, _, _), (_, _, c)| c == a);
        let pass = || scale(all);
        run_one(bench, all, Op::Scale, pass, |(_, _, c), (_, b, _)| {
            b == SCALAR * c
        });
        let pass = || add(all);
        run_one(bench, all, Op::Add, pass, |(a, b, _), (_, _, c)| c == a + b);
        run_one(bench, all, Op::Triad, || triad(all), is_triad);
    }
}

/// Values of the three arrays at one index.
type Row = (f64, f64, f64);

/// Returns whether a row is the result of [`triad`].
pub fn is_triad((_, b, c): Row, (a, _, _): Row) -> bool {
    a == b + SCALAR * c
}

/// Measures one loop. `is_right` checks a row after the loop against the row before it; running the
/// loop again must not change the result.
///
/// # Safety
/// The arrays are exclusive, but for `pass`.
pub unsafe fn run_one<S: System>(
    bench: &mut Bench<'_, S>,
    arrays: &Arrays,
    op: Op,
    mut pass: impl FnMut() -> u64,
    is_right: fn(Row, Row) -> bool,
) {
    if !bench.job.selects(op) {
        return;
    }
    // SAFETY: by contract.
    unsafe { fill(arrays) };
    // STREAM does not count its first pass.
    pass();
    bench.begin(op, 0);
    for _ in 0..bench.job.passes {
        bench.timed(op, |_| (pass(), ()));
    }
    // SAFETY: same.
    match unsafe { verify(arrays, is_right) } {
        Ok(sum) => bench.end(op, bench.job.passes, sum),
        Err(reason) => bench.fail(op, reason),
    }
}

fn initial(index: usize) -> Row {
    let small = (index & 1023) as f64;
    (small + 1.0, small + 2.0, small + 4.0)
}

unsafe fn fill(arrays: &Arrays) {
    for index in 0..arrays.length {
        let (a, b, c) = initial(index);
        // SAFETY: the index is below the length of the arrays, which are the caller's.
        unsafe {
            arrays.a.add(index).write(a);
            arrays.b.add(index).write(b);
            arrays.c.add(index).write(c);
        }
    }
}

unsafe fn verify(arrays: &Arrays, is_right: fn(Row, Row) -> bool) -> Result<u64, Reason> {
    let mut sum = 0u64;
    for index in 0..arrays.length {
        // SAFETY: same.
        let [a, b, c] =
            [arrays.a, arrays.b, arrays.c].map(|array| unsafe { array.add(index).read() });
        if !is_right(initial(index), (a, b, c)) {
            return Err("an element of the result is wrong");
        }
        sum =
            sum.wrapping_add(a.to_bits() ^ b.to_bits().rotate_left(1) ^ c.to_bits().rotate_left(2));
    }
    Ok(sum)
}

/// Defines one pass over the arrays, eight doubles per turn in vector registers. Written out, so that
/// image and agent execute the same instructions: the compiler would call `memcpy`, which differs
/// between them.
macro_rules! pass {
    ($name:ident, $to:ident = |$($from:ident),+| $value:expr) => {
        /// # Safety
        /// The arrays are memory of their length, aligned to 16 bytes, and exclusive.
        #[inline(never)]
        pub unsafe fn $name(arrays: &Arrays) -> u64 {
            let to = arrays.$to;
            $(let $from = arrays.$from.cast_const();)+
            for turn in 0..arrays.length / DOUBLES_PER_TURN {
                for pair in 0..DOUBLES_PER_TURN / 2 {
                    let at = turn * DOUBLES_PER_TURN + 2 * pair;
                    // SAFETY: `at + 1` is below the length; `at` is 16-byte aligned, as the arrays are.
                    unsafe {
                        $(let $from = pair::opaque(pair::load($from.add(at)));)+
                        pair::store(to.add(at), $value);
                    }
                }
            }
            moved(arrays, 1 + [$(stringify!($from)),+].len())
        }
    };
}

pass!(copy, c = |a| a);
pass!(scale, b = |c| pair::multiply(pair::of(SCALAR), c));
pass!(add, c = |a, b| pair::add(a, b));
pass!(
    triad,
    a = |b, c| pair::add(b, pair::multiply(pair::of(SCALAR), c))
);

/// Returns the bytes that a pass moves. As in STREAM, each array that is read or written counts
/// once.
fn moved(arrays: &Arrays, touched: usize) -> u64 {
    (touched * arrays.length * size_of::<f64>()) as u64
}
