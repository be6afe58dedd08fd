//! Loads of memory into this CPU's cache, ahead of its use.
//!
//! A short frame takes about as long as the cache lines need from one CPU to the other, and back for the next frame. Those of a
//! batch overlap if all of them are asked for first.

use std::arch::asm;
use std::ptr::NonNull;

/// Bytes of a cache line.
const LINE: usize = 64;

/// Most lines of a buffer: the processor itself recognises longer copies.
const MOST_LINES: usize = 2;

fn lines(start: NonNull<u8>, length: u32) -> impl Iterator<Item = *mut u8> {
    let count = (length as usize).div_ceil(LINE).min(MOST_LINES);
    (0..count).map(move |line| start.as_ptr().wrapping_add(line * LINE))
}

/// Loads the beginning of a buffer that is read next.
#[inline(always)]
pub fn for_reading(start: NonNull<u8>, length: u32) {
    for line in lines(start, length) {
        // SAFETY: a hint without visible effect, which never faults, whatever the address.
        unsafe {
            asm!("prefetcht0 [{}]", in(reg) line, options(nostack, preserves_flags, readonly))
        };
    }
}

/// Loads the beginning of a buffer that is written next; other CPUs give up their copies.
#[inline(always)]
pub fn for_writing(start: NonNull<u8>, length: u32) {
    for line in lines(start, length) {
        // SAFETY: a hint without visible effect, which never faults, whatever the address. Processors without it do nothing.
        unsafe {
            asm!("prefetchw [{}]", in(reg) line, options(nostack, preserves_flags, readonly))
        };
    }
}
