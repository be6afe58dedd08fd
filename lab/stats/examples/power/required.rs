//! Predictions: the smallest detectable effect, and the number of blocks that settle an operation.

use crate::hosts::Host;
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::rng::rng;
use trapline_stats::verdict::{
    Assessment, Design, RequiredBoots, Settings, TableTest, TestInput, Verdict,
};

/// Number of blocks before the prediction.
const BLOCKS: usize = 8;

pub fn print(trials: Trials) {
    let trials = trials.of(500);
    println!("What is predicted. The smallest effect that is found with 80% (median), and how");
    println!(
        "often it is found. How many more blocks than {BLOCKS} would settle an unsure one with"
    );
    println!("80%, for a true effect of 3% (median), and how often they do. {trials} trials.");
    println!("host    boots   smallest   found       more boots   settled");
    let test = TableTest::new(&Settings::default());
    for (host, stream) in Host::ALL.into_iter().zip(0..) {
        for boots in [8, 12, 20] {
            let mut rng = rng(500 + boots as u64, stream);
            let (smallest, found) = smallest(host, boots, &test, trials, &mut rng);
            let (more, settled) = match boots {
                BLOCKS => more(host, &test, trials, &mut rng),
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

fn tested(test: &TableTest, input: TestInput) -> Assessment {
    test.test(&[input]).remove(0).expect("it is tested")
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn smallest(
    host: Host,
    boots: usize,
    test: &TableTest,
    trials: usize,
    rng: &mut ChaCha8Rng,
) -> (String, String) {
    let level = test.settings().alpha;
    let mut once = |effect| tested(test, host.measured(boots, effect, Design::Blocked, rng));
    let smallest_effects = (0..trials).filter_map(|_| once(0.0).smallest_effect(level));
    let smallest = median(smallest_effects.collect());
    let found = (0..trials).filter(|_| once(smallest).p.is_some_and(|p| p <= level));
    let found = percent(found.count(), trials, 0);
    (format!("{:.1}%", 100.0 * smallest), found)
}

fn more(host: Host, test: &TableTest, trials: usize, rng: &mut ChaCha8Rng) -> (String, String) {
    let (mut predicted, mut settled) = (Vec::new(), 0);
    for _ in 0..trials {
        let mut all = host.measured(test.settings().most_blocks, 0.03, Design::Blocked, rng);
        let first = TestInput {
            a: all.a[..BLOCKS].to_vec(),
            b: all.b[..BLOCKS].to_vec(),
            ..all
        };
        if let Some(RequiredBoots::MoreBoots(more)) = tested(test, first).required {
            predicted.push(more as f64);
            all.a.truncate(BLOCKS + more);
            all.b.truncate(BLOCKS + more);
            settled += usize::from(tested(test, all).verdict != Verdict::Unsure);
        }
    }
    let count = predicted.len();
    (format!("{}", median(predicted)), percent(settled, count, 0))
}
