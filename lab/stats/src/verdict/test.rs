//! Tests and intervals of one difference of logarithms.
//!
//! A test and its interval are each other's inversion: a difference lies outside the interval of level
//! `1 - alpha` exactly if its two-sided p-value is at most `alpha`. A verdict can therefore be read off
//! the interval it rests on.

/// An estimate of a difference of logarithms with a test of every possible value.
pub trait Test {
    /// Returns the estimate.
    fn estimate(&self) -> f64;
    /// Returns the probability of values this low or lower if the difference is `theta`.
    fn p_low(&self, theta: f64) -> f64;
    /// Returns the probability of values this high or higher if the difference is `theta`.
    fn p_high(&self, theta: f64) -> f64;
    /// Returns the differences whose two-sided p-value exceeds `alpha`; `None` if no difference is
    /// excluded.
    fn interval(&self, alpha: f64) -> Option<(f64, f64)>;
    /// Returns the standard deviation of one block: the standard error times the square root of the
    /// number of blocks.
    fn spread(&self) -> f64;

    /// Returns the two-sided p-value of `theta`.
    fn p(&self, theta: f64) -> f64 {
        (2.0 * self.p_low(theta).min(self.p_high(theta))).min(1.0)
    }

    /// Returns the p-value of two one-sided tests (Schuirmann 1987) against a difference of at least
    /// `margin` in either direction.
    fn p_within(&self, margin: f64) -> f64 {
        self.p_low(margin).max(self.p_high(-margin))
    }
}
