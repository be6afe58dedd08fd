//! Shifts of all series of a store, with the facts that changed at each.

use super::series::{Entry, Facts, RunTime, Series};
use super::{
    change_points, exact_change_points, pattern, ChangePoint, Pattern, Settings, FEWEST_TESTED,
};

/// A shift of a series.
#[derive(Clone, Debug, PartialEq)]
pub struct Shift {
    /// Its place and size.
    pub point: ChangePoint,
    /// The first run of the new level.
    pub moment: RunTime,
    /// The facts that changed with it: name, before, after.
    pub changed: Vec<(String, String, String)>,
}

/// A series with its shifts.
#[derive(Clone, Debug, PartialEq)]
pub struct Screened {
    /// The series.
    pub series: Series,
    /// Its shifts, in order of time.
    pub shifts: Vec<Shift>,
    /// A pattern of the host in it, on the wall clock.
    pub pattern: Option<Pattern>,
}

/// All series of a store with their shifts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Screening {
    /// The series, in the order given.
    pub series: Vec<Screened>,
    /// The false discovery rate over the series of the wall clock.
    pub level: f64,
    /// The number of series of the wall clock that were tested: p-values are corrected for
    /// these.
    pub tested: usize,
    /// The number of series of the wall clock with too few runs to be tested.
    pub too_short: usize,
}

/// Finds the shifts of all series of a store.
pub fn screen(all: Vec<Series>, settings: &Settings) -> Screening {
    let is_exact = |series: &Series| series.clock().is_exact();
    let wall: Vec<Vec<f64>> = all
        .iter()
        .filter(|series| !is_exact(series))
        .map(|series| figures(series).into_iter().flatten().collect())
        .collect();
    let tested = wall.iter().filter(|series| series.len() >= FEWEST_TESTED);
    let (tested, count) = (tested.count(), wall.len());
    let mut noisy = change_points(&wall, settings).into_iter();
    let series = all.into_iter().map(|series| {
        let (points, pattern) = if is_exact(&series) {
            (exact_change_points(&figures(&series)), None)
        } else {
            let points = noisy.next().unwrap_or_default();
            let values: Vec<f64> = figures(&series).into_iter().flatten().collect();
            let pattern = pattern(&values, &points);
            (points, pattern)
        };
        let shifts = points
            .into_iter()
            .map(|point| shift(&series, point))
            .collect();
        Screened {
            series,
            shifts,
            pattern,
        }
    });
    Screening {
        series: series.collect(),
        level: settings.level,
        tested,
        too_short: count - tested,
    }
}

fn figures(series: &Series) -> Vec<Option<f64>> {
    let figures = series
        .entries
        .iter()
        .map(|entry| entry.figure.as_ref().ok());
    figures.map(Option::<&f64>::copied).collect()
}

/// Compares the facts with those of the last run before that has a figure.
fn shift(series: &Series, point: ChangePoint) -> Shift {
    let after = &series.entries[point.index];
    let mut earlier = series.entries[..point.index].iter().rev();
    let before = earlier.find(|entry| entry.figure.is_ok());
    Shift {
        moment: after.moment.clone(),
        changed: before.map_or_else(Vec::new, |before| changed(before, after)),
        point,
    }
}

fn changed(before: &Entry, after: &Entry) -> Vec<(String, String, String)> {
    let (before, after): (&Facts, &Facts) = (&before.facts, &after.facts);
    let added = after.keys().filter(|name| !before.contains_key(*name));
    let value = |facts: &Facts, name: &str| facts.get(name).cloned().unwrap_or_default();
    before
        .keys()
        .chain(added)
        .map(|name| (name.clone(), value(before, name), value(after, name)))
        .filter(|(_, before, after)| before != after)
        .collect()
}
