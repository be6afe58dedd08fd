//! Random seeds.

use std::hash::{BuildHasher, RandomState};

/// Returns a random seed of 32 bits, which is short to type and exact in every JSON and TOML parser.
///
/// The standard library keys the hashers of a [`RandomState`] with random bytes of the operating
/// system; no crate is needed for that.
pub fn random_seed() -> u64 {
    let hash = RandomState::new().hash_one("seed of a run");
    hash & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seeds_differ_and_have_32_bits() {
        let seeds: BTreeSet<_> = (0..100).map(|_| random_seed()).collect();
        // Two equal seeds in a hundred: once in a million runs of this test.
        assert_eq!(seeds.len(), 100);
        assert!(seeds.iter().all(|seed| *seed <= u64::from(u32::MAX)));
    }
}
