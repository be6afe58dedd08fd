//! Predictions: the smallest detectable effect, and the number of blocks that settle an operation.

use crate::hosts::Host;
use crate::{percent, Trials};
use rand_chacha::ChaCha8Rng;
use trapline_stats::rng::rng;
use trapline_stats::verdict::{
    Assessment, BootValues, Design, RequiredBoots, Settings, TableTest, TestInput, Verdict,
};

pub fn print(trials: Trials) {
    let trials = trials.of(300);
    println!("The smallest effect that is found with 80% (median), and how often it is found.");
    println!("{trials} trials.");
    println!("host    boots   smallest   found");
    let test = TableTest::new(&Settings::default());
    for (host, stream) in Host::ALL.into_iter().zip(0..) {
        for boots in [8, 12, 20] {
            let mut rng = rng(500 + boots as u64, stream);
            let (smallest, found) = smallest(host, boots, &test, trials, &mut rng);
            println!("{:7} {boots:5} {smallest:>10} {found:>7}", host.name());
        }
    }
    println!();
    println!(
        "How often the number of further blocks that an unsure operation has settles it (at least"
    );
    println!(
        "80%): by the blocks before, the spread and the true effect; in brackets the share of the"
    );
    println!("unsure ones that have a number. {trials} trials.");
    println!("host    blocks         0%           2%           5%          10%");
    let spreads = [
        ("sd 1%", 0.01),
        ("sd 2%", 0.02),
        ("sd 3%", 0.03),
        ("sd 5%", 0.05),
        ("sd 10%", 0.10),
    ];
    let normal = spreads.map(|(name, spread)| (name, Host::Normal, spread / 0.01));
    let hosts = [Host::Tail, Host::Modes, Host::Drift].map(|host| (host.name(), host, 1.0));
    for ((name, host, scale), stream) in normal.into_iter().chain(hosts).zip(10..) {
        for blocks in [8, 12, 20] {
            let mut rng = rng(600 + blocks as u64, stream);
            let cells = [0.0, 0.02, 0.05, 0.10]
                .map(|effect| more(host, scale, (blocks, effect), &test, trials, &mut rng));
            println!("{name:7} {blocks:6} {}", cells.join(" "));
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

fn more(
    host: Host,
    scale: f64,
    (blocks, effect): (usize, f64),
    test: &TableTest,
    trials: usize,
    rng: &mut ChaCha8Rng,
) -> String {
    let (mut unsure, mut predicted, mut settled) = (0, 0, 0);
    for _ in 0..trials {
        let mut all = host.measured(test.settings().most_blocks, 0.0, Design::Blocked, rng);
        for boot in &mut all.a {
            *boot = scaled(boot, scale, 0.0);
        }
        for boot in &mut all.b {
            *boot = scaled(boot, scale, effect);
        }
        let first = TestInput {
            a: all.a[..blocks].to_vec(),
            b: all.b[..blocks].to_vec(),
            ..all
        };
        let first = tested(test, first);
        unsure += usize::from(first.verdict == Verdict::Unsure);
        if let Some(RequiredBoots::MoreBoots(more)) = first.required {
            predicted += 1;
            all.a.truncate(blocks + more);
            all.b.truncate(blocks + more);
            settled += usize::from(tested(test, all).verdict != Verdict::Unsure);
        }
    }
    match predicted {
        0 => format!("{:>12}", "-"),
        _ => format!(
            "{:>5} ({:>4})",
            percent(settled, predicted, 0),
            percent(predicted, unsure, 0)
        ),
    }
}

/// Returns a boot whose noise is `scale` times as large, and which costs `1 + effect` times as much.
fn scaled(boot: &BootValues, scale: f64, effect: f64) -> BootValues {
    let of = |value: f64| 1000.0 * (value / 1000.0).powf(scale) * (1.0 + effect);
    BootValues {
        block: boot.block,
        batches: boot.batches.iter().copied().map(of).collect(),
        mean: boot.mean.map(of),
    }
}
