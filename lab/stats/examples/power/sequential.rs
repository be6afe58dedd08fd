//! Sequential tests: the error rate over all looks, and the number of blocks until the verdict.

use crate::hosts::Host;
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::rng::rng;
use trapline_stats::verdict::{Design, InterimTests, Settings, TableTest, TestInput, Verdict};

const FIRST: usize = 8;
const EVERY: usize = 4;
const MOST: usize = 40;

pub fn print(trials: Trials) {
    let trials = trials.of(2000);
    println!("Looking after {FIRST} blocks and then every {EVERY}, until sure or at {MOST}. Of a true ratio");
    println!("of 1: how often changed is said at any look (at most 1%), without a margin, and");
    println!("if every look had the whole 1%; with a margin of 2%, how often equivalent is.");
    println!("Of 1.03: how often changed is. Blocks: the mean when it ended. {trials} trials.");
    println!("host     changed  careless   equivalent blocks    +3% blocks");
    for (host, stream) in Host::ALL.into_iter().zip(0..) {
        line(host, stream, trials);
    }
    println!();
}

fn line(host: Host, stream: u64, trials: usize) {
    let with_margin = |margin| {
        let settings = Settings {
            margin,
            most_blocks: MOST,
            ..Settings::default()
        };
        TableTest::new(&settings)
    };
    let (bare, with) = (with_margin(0.0), with_margin(0.02));
    let mut rng = rng(7, stream);
    let mut runs = |test: &TableTest, effect| -> Vec<(Verdict, usize)> {
        let run = |_| settle(host, test, effect, &mut rng);
        (0..trials).map(run).collect()
    };
    let (wrong, same, changed) = (runs(&bare, 0.0), runs(&with, 0.0), runs(&with, 0.03));
    let unplanned = (0..trials).filter(|_| has_false_positive(host, &bare, &mut rng));
    let share = |runs: &[(Verdict, usize)], verdict| {
        let is = runs.iter().filter(|one| one.0 == verdict).count();
        percent(is, trials, 1)
    };
    println!(
        "{:7} {:>8} {:>9} {:>12} {:>6} {:>6} {:>6}",
        host.name(),
        share(&wrong, Verdict::Changed),
        percent(unplanned.count(), trials, 1),
        share(&same, Verdict::Equivalent),
        blocks(&same),
        share(&changed, Verdict::Changed),
        blocks(&changed),
    );
}

fn blocks(runs: &[(Verdict, usize)]) -> String {
    let sum: usize = runs.iter().map(|one| one.1).sum();
    format!("{:.1}", sum as f64 / runs.len() as f64)
}

fn first_blocks(all: &TestInput, blocks: usize) -> TestInput {
    TestInput {
        a: all.a[..blocks].to_vec(),
        b: all.b[..blocks].to_vec(),
        ..*all
    }
}

/// Tests until the verdict is settled; returns it with the number of blocks.
fn settle(host: Host, test: &TableTest, effect: f64, rng: &mut ChaCha8Rng) -> (Verdict, usize) {
    let all = host.measured(MOST, effect, Design::Blocked, rng);
    let mut looks = InterimTests::new(test.clone());
    let mut blocks = FIRST;
    loop {
        let results = looks.look(&[first_blocks(&all, blocks)], blocks, blocks == MOST);
        let verdict = results[0].as_ref().expect("it is tested").verdict;
        if blocks == MOST || looks.is_settled() {
            return (verdict, blocks);
        }
        blocks += EVERY;
    }
}

/// Returns true if any look at the whole level reports a change.
fn has_false_positive(host: Host, test: &TableTest, rng: &mut ChaCha8Rng) -> bool {
    let all = host.measured(MOST, 0.0, Design::Blocked, rng);
    (FIRST..=MOST).step_by(EVERY).any(|blocks| {
        let found = test.test(&[first_blocks(&all, blocks)]).remove(0);
        found.expect("it is tested").verdict == Verdict::Changed
    })
}
