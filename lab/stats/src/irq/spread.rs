//! How late interrupts were, in numbers: moments, exact percentiles, exact counts.

/// What was asked of a timer, and what came of it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spread {
    /// Expiries.
    pub expiries: u64,
    /// Expiries that had an interrupt of their own.
    pub count: u64,
    /// Interrupts that were later than the threshold.
    pub above: u64,
    /// How late interrupts were, if there were any.
    pub lateness: Option<Lateness>,
}

/// How late interrupts were. Percentiles are values that occurred (nearest rank); `None`
/// where too few interrupts are later, see [`least_count`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lateness {
    /// The mean.
    pub mean: f64,
    /// The standard deviation of a sample (divided by one less than their number).
    pub sd: f64,
    /// The least.
    pub min: f64,
    /// Half were not later.
    pub p50: Option<f64>,
    /// 90% were not later.
    pub p90: Option<f64>,
    /// 99% were not later.
    pub p99: Option<f64>,
    /// 99.9% were not later.
    pub p999: Option<f64>,
    /// 99.99% were not later.
    pub p9999: Option<f64>,
    /// The latest.
    pub max: f64,
}

impl Spread {
    /// Of so many expiries, whose interrupts were so late.
    pub(crate) fn of(expiries: u64, lateness: Vec<f64>, threshold: f64) -> Self {
        Self {
            expiries,
            count: lateness.len() as u64,
            above: lateness.iter().filter(|late| **late > threshold).count() as u64,
            lateness: Lateness::of(lateness),
        }
    }

    /// Expiries without an interrupt of their own: missed, or merged with another.
    pub fn missed(&self) -> u64 {
        self.expiries.saturating_sub(self.count)
    }

    /// Expiries that were served within the threshold.
    pub fn in_time(&self) -> u64 {
        self.count - self.above
    }

    /// Expiries that were served too late, or never for themselves.
    pub fn too_late(&self) -> u64 {
        self.above + self.missed()
    }
}

impl Lateness {
    fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        Some(Self {
            mean,
            sd: (squares / (count - 1.0).max(1.0)).sqrt(),
            min,
            p50: percentile(&values, 50_000),
            p90: percentile(&values, 90_000),
            p99: percentile(&values, 99_000),
            p999: percentile(&values, 99_900),
            p9999: percentile(&values, 99_990),
            max,
        })
    }
}

/// Probability that no sample of [`least_count`] is beyond the percentile.
const UNSEEN: f64 = 0.025;

/// Returns the least number of samples of which a percentile is shown: with fewer, its 95%
/// confidence interval from order statistics has no upper end within the sample (David and
/// Nagaraja 2003, Order Statistics, section 7.1). That are 3,688 for 99.9%.
pub fn least_count(of_100_000: usize) -> usize {
    let below = of_100_000 as f64 / 100_000.0;
    (UNSEEN.ln() / below.ln()).ceil() as usize
}

/// Returns the percentile of `sorted` by [`nearest_rank`]; `None` for fewer values than
/// [`least_count`].
pub fn percentile(sorted: &[f64], of_100_000: usize) -> Option<f64> {
    (sorted.len() >= least_count(of_100_000)).then(|| nearest_rank(sorted, of_100_000))
}

/// The smallest of `sorted` that so many of 100,000 are not above. Whole numbers: the
/// rank of the 9,999th of 10,000 must not depend on how a fraction is rounded.
pub fn nearest_rank(sorted: &[f64], of_100_000: usize) -> f64 {
    let rank = (sorted.len() * of_100_000).div_ceil(100_000);
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    #[test]
    fn figures_are_as_computed_by_hand() {
        // Mean 5, squares 9 + 1 + 1 + 1 + 0 + 0 + 4 + 16 = 32, 32 / 7 = 4.571.
        let values = vec![9.0, 2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0];
        let spread = Spread::of(10, values, 5.0);
        assert_eq!((spread.count, spread.above, spread.missed()), (8, 2, 2));
        assert_eq!((spread.in_time(), spread.too_late()), (6, 4));
        let late = spread.lateness.unwrap();
        assert_eq!((late.mean, late.min, late.max), (5.0, 2.0, 9.0));
        assert!((late.sd - 2.138).abs() < 0.001, "{}", late.sd);
        // A median takes 6 values, 90% take 36.
        assert_eq!((late.p50, late.p90), (Some(4.0), None));
    }

    #[test]
    fn percentiles_are_exact_at_their_ranks() {
        let values: Vec<f64> = (1..=100_000).map(f64::from).collect();
        let late = Spread::of(100_000, values, 99_999.0);
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
    fn percentiles_take_as_many_samples_as_their_interval_does() {
        let least = [50_000, 90_000, 99_000, 99_900, 99_990].map(least_count);
        assert_eq!(least, [6, 36, 368, 3_688, 36_887]);
        let values: Vec<f64> = (1..=368).map(f64::from).collect();
        assert_eq!(percentile(&values, 99_000), Some(365.0));
        assert_eq!(percentile(&values[1..], 99_000), None);
    }

    #[test]
    fn one_interrupt_and_none() {
        let one = Spread::of(1, vec![3.0], 3.0).lateness.unwrap();
        assert_eq!((one.mean, one.sd, one.max), (3.0, 0.0, 3.0));
        assert_eq!((one.p50, one.p9999), (None, None));
        let none = Spread::of(7, vec![], 3.0);
        assert_eq!(
            (none.lateness, none.missed(), none.too_late()),
            (None, 7, 7)
        );
    }

    proptest! {
        #[test]
        fn figures_are_in_order_and_every_expiry_is_accounted_for(
            values in proptest::collection::vec(0.0f64..1e9, 1..300),
            missed in 0u64..50,
            threshold in 0.0f64..1e9,
        ) {
            let count = values.len() as u64;
            let spread = Spread::of(count + missed, values, threshold);
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
