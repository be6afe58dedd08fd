//! Whole tables: the error rate over all operations.

use crate::hosts::Host;
use crate::{percent, Trials};
use trapline_stats::judge::{Design, Judge, Question, Settings, Verdict};
use trapline_stats::spread::chance;

const OPERATIONS: usize = 66;
const BOOTS: [usize; 5] = [5, 8, 10, 12, 20];

/// What of a table is counted.
#[derive(Default)]
struct Counts {
    /// Tables without any change in which one is seen.
    alarmed: usize,
    /// Operations that did not change and are called equivalent.
    equivalent: usize,
    /// Operations that changed by the margin and are called equivalent.
    false_equivalent: usize,
    /// Operations that changed by 5%, alone in their table, and are found.
    found: usize,
}

pub fn print(trials: Trials) {
    let trials = trials.of(300);
    println!(
        "Tables of {OPERATIONS} operations. How often one without any change shows one (at most"
    );
    println!("1%); how many operations are called equivalent, of those that did not change and");
    println!("of those that changed by the margin (at most 5%); how often the only");
    println!("one that changed by 5% is found. {trials} tables each.");
    println!("host    boots   alarm   equivalent   at the margin   found +5%");
    let settings = Settings::default();
    let judge = Judge::new(&settings);
    for (host, stream) in Host::ALL.into_iter().zip(0..) {
        for boots in BOOTS {
            let counts = count(host, boots, stream, &judge, trials);
            let operations = trials * OPERATIONS;
            println!(
                "{:7} {boots:5} {:>7} {:>12} {:>15} {:>11}",
                host.name(),
                percent(counts.alarmed, trials, 1),
                percent(counts.equivalent, operations, 1),
                percent(counts.false_equivalent, operations, 2),
                percent(counts.found, trials, 0),
            );
        }
    }
    println!();
}

fn count(host: Host, boots: usize, stream: u64, judge: &Judge, trials: usize) -> Counts {
    let mut chance = chance(100 + boots as u64, stream);
    let margin = judge.settings().margin;
    let mut table = |effects: &dyn Fn(usize) -> f64| {
        let questions: Vec<Question> = (0..OPERATIONS)
            .map(|index| host.measured(boots, effects(index), Design::Blocks, &mut chance))
            .collect();
        let judged = judge.judge(&questions).into_iter();
        judged.flatten().map(|one| one.verdict).collect::<Vec<_>>()
    };
    let of = |verdicts: &[Verdict], verdict| verdicts.iter().filter(|one| **one == verdict).count();
    let mut counts = Counts::default();
    for _ in 0..trials {
        let same = table(&|_| 0.0);
        counts.alarmed += usize::from(of(&same, Verdict::Changed) > 0);
        counts.equivalent += of(&same, Verdict::Equivalent);
        counts.false_equivalent += of(&table(&|_| margin), Verdict::Equivalent);
        let one = table(&|index| if index == 0 { 0.05 } else { 0.0 });
        counts.found += usize::from(one[0] == Verdict::Changed);
    }
    counts
}
