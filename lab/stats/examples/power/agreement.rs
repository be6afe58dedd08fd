//! Rank correlations of known truth: coverage of their intervals and levels of their p.

use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::PI;
use trapline_stats::agreement::{Agreement, MOST_PERMUTED};
use trapline_stats::rng::{normal, rng};

const COUNTS: [usize; 7] = [5, 6, 8, 10, 13, 20, 30];

/// True correlations of ranks.
const RHOS: [f64; 4] = [0.0, 0.5, 0.8, 0.95];

pub fn print(trials: Trials) {
    let trials = trials.of(4000);
    println!("Agreement of two clocks: so many operations, figures log-normal on both, of a");
    println!("true rank correlation: how often the 95% interval has it; of none: how often p is");
    println!("1% or 5% at most, and the same with ties (figures of 6 levels). {trials} trials,");
    println!("and 5 times as many of the levels of p from 10 operations on.");
    println!("operations       0    0.5    0.8   0.95        1%     5%   ties 1%     5%");
    for count in COUNTS {
        line(count, trials);
    }
    println!();
}

fn line(count: usize, trials: usize) {
    print!("{count:10}");
    for (rho, stream) in RHOS.into_iter().zip(0..) {
        let covered = if count > MOST_PERMUTED {
            covered(count, rho, trials, stream)
        } else {
            "none".to_owned()
        };
        print!(" {covered:>6}");
    }
    let trials = if count > MOST_PERMUTED {
        5 * trials
    } else {
        trials
    };
    let mut rng = rng(count as u64, 9);
    print!("   ");
    levels(count, trials, f64::exp, &mut rng);
    print!("   ");
    levels(
        count,
        trials,
        |z| (2.0 * z).clamp(-2.0, 3.0).round(),
        &mut rng,
    );
    println!();
}

fn covered(count: usize, rho: f64, trials: usize, stream: u64) -> String {
    let mut rng = rng(count as u64, stream);
    let all = agreements(count, rho, trials, f64::exp, &mut rng);
    let covers = all
        .filter_map(|one| one.interval)
        .filter(|(low, high)| (*low..=*high).contains(&rho));
    percent(covers.count(), trials, 1)
}

fn levels(count: usize, trials: usize, figure: fn(f64) -> f64, rng: &mut ChaCha8Rng) {
    let ps: Vec<f64> = agreements(count, 0.0, trials, figure, rng)
        .map(|one| one.p)
        .collect();
    for level in [0.01, 0.05] {
        let below = ps.iter().filter(|p| **p <= level).count();
        print!(" {:>6}", percent(below, trials, 2));
    }
}

/// Simulates operations. For normal variables with a correlation of `r` that of their ranks is
/// `6 / pi asin(r / 2)` (Pearson 1907).
fn agreements<'a>(
    count: usize,
    rho: f64,
    trials: usize,
    figure: fn(f64) -> f64,
    rng: &'a mut ChaCha8Rng,
) -> impl Iterator<Item = Agreement> + 'a {
    let r = 2.0 * (PI * rho / 6.0).sin();
    let rest = (1.0 - r * r).sqrt();
    (0..trials).filter_map(move |_| {
        let pairs: Vec<(f64, f64)> = (0..count)
            .map(|_| {
                let (one, other) = (normal(rng), normal(rng));
                (figure(one), figure(r * one + rest * other))
            })
            .collect();
        Agreement::of(&pairs)
    })
}
