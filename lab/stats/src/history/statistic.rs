//! Test statistics for a shift of the mean in an autocorrelated series.
//!
//! The contrast of two groups of runs is the squared two-sample t statistic, multiplied by
//! (1 - phi) / (1 + phi): by that factor first-order autocorrelation phi reduces the effective
//! number of values of a mean (Bartlett 1946; Box, Jenkins and Reinsel 2008, section 2.1).
//! phi is the lag-1 autocorrelation of the residuals from the two means, so a shift does not
//! count as autocorrelation; its bias, about (1 + 3 phi) / n for each fitted mean, is
//! corrected (Kendall 1954; Marriott and Pope 1954).

/// The fewest runs at one level at either end of a series: fewer are outliers.
pub const LEAST_RUNS: usize = 3;

/// The fewest runs of a pulse.
pub const LEAST_PULSE: usize = 5;

/// The largest autocorrelation that is corrected for.
const LARGEST_PHI: f64 = 0.9;

/// The form of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One shift: the largest contrast over all split points.
    Step,
    /// A shift and the return to the level before: the largest contrast between an inner
    /// interval and the rest (circular binary segmentation: Olshen, Venkatraman, Lucito and
    /// Wigler 2004). A step test has little power against it.
    Pulse,
}

impl Shape {
    /// Every shape.
    pub const ALL: [Self; 2] = [Self::Step, Self::Pulse];
}

/// The interval of a series that differs most from the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// Its first run, from 0.
    pub from: usize,
    /// The run after its last one; of a step, the length of the series.
    pub to: usize,
    /// The corrected squared t statistic, larger for stronger shifts.
    pub statistic: f64,
}

/// Returns the interval of the given shape that differs most from the rest of `series`.
///
/// `None` if the series is too short for the shape, or if all its values are equal.
pub fn strongest(series: &[f64], shape: Shape) -> Option<Candidate> {
    let sums = Sums::new(series);
    let (from, to, _) = match shape {
        Shape::Step => sums.best_step(),
        Shape::Pulse => sums.best_pulse(),
    }?;
    let statistic = sums.statistic(series, from, to)?;
    Some(Candidate {
        from,
        to,
        statistic,
    })
}

/// Cumulative sums of a series, less its mean.
struct Sums {
    mean: f64,
    /// One more than there are values; the first is 0.
    cumulative: Vec<f64>,
}

/// First run, end, and the squared difference of means in units of its variance.
type Best = Option<(usize, usize, f64)>;

impl Sums {
    fn new(series: &[f64]) -> Self {
        let mean = series.iter().sum::<f64>() / series.len().max(1) as f64;
        let mut cumulative = Vec::with_capacity(series.len() + 1);
        cumulative.push(0.0);
        cumulative.extend(series.iter().scan(0.0, |sum, value| {
            *sum += value - mean;
            Some(*sum)
        }));
        Self { mean, cumulative }
    }

    fn count(&self) -> usize {
        self.cumulative.len() - 1
    }

    /// Returns the explained sum of squares of an interval of `length` whose values sum to `sum`.
    fn explained(&self, length: usize, sum: f64) -> f64 {
        let count = self.count();
        sum * sum * count as f64 / (length * (count - length)) as f64
    }

    fn best_step(&self) -> Best {
        let count = self.count();
        let splits = LEAST_RUNS..=count.checked_sub(LEAST_RUNS)?;
        let steps = splits.map(|at| (at, count, self.explained(at, self.cumulative[at])));
        steps.max_by(|a, b| a.2.total_cmp(&b.2))
    }

    fn best_pulse(&self) -> Best {
        let longest = self.count().checked_sub(2 * LEAST_RUNS)?;
        let pulses = (LEAST_PULSE..=longest).filter_map(|length| {
            let (from, sum) = self.largest_sum(length)?;
            Some((from, from + length, self.explained(length, sum)))
        });
        pulses.max_by(|a, b| a.2.total_cmp(&b.2))
    }

    /// Returns the start of `length` values whose sum is farthest from 0, and that distance.
    fn largest_sum(&self, length: usize) -> Option<(usize, f64)> {
        let last = self.count() - LEAST_RUNS - length;
        let starts = &self.cumulative[LEAST_RUNS..=last];
        let ends = &self.cumulative[LEAST_RUNS + length..=last + length];
        let sums = || {
            ends.iter()
                .zip(starts)
                .map(|(end, start)| (end - start).abs())
        };
        let largest = sums().fold(0.0_f64, f64::max);
        let place = sums().position(|sum| sum == largest)?;
        Some((LEAST_RUNS + place, largest))
    }

    fn statistic(&self, series: &[f64], from: usize, to: usize) -> Option<f64> {
        let (count, length) = (self.count() as f64, (to - from) as f64);
        let inside = self.cumulative[to] - self.cumulative[from];
        let (inner, outer) = (inside / length, -inside / (count - length));
        let mut previous = 0.0;
        let (mut squares, mut products) = (0.0, 0.0);
        for (at, value) in series.iter().enumerate() {
            let level = if (from..to).contains(&at) {
                inner
            } else {
                outer
            };
            let residual = value - self.mean - level;
            squares += residual * residual;
            if at != from && at != to {
                products += residual * previous;
            }
            previous = residual;
        }
        let explained = self.explained(to - from, inside);
        let phi = corrected_phi(products / squares, count);
        let statistic = explained / squares * (count - 2.0) * (1.0 - phi) / (1.0 + phi);
        match (explained > 0.0, squares > 0.0) {
            (true, false) => Some(f64::INFINITY),
            _ => Some(statistic).filter(|statistic| statistic.is_finite()),
        }
    }
}

/// Corrects a lag-1 autocorrelation of the residuals from two means for its bias.
fn corrected_phi(found: f64, count: f64) -> f64 {
    let bias = 2.0 * (1.0 + 3.0 * found.max(0.0)) / count;
    (found + bias).clamp(0.0, LARGEST_PHI)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// t is 10 / (sqrt(2/3) sqrt(1/4 + 1/4)), so t^2 = 300; the residuals -1 0 0 1 | -1 0 0 1
    /// have no products, and the bias of phi is 2/8.
    #[test]
    fn the_statistic_of_a_step_is_that_of_its_definition() {
        let series = [9.0, 10.0, 10.0, 11.0, 19.0, 20.0, 20.0, 21.0];
        let found = strongest(&series, Shape::Step).unwrap();
        assert_eq!((found.from, found.to), (4, 8));
        let expected = 300.0 * 0.75 / 1.25;
        assert!((found.statistic - expected).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_pulse_is_found_at_its_ends() {
        let series: Vec<f64> = (0..20)
            .map(|run| f64::from(run % 2) + if (7..13).contains(&run) { 5.0 } else { 0.0 })
            .collect();
        let found = strongest(&series, Shape::Pulse).unwrap();
        assert_eq!((found.from, found.to), (7, 13));
        let step = strongest(&series, Shape::Step).unwrap();
        assert!(
            step.statistic < found.statistic / 20.0,
            "{step:?} {found:?}"
        );
    }

    #[test]
    fn short_and_constant_series_have_no_candidate() {
        assert_eq!(strongest(&[1.0, 1.0, 1.0, 2.0, 2.0], Shape::Step), None);
        assert_eq!(strongest(&[5.0; 10], Shape::Step), None);
        assert_eq!(strongest(&[1.0; 10], Shape::Pulse), None);
        assert_eq!(strongest(&[], Shape::Pulse), None);
    }

    #[test]
    fn a_shift_without_noise_has_an_infinite_statistic() {
        let series = [0.0, 0.0, 0.0, 4.0, 4.0, 4.0];
        let found = strongest(&series, Shape::Step).unwrap();
        assert_eq!((found.from, found.statistic), (3, f64::INFINITY));
    }

    #[test]
    fn autocorrelation_lowers_the_statistic() {
        let noise = [-3.0, -2.0, -1.0, 1.0, 2.0, 3.0];
        let shuffled = [-3.0, 3.0, -2.0, 2.0, -1.0, 1.0];
        let with = |noise: [f64; 6]| {
            let both = noise.into_iter().chain(noise.map(|value| value + 20.0));
            let series: Vec<f64> = both.collect();
            strongest(&series, Shape::Step).unwrap().statistic
        };
        assert!(with(noise) < with(shuffled) / 2.0);
    }
}
