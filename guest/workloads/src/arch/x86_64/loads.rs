//! A chain of loads, written out so that image and agent execute the same instructions.

use core::arch::asm;

/// Loads of [`follow`].
pub const LOADS: u64 = 16;

/// Follows a chain of addresses for [`LOADS`] loads.
///
/// # Safety
/// At `at`, and at each address that is loaded, is a readable address.
#[inline(always)]
pub unsafe fn follow(mut at: *const u64) -> *const u64 {
    const { assert!(LOADS == 16) };
    // SAFETY: by contract.
    unsafe {
        asm!(".rept 16", "mov {at}, [{at}]", ".endr", at = inout(reg) at,
             options(nostack, readonly, preserves_flags));
    }
    at
}
