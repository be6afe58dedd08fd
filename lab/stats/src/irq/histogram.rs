//! How many interrupts were how late, over the whole range from nothing to seconds: a
//! histogram whose buckets grow with their values (HdrHistogram, Gil Tene).

use hdrhistogram::Histogram;

/// Significant digits to which values in one bucket agree.
pub const DIGITS: u8 = 2;

/// Interrupts that were about equally late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// The least that belongs to it, in the unit of the figures.
    pub from: u64,
    /// The most.
    pub to: u64,
    /// How many there were.
    pub count: u64,
}

/// The buckets that are not empty, in ascending order.
pub fn buckets(lateness: &[f64]) -> Vec<Bucket> {
    let Ok(mut histogram) = Histogram::<u64>::new(DIGITS) else {
        return Vec::new();
    };
    for late in lateness {
        // It grows as needed; no number of a clock is beyond its reach.
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
    fn small_values_have_buckets_of_their_own() {
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
