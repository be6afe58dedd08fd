//! Seeds of runs.

use std::hash::{BuildHasher, RandomState};
use trapline_model::{RecordedRequest, Request};

/// Returns a random seed of 32 bits, which is short to type and exact in every JSON and TOML parser.
///
/// The standard library keys the hashers of a [`RandomState`] with random bytes of the operating
/// system; no crate is needed for that.
pub fn random_seed() -> u64 {
    let hash = RandomState::new().hash_one("seed of a run");
    hash & u64::from(u32::MAX)
}

/// Returns the seed of a request that is executed in slices and has none: the same for all of them.
pub fn seed_of_slices(request: &Request) -> u64 {
    let whole = Request {
        slice: None,
        ..request.clone()
    };
    let text = RecordedRequest::of(&whole).to_string();
    // FNV-1a, whose result no version of the standard library changes.
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    hash.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn slices_of_a_request_have_one_seed() {
        let seed = |slice: &str, exact_boots| {
            seed_of_slices(&Request {
                slice: slice.parse().ok(),
                exact_boots,
                ..Request::default()
            })
        };
        assert_eq!(seed("1/4", 2), seed("3/4", 2));
        assert_ne!(seed("1/4", 2), seed("1/4", 3));
    }

    #[test]
    fn seeds_differ_and_have_32_bits() {
        let seeds: BTreeSet<_> = (0..100).map(|_| random_seed()).collect();
        // Two equal seeds in a hundred: once in a million runs of this test.
        assert_eq!(seeds.len(), 100);
        assert!(seeds.iter().all(|seed| *seed <= u64::from(u32::MAX)));
    }
}
