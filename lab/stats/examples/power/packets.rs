//! Packets: sentences about paths, and searched loads.

use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::packets::{interval_of_searches, next, Bounds, LoadTrial, Step};
use trapline_stats::rng::{normal, rng};
use trapline_stats::verdict::{BootValues, Design, Settings, TableTest, TestInput, Verdict};

pub fn print(trials: Trials) {
    sentences(trials.of(4000));
    searches(trials.of(200));
}

fn sentences(trials: usize) {
    println!("Packets through paths that are equal (sd of a trial 3%): in how many runs of 6 comparisons");
    println!("(3 sizes, 3 paths) a sentence says that one forwards more (at most 1%). {trials} runs each.");
    println!("rounds       5       7       8      12");
    let test = TableTest::new(&Settings::default());
    let cells = [5, 7, 8, 12].map(|rounds| {
        let mut rng = rng(rounds as u64, 100);
        let wrong = (0..trials).filter(|_| {
            let table: Vec<TestInput> = (0..6).map(|_| pair(rounds, &mut rng)).collect();
            let found = test.test(&table).into_iter().flatten();
            found.into_iter().any(|it| it.verdict == Verdict::Changed)
        });
        format!("{:>8}", percent(wrong.count(), trials, 1))
    });
    println!("       {}", cells.concat().trim_start());
    println!();
}

fn pair(rounds: u32, rng: &mut ChaCha8Rng) -> TestInput {
    let mut side = || {
        let rates = (0..rounds).map(|block| {
            let rate = 1e6 * (0.03 * normal(rng)).exp();
            BootValues {
                block,
                batches: vec![rate],
                mean: Some(rate),
            }
        });
        rates.collect()
    };
    TestInput {
        clock: Clock::Wall,
        design: Design::Blocked,
        a: side(),
        b: side(),
    }
}

/// Searches, each of which is confirmed by so many trials.
const SEARCHES: usize = 5;
const CONFIRMATIONS: usize = 12;

/// Median capacity of a trial, in frames a second.
const CAPACITY: f64 = 1e6;

fn searches(trials: usize) {
    println!("Loads of which half of the trials lose nothing, of a path whose capacity varies from trial to");
    println!("trial: how often the interval over {SEARCHES} searches (93.75%) has the median capacity, its width,");
    println!("and the share of {CONFIRMATIONS} further trials at each load found that lost nothing. {trials} runs each.");
    println!("jitter   covers    width   clean");
    for (jitter, stream) in [0.02, 0.10, 0.20].into_iter().zip(0..) {
        let mut rng = rng(110, stream);
        let (mut covers, mut widths, mut clean) = (0, 0.0, 0);
        for _ in 0..trials {
            let mut capacity = || CAPACITY * (jitter * normal(&mut rng)).exp();
            let bounds: Vec<Bounds> = (0..SEARCHES).map(|_| search(&mut capacity)).collect();
            let loads: Vec<f64> = bounds.iter().filter_map(|it| it.lower).collect();
            clean += loads
                .iter()
                .map(|load| (0..CONFIRMATIONS).filter(|_| capacity() >= *load).count())
                .sum::<usize>();
            if let Some(interval) = interval_of_searches(&bounds) {
                covers += usize::from(interval.low <= CAPACITY && CAPACITY <= interval.high);
                widths += (interval.high - interval.low) / CAPACITY / trials as f64;
            }
        }
        println!(
            "{:>6} {:>8} {:>8} {:>7}",
            percent((jitter * 100.0) as usize, 100, 0),
            percent(covers, trials, 1),
            format!("{:.1}%", widths * 100.0),
            percent(clean, trials * SEARCHES * CONFIRMATIONS, 0)
        );
    }
    println!();
}

/// Returns the bounds that a search finds; the median capacity is [`CAPACITY`].
fn search(capacity: &mut impl FnMut() -> f64) -> Bounds {
    let mut seen = Vec::new();
    loop {
        match next(&seen, 0.0, 0.9 * capacity(), 2.0 * CAPACITY) {
            Step::Try(load) => {
                let loss = (1.0 - capacity() / load).max(0.0);
                seen.push(LoadTrial { load, loss });
            }
            Step::Done(bounds) => return bounds,
        }
    }
}
