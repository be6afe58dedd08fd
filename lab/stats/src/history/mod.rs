//! Where a series of runs shifted.
//!
//! Divisive estimation with the energy statistic (E-divisive: Matteson and James 2014) in
//! overlapping windows, each candidate judged by Student's t-test, as Hunter does
//! (Fleming, Kołaczkowski, Kumar, Das, McCarthy, Pattabhi and Ingo 2023, "Hunter: Using Change
//! Point Detection to Hunt for Performance Regressions"). Windows keep an old shift from
//! hiding a new one, and a point that was found from moving when the series grows. Without
//! chance: the same series has the same points. It looks back; it is no gate.

mod energy;
mod past;
mod student;

pub use past::{Entry, Moment, Past, Series, Shift};

use energy::best_split;
use student::p_value;
use trapline_plan::Clock;

/// The fewest runs between two points: one run alone is an outlier, not a shift.
pub const LEAST_RUNS: usize = 2;

/// By how much more willingly points are taken at first than kept in the end.
const WEAK: f64 = 10.0;

/// What counts as a shift.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// Runs that are looked at together.
    pub window: usize,
    /// The largest probability of the t-test.
    pub alpha: f64,
    /// What is too little to be told, as a share: 0.01 is one percent. On an exact clock one
    /// digit is enough.
    pub least_change: f64,
}

impl Default for Settings {
    /// Those of Hunter.
    fn default() -> Self {
        Self {
            window: 50,
            alpha: 0.001,
            least_change: 0.0,
        }
    }
}

/// Where a series shifted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The first run of the new level, from 0.
    pub index: usize,
    /// The mean of the runs since the point before.
    pub before: f64,
    /// The mean of the runs until the next point.
    pub after: f64,
    /// `after` by `before`.
    pub change: f64,
    /// How probable runs that differ so much are if nothing shifted here: Student's t-test. It
    /// was looked for where the difference is largest, so it is smaller than it
    /// should be. None on an exact clock.
    pub p: Option<f64>,
}

/// The points of a series of figures, one a run, in order of time. Figures that are not
/// finite have no place in it.
pub fn change_points(series: &[f64], clock: Clock, settings: &Settings) -> Vec<ChangePoint> {
    match clock.is_exact() {
        true => digits(series),
        false => Search { series, settings }.points(),
    }
}

/// On an exact clock every change of a digit is one.
fn digits(series: &[f64]) -> Vec<ChangePoint> {
    let pairs = series.windows(2).zip(1..);
    let changed = pairs.filter(|(pair, _)| !crate::judge::same_digits(pair[0], pair[1]));
    changed
        .map(|(pair, index)| ChangePoint {
            index,
            before: pair[0],
            after: pair[1],
            change: pair[1] / pair[0],
            p: None,
        })
        .collect()
}

struct Search<'a> {
    series: &'a [f64],
    settings: &'a Settings,
}

impl Search<'_> {
    fn points(&self) -> Vec<ChangePoint> {
        let mut points = self.weak();
        loop {
            let judged = self.judged(&points);
            let weakest = judged.iter().enumerate().max_by(|(_, a), (_, b)| {
                let p = |point: &ChangePoint| point.p.unwrap_or(0.0);
                let smaller = size(a).total_cmp(&size(b)).reverse();
                p(a).total_cmp(&p(b)).then(smaller)
            });
            match weakest {
                Some((place, point)) if point.p.is_some_and(|p| p > self.settings.alpha) => {
                    points.remove(place);
                }
                _ => return self.large_enough(points),
            }
        }
    }

    /// Takes the least away until all are large enough.
    fn large_enough(&self, mut points: Vec<usize>) -> Vec<ChangePoint> {
        loop {
            let judged = self.judged(&points);
            let least = judged.iter().enumerate();
            let least = least.min_by(|(_, a), (_, b)| size(a).total_cmp(&size(b)));
            match least {
                Some((place, point)) if size(point) < self.settings.least_change.ln_1p() => {
                    points.remove(place);
                }
                _ => return judged,
            }
        }
    }

    /// Points of all windows that a weak test takes.
    fn weak(&self) -> Vec<usize> {
        let window = self.settings.window.max(2 * LEAST_RUNS);
        let mut points: Vec<usize> = Vec::new();
        let mut start = 0;
        while start < self.series.len() {
            let end = (start + window).min(self.series.len());
            let found = self.divide(start, end);
            // The next window begins behind what was found, or overlaps by half.
            start = found.last().copied().unwrap_or(0).max(start + window / 2);
            points.extend(found);
        }
        points.sort_unstable();
        points.dedup();
        points
    }

    /// Divides one window where its parts differ most, as long as they do.
    fn divide(&self, start: usize, end: usize) -> Vec<usize> {
        let mut ends = vec![start, end];
        loop {
            let parts = ends.windows(2);
            let candidates = parts.filter_map(|part| {
                let split = best_split(&self.series[part[0]..part[1]], LEAST_RUNS)?;
                Some((part[0], part[0] + split.index, part[1], split.energy))
            });
            let best = candidates.max_by(|a, b| a.3.total_cmp(&b.3));
            match best {
                Some((from, point, to, _)) if self.is_weak(from, point, to) => {
                    ends.push(point);
                    ends.sort_unstable();
                }
                _ => return ends[1..ends.len() - 1].to_vec(),
            }
        }
    }

    fn is_weak(&self, from: usize, point: usize, to: usize) -> bool {
        let p = p_value(&self.series[from..point], &self.series[point..to]);
        p <= (WEAK * self.settings.alpha).min(0.5)
    }

    /// Each point, by the runs up to its neighbours.
    fn judged(&self, points: &[usize]) -> Vec<ChangePoint> {
        let from = std::iter::once(0).chain(points.iter().copied());
        let to = points.iter().skip(1).copied().chain([self.series.len()]);
        let around = from.zip(points).zip(to);
        around
            .map(|((from, index), to)| self.judge(from, *index, to))
            .collect()
    }

    fn judge(&self, from: usize, index: usize, to: usize) -> ChangePoint {
        let (old, new) = (&self.series[from..index], &self.series[index..to]);
        let (before, after) = (mean(old), mean(new));
        ChangePoint {
            index,
            before,
            after,
            change: after / before,
            p: Some(p_value(old, new)),
        }
    }
}

/// How large a change is, up or down.
fn size(point: &ChangePoint) -> f64 {
    point.change.ln().abs()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spread::chance;
    use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest, ProptestConfig};
    use rand::Rng;

    fn found(series: &[f64]) -> Vec<usize> {
        let points = change_points(series, Clock::Wall, &Settings::default());
        points.iter().map(|point| point.index).collect()
    }

    /// The two series of Hunter's own tests.
    #[test]
    fn it_finds_what_hunter_finds() {
        let first = [
            1.02, 0.95, 0.99, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55,
        ];
        let second = [
            2.02, 2.03, 2.01, 2.04, 1.82, 1.85, 1.79, 1.81, 1.80, 1.76, 1.78,
        ];
        assert_eq!(found(&first), [6]);
        assert_eq!(found(&second), [4]);
        let point = change_points(&first, Clock::Wall, &Settings::default())[0];
        assert!((point.before - 5.98 / 6.0).abs() < 1e-12 && (point.after - 0.504).abs() < 1e-12);
        assert!(point.p.unwrap() < 1e-5, "{point:?}");
    }

    fn noisy(levels: &[(usize, f64)], noise: f64, seed: u64) -> Vec<f64> {
        let mut nature = chance(seed, 0);
        let runs = levels.iter().flat_map(|(runs, level)| vec![*level; *runs]);
        runs.map(|level| level * (1.0 + noise * (nature.random::<f64>() - 0.5)))
            .collect()
    }

    #[test]
    fn several_shifts_over_many_windows_are_all_found() {
        let series = noisy(&[(40, 100.0), (30, 105.0), (60, 99.0), (5, 120.0)], 0.02, 1);
        assert_eq!(found(&series), [40, 70, 130]);
        let settings = Settings {
            least_change: 0.1,
            ..Settings::default()
        };
        let large = change_points(&series, Clock::Wall, &settings);
        assert_eq!(
            large.iter().map(|point| point.index).collect::<Vec<_>>(),
            [130]
        );
    }

    #[test]
    fn what_was_found_stays_when_the_series_grows() {
        let series = noisy(&[(30, 100.0), (100, 106.0)], 0.02, 2);
        for length in [36, 50, 75, 100, 130] {
            assert_eq!(found(&series[..length]), [30], "{length} runs");
        }
    }

    #[test]
    fn one_outlier_is_no_shift() {
        let mut series = noisy(&[(40, 100.0)], 0.02, 3);
        series[20] = 150.0;
        assert!(found(&series).is_empty());
        series[39] = 150.0;
        assert!(found(&series).is_empty());
        assert!(found(&[]).is_empty());
        assert!(found(&[1.0, 2.0]).is_empty());
    }

    /// The t-test is made where the difference is largest, so more than one in a thousand
    /// series without a shift shows one; docs/method.md has the figures.
    #[test]
    fn series_without_a_shift_rarely_show_one() {
        let shows = |seed: &u64| !found(&noisy(&[(60, 100.0)], 0.1, *seed)).is_empty();
        let wrong = (0..200).filter(shows).count();
        assert!(wrong <= 10, "{wrong} of 200");
    }

    #[test]
    fn on_an_exact_clock_one_digit_is_a_change() {
        let series = [7573.0, 7573.0, 7574.0, 7574.0, 7573.0];
        let points = change_points(&series, Clock::Insn, &Settings::default());
        let told: Vec<_> = points
            .iter()
            .map(|p| (p.index, p.before, p.after, p.p))
            .collect();
        assert_eq!(told, [(2, 7573.0, 7574.0, None), (4, 7574.0, 7573.0, None)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        #[test]
        fn points_do_not_depend_on_the_unit(
            before in 3..40_usize,
            after in 3..40_usize,
            seed in any::<u64>(),
        ) {
            let series = noisy(&[(before, 100.0), (after, 130.0)], 0.1, seed);
            let scaled: Vec<f64> = series.iter().map(|value| value * 1024.0).collect();
            let points = found(&series);
            prop_assert_eq!(&points, &found(&scaled));
            prop_assert!(points.is_sorted() && points.iter().all(|point| *point < series.len()));
        }
    }
}
