//! A tail on one side: one boot in ten is 65% slower.

use crate::hosts::{boot, normal};
use crate::{percent, Trials};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::judge::{Design, Judge, Question, Settings, Verdict};
use trapline_stats::spread::chance;

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
    let judge = Judge::new(&Settings::default());
    for blocks in BLOCKS {
        let mut chance = chance(900 + blocks as u64, 0);
        let (mut unseen, mut equivalent, mut hidden, mut changed) = (0, 0, 0, 0);
        for _ in 0..trials {
            let (question, slow) = question(blocks, &mut chance);
            let compared = judge.judge(&[question]).remove(0).expect("it is compared");
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

/// Boots of both sides and how many of B are slow.
fn question(blocks: usize, chance: &mut ChaCha8Rng) -> (Question, usize) {
    let mut slow = 0;
    let mut question = Question {
        clock: Clock::Wall,
        design: Design::Blocks,
        a: Vec::new(),
        b: Vec::new(),
    };
    for block in 0..blocks as u32 {
        let is_slow = chance.random::<f64>() < SHARE;
        slow += usize::from(is_slow);
        let late = if is_slow { SLOWER.ln() } else { 0.0 };
        question.a.push(boot(block, SPREAD * normal(chance)));
        question.b.push(boot(block, SPREAD * normal(chance) + late));
    }
    (question, slow)
}
