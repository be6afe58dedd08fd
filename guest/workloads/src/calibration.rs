//! Calibration: the parts of a batch that are not the operation.
//!
//! A batch of `n` operations takes `fixed + n * (turn + operation)` ticks. `fixed` is the
//! two readings of the clock, the marks, and entering and leaving the loop; `turn` is one
//! turn of the empty loop. Both come from a line through the times of two lengths of the
//! empty loop: `turn` is its slope, `fixed` its intercept.
//!
//! Each time is the median of [`TRIES`], because the figure of an operation is the median
//! of its batches. The least time is biased: it is below what the median batch pays.

use crate::measure::{begin_batch, end_batch, repeat, ticks};
use core::arch::asm;
use core::hint::black_box;
use trapline_abi::mark;

/// Turns of the empty loop that [`trapline_abi::Record::Begin::loop_cost`] stands for.
pub const LOOP_TURNS: u64 = 1024;

/// The lengths of the loop that is timed, in turns.
const SHORT: u64 = LOOP_TURNS;
const LONG: u64 = SHORT + SPAN * LOOP_TURNS;

/// By how many times [`LOOP_TURNS`] the lengths differ. The error of the slope is that of
/// the two medians, divided by this.
const SPAN: u64 = 8;

/// Times of which the median is taken. The lengths take turns, so that a change of the
/// processor's frequency affects both.
const TRIES: usize = 15;

/// The calibrated costs, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Between two readings of the clock.
    pub clock: u64,
    /// The fixed part of a batch: an empty batch.
    pub batch: u64,
    /// [`LOOP_TURNS`] turns of the empty loop.
    pub turns: u64,
}

impl Calibration {
    /// Measures the costs.
    pub fn measure() -> Self {
        let mut clock = [0; TRIES];
        let mut short = [0; TRIES];
        let mut long = [0; TRIES];
        for ((clock, short), long) in clock.iter_mut().zip(&mut short).zip(&mut long) {
            let start = ticks();
            *clock = ticks() - start;
            *short = time_empty_loop(SHORT);
            *long = time_empty_loop(LONG);
        }
        Self::of(median(clock), median(short), median(long))
    }

    /// The costs where reading the clock takes `clock`, and the two lengths of the loop take
    /// `short` and `long`. Neither slope nor intercept can be negative: noise that makes
    /// one so gives 0.
    fn of(clock: u64, short: u64, long: u64) -> Self {
        let turns = (long.saturating_sub(short) + SPAN / 2) / SPAN;
        Self {
            clock,
            batch: short.saturating_sub(turns * SHORT / LOOP_TURNS),
            turns,
        }
    }
}

/// Times an empty batch of `turns`: the loop and the marks of a measured one. One function
/// for both lengths, so that both execute the same code at the same address.
#[inline(never)]
fn time_empty_loop(turns: u64) -> u64 {
    let turns = black_box(turns);
    let begun = begin_batch::<{ mark::IDLE }>();
    // SAFETY: no instruction; it only keeps the loop from being removed.
    repeat(turns, || unsafe {
        asm!("", options(nomem, nostack, preserves_flags))
    });
    let (start, end) = end_batch::<{ mark::IDLE }>(begun);
    end - start
}

fn median(mut times: [u64; TRIES]) -> u64 {
    times.sort_unstable();
    times[TRIES / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slope_and_intercept_are_those_of_the_line() {
        // 11 ticks and 2 a turn.
        let exact = Calibration::of(6, 11 + 2 * SHORT, 11 + 2 * LONG);
        let expected = Calibration {
            clock: 6,
            batch: 11,
            turns: 2 * LOOP_TURNS,
        };
        assert_eq!(exact, expected);
    }

    #[test]
    fn noise_gives_no_negative_cost() {
        let falling = Calibration::of(6, 3000, 2000);
        assert_eq!((falling.turns, falling.batch), (0, 3000));
        let steep = Calibration::of(6, 100, 100 + 2 * SPAN * 1024);
        assert_eq!((steep.turns, steep.batch), (2048, 0));
    }

    #[test]
    fn a_disturbed_minority_does_not_move_the_median() {
        let mut times = [7; TRIES];
        times[..TRIES / 2].fill(1_000_000);
        assert_eq!(median(times), 7);
        times[..TRIES / 2].fill(0);
        assert_eq!(median(times), 7);
    }
}
