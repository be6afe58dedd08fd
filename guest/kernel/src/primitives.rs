//! Memory functions of C, which compiled code calls implicitly.
//!
//! Written with string instructions, because a loop in Rust might be compiled to a call of itself.
//! They move eight bytes at a time, because simulated machines count each repetition as an
//! instruction.

use core::arch::asm;

/// # Safety
/// Same contract as C's `memcpy`.
#[no_mangle]
unsafe extern "C" fn memcpy(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    // SAFETY: copies `length` bytes upwards between ranges that are valid by contract: whole words
    // first, then the rest.
    unsafe {
        asm!("rep movsq", "mov rcx, {rest}", "rep movsb", rest = in(reg) length & 7,
             inout("rcx") length >> 3 => _, inout("rdi") to => _, inout("rsi") from => _,
             options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// Same contract as C's `memmove`.
#[no_mangle]
unsafe extern "C" fn memmove(to: *mut u8, from: *const u8, length: usize) -> *mut u8 {
    if (to as usize).wrapping_sub(from as usize) >= length {
        // SAFETY: the destination does not begin inside the source, so an upward
        // copy reads each byte before it is overwritten.
        return unsafe { memcpy(to, from, length) };
    }
    // SAFETY: copies downwards from the last byte, between ranges that are valid by contract; the
    // direction flag is clear again afterwards.
    unsafe {
        asm!("std", "rep movsb", "cld",
             inout("rcx") length => _, inout("rdi") to.wrapping_add(length).wrapping_sub(1) => _,
             inout("rsi") from.wrapping_add(length).wrapping_sub(1) => _, options(nostack));
    }
    to
}

/// # Safety
/// Same contract as C's `memset`.
#[no_mangle]
unsafe extern "C" fn memset(to: *mut u8, value: i32, length: usize) -> *mut u8 {
    let word = u64::from(value as u8) * 0x0101_0101_0101_0101;
    // SAFETY: fills `length` bytes, which are valid by contract.
    unsafe {
        asm!("rep stosq", "mov rcx, {rest}", "rep stosb", rest = in(reg) length & 7,
             inout("rcx") length >> 3 => _, inout("rdi") to => _, in("rax") word,
             options(nostack, preserves_flags));
    }
    to
}

/// # Safety
/// Same contract as C's `memcmp`.
#[no_mangle]
unsafe extern "C" fn memcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    for at in 0..length {
        // SAFETY: `at` is below the length, which is valid by contract.
        let (a, b) = unsafe { (*left.add(at), *right.add(at)) };
        if a != b {
            return i32::from(a) - i32::from(b);
        }
    }
    0
}

/// # Safety
/// Same contract as C's `bcmp`.
#[no_mangle]
unsafe extern "C" fn bcmp(left: *const u8, right: *const u8, length: usize) -> i32 {
    // SAFETY: the contracts are the same.
    unsafe { memcmp(left, right, length) }
}
