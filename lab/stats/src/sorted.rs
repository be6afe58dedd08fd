//! Means, and sorted values with their median and percentiles.

/// Values in ascending order, at least one, all finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Sorted(Vec<f64>);

impl Sorted {
    /// Sorts the values; `None` if there is none.
    pub fn new(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        (!values.is_empty()).then_some(Self(values))
    }

    /// Returns the middle value, or the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        let half = self.0.len() / 2;
        match self.0.len() % 2 {
            1 => self.0[half],
            _ => f64::midpoint(self.0[half - 1], self.0[half]),
        }
    }

    /// Returns the mean.
    pub fn mean(&self) -> f64 {
        mean(&self.0)
    }

    /// Returns the smallest value that at least `of_100_000` of 100,000 are not above (nearest rank). The share is an
    /// integer so that no rank depends on the rounding of a fraction.
    pub fn nearest_rank(&self, of_100_000: usize) -> f64 {
        let rank = (self.0.len() * of_100_000).div_ceil(100_000);
        self.0[rank.clamp(1, self.0.len()) - 1]
    }

    /// Returns the percentile by [`Self::nearest_rank`]; `None` for fewer values than [`least_count`].
    pub fn percentile(&self, of_100_000: usize) -> Option<f64> {
        (self.0.len() >= least_count(of_100_000)).then(|| self.nearest_rank(of_100_000))
    }

    /// Returns the smallest value.
    pub fn min(&self) -> f64 {
        self.0[0]
    }

    /// Returns the largest value.
    pub fn max(&self) -> f64 {
        self.0[self.0.len() - 1]
    }

    /// Returns the values in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }

    /// Returns the number of values.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

/// Probability that none of [`least_count`] samples is beyond the percentile.
const UNSEEN: f64 = 0.025;

/// Returns the smallest number of samples with which a percentile is shown: with fewer, its 95%
/// confidence interval from order statistics has no upper end within the sample (David and Nagaraja
/// 2003, Order Statistics, section 7.1). For 99.9% that is 3,688.
pub fn least_count(of_100_000: usize) -> usize {
    let below = of_100_000 as f64 / 100_000.0;
    (UNSEEN.ln() / below.ln()).ceil() as usize
}

/// Returns the mean of at least one value.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the sum of the squared deviations of values from their mean.
pub fn squared_deviations(values: &[f64]) -> f64 {
    let mean = mean(values);
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Returns the sample variance; 0 for a single value.
pub fn variance(values: &[f64]) -> f64 {
    match values.len() {
        0 | 1 => 0.0,
        count => squared_deviations(values) / (count - 1) as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_observed_values() {
        let sorted = Sorted::new((1..=200).map(f64::from).collect()).unwrap();
        assert_eq!(sorted.median(), 100.5);
        assert_eq!(sorted.percentile(50_000), Some(100.0));
        assert_eq!(sorted.percentile(90_000), Some(180.0));
        assert_eq!(sorted.nearest_rank(99_000), 198.0);
        assert_eq!((sorted.min(), sorted.max()), (1.0, 200.0));
        assert_eq!(Sorted::new(vec![3.0, 1.0, 2.0]).unwrap().median(), 2.0);
        assert_eq!(Sorted::new(vec![]), None);
    }

    #[test]
    fn percentiles_need_the_samples_of_their_interval() {
        let least = [50_000, 90_000, 99_000, 99_900, 99_990].map(least_count);
        assert_eq!(least, [6, 36, 368, 3_688, 36_887]);
        let values: Vec<f64> = (1..=368).map(f64::from).collect();
        let of = |values: &[f64]| Sorted::new(values.to_vec()).unwrap().percentile(99_000);
        assert_eq!(of(&values), Some(365.0));
        assert_eq!(of(&values[1..]), None);
    }
}
