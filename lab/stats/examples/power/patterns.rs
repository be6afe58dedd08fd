//! Series of hosts with two states, or that slow down gradually.

use crate::{percent, Trials};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use trapline_stats::history::{change_points, pattern, Settings};
use trapline_stats::rng::{normal, rng};

/// A level for each run.
type Levels = fn(usize, &mut ChaCha8Rng) -> Vec<f64>;

const HOSTS: [(&str, Levels); 4] = [
    ("two states", two_states),
    ("drift of 3%", drift),
    ("random walk", random_walk),
    ("step of 4%", step),
];

pub fn print(trials: Trials) {
    let trials = trials.of(200);
    println!(
        "Series of runs (noise 0.5%) of a host that stays in one of two states, 4% apart, with"
    );
    println!(
        "85%; slows down by 3% in all; walks at random, 0.5% a run; or has one step: how many"
    );
    println!("show a shift, and in brackets how many of these have a remark on it. {trials} series each.");
    println!("host          12 runs      30 runs      60 runs     120 runs");
    for ((name, levels), stream) in HOSTS.into_iter().zip(0..) {
        let cells = [12, 30, 60, 120].map(|runs| {
            let mut rng = rng(runs as u64, 90 + stream);
            let (mut shifted, mut marked) = (0, 0);
            for _ in 0..trials {
                let levels = levels(runs, &mut rng);
                let series = levels
                    .iter()
                    .map(|level| 100.0 * (level + 0.005 * normal(&mut rng)).exp());
                let series: Vec<f64> = series.collect();
                let points =
                    change_points(std::slice::from_ref(&series), &Settings::default()).remove(0);
                shifted += usize::from(!points.is_empty());
                marked += usize::from(pattern(&series, &points).is_some());
            }
            let marked = percent(marked, shifted.max(1), 0);
            format!("{:>6} ({marked:>4})", percent(shifted, trials, 0))
        });
        println!("{name:12} {}", cells.join("").trim_end());
    }
    println!();
}

fn two_states(runs: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut slow = rng.random::<bool>();
    let next = |_| {
        slow ^= rng.random::<f64>() < 0.15;
        if slow {
            0.04
        } else {
            0.0
        }
    };
    (0..runs).map(next).collect()
}

fn drift(runs: usize, _: &mut ChaCha8Rng) -> Vec<f64> {
    (0..runs)
        .map(|run| 0.03 * run as f64 / runs as f64)
        .collect()
}

fn random_walk(runs: usize, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let mut level = 0.0;
    let next = |_| {
        level += 0.005 * normal(rng);
        level
    };
    (0..runs).map(next).collect()
}

fn step(runs: usize, _: &mut ChaCha8Rng) -> Vec<f64> {
    let level = |run| if run < runs / 2 { 0.0 } else { 0.04 };
    (0..runs).map(level).collect()
}
