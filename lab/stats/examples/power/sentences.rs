//! Sentences of a run: the dearest and the cheapest of several environments.

use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::difference::difference;
use trapline_stats::rng::{normal, rng};
use trapline_stats::Sorted;

const EQUAL: f64 = 1.02;

pub fn print(trials: Trials) {
    let trials = trials.of(4000);
    println!("Sentences of a run, of the dearest and the cheapest of so many environments that are equal");
    println!(
        "(boots sd 2%, blocks 5%): how often one costs more. Of two that differ by 4%: how often"
    );
    println!("they are the same, and how often one costs more. {trials} runs each.");
    println!("boots     of 2    of 3    of 4    of 6   +4%: same    more");
    for boots in [5, 8, 10, 20] {
        let mut rng = rng(boots as u64, 80);
        let mut more = |count| {
            let wrong = (0..trials).filter(|_| {
                let sides = sides(count, boots, 0.0, &mut rng);
                kind(&sides) == Some(true)
            });
            format!("{:>8}", percent(wrong.count(), trials, 1))
        };
        let equal = [2, 3, 4, 6].map(&mut more).concat();
        let differing: Vec<_> = (0..trials)
            .map(|_| kind(&sides(2, boots, 0.04, &mut rng)))
            .collect();
        let share = |wanted| {
            let count = differing.iter().filter(|it| **it == Some(wanted)).count();
            percent(count, trials, 1)
        };
        println!("{boots:5} {equal} {:>11} {:>7}", share(false), share(true));
    }
    println!();
}

type Side = Vec<(u32, f64)>;

/// Returns environments measured in the same blocks; the last costs `1 + effect` times as much.
fn sides(count: usize, boots: u32, effect: f64, rng: &mut ChaCha8Rng) -> Vec<Side> {
    let mut sides = vec![Side::new(); count];
    for block in 0..boots {
        let level = 1000.0 * (0.05 * normal(rng)).exp();
        for (index, side) in sides.iter_mut().enumerate() {
            let times = if index + 1 == count {
                1.0 + effect
            } else {
                1.0
            };
            side.push((block, level * times * (0.02 * normal(rng)).exp()));
        }
    }
    sides
}

/// Returns whether the dearest differs from the cheapest: true if it costs more, false if it is the same.
fn kind(sides: &[Side]) -> Option<bool> {
    let median = |side: &Side| {
        let values = side.iter().map(|(_, value)| *value).collect();
        Sorted::new(values).map_or(0.0, |sorted| sorted.median())
    };
    let by_median = |a: &&Side, b: &&Side| median(a).total_cmp(&median(b));
    let (dear, cheap) = (
        sides.iter().max_by(by_median)?,
        sides.iter().min_by(by_median)?,
    );
    let found = difference(dear, cheap)?.interval;
    if found.low > 1.0 || found.high < 1.0 {
        Some(true)
    } else {
        (found.low >= 1.0 / EQUAL && found.high <= EQUAL).then_some(false)
    }
}
