//! Calibration: costs of a batch that are not part of the operation.
//!
//! A batch of `n` operations takes `fixed + n * (turn + operation)` ticks. `fixed` is the cost of
//! two readings of the clock, the markers, and entering and leaving the loop; `turn` is one turn of
//! the empty loop. Both come from a line through the times of two lengths of the
//! empty loop: `turn` is its slope, `fixed` its intercept.
//!
//! Each time is the median of [`TRIES`], because the figure of an operation is the median
//! of its batches. The least time is biased: it is below what the median batch pays.

use crate::clock::{begin_batch, end_batch, repeat, ticks};
use core::arch::asm;
use core::hint::black_box;
use trapline_abi::marker;

/// Turns of the empty loop in [`trapline_abi::Record::Begin::loop_cost`].
pub const LOOP_TURNS: u64 = 1024;

/// Lengths of the timed loop, in turns.
const SHORT: u64 = LOOP_TURNS;
const LONG: u64 = SHORT + SPAN * LOOP_TURNS;

/// Difference of the lengths, in multiples of [`LOOP_TURNS`]. The error of the slope is that of the
/// two medians, divided by this.
const SPAN: u64 = 8;

/// Number of measurements per median. The lengths alternate, so that a change of the CPU frequency
/// affects both.
const TRIES: usize = 15;

/// The calibrated costs, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calibration {
    /// Time between two readings of the clock.
    pub clock: u64,
    /// Fixed cost of a batch: an empty batch.
    pub batch: u64,
    /// Cost of [`LOOP_TURNS`] turns of the empty loop.
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
        Self::from_times(median(clock), median(short), median(long))
    }

    /// Computes the costs from the time between two readings of the clock and the times of the
    /// two lengths of the loop. Negative slopes and intercepts, caused by noise, become 0.
    fn from_times(clock: u64, short: u64, long: u64) -> Self {
        let turns = (long.saturating_sub(short) + SPAN / 2) / SPAN;
        Self {
            clock,
            batch: short.saturating_sub(turns * SHORT / LOOP_TURNS),
            turns,
        }
    }
}

/// Times an empty batch of `turns`, with the loop and the markers of a measured one. One function
/// for both lengths, so that both execute the same code at the same address.
#[inline(never)]
fn time_empty_loop(turns: u64) -> u64 {
    let turns = black_box(turns);
    let begun = begin_batch::<{ marker::IDLE }>();
    // SAFETY: no instruction; it only keeps the loop from being removed.
    repeat(turns, || unsafe {
        asm!("", options(nomem, nostack, preserves_flags))
    });
    let (start, end) = end_batch::<{ marker::IDLE }>(begun);
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
    fn costs_are_slope_and_intercept() {
        // 11 ticks and 2 a turn.
        let exact = Calibration::from_times(6, 11 + 2 * SHORT, 11 + 2 * LONG);
        let expected = Calibration {
            clock: 6,
            batch: 11,
            turns: 2 * LOOP_TURNS,
        };
        assert_eq!(exact, expected);
    }

    #[test]
    fn noise_does_not_make_costs_negative() {
        let falling = Calibration::from_times(6, 3000, 2000);
        assert_eq!((falling.turns, falling.batch), (0, 3000));
        let steep = Calibration::from_times(6, 100, 100 + 2 * SPAN * 1024);
        assert_eq!((steep.turns, steep.batch), (2048, 0));
    }

    #[test]
    fn outliers_do_not_change_the_median() {
        let mut times = [7; TRIES];
        times[..TRIES / 2].fill(1_000_000);
        assert_eq!(median(times), 7);
        times[..TRIES / 2].fill(0);
        assert_eq!(median(times), 7);
    }
}
