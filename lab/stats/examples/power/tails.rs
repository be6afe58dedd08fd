//! A tail on one side: one boot in ten is 65% slower.

use crate::hosts::boot;
use crate::{percent, Trials};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::rng::{normal, rng};
use trapline_stats::verdict::{Design, Settings, TableTest, TestInput, Verdict};

const BLOCKS: [usize; 5] = [5, 10, 20, 40, 60];
const SHARE: f64 = 0.1;
const SLOWER: f64 = 1.65;
const SPREAD: f64 = 0.003;

pub fn print(trials: Trials) {
    let trials = trials.of(4000);
    println!("A tail: one boot in ten of B is 65% slower, noise 0.3%. How often no slow boot came (0.9^n, in");
    println!("which nothing can be seen), and how often the verdict is equivalent: of all, and of the runs");
    println!("in which a slow boot came (at most 1%). {trials} runs each.");
    println!("blocks   no slow boot   equivalent   with a slow boot   changed");
    let test = TableTest::new(&Settings::default());
    for blocks in BLOCKS {
        let mut rng = rng(900 + blocks as u64, 0);
        let (mut unseen, mut equivalent, mut hidden, mut changed) = (0, 0, 0, 0);
        for _ in 0..trials {
            let (input, slow) = input(blocks, &mut rng);
            let compared = test.test(&[input]).remove(0).expect("it is tested");
            let is_equivalent = compared.verdict == Verdict::Equivalent;
            unseen += usize::from(slow == 0);
            equivalent += usize::from(is_equivalent);
            hidden += usize::from(is_equivalent && slow > 0);
            changed += usize::from(compared.verdict == Verdict::Changed);
        }
        println!(
            "{blocks:6} {:>14} {:>12} {:>18} {:>9}",
            percent(unseen, trials, 1),
            percent(equivalent, trials, 1),
            percent(hidden, (trials - unseen).max(1), 2),
            percent(changed, trials, 1),
        );
    }
    println!();
}

/// Simulates boots of both sides; returns them with the number of slow boots of B.
fn input(blocks: usize, rng: &mut ChaCha8Rng) -> (TestInput, usize) {
    let mut slow = 0;
    let mut input = TestInput {
        clock: Clock::Wall,
        design: Design::Blocked,
        a: Vec::new(),
        b: Vec::new(),
    };
    for block in 0..blocks as u32 {
        let is_slow = rng.random::<f64>() < SHARE;
        slow += usize::from(is_slow);
        let late = if is_slow { SLOWER.ln() } else { 0.0 };
        input.a.push(boot(block, SPREAD * normal(rng)));
        input.b.push(boot(block, SPREAD * normal(rng) + late));
    }
    (input, slow)
}
