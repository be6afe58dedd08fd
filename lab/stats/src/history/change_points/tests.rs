use super::*;
use crate::rng::{normal, rng};
use proptest::prelude::{any, prop_assert, prop_assert_eq, proptest, ProptestConfig};
/// Returns a series of levels, each with its number of runs, with AR(1) noise as a share of the level.
fn series(levels: &[(usize, f64)], noise: f64, phi: f64, seed: u64) -> Vec<f64> {
    let mut rng = rng(seed, 0);
    let mut last = normal(&mut rng);
    let runs = levels.iter().flat_map(|(runs, level)| vec![*level; *runs]);
    runs.map(|level| {
        last = phi * last + (1.0 - phi * phi).sqrt() * normal(&mut rng);
        level * (1.0 + noise * last)
    })
    .collect()
}

fn of_store(store: &[Vec<f64>]) -> Vec<Vec<ChangePoint>> {
    change_points(store, &Settings::default())
}

fn alone(series: &[f64]) -> Vec<ChangePoint> {
    of_store(&[series.to_vec()]).remove(0)
}

fn indices(points: &[ChangePoint]) -> Vec<usize> {
    points.iter().map(|point| point.index).collect()
}

#[test]
fn the_levels_around_a_shift_are_means() {
    let values = [
        1.02, 0.95, 0.99, 1.00, 1.12, 0.90, 0.50, 0.51, 0.48, 0.48, 0.55,
    ];
    let points = alone(&values);
    assert_eq!(indices(&points), [6]);
    let point = points[0];
    assert!((point.before - 5.98 / 6.0).abs() < 1e-12 && (point.after - 0.504).abs() < 1e-12);
    assert!((point.change - point.after / point.before).abs() < 1e-12);
}

#[test]
fn several_shifts_over_many_windows_are_all_found() {
    let levels = [(40, 100.0), (60, 105.0), (90, 99.0), (30, 112.0)];
    let values = series(&levels, 0.005, 0.0, 1);
    assert_eq!(indices(&alone(&values)), [40, 100, 190]);
    let settings = Settings {
        least_change: 0.1,
        ..Settings::default()
    };
    let large = change_points(&[values], &settings).remove(0);
    assert_eq!(indices(&large), [190]);
}

#[test]
fn a_reverted_change_is_found_at_both_ends() {
    let values = series(&[(20, 100.0), (12, 105.0), (20, 100.0)], 0.01, 0.0, 3);
    assert_eq!(indices(&alone(&values)), [20, 32]);
}

#[test]
fn a_shift_is_still_found_as_the_series_grows() {
    let values = series(&[(30, 100.0), (270, 106.0)], 0.01, 0.0, 2);
    for length in [45, 60, 100, 200, 300] {
        assert_eq!(indices(&alone(&values[..length])), [30], "{length} runs");
    }
}

#[test]
fn outliers_and_short_series_are_no_shift() {
    let mut values = series(&[(40, 100.0)], 0.01, 0.0, 4);
    values[20] = 150.0;
    assert_eq!(alone(&values), []);
    values[38] = 150.0;
    values[39] = 150.0;
    assert_eq!(alone(&values), []);
    assert_eq!(alone(&[]), []);
    assert_eq!(alone(&[1.0, 1.1, 2.0, 2.1, 2.0]), []);
    assert_eq!(alone(&[7.0; 30]), []);
}

/// The level is 5%; the standard error of the share of 600 is 0.9%.
#[test]
fn autocorrelated_series_without_a_shift_show_one_at_most_at_the_level() {
    for (runs, phi) in [(12, 0.7), (30, 0.5), (60, 0.7)] {
        let shows = |seed: &u64| !alone(&series(&[(runs, 100.0)], 0.1, phi, *seed)).is_empty();
        let wrong = (0..600).filter(shows).count();
        assert!(wrong <= 40, "{wrong} of 600, {runs} runs, phi {phi}");
    }
}

/// Without the correction about five of a hundred series show one.
#[test]
fn a_store_without_a_shift_shows_none() {
    let store: Vec<Vec<f64>> = (0..100)
        .map(|seed| series(&[(30, 100.0)], 0.01, 0.7, seed))
        .collect();
    assert!(of_store(&store).iter().all(Vec::is_empty));
    let uncorrected = store.iter().filter(|one| !alone(one).is_empty());
    assert!(uncorrected.count() > 0);
}

#[test]
fn p_is_corrected_for_the_series_of_the_store() {
    let shifted = series(&[(30, 100.0), (30, 110.0)], 0.01, 0.0, 5);
    let p = |points: &[ChangePoint]| points[0].p.unwrap();
    let single = p(&alone(&shifted));
    let mut store: Vec<Vec<f64>> = (0..49)
        .map(|seed| series(&[(30, 100.0)], 0.01, 0.0, seed))
        .collect();
    store.push(shifted);
    store.push(vec![1.0; 4]);
    let points = of_store(&store);
    assert_eq!(points.iter().filter(|points| !points.is_empty()).count(), 1);
    let corrected = p(&points[49]);
    assert!(
        (corrected / single - 50.0).abs() < 1e-9,
        "{corrected} {single}"
    );
}

#[test]
fn on_an_exact_clock_every_changed_digit_is_a_change() {
    let figures = [7573.0, 7573.0, 7574.0, 7574.0, 7573.0].map(Some);
    let points = exact_change_points(&figures);
    let found: Vec<_> = points
        .iter()
        .map(|p| (p.index, p.before, p.after, p.p))
        .collect();
    assert_eq!(
        found,
        [(2, 7573.0, 7574.0, None), (4, 7574.0, 7573.0, None)]
    );
}

#[test]
fn an_exact_figure_is_compared_with_the_last_one_known() {
    let points = exact_change_points(&[Some(7.0), None, Some(7.0), None, None, Some(8.0)]);
    assert_eq!(indices(&points), [5]);
    assert_eq!(points[0].before, 7.0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn points_do_not_depend_on_the_unit(
        before in 6..40_usize,
        after in 6..40_usize,
        seed in any::<u64>(),
    ) {
        let values = series(&[(before, 100.0), (after, 130.0)], 0.03, 0.0, seed);
        let scaled: Vec<f64> = values.iter().map(|value| value * 1024.0).collect();
        let points = indices(&alone(&values));
        prop_assert_eq!(&points, &indices(&alone(&scaled)));
        prop_assert!(points.is_sorted() && points.iter().all(|point| *point < values.len()));
    }
}
