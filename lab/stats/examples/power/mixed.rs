//! Tables in which many operations differ a little, within the margin: the share of false ones among
//! the operations reported as changed.

use crate::hosts::boot;
use crate::Trials;
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::rng::{normal, rng};
use trapline_stats::verdict::{
    Assessment, Design, InterimTests, Settings, TableTest, TestError, TestInput, Verdict,
};

/// Operations that truly differ by 1%, with a standard deviation of 0.2%; operations that do not differ,
/// with 3%; operations that differ by 10%, with 1%.
const TABLES: [[usize; 3]; 5] = [
    [33, 33, 0],
    [50, 16, 0],
    [60, 6, 0],
    [28, 28, 10],
    [0, 66, 0],
];

/// Blocks of a comparison with one look.
const BLOCKS: usize = 10;

/// Looks of `compare --sequential`.
const LOOKS: [usize; 6] = [10, 16, 24, 36, 54, 60];

/// Counts over all tables.
#[derive(Default)]
struct Reported {
    tables: usize,
    changed: usize,
    false_changed: usize,
    /// Sum over tables of the share of false ones among those reported as changed.
    proportion: f64,
}

pub fn print(trials: Trials) {
    let trials = trials.of(700);
    println!(
        "Mixed tables: operations that truly differ by 1% (inside the margin of 2%; sd 0.2%), that"
    );
    println!("do not differ (sd 3%), that differ by 10% (sd 1%). How many are reported as changed, how many");
    println!("of them do not differ, and the mean over tables of their share (nominal 1%). {trials} tables");
    println!("each; sequential: looks after {LOOKS:?} blocks.");
    println!("  1%  none  10%  method      reported  false  false share");
    let settings = Settings {
        most_blocks: LOOKS[LOOKS.len() - 1],
        ..Settings::default()
    };
    let test = TableTest::new(&settings);
    for (counts, stream) in TABLES.into_iter().zip(0..) {
        let mut rng = rng(800, stream);
        let (mut once, mut sequential) = (Reported::default(), Reported::default());
        for _ in 0..trials {
            let table = table(counts, &mut rng);
            once.count(&test.test(&first_blocks(&table, BLOCKS)), counts);
            sequential.count(&looked_at(&table, &test), counts);
        }
        for (name, reported) in [("one look", once), ("sequential", sequential)] {
            let [small, null, large] = counts;
            println!("{small:4} {null:5} {large:4}  {name:10} {reported}");
        }
    }
    println!();
}

fn table([small, null, large]: [usize; 3], rng: &mut ChaCha8Rng) -> Vec<TestInput> {
    let kinds = [(small, 0.01, 0.002), (null, 0.0, 0.03), (large, 0.1, 0.01)];
    let operations = kinds
        .into_iter()
        .flat_map(|(count, effect, spread)| vec![(effect, spread); count]);
    operations
        .map(|(effect, spread)| input(effect, spread, rng))
        .collect()
}

fn input(effect: f64, spread: f64, rng: &mut ChaCha8Rng) -> TestInput {
    let mut side = |effect: f64| {
        let blocks = 0..LOOKS[LOOKS.len() - 1] as u32;
        blocks
            .map(|block| boot(block, effect.ln_1p() + spread * normal(rng)))
            .collect()
    };
    TestInput {
        clock: Clock::Wall,
        design: Design::Blocked,
        a: side(0.0),
        b: side(effect),
    }
}

fn first_blocks(table: &[TestInput], blocks: usize) -> Vec<TestInput> {
    let first = |input: &TestInput| TestInput {
        a: input.a[..blocks].to_vec(),
        b: input.b[..blocks].to_vec(),
        ..*input
    };
    table.iter().map(first).collect()
}

fn looked_at(table: &[TestInput], test: &TableTest) -> Vec<Result<Assessment, TestError>> {
    let mut looks = InterimTests::new(test.clone());
    let mut compared = Vec::new();
    for blocks in LOOKS {
        let is_last = blocks == LOOKS[LOOKS.len() - 1];
        compared = looks
            .look(&first_blocks(table, blocks), blocks, is_last)
            .to_vec();
        if looks.is_settled() {
            break;
        }
    }
    compared
}

impl Reported {
    fn count(&mut self, compared: &[Result<Assessment, TestError>], counts: [usize; 3]) {
        let is_changed = |one: &Result<Assessment, TestError>| {
            one.as_ref()
                .is_ok_and(|one| one.verdict == Verdict::Changed)
        };
        let changed = compared.iter().filter(|one| is_changed(one)).count();
        let wrong = compared[counts[0]..counts[0] + counts[1]]
            .iter()
            .filter(|one| is_changed(one))
            .count();
        self.tables += 1;
        self.changed += changed;
        self.false_changed += wrong;
        self.proportion += wrong as f64 / changed.max(1) as f64;
    }
}

impl std::fmt::Display for Reported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let share = 100.0 * self.proportion / self.tables as f64;
        write!(
            f,
            "{:>9} {:>6} {share:>11.2}%",
            self.changed, self.false_changed
        )
    }
}
