//! Further boots of a sequential test with the number of batches that the first ones advise.

use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::components::Components;
use trapline_stats::rng::{normal, rng};
use trapline_stats::verdict::{
    BootValues, Design, InterimTests, Settings, TableTest, TestInput, Verdict,
};

const LOOKS: [usize; 5] = [10, 16, 24, 36, 54];
const USUAL: usize = 20;
/// Time of a boot without its batches, as a multiple of that of a batch.
const COST: f64 = 40.0;
/// Fewest and most batches, as `compare --sequential` has them.
const BATCHES: (f64, f64) = (5.0, 80.0);

/// Deviations between boots and between the batches of one.
const NOISE: [(f64, f64); 3] = [(0.01, 0.01), (0.003, 0.1), (0.02, 0.002)];

pub fn print(trials: Trials) {
    let trials = trials.of(300);
    println!("Looking after {LOOKS:?} blocks. Deviations between boots and between batches. {USUAL} batches a");
    println!("boot, or from the second look on those that the first advises; a boot costs {COST} batches.");
    println!("False: changed at a true ratio of 1 (at most 1%). Found, and the mean time in");
    println!("batches a side: changed at a true +1.5%. {trials} trials.");
    println!(
        "between within   false: usual advised     found: usual advised   time: usual advised"
    );
    let test = TableTest::new(&Settings {
        margin: 0.0,
        most_blocks: LOOKS[LOOKS.len() - 1],
        ..Settings::default()
    });
    for ((between, within), stream) in NOISE.into_iter().zip(0..) {
        let mut rng = rng(11, stream);
        let mut results = |is_advised, effect: f64| -> Vec<(Verdict, f64)> {
            let host = (between, within);
            let one = |_| settle(host, &test, is_advised, effect.ln_1p(), &mut rng);
            (0..trials).map(one).collect()
        };
        let mut line = format!("{:>6}% {:>5}%", 100.0 * between, 100.0 * within);
        let ways = [false, true];
        let wrong = ways.map(|advised| share(&results(advised, 0.0)));
        let found = ways.map(|advised| results(advised, 0.015));
        let settled = found.each_ref().map(|found| share(found));
        for [usual, advised] in [wrong, settled] {
            line += &format!("{usual:>17}{advised:>8}");
        }
        for found in &found {
            let sum: f64 = found.iter().map(|one| one.1).sum();
            line += &format!("{:>12.0}", sum / trials as f64);
        }
        println!("{line}");
    }
    println!();
}

/// Returns the share of trials with the verdict *changed*.
fn share(results: &[(Verdict, f64)]) -> String {
    let changed = results.iter().filter(|one| one.0 == Verdict::Changed);
    percent(changed.count(), results.len(), 1)
}

/// Returns the verdict, and the time until then of one side, in batches.
fn settle(
    host: (f64, f64),
    test: &TableTest,
    is_advised: bool,
    effect: f64,
    rng: &mut ChaCha8Rng,
) -> (Verdict, f64) {
    let mut input = TestInput {
        clock: Clock::Wall,
        design: Design::Blocked,
        a: Vec::new(),
        b: Vec::new(),
    };
    let mut looks = InterimTests::new(test.clone());
    let (mut batches, mut time) = (USUAL, 0.0);
    for blocks in LOOKS {
        for block in input.a.len()..blocks {
            input.a.push(boot(block, host, batches, 0.0, rng));
            input.b.push(boot(block, host, batches, effect, rng));
            time += COST + batches as f64;
        }
        let is_last = blocks == LOOKS[LOOKS.len() - 1];
        let results = looks.look(std::slice::from_ref(&input), blocks, is_last);
        let verdict = results[0].as_ref().expect("it is tested").verdict;
        if is_last || looks.is_settled() {
            return (verdict, time);
        }
        if is_advised && blocks == LOOKS[0] {
            let sides = [&input.a, &input.b].map(|side| advised(side));
            let advice = sides.into_iter().flatten().reduce(f64::max);
            batches = advice.unwrap_or(batches as f64).clamp(BATCHES.0, BATCHES.1) as usize;
        }
    }
    unreachable!("the last look ends it")
}

fn advised(boots: &[BootValues]) -> Option<f64> {
    let batches: Vec<Vec<f64>> = boots.iter().map(|boot| boot.batches.clone()).collect();
    let components = Components::of(&batches, Some(COST))?;
    Some(components.advised? as f64)
}

fn boot(
    block: usize,
    (between, within): (f64, f64),
    batches: usize,
    effect: f64,
    rng: &mut ChaCha8Rng,
) -> BootValues {
    let level = 1000.0_f64.ln() + effect + between * normal(rng);
    let batches = (0..batches).map(|_| (level + within * normal(rng)).exp());
    BootValues {
        block: block as u32,
        batches: batches.collect(),
        mean: None,
    }
}
