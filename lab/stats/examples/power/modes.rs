//! Modes: unimodal samples with several modes found, and bimodal samples with both found.

use crate::hosts::exponential;
use crate::{percent, Trials};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use trapline_stats::modes::modes;
use trapline_stats::rng::{normal, rng};

const COUNTS: [usize; 5] = [20, 40, 100, 300, 1000];

type Draw = fn(usize, &mut ChaCha8Rng) -> f64;

const ONE: [(&str, Draw); 4] = [
    ("normal", |_, rng| normal(rng)),
    ("lognormal", |_, rng| (0.5 * normal(rng)).exp()),
    ("exponential", |_, rng| exponential(rng)),
    ("uniform", |_, rng| rng.random()),
];

const TWO: [(&str, Draw); 4] = [
    ("half 6 off", |index, rng| heap(index, 2, 6.0, rng)),
    ("half 10 off", |index, rng| heap(index, 2, 10.0, rng)),
    ("fourth 10 off", |index, rng| heap(index, 4, 10.0, rng)),
    ("tenth 10 off", |index, rng| heap(index, 10, 10.0, rng)),
];

/// Draws a value; one in `every` is shifted by `off` standard deviations.
fn heap(index: usize, every: usize, off: f64, rng: &mut ChaCha8Rng) -> f64 {
    let shift = if index.is_multiple_of(every) {
        off
    } else {
        0.0
    };
    normal(rng) + shift
}

pub fn print(trials: Trials) {
    let trials = trials.of(100);
    println!("Modes of so many values: how often one heap is taken for several, and how often");
    println!("two are separated, so many standard deviations. {trials} samples each.");
    println!("values              20       40      100      300     1000");
    for (name, draw) in ONE {
        line(name, draw, |modes| modes > 1, trials);
    }
    for (name, draw) in TWO {
        line(name, draw, |modes| modes == 2, trials);
    }
    println!();
}

fn line(name: &str, draw: Draw, is: fn(usize) -> bool, trials: usize) {
    print!("{name:13}");
    for count in COUNTS {
        let mut rng = rng(count as u64, 0);
        let counted = (0..trials).filter(|_| {
            let mut values: Vec<f64> = (0..count).map(|index| draw(index, &mut rng)).collect();
            values.sort_by(f64::total_cmp);
            is(modes(&values, 0.0).len())
        });
        print!("{:>9}", percent(counted.count(), trials, 0));
    }
    println!();
}
