//! Whole tables: the error rate over all operations.

use crate::hosts::Host;
use crate::{percent, Trials};
use trapline_stats::rng::rng;
use trapline_stats::verdict::{Design, Settings, TableTest, TestInput, Verdict};

const OPERATIONS: usize = 66;
const BOOTS: [usize; 5] = [5, 8, 10, 12, 20];

/// Counts over all tables.
#[derive(Default)]
struct Counts {
    /// Tables without any change in which one is reported.
    false_positive: usize,
    /// Unchanged operations reported as equivalent.
    equivalent: usize,
    /// Operations changed by the margin that are reported as equivalent.
    false_equivalent: usize,
    /// Operations changed by 5%, alone in their table, that are reported.
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
    let test = TableTest::new(&settings);
    for (host, stream) in Host::ALL.into_iter().zip(0..) {
        for boots in BOOTS {
            let counts = count(host, boots, stream, &test, trials);
            let operations = trials * OPERATIONS;
            println!(
                "{:7} {boots:5} {:>7} {:>12} {:>15} {:>11}",
                host.name(),
                percent(counts.false_positive, trials, 1),
                percent(counts.equivalent, operations, 1),
                percent(counts.false_equivalent, operations, 2),
                percent(counts.found, trials, 0),
            );
        }
    }
    println!();
}

fn count(host: Host, boots: usize, stream: u64, test: &TableTest, trials: usize) -> Counts {
    let mut rng = rng(100 + boots as u64, stream);
    let margin = test.settings().margin;
    let mut table = |effects: &dyn Fn(usize) -> f64| {
        let inputs: Vec<TestInput> = (0..OPERATIONS)
            .map(|index| host.measured(boots, effects(index), Design::Blocked, &mut rng))
            .collect();
        let results = test.test(&inputs).into_iter();
        results.flatten().map(|one| one.verdict).collect::<Vec<_>>()
    };
    let of = |verdicts: &[Verdict], verdict| verdicts.iter().filter(|one| **one == verdict).count();
    let mut counts = Counts::default();
    for _ in 0..trials {
        let same = table(&|_| 0.0);
        counts.false_positive += usize::from(of(&same, Verdict::Changed) > 0);
        counts.equivalent += of(&same, Verdict::Equivalent);
        counts.false_equivalent += of(&table(&|_| margin), Verdict::Equivalent);
        let one = table(&|index| if index == 0 { 0.05 } else { 0.0 });
        counts.found += usize::from(one[0] == Verdict::Changed);
    }
    counts
}
