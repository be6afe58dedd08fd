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

    /// Returns the smallest value that at least `share` (0 to 1) of all are not above (nearest rank).
    pub fn percentile(&self, share: f64) -> f64 {
        let rank = (share * self.0.len() as f64).ceil() as usize;
        self.0[rank.clamp(1, self.0.len()) - 1]
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

/// Returns the mean of at least one value.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_observed_values() {
        let sorted = Sorted::new((1..=200).map(f64::from).collect()).unwrap();
        assert_eq!(sorted.median(), 100.5);
        assert_eq!(sorted.percentile(0.5), 100.0);
        assert_eq!(sorted.percentile(0.9), 180.0);
        assert_eq!(sorted.percentile(0.99), 198.0);
        assert_eq!((sorted.min(), sorted.max()), (1.0, 200.0));
        assert_eq!(Sorted::new(vec![3.0, 1.0, 2.0]).unwrap().median(), 2.0);
        assert_eq!(Sorted::new(vec![]), None);
    }
}
