//! The energy statistic: how much farther apart values of two parts are than values of one
//! (Székely and Rizzo 2005; Matteson and James 2014, section 2).

/// Where a series is divided best.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Split {
    /// The first value of the second part.
    pub index: usize,
    /// `m n / (m + n)` times twice the mean distance between the parts, less the mean
    /// distances within each.
    pub energy: f64,
}

/// The split of `series` with the most energy, either part of `least` values or more.
pub fn best_split(series: &[f64], least: usize) -> Option<Split> {
    let count = series.len();
    let least = least.max(1);
    let mut sums = Sums::new(series);
    let mut best: Option<Split> = None;
    for index in 1..count {
        sums.advance(series, index - 1);
        let energy = sums.energy(index as f64, (count - index) as f64);
        let is_better = best.is_none_or(|best| energy > best.energy);
        if (least..=count.saturating_sub(least)).contains(&index) && is_better {
            best = Some(Split { index, energy });
        }
    }
    best
}

/// Sums of the distances of all pairs.
struct Sums {
    left: f64,
    right: f64,
    across: f64,
}

impl Sums {
    /// All values on the right.
    fn new(series: &[f64]) -> Self {
        let mut right = 0.0;
        for (index, one) in series.iter().enumerate() {
            right += distance(*one, &series[..index]);
        }
        Self {
            left: 0.0,
            right,
            across: 0.0,
        }
    }

    /// Moves the next value from the right to the left.
    fn advance(&mut self, series: &[f64], next: usize) {
        let to_left = distance(series[next], &series[..next]);
        let to_right = distance(series[next], &series[next + 1..]);
        self.left += to_left;
        self.right -= to_right;
        self.across += to_right - to_left;
    }

    fn energy(&self, left: f64, right: f64) -> f64 {
        let within = |sum: f64, count: f64| match count > 1.0 {
            true => sum / (count * (count - 1.0) / 2.0),
            false => 0.0,
        };
        let between = 2.0 * self.across / (left * right);
        let energy = between - within(self.left, left) - within(self.right, right);
        left * right / (left + right) * energy
    }
}

fn distance(one: f64, others: &[f64]) -> f64 {
    others.iter().map(|other| (one - other).abs()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 0, 0, 3, 3 the middle has 2 * 2 / 4 times 2 * 3: the parts have no spread.
    #[test]
    fn the_energy_is_that_of_the_definition() {
        let split = best_split(&[0.0, 0.0, 3.0, 3.0], 1).unwrap();
        assert_eq!((split.index, split.energy), (2, 6.0));
        let mut sums = Sums::new(&[0.0, 1.0, 5.0]);
        sums.advance(&[0.0, 1.0, 5.0], 0);
        // 2/3 of (2 * (1 + 5) / 2 - 0 - 4).
        assert!((sums.energy(1.0, 2.0) - 4.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn parts_are_no_shorter_than_asked() {
        assert_eq!(best_split(&[9.0, 0.0, 0.0, 0.0], 1).unwrap().index, 1);
        assert_eq!(best_split(&[9.0, 0.0, 0.0, 0.0], 2).unwrap().index, 2);
        assert_eq!(best_split(&[9.0, 0.0, 0.0], 2), None);
        assert_eq!(best_split(&[], 1), None);
    }
}
