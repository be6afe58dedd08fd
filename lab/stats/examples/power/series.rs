//! Series of runs: false shifts at the nominal level, and the power to find true ones.

use crate::autoregressive::{autoregressive, Innovations, BURN_IN};
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::history::{change_points, ChangePoint, Settings, FEWEST_TESTED};
use trapline_stats::rng::rng;

const NOISE: f64 = 0.01;

const RUNS: [usize; 4] = [12, 30, 60, 120];

/// The critical values hold up to 0.75.
const PHIS: [f64; 5] = [0.0, 0.3, 0.5, 0.7, 0.9];

pub fn print(trials: Trials) {
    false_shifts(trials.of(2000));
    stores(trials.of(200));
    power(trials.of(500));
}

pub fn name(kind: Innovations) -> &'static str {
    match kind {
        Innovations::Normal => "normal",
        Innovations::HeavyTailed => "t3",
    }
}

fn false_shifts(trials: usize) {
    println!("Series of runs with AR(1) noise, normal or with innovations of Student's t");
    println!("distribution with 3 degrees of freedom, without a shift, one in a store: how many");
    println!("show one. Nominal 5% up to phi 0.75. {trials} series each.");
    println!("noise   runs  phi 0.0     0.3     0.5     0.7     0.9");
    for kind in Innovations::ALL {
        for runs in RUNS {
            print!("{:6} {runs:5} ", name(kind));
            for phi in PHIS {
                let mut rng = rng(runs as u64, 10 + kind as u64);
                let wrong = (0..trials).filter(|_| {
                    let series = series(kind, phi, &vec![0.0; runs], &mut rng);
                    is_shifted(vec![series])
                });
                print!("{:>8}", percent(wrong.count(), trials, 1));
            }
            println!();
        }
    }
    println!();
}

/// Returns true if any series of a store shows a shift.
fn is_shifted(store: Vec<Vec<f64>>) -> bool {
    let points = change_points(&store, &Settings::default());
    points.iter().any(|points| !points.is_empty())
}

fn stores(trials: usize) {
    println!("Stores of 100 such series of 30 runs without a shift: how many show one in any.");
    println!("Nominal 5% up to phi 0.75. {trials} stores each.");
    println!("noise   phi 0.0     0.3     0.5     0.7     0.9");
    for kind in Innovations::ALL {
        print!("{:6}", name(kind));
        for phi in PHIS {
            let mut rng = rng(100, kind as u64);
            let wrong = (0..trials).filter(|_| {
                let one = |_| series(kind, phi, &[0.0; 30], &mut rng);
                is_shifted((0..100).map(one).collect())
            });
            print!("{:>8}", percent(wrong.count(), trials, 1));
        }
        println!();
    }
    println!();
}

/// The changed part of a series, as shares of its length.
const PARTS: [(&str, f64, f64); 2] = [
    ("last half", 0.5, 1.0),
    ("middle third", 1.0 / 3.0, 2.0 / 3.0),
];

/// Stores: the number of series with the change, and of those without.
const STORES: [(usize, usize); 3] = [(1, 0), (1, 99), (10, 90)];

/// A change of part of a series.
struct Change {
    runs: usize,
    /// The first run of the part, and the run after its last one.
    ends: [usize; 2],
    /// The change of the level, as a share.
    size: f64,
    phi: f64,
}

fn power(trials: usize) {
    println!("Part of a series with normal AR(1) noise of 1% is changed by so much: how often all");
    println!("ends of that part are found within one run, in a store of this series only, where 1");
    println!("of 100 series changed, and where 10 of 100 changed. {trials} series each.");
    println!("                           1 of 1          1 of 100       10 of 100");
    println!("changed       phi runs     +3%     +5%     +3%     +5%     +3%     +5%");
    for (what, from, to) in PARTS {
        for phi in [0.0, 0.5] {
            for runs in RUNS {
                print!("{what:13} {phi:3} {runs:4}");
                let ends = [from, to].map(|share| (share * runs as f64).round() as usize);
                for (changed, others) in STORES {
                    for size in [0.03, 0.05] {
                        let change = Change {
                            runs,
                            ends,
                            size,
                            phi,
                        };
                        let found = change.found(changed, others, trials);
                        print!("{:>8}", percent(found, trials, 0));
                    }
                }
                println!();
            }
        }
    }
    println!();
}

impl Change {
    /// The number of changed series, of `trials`, in which it is found.
    fn found(&self, changed: usize, others: usize, trials: usize) -> usize {
        let mut rng = rng(self.runs as u64, 20);
        let shifts = (0..self.runs).map(|run| {
            if (self.ends[0]..self.ends[1]).contains(&run) {
                self.size
            } else {
                0.0
            }
        });
        let shifts: Vec<f64> = shifts.collect();
        let stores = (0..trials / changed).map(|_| {
            let one = |_| series(Innovations::Normal, self.phi, &shifts, &mut rng);
            let mut store: Vec<Vec<f64>> = (0..changed).map(one).collect();
            // A constant series has p = 1, like the least significant of those without a
            // shift.
            store.resize(changed + others, vec![100.0; FEWEST_TESTED]);
            let points = change_points(&store, &Settings::default());
            points[..changed]
                .iter()
                .filter(|points| self.is_found(points))
                .count()
        });
        stores.sum()
    }

    fn is_found(&self, points: &[ChangePoint]) -> bool {
        let is_near = |end: &usize| points.iter().any(|point| point.index.abs_diff(*end) <= 1);
        let mut ends = self.ends.iter().filter(|end| **end < self.runs);
        ends.all(is_near)
    }
}

/// Simulates a series of level 100 with the given shifts, each a share of the level.
fn series(kind: Innovations, phi: f64, shifts: &[f64], rng: &mut ChaCha8Rng) -> Vec<f64> {
    let draws = (0..shifts.len() + BURN_IN).map(|_| kind.draw(rng));
    let innovations: Vec<f64> = draws.collect();
    let mut noise = Vec::new();
    autoregressive(&innovations, phi, &mut noise);
    let values = noise.iter().zip(shifts);
    values
        .map(|(noise, shift)| 100.0 * (1.0 + shift + NOISE * noise))
        .collect()
}
