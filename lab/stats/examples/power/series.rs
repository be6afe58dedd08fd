//! Series of runs: points where nothing shifted, and shifts that are found.

use crate::hosts::normal;
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_plan::Clock;
use trapline_stats::history::{change_points, Settings};
use trapline_stats::spread::chance;

const NOISE: f64 = 0.01;

pub fn print(trials: Trials) {
    let trials = trials.of(1000);
    println!("Series of runs with normal noise of 1%. Without a shift: how many series show a");
    println!("point. With one in the middle: how often a point is within one run of it.");
    println!("{trials} series each.");
    println!("runs   no shift      +1%     +2%     +3%     +5%");
    for runs in [12, 30, 60, 120] {
        let mut chance = chance(runs as u64, 0);
        let wrong = (0..trials).filter(|_| !points(runs, 0.0, &mut chance).is_empty());
        print!("{runs:4} {:>10} ", percent(wrong.count(), trials, 1));
        for shift in [0.01, 0.02, 0.03, 0.05] {
            let found = (0..trials).filter(|_| {
                let points = points(runs, shift, &mut chance);
                points.iter().any(|point| point.abs_diff(runs / 2) <= 1)
            });
            print!("{:>8}", percent(found.count(), trials, 0));
        }
        println!();
    }
    println!();
}

fn points(runs: usize, shift: f64, chance: &mut ChaCha8Rng) -> Vec<usize> {
    let level = |run| {
        if run < runs / 2 {
            100.0
        } else {
            100.0 * (1.0 + shift)
        }
    };
    let series: Vec<f64> = (0..runs)
        .map(|run| level(run) * (1.0 + NOISE * normal(chance)))
        .collect();
    let points = change_points(&series, Clock::Wall, &Settings::default());
    points.iter().map(|point| point.index).collect()
}
