//! Seeds of runs that name none.

use std::hash::{BuildHasher, RandomState};

/// Draws a seed.
///
/// The standard library keys the hashers of a [`RandomState`] by random bytes of the operating
/// system, so two processes draw different seeds; no crate is needed for that. A seed has 32
/// bits, so that it is short to type and exact in every JSON and TOML parser.
pub fn drawn() -> u64 {
    let hash = RandomState::new().hash_one("seed of a run");
    hash & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_differ_and_have_32_bits() {
        let seeds: BTreeSet<_> = (0..100).map(|_| drawn()).collect();
        // Two equal ones among a hundred: once in a million runs of this test.
        assert_eq!(seeds.len(), 100);
        assert!(seeds.iter().all(|seed| *seed <= u64::from(u32::MAX)));
    }
}
