//! Resumption at a fixed tick after a pause.
//!
//! QEMU pauses a machine in its main loop, some real time after the machine's only CPU has stopped.
//! If the loop runs once more before that, it treats the CPU as idle and advances the clock to the
//! next timer; otherwise the timer expires later, at the same tick. So this code spins until a tick
//! chosen before the pause, later than any such timer, and continues at exactly that tick. From then
//! on both machines are in the same state.

use crate::arch::sled::{land, spin, SLED};
use trapline_spawn::ticks;

/// Duration of the spin, longer than the timer period of a busy CPU: that of HZ=100 if an instruction
/// takes a nanosecond.
const SPIN: u64 = 1 << 24;

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
