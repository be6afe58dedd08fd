//! The figures of both sides in the Bencher Metric Format.

use super::Versus;
use crate::bencher::named;

/// The figures of both as one JSON object. Where both are the same contender, those of the
/// one that is compared: the other is the past, and Bencher keeps its own.
pub fn bencher(versus: &Versus) -> String {
    let both = versus.matches.iter().flat_map(|one| {
        let [a, b] = &one.contenders;
        [named(a, &one.a), named(b, &one.b)]
    });
    trapline_ci::bencher(both.flatten())
}
