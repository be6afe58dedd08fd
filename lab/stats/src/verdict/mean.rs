//! Student's and Welch's t-tests of the mean, without trimming.
//!
//! The trimmed mean, on which the verdict *changed* rests, ignores a tail: of 20 blocks, three that are 65%
//! slower change neither it nor its standard error. The plain mean shows them, so *equivalent* needs both
//! within the margin. For few boots of two separate runs, Welch's test guards the rank sum test, which
//! assumes equal spreads.

use super::data::Data;
use super::test::Test;
use crate::sorted::{mean, variance};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// The mean of differences of logarithms, or the difference of two means, with its standard error.
#[derive(Clone, Copy, Debug)]
pub struct TTest {
    estimate: f64,
    /// Standard error of the estimate; 0 if all values agree.
    error: f64,
    /// Degrees of freedom; 0 for a single value.
    freedom: f64,
    /// The smaller number of values.
    count: usize,
}

impl TTest {
    /// Returns the mean of `data`: of differences as in Student's (1908) paired test; of two sides
    /// as in Welch's (1947), with the degrees of freedom of Satterthwaite (1946).
    pub fn of(data: &Data) -> Self {
        match data {
            Data::Differences(values) => Self::of_values(values),
            Data::Independent { a, b } => Self::of_values(b).minus(Self::of_values(a)),
        }
    }

    fn of_values(values: &[f64]) -> Self {
        let count = values.len() as f64;
        Self {
            estimate: mean(values),
            error: (variance(values) / count).sqrt(),
            freedom: count - 1.0,
            count: values.len(),
        }
    }

    fn minus(self, other: Self) -> Self {
        let variance = self.error.powi(2) + other.error.powi(2);
        let share = |of: Self| of.error.powi(4) / of.freedom.max(1.0);
        let freedom = if variance > 0.0 {
            variance.powi(2) / (share(self) + share(other))
        } else {
            self.freedom.min(other.freedom)
        };
        Self {
            estimate: self.estimate - other.estimate,
            error: variance.sqrt(),
            freedom,
            count: self.count.min(other.count),
        }
    }

    /// Returns the probability of a mean this high or higher if the true one is `theta`.
    fn upper_tail(self, theta: f64) -> f64 {
        let distance = self.estimate - theta;
        match StudentsT::new(0.0, 1.0, self.freedom) {
            Ok(student) if self.error > 0.0 => student.sf(distance / self.error),
            Ok(_) if distance > 0.0 => 0.0,
            // One value has no spread; equal values at `theta` do not contradict it.
            _ => 1.0,
        }
    }

    fn mirrored(self) -> Self {
        Self {
            estimate: -self.estimate,
            ..self
        }
    }
}

impl Test for TTest {
    fn estimate(&self) -> f64 {
        self.estimate
    }

    fn p_low(&self, theta: f64) -> f64 {
        self.mirrored().upper_tail(-theta)
    }

    fn p_high(&self, theta: f64) -> f64 {
        self.upper_tail(theta)
    }

    fn interval(&self, alpha: f64) -> Option<(f64, f64)> {
        let student = StudentsT::new(0.0, 1.0, self.freedom).ok()?;
        let reach = student.inverse_cdf(1.0 - alpha / 2.0) * self.error;
        Some((self.estimate - reach, self.estimate + reach))
    }

    fn spread(&self) -> f64 {
        self.error * (self.count as f64).sqrt()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Student's (1908) additional hours of sleep: paired t = 4.0621 with 9 degrees of freedom,
    /// p = 0.00283; unpaired (Welch) t = 1.8608 with 17.776, p = 0.0794.
    #[test]
    fn students_sleep_data_give_the_published_tests() {
        let a = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0];
        let b = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4];
        let differences = a.iter().zip(&b).map(|(a, b)| b - a).collect();
        let paired = TTest::of(&Data::Differences(differences));
        assert!((paired.p(0.0) - 0.002833).abs() < 1e-6, "{}", paired.p(0.0));
        let unpaired = TTest::of(&Data::Independent {
            a: a.to_vec(),
            b: b.to_vec(),
        });
        assert!((unpaired.freedom - 17.776).abs() < 1e-3, "{unpaired:?}");
        let p = unpaired.p(0.0);
        assert!((p - 0.079394).abs() < 1e-6, "{p}");
        let (low, high) = unpaired.interval(0.079394).unwrap();
        assert!(
            low.abs() < 1e-4 && (high - 3.16).abs() < 1e-3,
            "{low} {high}"
        );
    }

    #[test]
    fn one_value_is_never_significant_and_equal_values_always() {
        let one = TTest::of(&Data::Differences(vec![0.5]));
        assert_eq!((one.p(0.0), one.interval(0.05)), (1.0, None));
        let same = TTest::of(&Data::Differences(vec![0.5; 4]));
        assert_eq!((same.p_high(0.0), same.p_low(0.0)), (0.0, 1.0));
        assert_eq!(same.p(0.5), 1.0);
        assert_eq!(same.p_within(0.6), 0.0);
    }
}
