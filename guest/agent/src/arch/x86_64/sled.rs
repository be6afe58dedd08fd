//! Waiting for a tick of the clock: instructions of one tick each, into which the code jumps.

use std::arch::asm;

/// Length of the sled of one-byte no-ops, into which the code jumps to end at the right tick.
pub const SLED: u64 = 4096;

/// Instructions from the last reading of the clock to the sled.
const APPROACH: u64 = 6;

/// Executes two instructions a turn.
pub fn spin(turns: u64) {
    // SAFETY: counts a register down to zero from at least a quarter of the sled.
    unsafe {
        asm!("2: dec {0}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack));
    }
}

/// Returns at the tick `until`, or at once if it has passed.
pub fn land(until: u64) {
    let latest = until.wrapping_sub(APPROACH);
    // SAFETY: jumps into the sled or to its end: the offset is at most its length, and 0 if the tick
    // has passed.
    unsafe {
        asm!(
            "lea {end}, [rip + 3f]",
            "rdtsc",
            "shl rdx, 32",
            "or rax, rdx",
            "sub {left}, rax",
            "cmovs {left}, {zero}",
            "sub {end}, {left}",
            "jmp {end}",
            ".fill {sled}, 1, 0x90",
            "3:",
            left = inout(reg) latest => _,
            zero = in(reg) 0_u64,
            end = out(reg) _,
            sled = const SLED,
            out("rax") _,
            out("rdx") _,
            options(nomem, nostack),
        );
    }
}
