//! The trimmed mean and its standard error (Yuen 1974; Wilcox 2017, section 3.3).

/// Share of values trimmed at either end: one of 7 to 13, two of 14 to 19.
const TRIMMED: f64 = 0.15;

/// A trimmed mean, or a difference of two, with the square of its standard error.
#[derive(Clone, Copy)]
pub struct TrimmedMean {
    pub center: f64,
    pub variance: f64,
}

impl TrimmedMean {
    pub fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        trimmed(&sorted)
    }

    /// Returns the standard deviation of one value that corresponds to the standard error of `count`.
    pub fn spread(self, count: usize) -> f64 {
        (self.variance * count as f64).sqrt()
    }

    pub fn scaled(self, factor: f64) -> Self {
        Self {
            center: self.center * factor,
            variance: self.variance * factor * factor,
        }
    }

    /// Returns the difference to an independent estimate.
    pub fn less(self, other: Self) -> Self {
        Self {
            center: self.center - other.center,
            variance: self.variance + other.variance,
        }
    }

    /// Returns the distance from 0 in standard errors.
    pub fn deviation(self) -> f64 {
        self.center.abs() / self.variance.sqrt()
    }
}

/// Returns the trimmed mean of `sorted` values. The square of its standard error is the sum of squares,
/// each trimmed value moved to the nearest that stays, divided by `h (h - 1)` for the `h` that stay.
pub fn trimmed(sorted: &[f64]) -> TrimmedMean {
    let cut = (TRIMMED * sorted.len() as f64) as usize;
    let kept = &sorted[cut..sorted.len() - cut];
    let (first, last) = (kept[0], kept[kept.len() - 1]);
    let staying = kept.len() as f64;
    let total: f64 = kept.iter().sum();
    let middle = (total + cut as f64 * (first + last)) / sorted.len() as f64;
    let square = |value: f64| (value - middle).powi(2);
    let squares: f64 = kept.iter().map(|value| square(*value)).sum();
    let squares = squares + cut as f64 * (square(first) + square(last));
    TrimmedMean {
        center: total / staying,
        variance: squares / (staying * (staying - 1.0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 19 times of a study of self-awareness (Wilcox 2017, section 3.2.6), of which two are trimmed at
    /// either end.
    #[test]
    fn a_trimmed_mean_and_its_error_follow_the_definition() {
        let times = [
            77.0, 87.0, 88.0, 114.0, 151.0, 210.0, 219.0, 246.0, 253.0, 262.0, 296.0, 299.0, 306.0,
            376.0, 428.0, 515.0, 666.0, 1310.0, 2611.0,
        ];
        let mut moved = times;
        (moved[0], moved[1], moved[17], moved[18]) = (88.0, 88.0, 666.0, 666.0);
        let mean = moved.iter().sum::<f64>() / 19.0;
        let squares: f64 = moved.iter().map(|time| (time - mean).powi(2)).sum();
        let estimate = trimmed(&times);
        assert!(
            (estimate.center - 4429.0 / 15.0).abs() < 1e-9,
            "{}",
            estimate.center
        );
        assert!((estimate.variance - squares / (15.0 * 14.0)).abs() < 1e-9);
    }
}
