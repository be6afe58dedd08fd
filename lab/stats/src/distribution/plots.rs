//! Data of plots: a histogram, and the share of values up to each (the empirical
//! distribution function). Both count every value.

use super::quantiles::quantile;

/// The most bins that a plot can show.
const MOST_BINS: usize = 200;

/// The most steps of the empirical distribution function.
const MOST_STEPS: usize = 500;

/// Bins of equal width, by the rule of Freedman and Diaconis (1981): twice the interquartile
/// range by the cube root of the number of values. Where a tail is longer than 200 such
/// bins they lie around the median, and what is outside is counted apart.
#[derive(Clone, Debug, PartialEq)]
pub struct Histogram {
    /// Where the first bin begins.
    pub from: f64,
    /// How wide each is. 0 if all values are the same.
    pub width: f64,
    /// How many values are in each.
    pub counts: Vec<usize>,
    /// How many are below the first.
    pub below: usize,
    /// How many are above the last.
    pub above: usize,
}

/// The histogram of `sorted` values, of which there is at least one.
pub fn histogram(sorted: &[f64]) -> Histogram {
    let (first, last) = (sorted[0], sorted[sorted.len() - 1]);
    let range = last - first;
    let quartiles = quantile(sorted, 0.75) - quantile(sorted, 0.25);
    let rule = 2.0 * quartiles / (sorted.len() as f64).cbrt();
    // Where half of all values are the same the rule gives nothing.
    let width = rule.max(range * 1e-6);
    let bins = (range / width) as usize + 1;
    let from = match bins <= MOST_BINS {
        true => first,
        false => first.max(quantile(sorted, 0.5) - MOST_BINS as f64 / 2.0 * width),
    };
    let mut histogram = Histogram {
        from,
        width,
        counts: vec![0; if range > 0.0 { bins.min(MOST_BINS) } else { 1 }],
        below: 0,
        above: 0,
    };
    sorted.iter().for_each(|value| histogram.count(*value));
    histogram
}

impl Histogram {
    fn count(&mut self, value: f64) {
        if value < self.from {
            self.below += 1;
        } else {
            let bin = if self.width > 0.0 {
                ((value - self.from) / self.width) as usize
            } else {
                0
            };
            match self.counts.get_mut(bin) {
                Some(count) => *count += 1,
                None => self.above += 1,
            }
        }
    }
}

/// Values, each with the share of all that are not above it, in ascending order: the first,
/// the last, and of many values as many in between as a plot can show, evenly by rank.
pub fn cumulative(sorted: &[f64]) -> Vec<(f64, f64)> {
    let count = sorted.len();
    let steps = count.min(MOST_STEPS);
    let rank = |step: usize| match steps {
        0 | 1 => 0,
        _ => step * (count - 1) / (steps - 1),
    };
    let shown = (0..steps).map(|step| sorted[rank(step)]);
    let mut points: Vec<(f64, f64)> = shown
        .map(|value| {
            let not_above = sorted.partition_point(|one| *one <= value);
            (value, not_above as f64 / count as f64)
        })
        .collect();
    points.dedup();
    points
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::{prop_assert, prop_assert_eq, proptest};

    #[test]
    fn bins_follow_the_rule() {
        let sorted: Vec<f64> = (0..1000).map(f64::from).collect();
        let histogram = histogram(&sorted);
        assert!(
            (histogram.width - 100.0).abs() < 1.0,
            "2 * 500 / 10: {histogram:?}"
        );
        assert_eq!(
            (histogram.from, histogram.below, histogram.above),
            (0.0, 0, 0)
        );
        let same = super::histogram(&[3.0; 9]);
        assert_eq!((same.width, same.counts), (0.0, vec![9]));
    }

    #[test]
    fn a_long_tail_is_counted_apart() {
        let mut sorted: Vec<f64> = (0..1000).map(f64::from).collect();
        sorted.extend([1e6, 1e7]);
        let histogram = histogram(&sorted);
        assert_eq!((histogram.below, histogram.above), (0, 2));
        assert_eq!(histogram.counts.len(), 200);
    }

    proptest! {
        #[test]
        fn every_value_is_counted_once(
            mut values in proptest::collection::vec(-1e3f64..1e9, 1..900),
        ) {
            values.sort_by(f64::total_cmp);
            let histogram = histogram(&values);
            let inside: usize = histogram.counts.iter().sum();
            prop_assert_eq!(inside + histogram.below + histogram.above, values.len());
            let points = cumulative(&values);
            prop_assert!(points.len() <= 500);
            prop_assert_eq!(points[0].0, values[0]);
            prop_assert_eq!(points[points.len() - 1], (values[values.len() - 1], 1.0));
            prop_assert!(points.is_sorted_by(|one, next| one.0 < next.0 && one.1 < next.1));
        }
    }
}
