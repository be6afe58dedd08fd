//! Waiting for a tick of the clock: instructions of one tick each, into which the code jumps.

use std::arch::asm;

/// Length of the sled of no-ops, into which the code jumps to end at the right tick.
pub const SLED: u64 = 4096;

/// Instructions from the last reading of the clock to the sled.
const APPROACH: u64 = 5;

/// Executes two instructions a turn.
pub fn spin(turns: u64) {
    // SAFETY: counts a register down to zero from at least a quarter of the sled.
    unsafe {
        asm!("2: subs {0}, {0}, #1", "b.ne 2b", inout(reg) turns => _, options(nomem, nostack));
    }
}

/// Returns at the tick `until`, or at once if it has passed.
pub fn land(until: u64) {
    let latest = until.wrapping_sub(APPROACH);
    // SAFETY: jumps into the sled or to its end: the offset is at most its length, and 0 if the tick
    // has passed.
    unsafe {
        asm!(
            "adr {end}, 3f",
            "isb",
            "mrs {now}, cntvct_el0",
            "subs {left}, {left}, {now}",
            "csel {left}, xzr, {left}, mi",
            "sub {end}, {end}, {left}, lsl #2",
            "br {end}",
            ".rept {sled}",
            "nop",
            ".endr",
            "3:",
            left = inout(reg) latest => _,
            now = out(reg) _,
            end = out(reg) _,
            sled = const SLED,
            options(nomem, nostack),
        );
    }
}
