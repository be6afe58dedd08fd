//! Going on at a moment that does not depend on how a pause went.
//!
//! QEMU stops a machine in its main loop, some real time after the machine's only
//! processor has stopped by itself. If that loop turns once more before, it takes the
//! processor for one that sleeps and moves the machine's clock to its next timer;
//! if not, the timer comes later. Either way it comes at the same tick. So
//! this spins until a tick that was chosen before the pause, beyond any such timer, and
//! leaves at exactly that tick: from there on both machines are one.

use std::arch::asm;
use trapline_spawn::ticks;

/// Longer than a processor that works is ever without a timer of its kernel's:
/// a period of 100 Hz, where an instruction is a nanosecond.
const SPIN: u64 = 1 << 24;

/// Instructions, of one byte each, that are left out to come out at the right one.
const SLED: u64 = 4096;

/// Instructions from the last reading of the clock to the sled.
const APPROACH: u64 = 6;

/// Runs `pause`, in which the clock may jump.
pub fn across(pause: impl FnOnce()) {
    let until = ticks() + SPIN;
    pause();
    approach(until);
    land(until);
}

/// Spins until less than a sled is left.
fn approach(until: u64) {
    loop {
        match until.saturating_sub(ticks()) {
            0..SLED => return,
            // Interrupts take their time as well: half of what is left at a time,
            // two instructions a turn.
            left => spin(left / 4),
        }
    }
}

fn spin(turns: u64) {
    // SAFETY: counts a register down to zero from a number that is not zero, for a
    // quarter of a sled is left at least.
    unsafe {
        asm!("2: dec {0}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack));
    }
}

/// Goes on at the tick `until`, or at once where that is too late.
fn land(until: u64) {
    let latest = until.wrapping_sub(APPROACH);
    // SAFETY: jumps to one of the no-ops of the sled or right behind it: what is
    // subtracted from its end is limited to its length, and 0 if the time is over.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Where an instruction is no tick, it lands a little early.
    #[test]
    fn it_goes_on_when_the_time_has_come() {
        for _ in 0..100 {
            let before = ticks();
            across(|| ());
            assert!(ticks() - before > SPIN - SLED);
        }
    }

    #[test]
    fn a_moment_that_has_passed_is_not_waited_for() {
        let before = ticks();
        land(before - 1);
        land(before.wrapping_sub(1 << 40));
        assert!(ticks() - before < SPIN);
    }
}
