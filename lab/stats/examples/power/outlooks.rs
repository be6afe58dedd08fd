//! What is foretold: the smallest effect that is found, and how many more blocks settle an
//! operation.

use crate::hosts::Host;
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::judge::{Comparison, Design, Judge, Outlook, Question, Settings, Verdict};
use trapline_stats::spread::chance;

/// From these blocks on it is foretold.
const BLOCKS: usize = 8;

pub fn print(trials: Trials) {
    let trials = trials.of(500);
    println!("What is foretold. The smallest effect that is found with 80% (median), and how");
    println!(
        "often it is found. How many more blocks than {BLOCKS} would settle an unsure one with"
    );
    println!("80%, for a true effect of 3% (median), and how often they do. {trials} trials.");
    println!("host    boots   smallest   found       more boots   settled");
    let judge = Judge::new(&Settings::default());
    for (host, stream) in Host::ALL.into_iter().zip(0..) {
        for boots in [8, 12, 20] {
            let mut chance = chance(500 + boots as u64, stream);
            let (smallest, found) = smallest(host, boots, &judge, trials, &mut chance);
            let (more, settled) = match boots {
                BLOCKS => more(host, &judge, trials, &mut chance),
                _ => Default::default(),
            };
            let name = host.name();
            let line =
                format!("{name:7} {boots:5} {smallest:>10} {found:>7} {more:>16} {settled:>9}");
            println!("{}", line.trim_end());
        }
    }
    println!();
}

fn judged(judge: &Judge, question: Question) -> Comparison {
    judge.judge(&[question]).remove(0).expect("it is judged")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn smallest(
    host: Host,
    boots: usize,
    judge: &Judge,
    trials: usize,
    chance: &mut ChaCha8Rng,
) -> (String, String) {
    let level = judge.settings().alpha;
    let mut once = |effect| judged(judge, host.measured(boots, effect, Design::Blocks, chance));
    let told = (0..trials).filter_map(|_| once(0.0).smallest_effect(level));
    let smallest = median(told.collect());
    let found = (0..trials).filter(|_| once(smallest).p.is_some_and(|p| p <= level));
    let found = percent(found.count(), trials, 0);
    (format!("{:.1}%", 100.0 * smallest), found)
}

fn more(host: Host, judge: &Judge, trials: usize, chance: &mut ChaCha8Rng) -> (String, String) {
    let (mut foretold, mut settled) = (Vec::new(), 0);
    for _ in 0..trials {
        let mut all = host.measured(judge.settings().most_blocks, 0.03, Design::Blocks, chance);
        let first = Question {
            a: all.a[..BLOCKS].to_vec(),
            b: all.b[..BLOCKS].to_vec(),
            ..all
        };
        if let Some(Outlook::MoreBoots(more)) = judged(judge, first).outlook {
            foretold.push(more as f64);
            all.a.truncate(BLOCKS + more);
            all.b.truncate(BLOCKS + more);
            settled += usize::from(judged(judge, all).verdict != Verdict::Unsure);
        }
    }
    let count = foretold.len();
    (format!("{}", median(foretold)), percent(settled, count, 0))
}
