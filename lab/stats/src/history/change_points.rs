//! Change points of the series of a store.

use super::critical::{p_value, CRITICAL_LENGTHS};
use super::statistic::{strongest, Candidate, Shape};
use super::Settings;
use crate::sorted::mean;
use crate::verdict::{focused_q_values, same_digits};

/// The fewest runs of a series on the wall clock that is tested.
pub const FEWEST_TESTED: usize = CRITICAL_LENGTHS[0];

/// The most runs that are tested together. A longer series is tested in windows of this
/// length that overlap by half.
const WINDOW: usize = CRITICAL_LENGTHS[CRITICAL_LENGTHS.len() - 1];

/// A shift of the level of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The first run of the new level, from 0.
    pub index: usize,
    /// The mean of the runs since the previous point; on an exact clock the figure before.
    pub before: f64,
    /// The mean of the runs until the next point; on an exact clock the new figure.
    pub after: f64,
    /// `after` divided by `before`.
    pub change: f64,
    /// The p-value, corrected for all series of the store: the smallest false discovery rate
    /// at which the shift is reported. `None` on an exact clock.
    pub p: Option<f64>,
}

/// Returns the change points of each series of `store`, wall-clock figures in order of time.
///
/// The p-values of the series are corrected together (Benjamini and Hochberg 1995). A series
/// that is reported is divided at its shift (binary segmentation), and its parts are tested at
/// the level of the store times the share of series that are reported, which keeps that level
/// on average over these (Benjamini and Bogomolov 2014). Series of fewer than
/// [`FEWEST_TESTED`] runs have no change points.
pub fn change_points(store: &[Vec<f64>], settings: &Settings) -> Vec<Vec<ChangePoint>> {
    let p: Vec<Option<f64>> = store.iter().map(|series| series_p(series)).collect();
    let tested: Vec<f64> = p.iter().copied().flatten().collect();
    let every = vec![true; tested.len()];
    let mut q = focused_q_values(&tested, &every).into_iter().flatten();
    let q: Vec<Option<f64>> = p.iter().map(|p| p.and_then(|_| q.next())).collect();
    let is_reported = |q: &Option<f64>| q.is_some_and(|q| q <= settings.level);
    let reported = q.iter().filter(|q| is_reported(q)).count();
    let share = reported as f64 / tested.len().max(1) as f64;
    let points = store.iter().zip(q).map(|(series, q)| match q {
        Some(q) if is_reported(&Some(q)) => {
            let mut points = divide(series, settings.level * share);
            for (_, p) in &mut points {
                *p = (*p / share).max(q);
            }
            large_enough(series, points, settings.least_change)
        }
        _ => Vec::new(),
    });
    points.collect()
}

/// Returns every change of a digit of a series on an exact clock. A run without a figure is
/// passed over: the figure after it is compared with that before it.
pub fn exact_change_points(series: &[Option<f64>]) -> Vec<ChangePoint> {
    let figures = series.iter().enumerate();
    let figures: Vec<(usize, f64)> = figures
        .filter_map(|(index, figure)| Some((index, (*figure)?)))
        .collect();
    let steps = figures.windows(2).map(|pair| (pair[0].1, pair[1]));
    let changed = steps.filter(|(before, (_, after))| !same_digits(*before, *after));
    changed
        .map(|(before, (index, after))| ChangePoint {
            index,
            before,
            after,
            change: after / before,
            p: None,
        })
        .collect()
}

/// Returns the p-value of the strongest shift of a series, corrected for the tests of the series; `None`
/// if it is too short to be tested.
fn series_p(series: &[f64]) -> Option<f64> {
    let best = Shape::ALL.map(|shape| best(series, shape));
    let p = best.into_iter().flatten().map(|(p, _)| p);
    let least = p.fold(1.0, f64::min);
    (series.len() >= FEWEST_TESTED).then_some(least)
}

/// Returns the candidate with the smallest p-value over all windows, its runs counted from the start of
/// the series. The p-value is multiplied by the number of tests (Bonferroni).
fn best(series: &[f64], shape: Shape) -> Option<(f64, Candidate)> {
    let windows = windows(series.len());
    let candidates = windows.iter().filter_map(|start| {
        let window = &series[*start..series.len().min(start + WINDOW)];
        let found = strongest(window, shape)?;
        let p = p_value(shape, window.len(), found.statistic)?;
        let moved = Candidate {
            from: start + found.from,
            to: start + found.to,
            ..found
        };
        Some((p, moved))
    });
    let (p, candidate) = candidates.max_by(|(p, one), (p2, other)| {
        let stronger = one.statistic.total_cmp(&other.statistic);
        p2.total_cmp(p).then(stronger)
    })?;
    Some((p * tests(series.len()) as f64, candidate))
}

/// Returns the first runs of the windows of a series.
fn windows(runs: usize) -> Vec<usize> {
    let last = runs.saturating_sub(WINDOW);
    let mut starts: Vec<usize> = (0..last).step_by(WINDOW / 2).collect();
    starts.push(last);
    starts
}

/// Returns the number of tests of a series.
fn tests(runs: usize) -> usize {
    let window = runs.min(WINDOW);
    let shapes = Shape::ALL.into_iter();
    let shapes = shapes.filter(|shape| p_value(*shape, window, 0.0).is_some());
    windows(runs).len() * shapes.count()
}

/// Returns the change points of a series, in order, each with the p-value of its test.
fn divide(series: &[f64], level: f64) -> Vec<(usize, f64)> {
    let Some((p, ends)) = significant(series, level) else {
        return Vec::new();
    };
    let mut points: Vec<(usize, f64)> = ends.iter().map(|end| (*end, p)).collect();
    let starts = std::iter::once(0).chain(ends.iter().copied());
    let parts = starts.zip(ends.iter().copied().chain([series.len()]));
    for (start, end) in parts {
        let inner = divide(&series[start..end], level).into_iter();
        points.extend(inner.map(|(index, p)| (start + index, p)));
    }
    points.sort_by_key(|(index, _)| *index);
    points
}

/// Returns the p-value and the change points of the strongest significant shift. A pulse counts only if
/// no step is significant: at a step, the end of the best pulse is noise.
fn significant(series: &[f64], level: f64) -> Option<(f64, Vec<usize>)> {
    Shape::ALL.into_iter().find_map(|shape| {
        let (p, found) = best(series, shape).filter(|(p, _)| *p <= level)?;
        Some(match shape {
            Shape::Step => (p, vec![found.from]),
            Shape::Pulse => (p, vec![found.from, found.to]),
        })
    })
}

/// Removes change points whose change is too small, the smallest first.
fn large_enough(series: &[f64], mut points: Vec<(usize, f64)>, least: f64) -> Vec<ChangePoint> {
    loop {
        let found = levels(series, &points);
        let sizes = found
            .iter()
            .map(|point| point.change.ln().abs())
            .enumerate();
        match sizes.min_by(|(_, a), (_, b)| a.total_cmp(b)) {
            Some((place, size)) if size < least.ln_1p() => points.remove(place),
            _ => return found,
        };
    }
}

/// Returns the points with the levels before and after each.
fn levels(series: &[f64], points: &[(usize, f64)]) -> Vec<ChangePoint> {
    let indices = || points.iter().map(|(index, _)| *index);
    let starts = std::iter::once(0).chain(indices());
    let ends = indices().skip(1).chain([series.len()]);
    let parts = starts.zip(points).zip(ends);
    parts
        .map(|((start, (index, p)), end)| {
            let (before, after) = (mean(&series[start..*index]), mean(&series[*index..end]));
            ChangePoint {
                index: *index,
                before,
                after,
                change: after / before,
                p: Some(*p),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests;
