//! The clock around a batch, and the loop within it.

use core::arch::asm;

pub use crate::arch::clock::ticks;
pub(crate) use crate::arch::clock::{begin_batch, end_batch};

/// Runs `body` `repetitions` times, at least once: a test for zero would be compiled differently in
/// the empty loop and the measured ones. The number of turns is opaque to the compiler, so it does
/// not unroll the loop.
#[inline(always)]
pub fn repeat(repetitions: u64, mut body: impl FnMut()) {
    debug_assert!(repetitions != 0);
    let mut left = repetitions;
    loop {
        body();
        // SAFETY: no instruction at all.
        unsafe { asm!("/* {0} */", inout(reg) left, options(nomem, nostack, preserves_flags)) };
        left = left.wrapping_sub(1);
        if left == 0 {
            break;
        }
    }
}
