//! 64-bit Arm.

use core::arch::asm;

/// Reads the clock, in ticks, after all previous instructions.
#[inline(always)]
pub fn ticks() -> u64 {
    let now: u64;
    // SAFETY: reads a counter, which Linux allows its programs.
    unsafe {
        asm!("isb", "mrs {now}, cntvct_el0", now = out(reg) now, options(nostack, nomem, preserves_flags));
    }
    now
}
