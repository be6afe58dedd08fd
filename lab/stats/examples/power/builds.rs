//! Kernel builds: coverage of the interval of a percentage, from builds in rounds.

use crate::autoregressive::Innovations;
use crate::hosts::exponential;
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::order::median_interval_level;
use trapline_stats::paired::paired_ratio;
use trapline_stats::rng::rng;

/// The median ratio of the two cells.
const RATIO: f64 = 1.1;

/// The noise of one build, as a logarithm.
type Noise = fn(&mut ChaCha8Rng) -> f64;

const NOISES: [Noise; 3] = [
    |rng| 0.01 * Innovations::Normal.draw(rng),
    |rng| 0.01 * Innovations::HeavyTailed.draw(rng),
    |rng| 0.02 * exponential(rng),
];

pub fn print(trials: Trials) {
    let trials = trials.of(4000);
    println!("Two cells of a kernel build in rounds, whose conditions change by 5%: how often the");
    println!("interval of the median ratio contains it, for three kinds of noise of a build.");
    println!("{trials} trials.");
    println!("rounds nominal  normal      t3    exp.");
    for rounds in [2, 3, 4, 5, 6, 8, 10, 20] {
        let level = median_interval_level(rounds).unwrap_or_default();
        print!("{rounds:6} {:6.1}%", level * 100.0);
        for noise in NOISES {
            let mut rng = rng(rounds as u64, 30);
            let covered = (0..trials).filter(|_| covers(rounds as u32, noise, &mut rng));
            print!("{:>8}", percent(covered.count(), trials, 1));
        }
        println!();
    }
    println!();
}

fn covers(rounds: u32, noise: Noise, rng: &mut ChaCha8Rng) -> bool {
    let mut base = Vec::new();
    let mut other = Vec::new();
    for round in 0..rounds {
        let condition = 0.05 * Innovations::Normal.draw(rng);
        base.push((round, (condition + noise(rng)).exp()));
        other.push((round, RATIO * (condition + noise(rng)).exp()));
    }
    let interval = paired_ratio(&other, &base).and_then(|ratio| ratio.interval);
    interval.is_some_and(|interval| (interval.low..=interval.high).contains(&RATIO))
}
