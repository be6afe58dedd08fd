//! Critical values of the shift statistics, from simulation.
//!
//! A value is the largest over AR(1) noise with phi 0, 0.4 and 0.75 and innovations that are
//! normal or have Student's t distribution with three degrees of freedom: the level holds
//! for each of these. The table is printed by
//! `cargo run --release --package trapline-stats --example critical`, from a million series of
//! each kind.

use super::statistic::Shape;

/// Lengths of series for which there are critical values, in runs.
pub const CRITICAL_LENGTHS: [usize; 18] = [
    6, 7, 8, 9, 10, 12, 14, 16, 20, 24, 30, 36, 44, 54, 66, 80, 98, 120,
];

/// Levels of the critical values.
pub const LEVELS: [f64; 15] = [
    0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 5e-3, 2e-3, 1e-3, 5e-4, 2e-4, 1e-4, 5e-5, 2e-5, 1e-5,
];

/// One row: the length of the series, and the critical value of each of [`LEVELS`].
type Row = (usize, [f64; LEVELS.len()]);

/// Critical values of [`Shape::Step`].
#[rustfmt::skip]
const STEP: [Row; 18] = [
    (6, [1.6, 6.1, 11.8, 20.7, 39.8, 62.6, 95.5, 162.4, 236.4, 339.7, 556.7, 785.9, 1059.2, 1709.2, 2263.8]),
    (7, [2.7, 9.6, 17.5, 28.4, 49.4, 72.3, 104.2, 161.7, 226.9, 307.8, 443.9, 617.8, 843.7, 1148.6, 1556.9]),
    (8, [3.5, 11.7, 20.4, 31.8, 52.5, 74.3, 102.3, 153.2, 202.7, 262.3, 370.2, 485.0, 606.0, 840.8, 1111.5]),
    (9, [4.0, 12.8, 22.0, 33.7, 53.9, 73.8, 99.8, 142.4, 185.0, 233.3, 315.9, 380.9, 463.9, 591.5, 677.2]),
    (10, [4.2, 13.4, 22.7, 34.4, 54.0, 73.1, 96.7, 138.3, 176.9, 219.4, 293.6, 362.0, 447.3, 599.5, 734.1]),
    (12, [4.4, 13.8, 23.1, 34.6, 53.5, 71.1, 92.8, 126.2, 157.7, 199.6, 260.0, 304.5, 360.1, 474.7, 565.4]),
    (14, [4.4, 13.5, 22.5, 33.6, 51.7, 68.0, 87.5, 116.7, 144.5, 175.7, 223.1, 268.1, 332.1, 433.0, 553.2]),
    (16, [4.3, 13.1, 21.7, 32.3, 49.2, 64.8, 82.8, 110.7, 136.1, 165.9, 212.0, 243.5, 286.7, 360.9, 411.3]),
    (20, [4.0, 11.9, 19.8, 29.2, 44.6, 58.9, 75.5, 101.0, 123.3, 149.8, 190.2, 219.7, 260.0, 308.5, 386.7]),
    (24, [3.7, 10.8, 17.9, 26.6, 40.3, 52.9, 67.4, 90.8, 111.1, 136.0, 172.8, 203.6, 244.7, 295.6, 335.2]),
    (30, [3.5, 9.6, 15.8, 23.2, 35.2, 45.9, 58.7, 78.4, 95.5, 114.9, 145.3, 178.6, 229.3, 273.2, 320.1]),
    (36, [3.3, 8.8, 14.3, 20.9, 31.5, 41.1, 52.1, 69.7, 85.6, 105.2, 135.9, 159.5, 190.8, 246.0, 301.3]),
    (44, [3.4, 8.2, 12.9, 18.7, 27.8, 36.3, 46.0, 61.1, 74.6, 89.8, 117.5, 150.0, 194.2, 268.9, 416.9]),
    (54, [3.4, 7.6, 11.9, 16.9, 24.9, 32.2, 41.1, 55.1, 68.0, 82.1, 104.1, 127.5, 175.0, 266.0, 388.4]),
    (66, [3.5, 7.2, 11.0, 15.4, 22.4, 28.8, 36.4, 49.3, 62.0, 78.9, 103.5, 127.4, 167.1, 240.2, 292.5]),
    (80, [3.6, 7.0, 10.4, 14.3, 20.6, 26.4, 33.2, 45.3, 57.0, 73.1, 103.0, 128.8, 166.5, 269.9, 366.6]),
    (98, [3.7, 6.7, 9.8, 13.4, 19.0, 24.2, 30.5, 42.7, 57.0, 72.5, 106.5, 139.7, 176.2, 257.3, 340.6]),
    (120, [3.9, 6.7, 9.5, 12.8, 17.9, 22.6, 28.4, 43.4, 59.6, 80.4, 107.7, 141.1, 189.7, 257.2, 337.7]),
];

/// Critical values of [`Shape::Pulse`], for series that leave room for a pulse and both its sides.
#[rustfmt::skip]
const PULSE: [Row; 11] = [
    (16, [3.3, 9.7, 16.2, 23.6, 34.6, 43.7, 53.6, 69.7, 83.8, 99.3, 124.8, 143.8, 167.3, 216.4, 248.4]),
    (20, [5.0, 13.0, 20.3, 28.5, 40.8, 51.0, 61.7, 78.9, 93.6, 109.2, 132.4, 149.3, 175.0, 201.5, 229.2]),
    (24, [6.3, 14.7, 22.2, 30.6, 43.2, 53.7, 64.8, 80.2, 94.2, 108.4, 131.0, 147.9, 173.7, 215.2, 230.6]),
    (30, [7.4, 15.7, 22.9, 31.1, 43.3, 53.8, 64.9, 80.9, 94.6, 110.2, 134.0, 152.5, 175.3, 198.5, 218.5]),
    (36, [7.9, 15.9, 22.7, 30.4, 42.0, 51.8, 62.7, 78.7, 91.8, 106.1, 126.7, 148.6, 170.8, 194.7, 213.6]),
    (44, [8.3, 16.0, 22.4, 29.5, 39.8, 48.6, 58.4, 73.0, 84.4, 96.5, 114.1, 126.7, 144.9, 176.3, 188.2]),
    (54, [8.6, 15.9, 22.1, 29.0, 38.9, 47.2, 56.0, 68.4, 79.3, 89.6, 105.5, 117.9, 130.7, 153.5, 176.8]),
    (66, [9.1, 15.8, 21.6, 28.2, 38.1, 46.4, 55.3, 67.1, 76.1, 85.2, 99.6, 111.2, 123.1, 136.8, 154.0]),
    (80, [9.6, 15.6, 21.2, 27.5, 37.4, 46.1, 55.9, 69.9, 80.1, 89.8, 100.8, 109.9, 121.2, 139.5, 145.1]),
    (98, [10.1, 15.7, 20.8, 27.0, 37.1, 47.0, 58.9, 77.2, 91.4, 104.0, 116.0, 126.2, 135.9, 147.0, 156.6]),
    (120, [10.7, 16.5, 21.7, 28.1, 38.9, 49.0, 63.8, 87.4, 105.6, 120.7, 140.5, 150.8, 158.1, 173.1, 193.7]),
];

/// Returns the p-value of a statistic of [`super::strongest`] in a series of `runs` runs.
///
/// Between lengths of the table the larger p-value of the two neighbours is taken, between
/// its levels it is interpolated on logarithms. A statistic below the first critical value
/// has 1, one above the last the smallest level, 0.00001. `None` for lengths for which there
/// are no critical values.
pub fn p_value(shape: Shape, runs: usize, statistic: f64) -> Option<f64> {
    let rows: &[Row] = match shape {
        Shape::Step => &STEP,
        Shape::Pulse => &PULSE,
    };
    let above = rows.iter().find(|(length, _)| *length >= runs)?;
    let below = rows.iter().rev().find(|(length, _)| *length <= runs)?;
    let of = |(_, values): &Row| interpolate(values, statistic);
    Some(of(above).max(of(below)))
}

fn interpolate(values: &[f64; LEVELS.len()], statistic: f64) -> f64 {
    let exceeded = values
        .iter()
        .take_while(|value| **value <= statistic)
        .count();
    match exceeded {
        0 => 1.0,
        _ if exceeded == LEVELS.len() => LEVELS[LEVELS.len() - 1],
        next => {
            let logarithm = |one: f64, other: f64| (one / other).ln();
            let share =
                logarithm(statistic, values[next - 1]) / logarithm(values[next], values[next - 1]);
            LEVELS[next - 1] * (LEVELS[next] / LEVELS[next - 1]).powf(share)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_critical_value_has_its_level() {
        for (shape, rows) in [
            (Shape::Step, STEP.as_slice()),
            (Shape::Pulse, PULSE.as_slice()),
        ] {
            for (runs, values) in rows {
                assert!(values.is_sorted(), "{shape:?} {runs}");
                for (level, value) in LEVELS.iter().zip(values) {
                    let p = p_value(shape, *runs, *value).unwrap();
                    assert!(
                        (p / level - 1.0).abs() < 1e-9,
                        "{shape:?} {runs} {level}: {p}"
                    );
                }
            }
        }
    }

    #[test]
    fn between_rows_and_levels_p_is_between_those_of_its_neighbours() {
        for statistic in [10.0, 25.0, 60.0, 170.0] {
            let of = |runs| p_value(Shape::Step, runs, statistic).unwrap();
            assert_eq!(of(33), of(30).max(of(36)));
        }
        let (_, values) = STEP[10];
        let middle = p_value(Shape::Step, 30, f64::midpoint(values[3], values[4])).unwrap();
        assert!(middle < LEVELS[3] && middle > LEVELS[4]);
    }

    #[test]
    fn p_is_limited_to_the_levels_of_the_table() {
        assert_eq!(p_value(Shape::Step, 30, 0.0), Some(1.0));
        assert_eq!(p_value(Shape::Step, 30, f64::INFINITY), Some(1e-5));
        assert_eq!(p_value(Shape::Step, 5, 9.0), None);
        assert_eq!(p_value(Shape::Step, 121, 9.0), None);
        assert_eq!(p_value(Shape::Pulse, 15, 9.0), None);
    }
}
