//! The clock: the virtual counter.

use core::arch::asm;
use trapline_abi::marker;

/// Reads the clock: the virtual counter, ordered after previous and before later instructions (Arm ARM, D12.2.1: `isb` on
/// both sides).
#[inline(always)]
pub fn ticks() -> u64 {
    let now: u64;
    // SAFETY: reads a counter, which all environments allow.
    unsafe {
        asm!("isb", "mrs {now}, cntvct_el0", "isb", now = out(reg) now,
             options(nostack, nomem, preserves_flags));
    }
    now
}

/// Clock before a batch.
pub struct Begun(u64);

/// Reads the clock and executes a marker of this kind.
#[inline(always)]
pub fn begin_batch<const KIND: u8>() -> Begun {
    let now: u64;
    // SAFETY: reads a counter, as in `ticks`; the marker is a no-op.
    unsafe {
        asm!("isb", "mrs {now}, cntvct_el0", "isb", "movz xzr, #{marker}",
             marker = const marker::of_batch(KIND),
             now = out(reg) now, options(nostack, nomem, preserves_flags));
    }
    Begun(now)
}

/// Executes a marker of this kind and reads the clock. Returns both readings. The first one is an operand, so that the
/// compiler cannot move it behind the marker.
#[inline(always)]
pub fn end_batch<const KIND: u8>(begun: Begun) -> (u64, u64) {
    let Begun(mut first) = begun;
    let end: u64;
    // SAFETY: reads a counter, as in `ticks`; the marker is a no-op.
    unsafe {
        asm!("/* {first} */",
             "movz xzr, #{marker}",
             "isb", "mrs {end}, cntvct_el0", "isb",
             marker = const marker::of_batch(KIND),
             first = inout(reg) first, end = out(reg) end,
             options(nostack, nomem, preserves_flags));
    }
    (first, end)
}
