//! The order of configs in blocks, balanced so that neither position nor predecessor
//! favours one of them.
//!
//! A block holds every config once. Blocks are rows of a Williams square (Williams 1949,
//! "Experimental designs balanced for the estimation of residual effects of treatments"):
//! in `n` consecutive blocks every config takes every position once. For an even `n` it
//! also follows every other config once; for an odd `n` that needs two squares, the second
//! one being the mirror image of the first, so it holds in `2n` blocks. Carry-over from one
//! block to the next is not balanced.
//!
//! The seed decides which config is which letter of the square, and the order of its rows.

use rand::seq::SliceRandom;
use rand_chacha::rand_core::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// An endless sequence of blocks, each a permutation of `0..n`.
///
/// The sequence depends on `n` and the seed alone, so a run with more blocks begins with the
/// blocks of a run with fewer. In any number of blocks from the first one on, the counts of
/// a config in two positions, and of two configs in one position, differ by at most one.
#[derive(Clone, Debug)]
pub struct Order {
    rng: ChaCha8Rng,
    /// Config of each letter.
    letters: Vec<usize>,
    /// Rows of the current square that are left.
    rows: Vec<Vec<usize>>,
    squares: usize,
}

impl Order {
    /// Returns the blocks of `n` configs.
    pub fn new(n: usize, seed: u64) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            letters: (0..n).collect(),
            rows: Vec::new(),
            squares: 0,
        }
    }

    fn draw_square(&mut self) {
        let n = self.letters.len();
        let is_mirror = n % 2 == 1 && self.squares % 2 == 1;
        if !is_mirror {
            self.letters.shuffle(&mut self.rng);
        }
        self.rows = (0..n).map(|row| williams_row(n, row, is_mirror)).collect();
        self.rows.shuffle(&mut self.rng);
        self.squares += 1;
    }
}

impl Iterator for Order {
    type Item = Vec<usize>;

    fn next(&mut self) -> Option<Vec<usize>> {
        if self.rows.is_empty() {
            self.draw_square();
        }
        // Without configs blocks are empty.
        let row = self.rows.pop().unwrap_or_default();
        Some(row.into_iter().map(|letter| self.letters[letter]).collect())
    }
}

/// Returns a row of the Williams square of order `n`: `0, 1, n - 1, 2, n - 2, ...`, each letter
/// shifted by `row` modulo `n`; read backwards for the mirror image.
fn williams_row(n: usize, row: usize, is_mirror: bool) -> Vec<usize> {
    let first = (0..n).map(|column| match column % 2 {
        0 => (n - column / 2) % n,
        _ => column.div_ceil(2),
    });
    let mut letters: Vec<usize> = first.map(|letter| (letter + row) % n).collect();
    if is_mirror {
        letters.reverse();
    }
    letters
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn blocks(n: usize, count: usize, seed: u64) -> Vec<Vec<usize>> {
        Order::new(n, seed).take(count).collect()
    }

    /// Counts each config in each position.
    fn positions(n: usize, blocks: &[Vec<usize>]) -> Vec<usize> {
        let mut counts = vec![0; n * n];
        for block in blocks {
            for (position, config) in block.iter().enumerate() {
                counts[config * n + position] += 1;
            }
        }
        counts
    }

    /// Counts each config after each other one within a block.
    fn successions(n: usize, blocks: &[Vec<usize>]) -> Vec<usize> {
        let mut counts = vec![0; n * n];
        for pair in blocks.iter().flat_map(|block| block.windows(2)) {
            counts[pair[0] * n + pair[1]] += 1;
        }
        let is_pair = |place: &usize| place / n != place % n;
        (0..n * n)
            .filter(is_pair)
            .map(|place| counts[place])
            .collect()
    }

    fn spread(counts: &[usize]) -> usize {
        let least = counts.iter().min().copied().unwrap_or(0);
        counts.iter().max().copied().unwrap_or(0) - least
    }

    proptest! {
        #[test]
        fn every_config_takes_every_position_equally_often(
            n in 1usize..12, times in 1usize..5, seed in any::<u64>(),
        ) {
            let counts = positions(n, &blocks(n, times * n, seed));
            prop_assert!(counts.iter().all(|count| *count == times), "{counts:?}");
        }

        #[test]
        fn positions_of_any_number_of_blocks_differ_by_at_most_one(
            n in 1usize..12, count in 0usize..60, seed in any::<u64>(),
        ) {
            prop_assert!(spread(&positions(n, &blocks(n, count, seed))) <= 1);
        }

        #[test]
        fn every_config_follows_every_other_equally_often(
            n in 2usize..12, times in 1usize..4, seed in any::<u64>(),
        ) {
            let (count, expected) = match n % 2 {
                0 => (times * n, times),
                _ => (times * 2 * n, times * 2),
            };
            let counts = successions(n, &blocks(n, count, seed));
            prop_assert!(counts.iter().all(|count| *count == expected), "{counts:?}");
        }

        #[test]
        fn every_block_holds_every_config_once(
            n in 0usize..30, count in 0usize..40, seed in any::<u64>(),
        ) {
            for mut block in blocks(n, count, seed) {
                block.sort_unstable();
                prop_assert_eq!(block, (0..n).collect::<Vec<_>>());
            }
        }

        #[test]
        fn more_blocks_continue_fewer(
            n in 1usize..12, fewer in 0usize..40, more in 0usize..40, seed in any::<u64>(),
        ) {
            let all = blocks(n, fewer + more, seed);
            prop_assert_eq!(&all[..fewer], &blocks(n, fewer, seed)[..]);
        }
    }

    #[test]
    fn of_two_each_goes_first_in_five_of_ten_blocks() {
        for seed in 0..1_000 {
            let firsts = blocks(2, 10, seed).into_iter().map(|block| block[0]);
            assert_eq!(firsts.sum::<usize>(), 5, "seed {seed}");
        }
    }

    #[test]
    fn every_order_of_three_occurs_first_equally_often() {
        const SEEDS: u64 = 6_000;
        let orders = (0..SEEDS).map(|seed| blocks(3, 1, seed).remove(0));
        let orders: Vec<_> = orders.collect();
        let distinct: BTreeSet<_> = orders.iter().collect();
        assert_eq!(distinct.len(), 6);
        for order in distinct {
            let count = orders.iter().filter(|one| *one == order).count();
            // Five standard deviations of a binomial count.
            assert!((850..=1150).contains(&count), "{order:?}: {count}");
        }
    }
}
