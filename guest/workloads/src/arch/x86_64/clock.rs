//! The clock: the time stamp counter.

use core::arch::asm;
use trapline_abi::marker;

/// Reads the clock: the time stamp counter, ordered after previous and before later instructions
/// (Intel SDM volume 2, RDTSC: lfence on both sides).
#[inline(always)]
pub fn ticks() -> u64 {
    let low: u64;
    let high: u64;
    // SAFETY: reads a counter; no environment sets CR4.TSD.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", out("rax") low, out("rdx") high,
             options(nostack, nomem, preserves_flags));
    }
    high << 32 | low
}

/// Clock before a batch, as two halves, which [`end_batch`] combines.
pub(crate) struct Begun {
    low: u64,
    high: u64,
}

/// Reads the clock and executes a marker of this kind. The moves that keep the reading are written
/// out, so that all batches have the same two and no other instruction in between.
#[inline(always)]
pub(crate) fn begin_batch<const KIND: u8>() -> Begun {
    let low: u64;
    let high: u64;
    // SAFETY: reads a counter, as in `ticks`; the marker is a no-op.
    unsafe {
        asm!("lfence", "rdtsc", "lfence", "mov {low}, rax", "mov {high}, rdx",
             ".quad {marker}",
             marker = const u64::from_le_bytes(marker::of_batch(KIND)),
             low = out(reg) low, high = out(reg) high,
             out("rax") _, out("rdx") _, options(nostack, nomem, preserves_flags));
    }
    Begun { low, high }
}

/// Executes a marker of this kind and reads the clock. Returns both readings. The halves of the
/// first one are operands, so that the compiler cannot combine them before the marker.
#[inline(always)]
pub(crate) fn end_batch<const KIND: u8>(begun: Begun) -> (u64, u64) {
    let Begun { mut low, mut high } = begun;
    let end_low: u64;
    let end_high: u64;
    // SAFETY: reads a counter, as in `ticks`; the marker is a no-op.
    unsafe {
        asm!("/* {low} {high} */",
             ".quad {marker}",
             "lfence", "rdtsc", "lfence",
             marker = const u64::from_le_bytes(marker::of_batch(KIND)),
             low = inout(reg) low, high = inout(reg) high,
             out("rax") end_low, out("rdx") end_high,
             options(nostack, nomem, preserves_flags));
    }
    (high << 32 | low, end_high << 32 | end_low)
}
