//! Script of operation `make`: steps one after the other, each a process that executes a program of its own.
//!
//! The program reads a number from a pipe, fills [`WORDS`] words of its memory with that number and the following ones,
//! adds them up, and writes the sum to another pipe. The sum is the number of the next step. The program's text is
//! [`step_program!`](crate::step_program), the same for every kernel.

/// Number of steps.
pub const STEPS: u8 = 8;

/// Number of words that a step fills and adds up, in whole pages.
pub const WORDS: u64 = 4096;

/// Size of a number in a pipe, in bytes.
pub const NUMBER_BYTES: usize = 8;

/// Returns the sum that a step writes.
pub fn sum(number: u64) -> u64 {
    const OF_INDICES: u64 = WORDS * (WORDS - 1) / 2;
    WORDS.wrapping_mul(number).wrapping_add(OF_INDICES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_that_of_consecutive_numbers() {
        for number in [0, 1, 255, u64::MAX - 1, u64::MAX / 3] {
            let words = (0..WORDS).map(|index| number.wrapping_add(index));
            assert_eq!(sum(number), words.fold(0, u64::wrapping_add));
        }
    }
}
