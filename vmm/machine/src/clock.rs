//! The clock that stamps events: the host's time-stamp counter.

use std::arch::x86_64::_rdtsc;

/// Ticks of the host's time-stamp counter.
#[inline(always)]
pub fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has the instruction, and Linux allows it.
    unsafe { _rdtsc() }
}
