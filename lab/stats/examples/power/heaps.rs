//! Modes: one heap taken for several, and two that are told apart.

use crate::hosts::{exponential, normal};
use crate::{percent, Trials};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use trapline_stats::modes::modes;
use trapline_stats::spread::chance;

const COUNTS: [usize; 5] = [20, 40, 100, 300, 1000];

type Draw = fn(usize, &mut ChaCha8Rng) -> f64;

const ONE: [(&str, Draw); 4] = [
    ("normal", |_, chance| normal(chance)),
    ("lognormal", |_, chance| (0.5 * normal(chance)).exp()),
    ("exponential", |_, chance| exponential(chance)),
    ("uniform", |_, chance| chance.random()),
];

const TWO: [(&str, Draw); 4] = [
    ("half 6 off", |index, chance| heap(index, 2, 6.0, chance)),
    ("half 10 off", |index, chance| heap(index, 2, 10.0, chance)),
    ("fourth 10 off", |index, chance| {
        heap(index, 4, 10.0, chance)
    }),
    ("tenth 10 off", |index, chance| {
        heap(index, 10, 10.0, chance)
    }),
];

/// One value in `every` lies so many standard deviations off.
fn heap(index: usize, every: usize, off: f64, chance: &mut ChaCha8Rng) -> f64 {
    let shift = if index.is_multiple_of(every) {
        off
    } else {
        0.0
    };
    normal(chance) + shift
}

pub fn print(trials: Trials) {
    let trials = trials.of(100);
    println!("Modes of so many values: how often one heap is taken for several, and how often");
    println!("two are told apart, so many standard deviations. {trials} samples each.");
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
        let mut chance = chance(count as u64, 0);
        let counted = (0..trials).filter(|_| {
            let mut values: Vec<f64> = (0..count).map(|index| draw(index, &mut chance)).collect();
            values.sort_by(f64::total_cmp);
            is(modes(&values, 0.0).len())
        });
        print!("{:>9}", percent(counted.count(), trials, 0));
    }
    println!();
}
