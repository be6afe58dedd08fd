//! Histogram of lateness from 0 to seconds, with buckets that grow with their values (HdrHistogram, Gil
//! Tene).

use hdrhistogram::Histogram;

/// Significant digits that are equal within a bucket.
pub const DIGITS: u8 = 2;

/// A range of lateness with its number of interrupts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Smallest lateness, in the unit of the figures.
    pub from: u64,
    /// Largest lateness.
    pub to: u64,
    /// Number of interrupts.
    pub count: u64,
}

/// Returns the non-empty buckets, in ascending order.
pub fn buckets(lateness: &[f64]) -> Vec<Bucket> {
    let Ok(mut histogram) = Histogram::<u64>::new(DIGITS) else {
        return Vec::new();
    };
    for late in lateness {
        // The histogram resizes itself; every u64 is in range.
        let _ = histogram.record(late.round() as u64);
    }
    let recorded = histogram.iter_recorded();
    recorded
        .map(|step| Bucket {
            from: histogram.lowest_equivalent(step.value_iterated_to()),
            to: histogram.highest_equivalent(step.value_iterated_to()),
            count: step.count_at_value(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    #[test]
    fn small_values_have_exact_buckets() {
        let bucket = |value, count| Bucket {
            from: value,
            to: value,
            count,
        };
        assert_eq!(
            buckets(&[7.0, 0.2, 6.6, 100.0]),
            [bucket(0, 1), bucket(7, 2), bucket(100, 1)]
        );
        assert_eq!(buckets(&[]), []);
    }

    proptest! {
        #[test]
        fn every_interrupt_is_in_one_narrow_bucket(
            lateness in proptest::collection::vec(0.0f64..1e10, 0..200),
        ) {
            let buckets = buckets(&lateness);
            prop_assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), lateness.len() as u64);
            for bucket in &buckets {
                let inside = |late: &&f64| (bucket.from..=bucket.to).contains(&(late.round() as u64));
                prop_assert_eq!(lateness.iter().filter(inside).count() as u64, bucket.count);
                prop_assert!(bucket.to - bucket.from <= bucket.from / 100 + 1);
            }
            prop_assert!(buckets.is_sorted_by(|a, b| a.to < b.from));
        }
    }
}
