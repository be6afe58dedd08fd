//! Comparison of stored runs: what varies from run to run is no change.

use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_model::Clock;
use trapline_stats::rng::{normal, rng};
use trapline_stats::verdict::{BootValues, Design, Settings, TableTest, TestInput, Verdict};

/// Standard deviation of a boot.
const BOOT: f64 = 0.005;

/// Standard deviations of what the boots of a run share.
const RUN: [f64; 4] = [0.0, 0.005, 0.01, 0.02];

pub fn print(trials: Trials) {
    let trials = trials.of(1000);
    println!(
        "Stored runs of ten boots (sd 0.5%) that do not differ but for what the boots of a run"
    );
    println!(
        "share, of this deviation: how often two runs differ, or agree within 2%; how often so"
    );
    println!(
        "many runs a side are changed (at most 1%), how often their 95% interval has 1, and how"
    );
    println!("often a change by 5% is found. {trials} comparisons each.");
    println!("         two runs         5 a side                8 a side");
    println!("of runs  differ   agree   changed  covers  +5%    changed  covers  +5%");
    let test = TableTest::new(&Settings::default());
    for (deviation, stream) in RUN.into_iter().zip(0..) {
        let mut rng = rng(800, stream);
        let verdicts = (0..trials).map(|_| {
            let side = |rng: &mut ChaCha8Rng| boots(deviation, 0.0, rng);
            tested(&test, side(&mut rng), side(&mut rng), Design::Boots).0
        });
        let verdicts: Vec<Verdict> = verdicts.collect();
        let of = |wanted| verdicts.iter().filter(|it| **it == wanted).count();
        let (differ, agree) = (of(Verdict::RunsDiffer), of(Verdict::RunsAgree));
        print!(
            "{:>7} {:>7} {:>7}",
            format!("{:.1}%", 100.0 * deviation),
            percent(differ, trials, 1),
            percent(agree, trials, 0)
        );
        for runs in [5, 8] {
            let mut compare = |effect: f64| {
                let mut side = |effect| {
                    (0..runs)
                        .map(|run| figure(run, deviation, effect, &mut rng))
                        .collect()
                };
                let (a, b) = (side(0.0), side(effect));
                tested(&test, a, b, Design::Runs)
            };
            let same: Vec<_> = (0..trials).map(|_| compare(0.0)).collect();
            let changed = same
                .iter()
                .filter(|(verdict, _)| *verdict == Verdict::Changed);
            let covers = same.iter().filter(|(_, has)| *has);
            let found = (0..trials).filter(|_| compare(0.05).0 == Verdict::Changed);
            print!(
                " {:>9} {:>7} {:>5}",
                percent(changed.count(), trials, 1),
                percent(covers.count(), trials, 0),
                percent(found.count(), trials, 0)
            );
        }
        println!();
    }
    println!();
}

fn boots(deviation: f64, effect: f64, rng: &mut ChaCha8Rng) -> Vec<BootValues> {
    let level = 1000.0_f64.ln() + effect.ln_1p() + deviation * normal(rng);
    let boots = (0..10).map(|block| {
        let value = (level + BOOT * normal(rng)).exp();
        BootValues {
            block,
            batches: vec![value],
            mean: Some(value),
        }
    });
    boots.collect()
}

fn figure(run: u32, deviation: f64, effect: f64, rng: &mut ChaCha8Rng) -> BootValues {
    let boots = boots(deviation, effect, rng);
    BootValues::of_run(run, &boots).expect("there are boots")
}

/// Returns the verdict, and whether the 95% interval has 1.
fn tested(
    test: &TableTest,
    a: Vec<BootValues>,
    b: Vec<BootValues>,
    design: Design,
) -> (Verdict, bool) {
    let input = TestInput {
        clock: Clock::Wall,
        design,
        a,
        b,
    };
    let found = test.test(&[input]).remove(0).expect("it is tested");
    let has = found
        .interval
        .is_none_or(|it| it.low <= 1.0 && 1.0 <= it.high);
    (found.verdict, has)
}
