//! Simulates the critical values of `src/history/critical.rs` and prints its table.
//!
//! For each length the value of a level is the largest over AR(1) noise with phi 0, 0.4 and
//! 0.75 and innovations that are normal or have Student's t distribution with 3 degrees of
//! freedom. The argument is the number of series of each kind [default: 1,000,000, which take
//! seven minutes]. The table leaves out pulses in series of fewer than 16 runs, against which
//! the test has no power.

#[path = "../power/autoregressive.rs"]
mod autoregressive;

use autoregressive::{autoregressive, Innovations, BURN_IN};
use trapline_stats::history::{strongest, Shape, CRITICAL_LENGTHS, LEVELS};
use trapline_stats::rng::rng;

const PHIS: [f64; 3] = [0.0, 0.4, 0.75];

fn main() {
    let asked = std::env::args().nth(1).map(|text| text.parse());
    let trials = asked.and_then(Result::ok).unwrap_or(1_000_000);
    for shape in Shape::ALL {
        println!("{shape:?}");
        for runs in CRITICAL_LENGTHS {
            if strongest(&ramp(runs), shape).is_some() {
                let values = critical(shape, runs, trials);
                println!("    ({runs}, {values:.1?}),");
            }
        }
    }
}

/// Returns distinct values, to find the lengths for which a shape has a statistic.
fn ramp(runs: usize) -> Vec<f64> {
    (0..runs).map(|run| run as f64).collect()
}

/// Simulates the critical value of each level.
fn critical(shape: Shape, runs: usize, trials: usize) -> Vec<f64> {
    let mut largest = vec![0.0_f64; LEVELS.len()];
    for kind in Innovations::ALL {
        for statistics in simulate(shape, kind, runs, trials) {
            for (largest, level) in largest.iter_mut().zip(LEVELS) {
                let exceeding = (level * trials as f64) as usize;
                *largest = largest.max(statistics[exceeding]);
            }
        }
    }
    largest
}

/// Simulates the statistics of each autocorrelation, in descending order.
fn simulate(shape: Shape, kind: Innovations, runs: usize, trials: usize) -> Vec<Vec<f64>> {
    let mut rng = rng(runs as u64, kind as u64);
    let mut statistics = vec![Vec::with_capacity(trials); PHIS.len()];
    let mut noise = Vec::new();
    for _ in 0..trials {
        let draws = (0..runs + BURN_IN).map(|_| kind.draw(&mut rng));
        let innovations: Vec<f64> = draws.collect();
        for (phi, statistics) in PHIS.iter().zip(&mut statistics) {
            autoregressive(&innovations, *phi, &mut noise);
            statistics.push(strongest(&noise, shape).map_or(0.0, |found| found.statistic));
        }
    }
    for statistics in &mut statistics {
        statistics.sort_by(|a, b| b.total_cmp(a));
    }
    statistics
}
