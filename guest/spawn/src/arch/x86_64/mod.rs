//! x86-64.

use core::arch::x86_64::{_mm_lfence, _rdtsc};

/// Reads the clock, in ticks, after all previous instructions.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has both instructions.
    unsafe {
        _mm_lfence();
        _rdtsc()
    }
}
