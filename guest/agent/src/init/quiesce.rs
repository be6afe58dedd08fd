//! Resumption at a fixed tick after a pause.
//!
//! QEMU pauses a machine in its main loop, some real time after the machine's only CPU has stopped.
//! If the loop runs once more before that, it treats the CPU as idle and advances the clock to the
//! next timer; otherwise the timer expires later, at the same tick. So this code spins until a tick
//! chosen before the pause, later than any such timer, and continues at exactly that tick. From then
//! on both machines are in the same state.

use std::arch::asm;
use trapline_spawn::ticks;

/// Duration of the spin, longer than the timer period of a busy CPU: that of HZ=100 if an instruction
/// takes a nanosecond.
const SPIN: u64 = 1 << 24;

/// Length of the sled of one-byte no-ops, into which the code jumps to end at the right tick.
const SLED: u64 = 4096;

/// Instructions from the last reading of the clock to the sled.
const APPROACH: u64 = 6;

/// Runs `pause`, in which the clock may jump, and returns at a tick chosen before.
pub fn across(pause: impl FnOnce()) {
    let until = ticks() + SPIN;
    pause();
    approach(until);
    land(until);
}

/// Spins until the rest is shorter than the sled.
fn approach(until: u64) {
    loop {
        match until.saturating_sub(ticks()) {
            0..SLED => return,
            // Interrupts take time, too: spins for half of the rest, two instructions per turn.
            left => spin(left / 4),
        }
    }
}

fn spin(turns: u64) {
    // SAFETY: counts a register down to zero from at least a quarter of the sled.
    unsafe {
        asm!("2: dec {0}", "jnz 2b", inout(reg) turns => _, options(nomem, nostack));
    }
}

/// Returns at the tick `until`, or at once if it has passed.
fn land(until: u64) {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// On the wall clock it returns slightly early.
    #[test]
    fn it_returns_at_the_chosen_tick() {
        for _ in 0..100 {
            let before = ticks();
            across(|| ());
            assert!(ticks() - before > SPIN - SLED);
        }
    }

    #[test]
    fn a_passed_tick_is_not_waited_for() {
        let before = ticks();
        land(before - 1);
        land(before.wrapping_sub(1 << 40));
        assert!(ticks() - before < SPIN);
    }
}
