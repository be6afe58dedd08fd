//! A write and a read on the null device, which takes all bytes and returns none.

use crate::measure::{repeat, Work};
use crate::system::{Reason, System};
use core::hint::black_box;

/// Bytes of one write or read: those of the published benchmark (Jiny).
const BYTES: usize = 40;

/// Writes and reads that often. The evidence is 0 if each write took all bytes and each read returned none.
#[inline(always)]
pub fn write_and_read<S: System>(system: &mut S, repetitions: u64) -> Work {
    let mut buffer = [0x5a_u8; BYTES];
    let mut wrong = 0;
    repeat(repetitions, || {
        wrong |= system.write_null(black_box(&buffer)) ^ BYTES;
        wrong |= system.read_null(black_box(&mut buffer));
    });
    Work::new(repetitions, wrong as u64)
}

/// Checks the evidence.
pub fn verify(work: &Work) -> Result<(), Reason> {
    work.check_equal("a write to the null device did not take all bytes, or a read returned some")
}
