//! Coverage of the intervals of single figures, and of tests of sides with unequal spread.

use crate::hosts::{boot, Host};
use crate::{percent, Trials};
use trapline_model::Clock;
use trapline_stats::order::median_interval;
use trapline_stats::rng::{normal, rng};
use trapline_stats::verdict::{Design, Settings, TableTest, TestInput};
use trapline_stats::Sorted;

const BOOTS: [usize; 10] = [2, 3, 4, 5, 6, 7, 10, 15, 20, 30];

/// Spreads of two sides.
const SPREADS: [(f64, f64); 3] = [(0.01, 0.01), (0.002, 0.02), (0.001, 0.05)];

pub fn print(trials: Trials) {
    let trials = trials.of(20_000);
    println!("The interval of a figure (median over boots) and of a ratio (median of the blocks' ratios):");
    println!("its printed level, and how often it contains the truth. {trials} runs each.");
    print!("boots    level");
    for host in [Host::Normal, Host::Tail, Host::Modes] {
        print!("{:>9}", host.name());
    }
    println!("{:>17}", "ratio, drifting");
    for boots in BOOTS {
        let level = median_interval(&vec![1.0; boots]).map_or(0.0, |interval| interval.level);
        print!("{boots:5} {:>7.2}%", 100.0 * level);
        for (host, stream) in [Host::Normal, Host::Tail, Host::Modes].into_iter().zip(0..) {
            print!("{:>9}", figure(host, boots, stream, trials));
        }
        println!("{:>17}", ratio(boots, trials));
    }
    println!();
}

/// Returns the coverage of the interval of a median; the true median is that of a large sample.
fn figure(host: Host, boots: usize, stream: u64, trials: usize) -> String {
    let mut rng = rng(1000, stream);
    let large = (0..400_001).map(|_| host.noise(&mut rng)).collect();
    let truth = Sorted::new(large).map_or(f64::NAN, |sorted| sorted.median());
    let covered = (0..trials).filter(|_| {
        let values: Vec<f64> = (0..boots).map(|_| host.noise(&mut rng)).collect();
        let interval = median_interval(&values);
        interval.is_some_and(|interval| interval.low <= truth && truth <= interval.high)
    });
    percent(covered.count(), trials, 1)
}

/// Returns the coverage of a ratio of 1.5 on a host that drifts from block to block.
fn ratio(blocks: usize, trials: usize) -> String {
    let mut rng = rng(1100, blocks as u64);
    let covered = (0..trials).filter(|_| {
        let input = Host::Drift.measured(blocks, 0.5, Design::Blocked, &mut rng);
        let pairs = input.a.iter().zip(&input.b);
        let ratios: Vec<f64> = pairs.map(|(a, b)| b.batches[0] / a.batches[0]).collect();
        let interval = median_interval(&ratios);
        interval.is_some_and(|interval| interval.low <= 1.5 && 1.5 <= interval.high)
    });
    percent(covered.count(), trials, 1)
}

pub fn unequal(trials: Trials) {
    let trials = trials.of(4000);
    println!("Boots of separate runs whose sides differ in spread but not in level: how often p is 1% or 5%");
    println!("at most. {trials} runs each.");
    println!("boots   sd of A   sd of B       1%      5%");
    let test = TableTest::new(&Settings::default());
    for boots in [5, 6, 7, 8, 12] {
        for ((a, b), stream) in SPREADS.into_iter().zip(0..) {
            let mut rng = rng(1200 + boots as u64, stream);
            let mut at_most = [0; 2];
            for _ in 0..trials {
                let mut side = |spread: f64| {
                    let numbers = 0..boots as u32;
                    numbers
                        .map(|n| boot(n, spread * normal(&mut rng)))
                        .collect()
                };
                let input = TestInput {
                    clock: Clock::Wall,
                    design: Design::Runs,
                    a: side(a),
                    b: side(b),
                };
                let compared = test.test(&[input]).remove(0).expect("it is tested");
                let p = compared.p.unwrap_or(1.0);
                at_most[0] += usize::from(p <= 0.01);
                at_most[1] += usize::from(p <= 0.05);
            }
            println!(
                "{boots:5} {:>8.1}% {:>8.1}% {:>8} {:>7}",
                100.0 * a,
                100.0 * b,
                percent(at_most[0], trials, 2),
                percent(at_most[1], trials, 2)
            );
        }
    }
    println!();
}
