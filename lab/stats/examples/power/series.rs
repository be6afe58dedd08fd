//! Series of runs: false shifts at the nominal level, and the power to find true ones.

use crate::autoregressive::{autoregressive, Innovations, BURN_IN};
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::history::{change_points, Settings, FEWEST_TESTED};
use trapline_stats::spread::chance;

const NOISE: f64 = 0.01;

const RUNS: [usize; 4] = [12, 30, 60, 120];

/// The critical values hold up to 0.75.
const PHIS: [f64; 5] = [0.0, 0.3, 0.5, 0.7, 0.9];

pub fn print(trials: Trials) {
    false_shifts(trials.of(2000));
    stores(trials.of(200));
    power(trials.of(500));
}

fn name(kind: Innovations) -> &'static str {
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
                let mut chance = chance(runs as u64, 10 + kind as u64);
                let wrong = (0..trials).filter(|_| {
                    let series = series(kind, phi, &vec![0.0; runs], &mut chance);
                    is_shifted(vec![series])
                });
                print!("{:>8}", percent(wrong.count(), trials, 1));
            }
            println!();
        }
    }
    println!();
}

/// Whether any series of a store shows a shift.
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
            let mut chance = chance(100, kind as u64);
            let wrong = (0..trials).filter(|_| {
                let one = |_| series(kind, phi, &[0.0; 30], &mut chance);
                is_shifted((0..100).map(one).collect())
            });
            print!("{:>8}", percent(wrong.count(), trials, 1));
        }
        println!();
    }
    println!();
}

/// The changed part of a series, as shares of its length.
const CHANGES: [(&str, f64, f64); 2] = [
    ("last half", 0.5, 1.0),
    ("middle third", 1.0 / 3.0, 2.0 / 3.0),
];

fn power(trials: usize) {
    println!("Part of a series with normal AR(1) noise of 1% is changed by so much: how often all");
    println!("ends of that part are found within one run. Alone in a store, and beside 99 series");
    println!("that did not change (p multiplied by 100). {trials} series each.");
    println!("                             alone                    beside 99");
    println!("changed       phi runs    +2%     +3%     +5%     +2%     +3%     +5%");
    for (what, from, to) in CHANGES {
        for phi in [0.0, 0.5] {
            for runs in RUNS {
                print!("{what:13} {phi:3} {runs:4}");
                let ends = [from, to].map(|share| (share * runs as f64).round() as usize);
                for others in [0, 99] {
                    for shift in [0.02, 0.03, 0.05] {
                        let found = found(ends, shift, phi, runs, others, trials);
                        print!("{:>8}", percent(found, trials, 0));
                    }
                }
                println!();
            }
        }
    }
    println!();
}

/// The number of series in which the ends of the changed part are found.
fn found(
    ends: [usize; 2],
    shift: f64,
    phi: f64,
    runs: usize,
    others: usize,
    trials: usize,
) -> usize {
    let mut chance = chance(runs as u64, 20);
    let changed = |run: &usize| (ends[0]..ends[1]).contains(run);
    let shifts: Vec<f64> = (0..runs)
        .map(|run| if changed(&run) { shift } else { 0.0 })
        .collect();
    // A constant series has p = 1, like the least significant of those without a shift.
    let constant = vec![vec![100.0; FEWEST_TESTED]; others];
    let is_found = |_: &usize| {
        let mut store = constant.clone();
        store.push(series(Innovations::Normal, phi, &shifts, &mut chance));
        let points = change_points(&store, &Settings::default())
            .pop()
            .unwrap_or_default();
        let is_near = |end: &usize| points.iter().any(|point| point.index.abs_diff(*end) <= 1);
        ends.iter().filter(|end| **end < runs).all(is_near)
    };
    (0..trials).filter(is_found).count()
}

/// A series of level 100 with the given shifts, each a share of the level.
fn series(kind: Innovations, phi: f64, shifts: &[f64], chance: &mut ChaCha8Rng) -> Vec<f64> {
    let draws = (0..shifts.len() + BURN_IN).map(|_| kind.draw(chance));
    let innovations: Vec<f64> = draws.collect();
    let mut noise = Vec::new();
    autoregressive(&innovations, phi, &mut noise);
    let values = noise.iter().zip(shifts);
    values
        .map(|(noise, shift)| 100.0 * (1.0 + shift + NOISE * noise))
        .collect()
}
