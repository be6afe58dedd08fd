//! Lateness of interrupts: moments, exact percentiles and counts.

use crate::Sorted;

/// Counts of a timer's expiries, with the lateness of their interrupts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExpiryStats {
    /// Number of expiries.
    pub expiries: u64,
    /// Number of expiries with an interrupt of their own.
    pub count: u64,
    /// Number of interrupts later than the threshold.
    pub above: u64,
    /// Lateness of the interrupts, if there are any.
    pub lateness: Option<Lateness>,
}

/// Distribution of the lateness of interrupts. Percentiles are observed values (nearest rank); `None` for
/// fewer interrupts than [`crate::least_count`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lateness {
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation.
    pub sd: f64,
    /// The smallest.
    pub min: f64,
    /// The median.
    pub p50: Option<f64>,
    /// The 90th percentile.
    pub p90: Option<f64>,
    /// The 99th percentile.
    pub p99: Option<f64>,
    /// The 99.9th percentile.
    pub p999: Option<f64>,
    /// The 99.99th percentile.
    pub p9999: Option<f64>,
    /// The largest.
    pub max: f64,
}

impl ExpiryStats {
    /// Summarises the interrupts of `expiries` expiries.
    pub(crate) fn of(expiries: u64, lateness: Vec<f64>, threshold: f64) -> Self {
        Self {
            expiries,
            count: lateness.len() as u64,
            above: lateness.iter().filter(|late| **late > threshold).count() as u64,
            lateness: Lateness::of(lateness),
        }
    }

    /// Returns the number of expiries without an interrupt of their own: missed, or merged with another.
    pub fn missed(&self) -> u64 {
        self.expiries.saturating_sub(self.count)
    }

    /// Returns the number of expiries served within the threshold.
    pub fn in_time(&self) -> u64 {
        self.count - self.above
    }

    /// Returns the number of expiries served too late or missed.
    pub fn too_late(&self) -> u64 {
        self.above + self.missed()
    }
}

impl Lateness {
    fn of(values: Vec<f64>) -> Option<Self> {
        let sorted = Sorted::new(values)?;
        let (mean, count) = (sorted.mean(), sorted.count() as f64);
        let squares: f64 = sorted.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            mean,
            sd: (squares / (count - 1.0).max(1.0)).sqrt(),
            min: sorted.min(),
            p50: sorted.percentile(50_000),
            p90: sorted.percentile(90_000),
            p99: sorted.percentile(99_000),
            p999: sorted.percentile(99_900),
            p9999: sorted.percentile(99_990),
            max: sorted.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    #[test]
    fn moments_and_counts_follow_their_definitions() {
        // Mean 5, squares 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, 32 / 7 = 4.571.
        let values = vec![9.0, 2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0];
        let spread = ExpiryStats::of(10, values, 5.0);
        assert_eq!((spread.count, spread.above, spread.missed()), (8, 2, 2));
        assert_eq!((spread.in_time(), spread.too_late()), (6, 4));
        let late = spread.lateness.unwrap();
        assert_eq!((late.mean, late.min, late.max), (5.0, 2.0, 9.0));
        assert!((late.sd - 2.138).abs() < 0.001, "{}", late.sd);
        // A median needs 6 values, the 90th percentile 36.
        assert_eq!((late.p50, late.p90), (Some(4.0), None));
    }

    #[test]
    fn percentiles_are_exact_at_their_ranks() {
        let values: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let late = ExpiryStats::of(100_000, values, 99_999.0);
        assert_eq!(late.above, 1);
        let late = late.lateness.unwrap();
        assert_eq!(
            (late.p50, late.p90, late.p99, late.p999, late.p9999),
            (
                Some(50_000.0),
                Some(90_000.0),
                Some(99_000.0),
                Some(99_900.0),
                Some(99_990.0)
            )
        );
    }

    #[test]
    fn one_interrupt_has_no_percentiles_and_none_has_no_lateness() {
        let one = ExpiryStats::of(1, vec![3.0], 3.0).lateness.unwrap();
        assert_eq!((one.mean, one.sd, one.max), (3.0, 0.0, 3.0));
        assert_eq!((one.p50, one.p9999), (None, None));
        let none = ExpiryStats::of(7, vec![], 3.0);
        assert_eq!(
            (none.lateness, none.missed(), none.too_late()),
            (None, 7, 7)
        );
    }

    proptest! {
        #[test]
        fn percentiles_are_in_order_and_counts_add_up(
            values in proptest::collection::vec(0.0f64..1e9, 1..300),
            missed in 0u64..50,
            threshold in 0.0f64..1e9,
        ) {
            let count = values.len() as u64;
            let spread = ExpiryStats::of(count + missed, values, threshold);
            prop_assert_eq!(spread.missed(), missed);
            prop_assert_eq!(spread.in_time() + spread.too_late(), spread.expiries);
            let late = spread.lateness.unwrap();
            let percentiles = [late.p50, late.p90, late.p99, late.p999, late.p9999];
            prop_assert!(percentiles.is_sorted_by(|a, b| b.is_none() || a <= b));
            let inside = |value: f64| (late.min..=late.max).contains(&value);
            prop_assert!(percentiles.into_iter().flatten().all(inside));
            prop_assert!(late.min <= late.mean && late.mean <= late.max + 1e-3);
            prop_assert_eq!(spread.above == 0, late.max <= threshold);
        }
    }
}
